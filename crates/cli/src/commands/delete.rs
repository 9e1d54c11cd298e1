//! `terrace delete`: one key, or a range.

use crate::arguments;
use crate::outcome::Outcome;
use crate::store::{IfMissing, StoreArgs};
use anyhow::{Result, bail};
use std::ffi::OsString;

/// Arguments of `delete`.
#[derive(Debug, clap::Args)]
pub struct DeleteArgs {
    /// The key
    #[arg(required_unless_present = "range", conflicts_with = "range")]
    key: Option<OsString>,

    /// Remove every key from START on and below END
    #[arg(long, num_args = 2, value_names = ["START", "END"])]
    range: Vec<OsString>,

    /// Keys are hex (0x0a0b)
    #[arg(long)]
    hex: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Deletes; durable when it returns. A key that is not there is no error.
pub fn run(args: &DeleteArgs) -> Result<Outcome> {
    let bytes = |text: &OsString| arguments::bytes(text, args.hex);
    let range = match args.range.as_slice() {
        [start, end] => Some((bytes(start)?, bytes(end)?)),
        _ => None,
    };
    if let Some((start, end)) = &range
        && start >= end
    {
        bail!("the range is empty: START must sort before END, which is not removed itself");
    }
    let key = args.key.as_ref().map(bytes).transpose()?;
    let db = args.store.open(args.store.options(), IfMissing::Fail)?;
    if let Some((start, end)) = range {
        db.delete_range(start, end)?;
    }
    if let Some(key) = key {
        db.delete(key)?;
    }
    db.close()?;
    Ok(Outcome::Done)
}
