//! `terrace compact`: everything down to the last level.

use crate::arguments;
use crate::outcome::Outcome;
use crate::print;
use crate::store::{IfMissing, StoreArgs};
use anyhow::Result;
use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;
use terrace::{Db, Progress};
use terrace_inspect::SizeBytes;

/// Arguments of `compact`.
#[derive(Debug, clap::Args)]
pub struct CompactArgs {
    /// Only keys from this one on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,

    /// Only keys below this one
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,

    /// Keys are hex (0x0a0b)
    #[arg(long)]
    hex: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Compacts and tells what became of the size.
pub fn run(args: &CompactArgs) -> Result<Outcome> {
    let bytes = |text: &Option<OsString>| {
        text.as_ref().map(|text| arguments::bytes(text, args.hex)).transpose()
    };
    let (from, to) = (bytes(&args.from)?, bytes(&args.to)?);
    let db = args.store.open(args.store.options(), IfMissing::Fail)?;
    let before = sst_bytes(&db);
    let bar = print::spinner();
    let mut last = None;
    let range = (
        from.map_or(Bound::Unbounded, Bound::Included),
        to.map_or(Bound::Unbounded, Bound::Excluded),
    );
    db.compact_range_with(range, &mut |progress: Progress| {
        let (read, written) = (SizeBytes(progress.read_bytes), SizeBytes(progress.written_bytes));
        let level = progress.level;
        bar.set_message(format!(
            "L{level}: {} steps, {read} read, {written} written",
            progress.steps
        ));
        last = Some(progress);
    })?;
    bar.finish_and_clear();
    let after = sst_bytes(&db);
    db.close()?;
    let mut out = std::io::stdout().lock();
    match last {
        Some(progress) => writeln!(
            out,
            "compacted in {} steps: {} read, {} written; the SSTs took {} and now take {}",
            progress.steps,
            SizeBytes(progress.read_bytes),
            SizeBytes(progress.written_bytes),
            SizeBytes(before),
            SizeBytes(after),
        )?,
        None => writeln!(out, "nothing to compact: the SSTs take {}", SizeBytes(after))?,
    }
    Ok(Outcome::Done)
}

fn sst_bytes(db: &Db) -> u64 {
    db.metrics().levels.iter().map(|level| level.size_bytes).sum()
}
