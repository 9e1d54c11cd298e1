//! `terrace man-pages`: the manual pages, one for every command, as packages install them.

use crate::outcome::Outcome;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Arguments of `man-pages`.
#[derive(Debug, clap::Args)]
pub struct ManPagesArgs {
    /// Directory that the pages are written to
    dir: PathBuf,
}

/// Writes the pages of `program`.
pub fn run(args: &ManPagesArgs, program: clap::Command) -> Result<Outcome> {
    let failed = || format!("cannot write manual pages into {}", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(failed)?;
    clap_mangen::generate_to(program, &args.dir).with_context(failed)?;
    Ok(Outcome::Done)
}
