//! `terrace load`: many records from a file.
//!
//! Records are written in input order, in batches, so what a crash leaves is a prefix of the
//! input; with `--sync`, one that holds every batch that was acknowledged.

use crate::arguments;
use crate::format::Format;
use crate::input::Lines;
use crate::outcome::Outcome;
use crate::print::{Grouped, rate};
use crate::records::{Record, Records, Wanted};
use crate::standard_output;
use crate::store::{IfMissing, StoreArgs};
use anyhow::{Context, Result, anyhow};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;
use terrace::{ColumnFamily, Db, Options, SyncMode, WriteBatch};
use terrace_inspect::SizeBytes;

/// A batch is written when it has this many bytes, however few records that is.
const BATCH_BYTES: usize = 4 << 20;

/// Said where the first record, or all of its batch, was refused.
const NOTHING_LOADED: &str = "nothing was loaded";

/// Arguments of `load`.
#[derive(Debug, clap::Args)]
pub struct LoadArgs {
    /// The file, plain or compressed with gzip or zstd; `-` reads standard input
    file: PathBuf,

    /// What the file holds [default: as its name says (.tsv, .csv, .json, .jsonl, .ndjson, also
    /// before .gz and .zst), else as its first line does]
    #[arg(long)]
    format: Option<Format>,

    /// TSV, CSV: the first line holds the names of the columns, not a record
    #[arg(long)]
    header: bool,

    /// TSV, CSV: the column of the key, from 1 [default: 1]
    #[arg(long, value_name = "N", value_parser = column, conflicts_with = "key_field")]
    key_column: Option<usize>,

    /// TSV, CSV: the columns of the value, such as 2,3 [default: all others]
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = column,
          conflicts_with = "value_field")]
    value_columns: Vec<usize>,

    /// JSON: the field of the key [default: key]; with --header, the name of its column
    #[arg(long, value_name = "NAME")]
    key_field: Option<String>,

    /// JSON: the field of the value [default: the whole line, or of what `terrace scan --json`
    /// prints, its value]; with --header, the name of its column
    #[arg(long, value_name = "NAME")]
    value_field: Option<String>,

    /// Refuse lines, and records of CSV, that are longer
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = arguments::size)]
    max_line: usize,

    /// Records written together
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,

    /// Make each batch durable before the next one is read
    #[arg(long)]
    sync: bool,

    /// After each batch, print how many records are durable; needs --sync
    #[arg(long, requires = "sync")]
    report_durable: bool,

    /// Into this column family; made if it is not there
    #[arg(long, value_name = "NAME")]
    family: Option<String>,

    #[command(flatten)]
    store: StoreArgs,
}

fn column(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number >= 1 => Ok(number),
        _ => Err("columns are numbered from 1".into()),
    }
}

/// Loads the file and tells how much it was.
pub fn run(args: &LoadArgs) -> Result<Outcome> {
    let lines = Lines::open(&args.file, args.max_line)?;
    let mut records = Records::open(&args.file, lines, &args.wanted())?;
    if let Some(first) = records.first() {
        check_length(first, &records).context(NOTHING_LOADED)?;
    }
    let sync = if args.sync { SyncMode::Batch } else { SyncMode::None };
    let options = Options { sync, ..args.store.options() };
    let (db, family) =
        args.store.open_family(options, IfMissing::Create, args.family.as_deref())?;
    let start = Instant::now();
    let mut load = Load { args, db: &db, family, batch: WriteBatch::new(), written: 0, bytes: 0 };
    let loaded = load.all(&mut records);
    records.lines().close();
    let (written, bytes) = (load.written, SizeBytes(load.bytes));
    let closed = db.close().context("closing the store");
    let seconds = start.elapsed().as_secs_f64();
    loaded.with_context(|| match written {
        0 => NOTHING_LOADED.to_string(),
        n => format!("the first {n} records are loaded, the rest is not"),
    })?;
    closed?;
    let per_second = Grouped(rate(written, seconds));
    writeln!(
        standard_output::until_unread(),
        "loaded {} records ({bytes}) from {} into {} in {seconds:.1} s, {per_second} records/s",
        Grouped(written),
        records.lines().name(),
        args.store.dir.display(),
    )?;
    Ok(Outcome::Done)
}

struct Load<'a> {
    args: &'a LoadArgs,
    db: &'a Db,
    family: ColumnFamily,
    batch: WriteBatch,
    /// Records acknowledged.
    written: u64,
    /// Bytes of all keys and values.
    bytes: u64,
}

impl Load<'_> {
    /// Loads every record. What stands before a malformed one is written.
    fn all(&mut self, records: &mut Records) -> Result<()> {
        let mut record = Record::default();
        let outcome = loop {
            match records.next(&mut record) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
            if let Err(error) = check_length(&record, records) {
                break Err(error);
            }
            let Record { key, value, expires_at_ms } = &record;
            self.bytes += (key.len() + value.len()) as u64;
            match expires_at_ms {
                Some(at) => self.batch.put_until_cf(&self.family, key, value, *at),
                None => self.batch.put_cf(&self.family, key, value),
            }
            if self.batch.len() as u64 >= self.args.batch || self.batch.size_bytes() >= BATCH_BYTES
            {
                self.write()?;
            }
        };
        self.write()?;
        outcome
    }

    fn write(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let count = self.batch.len() as u64;
        self.db.write(std::mem::take(&mut self.batch))?;
        self.written += count;
        if self.args.report_durable {
            let mut out = standard_output::read_or_not();
            writeln!(out, "durable {}", self.written)?;
            out.flush()?;
        }
        Ok(())
    }
}

/// Refuses a record that no batch takes, and that would take those before it along; it is the one that `records` has read last.
fn check_length(record: &Record, records: &Records) -> Result<()> {
    match arguments::too_long(record.key.len(), record.value.len()) {
        Some(why) => Err(anyhow!("{}: {why}", records.lines().place())),
        None => Ok(()),
    }
}

impl LoadArgs {
    fn wanted(&self) -> Wanted {
        Wanted {
            format: self.format,
            has_header: self.header,
            key_column: self.key_column,
            value_columns: self.value_columns.clone(),
            key_field: self.key_field.clone(),
            value_field: self.value_field.clone(),
        }
    }
}
