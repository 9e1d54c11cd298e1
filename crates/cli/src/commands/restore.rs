//! `terrace restore`: a store of a dump.

use crate::arguments;
use crate::files;
use crate::outcome::Outcome;
use crate::print::{self, Grouped};
use crate::standard_output;
use crate::target_store::Target;
use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use terrace::{Db, Options};
use terrace_dump::{Counts, RecordReader};
use terrace_inspect::SizeBytes;

/// Bytes read from the file at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Arguments of `restore`.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// What `terrace dump` wrote; `-` is standard input
    file: PathBuf,

    /// Directory of the store that is made: new or empty
    dir: PathBuf,

    /// Memory that the store may take, such as 64M or 2G
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = arguments::size)]
    memory: usize,
}

/// Makes the store and tells how much is in it.
pub fn run(args: &RestoreArgs) -> Result<Outcome> {
    let start = Instant::now();
    let (input, name, size_bytes) = input(&args.file)?;
    let bar = print::bytes_bar(size_bytes, "restoring");
    let input = BufReader::with_capacity(BUFFER_BYTES, bar.wrap_read(input));
    let mut records =
        RecordReader::start(input).map_err(|error| anyhow!("cannot restore {name}: {error}"))?;
    let target = Target::prepare(&args.dir)?;
    let filled = fill(args, &target.partial, &mut records, &bar);
    bar.finish_and_clear();
    let counts = filled.with_context(|| format!("nothing was restored from {name}"))?;
    target.finish()?;
    writeln!(
        standard_output::until_unread(),
        "restored {} entries ({}) of {} column families from {name} into {} in {:.1} s",
        Grouped(counts.entries),
        SizeBytes(counts.bytes()),
        counts.families,
        args.dir.display(),
        start.elapsed().as_secs_f64(),
    )?;
    Ok(Outcome::Done)
}

/// What to read, what to call it, and how long it is, if that is known.
fn input(file: &Path) -> Result<(Box<dyn Read>, String, u64)> {
    if file.as_os_str() == "-" {
        return Ok((Box::new(io::stdin()), "standard input".into(), 0));
    }
    let name = file.display().to_string();
    let input = File::open(file).with_context(|| format!("cannot open {name}"))?;
    let metadata = input.metadata()?;
    if metadata.is_dir() {
        bail!("{name} is a directory; name a dump, or - for standard input");
    }
    Ok((Box::new(input), name, metadata.len()))
}

/// Makes a store in `dir` of everything in `records`, durably.
fn fill(
    args: &RestoreArgs,
    dir: &Path,
    records: &mut RecordReader<impl Read>,
    bar: &ProgressBar,
) -> Result<Counts> {
    let options = Options { memory_budget: args.memory, ..files::options() };
    let db = Db::open(dir, options.clone())?;
    // What is read is shown on the bar; each report lets it draw.
    let counts = terrace_dump::restore(records, &db, &mut |_| bar.tick())?;
    db.flush()?;
    db.sync()?;
    db.close()?;
    terrace_dump::finish_families(dir, options, records.families())?;
    Ok(counts)
}
