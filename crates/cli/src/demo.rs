//! `terrace demo`: what the engine does with real data, on one screen.
//!
//! 227,000 package names with downloads and summaries ([`data`]) are loaded, then looked up as
//! often as they are downloaded, every second time misspelled, so that they are not there. First
//! with so little memory that the device matters, then with all of it cached ([`measure`]). Every
//! figure on the screen ([`screen`]) was measured in this run.

mod data;
mod measure;
mod screen;

use crate::outcome::Outcome;
use crate::print;
use crate::standard_output;
use crate::store;
use anyhow::{Context, Result, bail};
use data::Data;
use indicatif::ProgressBar;
use measure::{Lookups, Measured, Shape};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;
use terrace::vfs::PosixVfs;
use terrace_inspect::Contents;

/// Memory of the store while memory is scarce: the least that a store opens with.
const SCARCE_BYTES: usize = terrace::MIN_MEMORY_BUDGET;

/// Memory of the store when everything is to be cached.
const PLENTY_BYTES: usize = 256 << 20;

/// How often a directory that is being written is removed, if something is left of it each time.
const MOST_TRIES: u32 = 100;

/// Held from a signal on that ends the process, so that no error about the store that is being removed does it first.
static ENDING: Mutex<()> = Mutex::new(());

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Seconds of each of the four stretches of lookups
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,

    /// Make the store here (a new or empty directory) and keep it [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Print the figures as a JSON object
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds are a number from 0.01 to 3600".into()),
    }
}

/// Where the store is made.
enum Place {
    Kept(PathBuf),
    Temporary(TempDir),
}

impl Place {
    fn new(dir: Option<&Path>) -> Result<Self> {
        let Some(dir) = dir else {
            // `/tmp` is often memory, where a device read would cost nothing.
            let on_disk = Path::new("/var/tmp");
            let parent = if on_disk.is_dir() { on_disk.into() } else { std::env::temp_dir() };
            let made = tempfile::Builder::new().prefix("terrace-demo-").tempdir_in(&parent);
            let made =
                made.with_context(|| format!("no directory can be made in {}", parent.display()))?;
            remove_at_signals(made.path())?;
            return Ok(Self::Temporary(made));
        };
        store::check_directory(dir, "a new one with --dir")?;
        match terrace_inspect::contents(&*PosixVfs::shared(), dir)? {
            Contents::Missing | Contents::Empty => Ok(Self::Kept(dir.to_path_buf())),
            _ => bail!("{} is not empty; name a new directory with --dir", dir.display()),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Temporary(dir) => dir.path(),
        }
    }
}

/// Has a signal remove the directory first, in which a store is being written, and then end the process.
fn remove_at_signals(dir: &Path) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot hear signals")?;
    let dir = dir.to_path_buf();
    let ends = move || {
        if let Some(signal) = signals.forever().next() {
            let _ending = ENDING.lock();
            // A file that is made meanwhile is one to be removed.
            let is_gone = |_: &u32| fs::remove_dir_all(&dir).is_ok() || !dir.exists();
            let _tries = (0..MOST_TRIES).find(is_gone);
            let _ends = emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(ends)?;
    Ok(())
}

/// Runs the demo.
pub fn run(args: &DemoArgs) -> Result<Outcome> {
    let place = Place::new(args.dir.as_deref())?;
    let outcome = run_in(&place, args);
    drop(ENDING.lock());
    outcome
}

fn run_in(place: &Place, args: &DemoArgs) -> Result<Outcome> {
    let bar = print::spinner();
    bar.set_message("unpacking the data");
    let data = Data::bundled()?;
    let measured = measure_all(args, place.path(), &data, &bar)?;
    bar.finish_and_clear();
    let mut out = standard_output::until_unread();
    match args.json {
        true => writeln!(out, "{:#}", screen::json(&measured))?,
        false => {
            let kept = matches!(place, Place::Kept(_)).then(|| place.path());
            write!(out, "{}", screen::text(&measured, kept, &data))?;
        }
    }
    Ok(Outcome::Done)
}

fn measure_all(args: &DemoArgs, dir: &Path, data: &Data, bar: &ProgressBar) -> Result<Measured> {
    bar.set_message("loading the names");
    let load = measure::load(dir, data)?;
    let duration = Duration::from_secs_f64(args.seconds);
    let lookups =
        |shape: Shape| -> Result<Lookups> { measure::lookups(dir, data, shape, duration) };
    bar.set_message("looking names up while memory is scarce");
    let scarce = lookups(Shape { memory_bytes: SCARCE_BYTES, direct: true })?;
    bar.set_message("looking names up with everything cached");
    let cached = lookups(Shape { memory_bytes: PLENTY_BYTES, direct: false })?;
    bar.set_message("checking every checksum");
    let report = terrace_inspect::check_store(&PosixVfs::shared(), dir)?;
    if !report.is_sound() {
        bail!("the store is damaged, which must not be; please report this: {report}");
    }
    Ok(Measured { load, scarce, cached, check: report.counts })
}
