//! `terrace scan`: entries in order.

use crate::arguments;
use crate::json_form;
use crate::outcome::Outcome;
use crate::print::Hex;
use crate::store::StoreArgs;
use anyhow::Result;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use terrace::{Iter, ReadOptions};
use terrace_inspect::Escaped;

/// Bytes read ahead by a scan without a limit.
const READAHEAD_BYTES: usize = 256 << 10;

/// Arguments of `scan`.
#[derive(Debug, clap::Args)]
pub struct ScanArgs {
    /// Only keys that start with this
    #[arg(long)]
    prefix: Option<OsString>,

    /// Only keys from this one on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,

    /// Only keys below this one
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,

    /// At most so many
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    limit: u64,

    /// From the last key to the first
    #[arg(long)]
    reverse: bool,

    /// Leave the values out
    #[arg(long)]
    keys_only: bool,

    /// Keys on the command line are hex (0x0a0b), and so is the output
    #[arg(long, conflicts_with = "json")]
    hex: bool,

    /// A JSON object per line, which `terrace load` takes back as it was: bytes that are no text are
    /// hex, as `key_hex`, `value_hex`; with `expires_at_ms` if the key expires
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Prints the entries, tab between key and value, what is not printable escaped.
pub fn run(args: &ScanArgs) -> Result<Outcome> {
    let bytes = |text: &Option<OsString>| {
        text.as_ref().map(|text| arguments::bytes(text, args.hex)).transpose()
    };
    let options = ReadOptions {
        prefix: bytes(&args.prefix)?,
        lower_bound: bytes(&args.from)?,
        upper_bound: bytes(&args.to)?,
        fill_cache: false,
        keys_only: args.keys_only,
        readahead_bytes: if args.limit == u64::MAX { READAHEAD_BYTES } else { 0 },
        ..ReadOptions::default()
    };
    let db = args.store.open_read_only()?;
    let mut iter = db.iter_with(&options)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    match args.reverse {
        true => iter.seek_to_last()?,
        false => iter.seek_to_first()?,
    }
    let mut left = args.limit;
    while iter.valid() && left > 0 {
        args.print(&iter, &mut out)?;
        left -= 1;
        match args.reverse {
            true => iter.prev()?,
            false => iter.next()?,
        }
    }
    out.flush()?;
    Ok(Outcome::Done)
}

impl ScanArgs {
    fn print(&self, entry: &Iter, out: &mut impl Write) -> Result<()> {
        let (key, value) = (entry.key(), entry.value());
        if self.json {
            let mut object = Map::new();
            json_form::insert(&mut object, "key", key);
            if !self.keys_only {
                json_form::insert(&mut object, "value", value);
                json_form::insert_expiry(&mut object, entry.expires_at_ms());
            }
            writeln!(out, "{}", Value::from(object))?;
            return Ok(());
        }
        match (self.hex, self.keys_only) {
            (true, true) => writeln!(out, "{}", Hex(key))?,
            (true, false) => writeln!(out, "{}\t{}", Hex(key), Hex(value))?,
            (false, true) => writeln!(out, "{}", Escaped(key))?,
            (false, false) => writeln!(out, "{}\t{}", Escaped(key), Escaped(value))?,
        }
        Ok(())
    }
}
