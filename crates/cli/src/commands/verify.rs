//! `terrace verify`: every checksum and every invariant.

use crate::files;
use crate::outcome::{Outcome, tell};
use crate::print;
use crate::standard_output;
use crate::store::{self, DEFAULT_DIR, DIR_VARIABLE};
use anyhow::Result;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use terrace_base::Error;
use terrace_inspect::Progress;

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// Directory of the store
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIR, env = DIR_VARIABLE)]
    dir: PathBuf,
}

/// Checks and reports; works on a store that another process has open.
pub fn run(args: &VerifyArgs) -> Result<Outcome> {
    if let Err(error) = store::check_directory(&args.dir, "that of a store with --dir") {
        tell(&error.to_string());
        return Ok(Outcome::Unusable);
    }
    let bar = print::bytes_bar(0, "checking");
    let mut tell_progress = |progress: Progress| {
        if bar.length() != Some(progress.total_bytes) {
            bar.set_length(progress.total_bytes);
        }
        bar.set_position(progress.done_bytes);
    };
    let result = terrace_inspect::check_store_with(&files::vfs(), &args.dir, &mut tell_progress);
    bar.finish_and_clear();
    let report = match result {
        Ok(report) => report,
        Err(error) if is_unread(&error) => return Err(error.into()),
        Err(error) => {
            tell(&error.to_string());
            return Ok(Outcome::Unusable);
        }
    };
    writeln!(standard_output::read_or_not(), "{report}")?;
    Ok(match report.is_sound() {
        true => Outcome::Done,
        false => Outcome::Negative,
    })
}

/// Whether there is something to check that could not be read.
fn is_unread(error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    !matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
