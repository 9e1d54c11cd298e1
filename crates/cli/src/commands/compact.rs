//! `terrace compact`: everything down to the last level, in all column families.

use crate::arguments;
use crate::outcome::Outcome;
use crate::print;
use crate::standard_output;
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
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    from: Option<OsString>,

    /// Only keys below this one
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    to: Option<OsString>,

    /// Keys are hex (0x0a0b)
    #[arg(long)]
    hex: bool,

    /// Only this column family
    #[arg(long, value_name = "NAME")]
    family: Option<String>,

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
    let families = match &args.family {
        Some(name) => vec![args.store.family(&db, name)?],
        None => db.column_families().iter().filter_map(|name| db.column_family(name)).collect(),
    };
    let bar = print::spinner();
    let mut all: Option<Progress> = None;
    let range = (
        from.map_or(Bound::Unbounded, Bound::Included),
        to.map_or(Bound::Unbounded, Bound::Excluded),
    );
    for family in families {
        let before = all;
        family.compact_range_with(range.clone(), &mut |progress: Progress| {
            all = Some(sum(before, progress));
            let (read, written) =
                (SizeBytes(progress.read_bytes), SizeBytes(progress.written_bytes));
            bar.set_message(format!(
                "{} L{}: {} steps, {read} read, {written} written",
                family.name(),
                progress.level,
                progress.steps
            ));
        })?;
    }
    bar.finish_and_clear();
    let after = sst_bytes(&db);
    db.close()?;
    let mut out = standard_output::until_unread();
    match all {
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

/// What was done in one column family after what was done `before`.
fn sum(before: Option<Progress>, progress: Progress) -> Progress {
    let Some(before) = before else { return progress };
    Progress {
        steps: before.steps + progress.steps,
        read_bytes: before.read_bytes + progress.read_bytes,
        written_bytes: before.written_bytes + progress.written_bytes,
        ..progress
    }
}

fn sst_bytes(db: &Db) -> u64 {
    db.metrics().levels.iter().map(|level| level.size_bytes).sum()
}
