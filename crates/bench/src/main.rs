//! `terrace-bench WORKLOAD...`: measures Terrace and its peers, side by side.

use anyhow::Result;
use clap::Parser;
use terrace_bench::BenchArgs;

/// Measure Terrace and its peers, side by side
#[derive(Debug, Parser)]
#[command(name = "terrace-bench", version, about)]
struct Arguments {
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() -> Result<()> {
    terrace_bench::run(Arguments::parse().bench)
}
