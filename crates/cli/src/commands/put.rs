//! `terrace put`: one write.

use crate::arguments;
use crate::outcome::Outcome;
use crate::store::{IfMissing, StoreArgs};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::Read;
use std::time::Duration;
use terrace::MAX_VALUE_BYTES;

/// Arguments of `put`.
#[derive(Debug, clap::Args)]
pub struct PutArgs {
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: OsString,

    /// The value; `-` reads it from standard input; before one that begins with `-` and is no number write `--`
    #[arg(allow_negative_numbers = true)]
    value: OsString,

    /// Remove the key by itself after this time: 90s, 15m, 12h, 30d
    #[arg(long, value_name = "TIME", value_parser = arguments::duration)]
    ttl: Option<Duration>,

    /// Key and value are hex (0x0a0b); standard input is always taken as it is
    #[arg(long)]
    hex: bool,

    /// In this column family; made if it is not there
    #[arg(long, value_name = "NAME")]
    family: Option<String>,

    #[command(flatten)]
    store: StoreArgs,
}

/// Writes; durable when it returns.
pub fn run(args: &PutArgs) -> Result<Outcome> {
    let key = arguments::bytes(&args.key, args.hex)?;
    let value = match args.value == "-" {
        true => standard_input()?,
        false => arguments::bytes(&args.value, args.hex)?,
    };
    if let Some(why) = arguments::too_long(key.len(), value.len()) {
        bail!("{why}");
    }
    let (options, name) = (args.store.options(), args.family.as_deref());
    let (db, family) = args.store.open_family(options, IfMissing::Create, name)?;
    match args.ttl {
        Some(ttl) => family.put_with_ttl(key, value, ttl)?,
        None => family.put(key, value)?,
    }
    db.close()?;
    Ok(Outcome::Done)
}

/// All of it; a byte over the limit is enough to refuse it.
fn standard_input() -> Result<Vec<u8>> {
    let mut value = Vec::new();
    let input = std::io::stdin().lock();
    let read = input.take(MAX_VALUE_BYTES as u64 + 1).read_to_end(&mut value);
    read.context("reading the value from standard input")?;
    Ok(value)
}
