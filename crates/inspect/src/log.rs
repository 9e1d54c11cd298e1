//! `terrace inspect log`: the records of a segment, or of all segments of a store: batches op by
//! op, values of garbage collection with their handles. Of a store also what a recovery would make
//! of the log, and how much of the value segments is live.

use crate::batch;
use crate::directory::{ATTEMPTS, Listing, is_directory, number_of};
use crate::salvage;
use crate::segments;
use crate::tree::Tree;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use terrace_base::{Error, Result, SegmentNumber};
use terrace_log::dump::{Detail, PayloadPlace};
use terrace_log::{LogPosition, SegmentFile, Setting};
use terrace_vfs::Vfs;

/// Prints the segment (of the commit log or of values) at `path`, or every segment of the store in
/// directory `path`; returns the number of problems.
///
/// # Errors
/// I/O, printing included.
pub fn log(vfs: &dyn Vfs, path: &Path, detail: Detail, out: &mut dyn io::Write) -> Result<u64> {
    if !is_directory(vfs, path)? {
        return segment(vfs, path, detail, out);
    }
    let listing = Listing::read(vfs, path)?;
    let print = |source| Error::io("print", path, source);
    let mut problems = 0;
    let all: BTreeMap<SegmentNumber, &PathBuf> = listing
        .logs
        .iter()
        .chain(&listing.value_logs)
        .map(|(number, path)| (*number, path))
        .collect();
    for segment_path in all.into_values() {
        writeln!(out, "{}", segment_path.display()).map_err(print)?;
        match segment(vfs, segment_path, detail, out) {
            Ok(found) => problems += found,
            // A writer removes segments it no longer needs.
            Err(error) if error.is_not_found() => writeln!(out, "gone").map_err(print)?,
            Err(error) => return Err(error),
        }
        writeln!(out).map_err(print)?;
    }
    if listing.logs.is_empty() {
        writeln!(out, "no log segments in {}", path.display()).map_err(print)?;
    }
    let (tree, recovery) = recovery_now(vfs, path)?;
    problems += u64::from(recovery.is_err());
    let recovery = recovery.unwrap_or_else(|why| format!("recovery would fail: {why}"));
    writeln!(out, "{recovery}").map_err(print)?;
    if let Some(tree) = tree {
        segments::print(&tree, out).map_err(print)?;
    }
    Ok(problems)
}

fn segment(vfs: &dyn Vfs, path: &Path, detail: Detail, out: &mut dyn io::Write) -> Result<u64> {
    let not_batches = Cell::new(0);
    let describe = |payload: &[u8], place: PayloadPlace| {
        let (lines, faults) = batch::describe(payload, place);
        not_batches.set(not_batches.get() + faults);
        lines
    };
    let number = SegmentNumber::new(number_of(path));
    match terrace_log::dump::dump(vfs, path, number, detail, &describe, out) {
        Ok(dumped) => Ok(dumped.damaged + not_batches.get()),
        Err(error @ (Error::Unsupported { .. } | Error::Corruption { .. })) => {
            writeln!(out, "{error}").map_err(|source| Error::io("print", path, source))?;
            Ok(1 + not_batches.get())
        }
        Err(error) => Err(error),
    }
}

/// What opening the store in `dir` as it is now would replay, or why it would refuse; and its tree. A writer may begin and remove
/// segments meanwhile: what fails is then looked at again.
fn recovery_now(
    vfs: &dyn Vfs,
    dir: &Path,
) -> Result<(Option<Tree>, std::result::Result<String, String>)> {
    let mut attempt = 1;
    loop {
        let tree = salvage::load(vfs, dir, &mut Vec::new()).ok().flatten();
        let listing = Listing::read(vfs, dir)?;
        let recovery = recovery(vfs, tree.as_ref(), &listing);
        if recovery.is_ok() || attempt == ATTEMPTS || Listing::read(vfs, dir)?.logs == listing.logs
        {
            return Ok((tree, recovery));
        }
        attempt += 1;
    }
}

/// What opening the store would replay, or why it would refuse.
fn recovery(
    vfs: &dyn Vfs,
    tree: Option<&Tree>,
    listing: &Listing,
) -> std::result::Result<String, String> {
    let oldest = tree.map_or(SegmentNumber::ZERO, |tree| tree.oldest_log_segment());
    let live: Vec<SegmentFile> = match tree {
        Some(tree) => tree.log_in_force(listing),
        None => listing.segments_from(oldest).collect(),
    };
    let setting = Setting { beside_writer: true, ..Setting::default() };
    let recovered = terrace_log::recover_with(vfs, &live, setting, &mut |_, _, _| Ok(()));
    let recovered = recovered.map_err(|error| error.to_string())?;
    let count = live.len();
    let mut line = format!(
        "recovery would replay {} records from {count} segments (from number {oldest} on)",
        recovered.records
    );
    if let Some(LogPosition { segment, offset }) = recovered.end {
        line.push_str(&format!(", up to offset {offset} of segment {segment}"));
    }
    if let Some(why) = recovered.torn {
        let dropped = recovered.dropped_bytes;
        line.push_str(&format!("; an unfinished tail of {dropped} bytes is dropped: {why}"));
    }
    Ok(line)
}
