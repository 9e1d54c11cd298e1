//! `terrace dump`: the whole store as one file.

use crate::arguments;
use crate::outcome::{self, Outcome};
use crate::output_file::OutputFile;
use crate::print::{self, Grouped};
use crate::standard_output;
use crate::store::StoreArgs;
use anyhow::{Context, Result, bail};
use std::io::{BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;
use terrace::Db;
use terrace_dump::Counts;
use terrace_inspect::SizeBytes;

/// Bytes written to the file at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Arguments of `dump`.
#[derive(Debug, clap::Args)]
pub struct DumpArgs {
    /// Directory of the store; another process may have it open
    dir: PathBuf,

    /// The file, which is there when all of it is written; `-` is standard output
    file: PathBuf,

    /// Memory that the store may take, such as 64M or 2G
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = arguments::size)]
    memory: usize,
}

/// Writes the dump and tells how much it was.
pub fn run(args: &DumpArgs) -> Result<Outcome> {
    let store = StoreArgs { dir: args.dir.clone(), memory: args.memory };
    let to_standard_output = args.file.as_os_str() == "-";
    if to_standard_output && std::io::stdout().is_terminal() {
        bail!("a dump is not for a terminal; name a file, or pipe it on");
    }
    let db = store.open_read_only()?;
    let start = Instant::now();
    if to_standard_output {
        let out = std::io::stdout().lock();
        // A reader that goes away is an error here: it has no dump.
        return match write(&db, out) {
            Ok(_) => Ok(Outcome::Done),
            Err(error) => bail!("standard output has no whole dump: {}", outcome::text(&error)),
        };
    }
    let file = OutputFile::create(&args.file)?;
    let cannot = || format!("cannot write {}", args.file.display());
    let (file, counts) = write(&db, BufWriter::with_capacity(BUFFER_BYTES, file))?;
    let file = file.into_inner().map_err(std::io::IntoInnerError::into_error);
    let size_bytes = file.and_then(OutputFile::finish).with_context(cannot)?;
    writeln!(
        standard_output::until_unread(),
        "dumped {} entries ({}) of {} column families from {} into {} ({}) in {:.1} s",
        Grouped(counts.entries),
        SizeBytes(counts.bytes()),
        counts.families,
        args.dir.display(),
        args.file.display(),
        SizeBytes(size_bytes),
        start.elapsed().as_secs_f64(),
    )?;
    Ok(Outcome::Done)
}

/// Shows on a terminal how far it is.
fn write<W: Write>(db: &Db, out: W) -> Result<(W, Counts)> {
    let bar = print::bytes_bar(0, "dumping");
    let mut progress = |counts: Counts| bar.set_position(counts.bytes());
    let written = terrace_dump::dump(db, out, &mut progress);
    bar.finish_and_clear();
    written.context("nothing was dumped")
}
