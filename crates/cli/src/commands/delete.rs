//! `terrace delete`: one key, or ranges.

use crate::arguments;
use crate::outcome::Outcome;
use crate::store::{IfMissing, StoreArgs};
use anyhow::{Result, bail};
use std::ffi::OsString;
use terrace::WriteBatch;

/// Arguments of `delete`.
#[derive(Debug, clap::Args)]
pub struct DeleteArgs {
    /// The key
    #[arg(
        required_unless_present = "range",
        conflicts_with = "range",
        allow_negative_numbers = true
    )]
    key: Option<OsString>,

    /// Remove every key from START on and below END; several ranges go together
    #[arg(long, num_args = 2, value_names = ["START", "END"], allow_negative_numbers = true)]
    range: Vec<OsString>,

    /// Keys are hex (0x0a0b)
    #[arg(long)]
    hex: bool,

    /// In this column family
    #[arg(long, value_name = "NAME")]
    family: Option<String>,

    #[command(flatten)]
    store: StoreArgs,
}

/// Deletes; durable when it returns. A key that is not there is no error.
pub fn run(args: &DeleteArgs) -> Result<Outcome> {
    let bytes = |text: &OsString| arguments::bytes(text, args.hex);
    let pairs = args.range.as_chunks::<2>().0;
    let range = |[start, end]: &[OsString; 2]| -> Result<_> { Ok((bytes(start)?, bytes(end)?)) };
    let ranges = pairs.iter().map(range).collect::<Result<Vec<_>>>()?;
    if ranges.iter().any(|(start, end)| start >= end) {
        bail!("the range is empty: START must sort before END, which is not removed itself");
    }
    let key = args.key.as_ref().map(bytes).transpose()?;
    let (options, name) = (args.store.options(), args.family.as_deref());
    let (db, family) = args.store.open_family(options, IfMissing::Fail, name)?;
    let mut batch = WriteBatch::new();
    for (start, end) in &ranges {
        batch.delete_range_cf(&family, start, end);
    }
    if let Some(key) = &key {
        batch.delete_cf(&family, key);
    }
    db.write(batch)?;
    db.close()?;
    Ok(Outcome::Done)
}
