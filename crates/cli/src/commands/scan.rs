//! `terrace scan`: entries in order.

use crate::arguments;
use crate::json_form;
use crate::outcome::Outcome;
use crate::print::Hex;
use crate::redis_values;
use crate::standard_output;
use crate::store::{Part, PartArgs, StoreArgs};
use anyhow::{Result, bail};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use terrace::{Iter, ReadOptions};
use terrace_inspect::Escaped;
use terrace_keyspace::{CommandBatch, KeyRange, Keyspace, Mode, SeenKey, Type};

/// Bytes read ahead by a scan without a limit.
const READAHEAD_BYTES: usize = 256 << 10;

/// Arguments of `scan`.
#[derive(Debug, clap::Args)]
pub struct ScanArgs {
    /// Only keys that start with this
    #[arg(long, allow_negative_numbers = true)]
    prefix: Option<OsString>,

    /// Only keys from this one on
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    from: Option<OsString>,

    /// Only keys below this one
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    to: Option<OsString>,

    /// At most this many
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
    part: PartArgs,

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
    let family = match args.store.open_part(&args.part)? {
        Part::Plain(family) => family,
        Part::Database(space, db) => return args.database(&space, db, &options),
    };
    let mut iter = family.iter_with(&options)?;
    let mut out = BufWriter::new(standard_output::until_unread());
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

    /// Prints the keys of a database, each with its type.
    fn database(&self, space: &Arc<Keyspace>, db: u8, options: &ReadOptions) -> Result<Outcome> {
        if self.reverse {
            bail!("the keys of a server's store are shown in ascending order; leave --reverse out");
        }
        let range = KeyRange {
            start: options.lower_bound.as_deref().unwrap_or_default(),
            end: options.upper_bound.as_deref(),
            prefix: options.prefix.as_deref().unwrap_or_default(),
        };
        let mut out = BufWriter::new(standard_output::until_unread());
        // One goes through the keys, the other reads what is under them.
        let (mut keys, mut values) =
            (space.command_batch(Mode::Device), space.command_batch(Mode::Device));
        let (mut left, mut outcome) = (self.limit, Ok(()));
        keys.walk_keys(db, range, !self.keys_only, |seen| {
            if left == 0 {
                return false;
            }
            left -= 1;
            outcome = match self.json {
                true => self.print_typed_json(&mut out, &mut values, db, seen),
                false => self.print_typed(&mut out, &mut values, db, seen),
            };
            outcome.is_ok()
        })?;
        outcome?;
        out.flush()?;
        Ok(Outcome::Done)
    }

    /// Key, type and value, with tabs between them.
    fn print_typed(
        &self,
        out: &mut impl Write,
        values: &mut CommandBatch,
        db: u8,
        seen: SeenKey<'_>,
    ) -> Result<()> {
        match self.hex {
            true => write!(out, "{}", Hex(seen.key))?,
            false => write!(out, "{}", Escaped(seen.key))?,
        }
        if !self.keys_only {
            write!(out, "\t{}\t", seen.kind.name())?;
            match (seen.kind, seen.value) {
                (Type::Collection(kind), _) => {
                    redis_values::write_json(out, values, db, seen.key, kind)?;
                }
                (Type::String, value) if self.hex => {
                    write!(out, "{}", Hex(value.unwrap_or_default()))?;
                }
                (Type::String, value) => write!(out, "{}", Escaped(value.unwrap_or_default()))?,
            }
        }
        Ok(out.write_all(b"\n")?)
    }

    /// As the form of `json_form.rs`, with a `type`; the value of a collection is an array.
    fn print_typed_json(
        &self,
        out: &mut impl Write,
        values: &mut CommandBatch,
        db: u8,
        seen: SeenKey<'_>,
    ) -> Result<()> {
        let mut object = Map::new();
        json_form::insert(&mut object, "key", seen.key);
        object.insert("type".into(), seen.kind.name().into());
        if let Some(value) = seen.value.filter(|_| !self.keys_only) {
            json_form::insert(&mut object, "value", value);
        }
        json_form::insert_expiry(&mut object, values.expiry(db, seen.key)?.flatten());
        let line = Value::from(object).to_string();
        match seen.kind {
            Type::Collection(kind) if !self.keys_only => {
                write!(out, "{},\"value\":", line.trim_end_matches('}'))?;
                redis_values::write_json(out, values, db, seen.key, kind)?;
                out.write_all(b"}\n")?;
            }
            _ => writeln!(out, "{line}")?,
        }
        Ok(())
    }
}
