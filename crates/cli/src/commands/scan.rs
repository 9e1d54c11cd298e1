//! `terrace scan`: entries in order.

use crate::arguments;
use crate::outcome::Outcome;
use crate::store::StoreArgs;
use anyhow::Result;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::io::{BufWriter, Write};
use terrace::ReadOptions;
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

    /// A JSON object per line; bytes that are no text are hex, as `key_hex`, `value_hex`
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Bytes as hex.
pub struct Hex<'a>(pub &'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
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
        args.print(iter.key(), iter.value(), &mut out)?;
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
    fn print(&self, key: &[u8], value: &[u8], out: &mut impl Write) -> Result<()> {
        if self.json {
            let mut object = Map::new();
            insert(&mut object, "key", key);
            if !self.keys_only {
                insert(&mut object, "value", value);
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

fn insert(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.into(), text.into()),
        Err(_) => object.insert(format!("{name}_hex"), Hex(bytes).to_string().into()),
    };
}
