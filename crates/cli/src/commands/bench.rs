//! `terrace bench`: measuring.

use crate::outcome::Outcome;
use anyhow::Result;

pub use terrace_bench::BenchArgs;

/// Measures; in a process that a benchmark started, carries out its part.
pub fn run(args: BenchArgs) -> Result<Outcome> {
    terrace_bench::run(args)?;
    Ok(Outcome::Done)
}
