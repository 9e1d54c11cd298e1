//! `terrace repair`: a manifest made of what there is, and what could not be saved.

use crate::arguments;
use crate::files;
use crate::outcome::{Outcome, tell};
use crate::standard_output;
use crate::store;
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;
use terrace::{Options, RepairOptions, RepairReport};
use terrace_inspect::Contents;

/// Arguments of `repair`.
#[derive(Debug, clap::Args)]
pub struct RepairArgs {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Tell what would be kept and what would be lost, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// Take back what was moved to `lost`; deleted keys may come back with it
    #[arg(long)]
    from_lost: bool,

    /// Memory that the repair may take, such as 64M or 2G
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = arguments::size)]
    memory: usize,
}

/// Repairs the store, which nobody may have open; tells what was saved and what was not.
pub fn run(args: &RepairArgs) -> Result<Outcome> {
    let dir = args.dir.display();
    match terrace_inspect::contents(&*files::vfs(), &args.dir)? {
        Contents::Store | Contents::Remains => {}
        Contents::Missing if store::is_no_directory(&args.dir) => {
            tell(&format!("{dir} is no directory; name that of a store"));
            return Ok(Outcome::Unusable);
        }
        Contents::Missing => {
            tell(&format!("there is no directory {dir}"));
            return Ok(Outcome::Unusable);
        }
        Contents::Empty | Contents::Foreign(_) => {
            tell(&format!("{dir} holds no files of a store"));
            return Ok(Outcome::Unusable);
        }
    }
    let options =
        Options { memory_budget: args.memory, create_if_missing: false, ..files::options() };
    let RepairArgs { dry_run, from_lost, .. } = *args;
    let how = RepairOptions { dry_run, from_lost, ..RepairOptions::default() };
    let tell = |report: &RepairReport| tell_report(args, report);
    let report = terrace_keyspace::repair_telling(&args.dir, options, how, tell)?;
    Ok(match report.lost.is_empty() {
        true => Outcome::Done,
        false => Outcome::Partial,
    })
}

/// Until this has ended the next repair tells the losses again.
fn tell_report(args: &RepairArgs, report: &RepairReport) -> Result<()> {
    let mut out = standard_output::read_or_not();
    for line in &report.saved {
        writeln!(out, "saved: {line}")?;
    }
    for line in &report.notes {
        writeln!(out, "note: {line}")?;
    }
    for line in &report.lost {
        writeln!(out, "LOST: {line}")?;
    }
    if !args.dry_run {
        let RepairReport { sst_files, sst_bytes, entries, .. } = report;
        writeln!(out, "now: {sst_files} SSTs, {sst_bytes} bytes, {entries} entries")?;
    }
    let dir = args.dir.display();
    match (args.dry_run, report.was_sound, report.lost.len()) {
        (true, ..) => writeln!(out, "dry run: nothing was written")?,
        (false, true, 0) => writeln!(out, "the store is sound")?,
        (false, false, 0) => writeln!(out, "repaired, nothing is known to be lost")?,
        (false, _, n) => {
            writeln!(out, "repaired, with {n} losses; what was replaced is in {dir}/lost")?
        }
    }
    Ok(out.flush()?)
}
