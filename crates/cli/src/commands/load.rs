//! `terrace load`: many records from a file.
//!
//! Records are written in input order, in batches, so what a crash leaves is a prefix of the
//! input; with `--sync`, one that holds every batch that was acknowledged.

use crate::input::Lines;
use crate::outcome::Outcome;
use crate::print::{Grouped, rate};
use crate::records::Layout;
use crate::store::{IfMissing, StoreArgs};
use anyhow::{Context, Result, anyhow};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use terrace::{Db, Options, SyncMode, WriteBatch};
use terrace_inspect::SizeBytes;

/// A batch is written when it has this many bytes, however few records that is.
const BATCH_BYTES: usize = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Tab-separated columns
    Tsv,
    /// A JSON object a line
    Json,
}

/// Arguments of `load`.
#[derive(Debug, clap::Args)]
pub struct LoadArgs {
    /// The file, plain or compressed with zstd; `-` reads standard input
    file: PathBuf,

    /// Default: json for .jsonl, .ndjson and .json (also before .zst), else tsv
    #[arg(long)]
    format: Option<Format>,

    /// TSV: the column of the key, from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = column)]
    key_column: usize,

    /// TSV: the columns of the value, such as 2,3 [default: all others]
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = column)]
    value_columns: Vec<usize>,

    /// JSON: the field of the key
    #[arg(long, value_name = "NAME", default_value = "key")]
    key_field: String,

    /// JSON: the field of the value [default: the whole line]
    #[arg(long, value_name = "NAME")]
    value_field: Option<String>,

    /// Records written together
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,

    /// Make each batch durable before the next one is read
    #[arg(long)]
    sync: bool,

    /// After each batch, print how many records are durable
    #[arg(long, requires = "sync")]
    report_durable: bool,

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
    let mut lines = Lines::open(&args.file)?;
    let sync = if args.sync { SyncMode::Batch } else { SyncMode::None };
    let options = Options { sync, ..args.store.options() };
    let db = args.store.open(options, IfMissing::Create)?;
    let start = Instant::now();
    let mut load = Load { args, db: &db, batch: WriteBatch::new(), written: 0, bytes: 0 };
    let loaded = load.all(&mut lines);
    lines.close();
    let (written, bytes) = (load.written, SizeBytes(load.bytes));
    let closed = db.close().context("closing the store");
    let seconds = start.elapsed().as_secs_f64();
    loaded.with_context(|| match written {
        0 => "nothing was loaded".to_string(),
        n => format!("the first {n} records are loaded, the rest is not"),
    })?;
    closed?;
    let per_second = Grouped(rate(written, seconds));
    writeln!(
        std::io::stdout(),
        "loaded {} records ({bytes}) from {} into {} in {seconds:.1} s, {per_second} records/s",
        Grouped(written),
        lines.name(),
        args.store.dir.display(),
    )?;
    Ok(Outcome::Done)
}

struct Load<'a> {
    args: &'a LoadArgs,
    db: &'a Db,
    batch: WriteBatch,
    /// Records acknowledged.
    written: u64,
    /// Bytes of all keys and values.
    bytes: u64,
}

impl Load<'_> {
    /// Loads every line. What stands before a malformed one is written.
    fn all(&mut self, lines: &mut Lines) -> Result<()> {
        let layout = self.args.layout();
        let (mut line, mut key, mut value) = (Vec::new(), Vec::new(), Vec::new());
        let outcome = loop {
            match lines.next(&mut line) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
            match layout.read(&line, &mut key, &mut value) {
                Ok(true) if key.len() > terrace::MAX_KEY_BYTES => {
                    let (len, most) = (key.len(), terrace::MAX_KEY_BYTES);
                    let place = lines.place();
                    break Err(anyhow!("{place}: the key has {len} bytes; {most} is the most"));
                }
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => break Err(anyhow!("{}: {why}", lines.place())),
            }
            self.bytes += (key.len() + value.len()) as u64;
            self.batch.put(&key, &value);
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
            let mut out = std::io::stdout().lock();
            writeln!(out, "durable {}", self.written)?;
            out.flush()?;
        }
        Ok(())
    }
}

impl LoadArgs {
    fn layout(&self) -> Layout {
        match self.format.unwrap_or_else(|| format_of(&self.file)) {
            Format::Tsv => Layout::Tsv {
                key: self.key_column,
                values: (!self.value_columns.is_empty()).then(|| self.value_columns.clone()),
            },
            Format::Json => {
                Layout::Json { key: self.key_field.clone(), value: self.value_field.clone() }
            }
        }
    }
}

/// What the name of a file says of its format.
fn format_of(file: &Path) -> Format {
    let inner = match file.extension().is_some_and(|extension| extension == "zst") {
        true => file.with_extension(""),
        false => file.to_path_buf(),
    };
    match inner.extension().and_then(|extension| extension.to_str()) {
        Some("jsonl" | "ndjson" | "json") => Format::Json,
        _ => Format::Tsv,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_format() {
        for (name, want) in [
            ("a.tsv.zst", Format::Tsv),
            ("a.jsonl", Format::Json),
            ("dir.json/a.ndjson.zst", Format::Json),
            ("a", Format::Tsv),
            ("-", Format::Tsv),
        ] {
            assert_eq!(format_of(Path::new(name)), want, "{name}");
        }
    }
}
