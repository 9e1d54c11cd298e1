//! `terrace restore`: a store of a dump.
//!
//! The store is made in `DIR.partial`, which becomes `DIR` by a rename when everything is in it and
//! durable. So `DIR` is never a part of a dump: an error removes `DIR.partial`, a killed process
//! leaves it.

use crate::arguments;
use crate::outcome::Outcome;
use crate::print::{self, Grouped};
use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;
use std::fs::{self, File};
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
        std::io::stdout(),
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
    let options = Options { memory_budget: args.memory, ..Options::default() };
    let db = Db::open(dir, options)?;
    // What is read is shown on the bar; each report lets it draw.
    let counts = terrace_dump::restore(records, &db, &mut |_| bar.tick())?;
    db.flush()?;
    db.sync()?;
    db.close()?;
    Ok(counts)
}

/// Where a store is made before it has its name. Dropped before [`Self::finish`], it leaves nothing.
struct Target {
    dir: PathBuf,
    partial: PathBuf,
    finished: bool,
}

impl Target {
    /// Makes an empty `DIR.partial` beside `dir`.
    fn prepare(dir: &Path) -> Result<Self> {
        let shown = dir.display();
        let old = match fs::symlink_metadata(dir) {
            Ok(_) => Some(fs::metadata(dir).with_context(|| format!("cannot look at {shown}"))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot look at {shown}")),
        };
        if let Some(old) = &old {
            if !old.is_dir() {
                bail!("{shown} is no directory; name a new or an empty one");
            }
            let mut entries = fs::read_dir(dir).with_context(|| format!("cannot read {shown}"))?;
            if entries.next().is_some() {
                bail!("{shown} is not empty; a store is restored into a new or an empty directory");
            }
        }
        let dir = absolute(dir, old.is_some())?;
        let mut name = dir.file_name().unwrap_or_default().to_os_string();
        name.push(".partial");
        let partial = dir.with_file_name(name);
        if fs::symlink_metadata(&partial).is_ok() {
            bail!(
                "{} is there: a restore that has not ended; if none is running, remove it and try \
                 again",
                partial.display()
            );
        }
        let cannot = || format!("cannot make {}", partial.display());
        fs::create_dir(&partial).with_context(cannot)?;
        let target = Self { dir, partial: partial.clone(), finished: false };
        if let Some(old) = old {
            fs::set_permissions(&partial, old.permissions()).with_context(cannot)?;
            // Whether a directory can take its place is better known before than after hours.
            fs::rename(&partial, &target.dir).with_context(|| target.cannot_replace())?;
            fs::create_dir(&partial).with_context(cannot)?;
            fs::set_permissions(&partial, old.permissions()).with_context(cannot)?;
        }
        Ok(target)
    }

    fn cannot_replace(&self) -> String {
        format!(
            "{} cannot be replaced by the restored store; name a new directory",
            self.dir.display()
        )
    }

    /// Gives the store its name, durably.
    fn finish(mut self) -> Result<()> {
        fs::rename(&self.partial, &self.dir).with_context(|| self.cannot_replace())?;
        self.finished = true;
        let folder = self.dir.parent().unwrap_or(Path::new("/"));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.with_context(|| format!("cannot sync {}", folder.display()))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.finished {
            // The error that brought us here is the one to tell.
            drop(fs::remove_dir_all(&self.partial));
        }
    }
}

/// The path with its last component, which can be replaced, and the directories above made.
fn absolute(dir: &Path, exists: bool) -> Result<PathBuf> {
    let shown = dir.display();
    if exists {
        let dir = dir.canonicalize().with_context(|| format!("cannot look at {shown}"))?;
        let here = std::env::current_dir().and_then(|here| here.canonicalize()).ok();
        if dir.parent().is_none() || here.is_some_and(|here| here.starts_with(&dir)) {
            bail!("{shown} is in use as the current directory; name another one");
        }
        return Ok(dir);
    }
    let Some(name) = dir.file_name() else { bail!("{shown} names no directory") };
    let folder = dir.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let made = fs::create_dir_all(folder).and_then(|()| folder.canonicalize());
    Ok(made.with_context(|| format!("cannot make {}", folder.display()))?.join(name))
}
