//! `terrace inspect lsm`: levels, files, sizes, key ranges and sequence numbers of every column
//! family, and the value segments, from the manifest alone.

use crate::problem::Problem;
use crate::salvage;
use crate::segments;
use crate::text::{Abridged, SizeBytes};
use crate::tree::{FamilyTree, Tree};
use std::io;
use std::path::Path;
use terrace_base::{Error, Result};
use terrace_manifest::FileMeta;
use terrace_vfs::Vfs;

/// Bytes of a key that are shown.
const SHOWN_BYTES: usize = 32;

/// Prints the LSM of the store in `dir`; returns the number of problems in `CURRENT` and the
/// manifest. Opens no SST.
///
/// # Errors
/// I/O, printing included; `is_not_found()` if there is no store.
pub fn lsm(vfs: &dyn Vfs, dir: &Path, out: &mut dyn io::Write) -> Result<u64> {
    let mut problems = Vec::new();
    let tree = salvage::load(vfs, dir, &mut problems)?;
    if let Some(tree) = &tree {
        problems.extend(tree.faults(dir));
    }
    print(tree.as_ref(), &problems, out).map_err(|source| Error::io("print", dir, source))?;
    Ok(problems.len() as u64)
}

fn print(
    tree: Option<&Tree>,
    problems: &[Problem],
    out: &mut dyn io::Write,
) -> std::result::Result<(), io::Error> {
    for problem in problems {
        writeln!(out, "{}: {problem}", problem.heading())?;
    }
    let Some(tree) = tree else {
        return writeln!(out, "no manifest can be read");
    };
    let Tree { store_id, next_file_number, last_seqno, .. } = tree;
    let left = if problems.is_empty() { "" } else { ", as far as it can be read" };
    writeln!(
        out,
        "store {store_id:016x}: last seqno {last_seqno}, next file number {next_file_number}{left}"
    )?;
    for (id, family) in &tree.families {
        print_family(*id, family, out)?;
    }
    segments::print(tree, out)
}

fn print_family(id: u32, family: &FamilyTree, out: &mut dyn io::Write) -> io::Result<()> {
    let size: u64 = family.files().map(|file| file.size_bytes).sum();
    let FamilyTree { name, min_log_segment, flushed_seqno, .. } = family;
    writeln!(
        out,
        "\nfamily {id} {name:?}: {} files, {}; flushed up to seqno {flushed_seqno}, needs log \
         segments from {min_log_segment}",
        family.files().count(),
        SizeBytes(size),
    )?;
    let levels = family.levels.iter().enumerate().map(|(n, level)| (format!("L{n}"), level));
    let hot = [("hot table's checkpoint".to_string(), &family.hot)];
    for (name, level) in levels.chain(hot).filter(|(_, level)| !level.is_empty()) {
        let size: u64 = level.iter().map(|file| file.size_bytes).sum();
        let entries: u64 = level.iter().map(|file| file.entry_count).sum();
        let order = if name == "L0" { ", newest first" } else { "" };
        let (count, size) = (level.len(), SizeBytes(size));
        writeln!(out, "{name}: {count} files, {size}, {entries} entries{order}")?;
        writeln!(
            out,
            "  {:>8} {:>10} {:>10} {:>10} {:>6}  {:<21}  keys",
            "file", "size", "entries", "tombstones", "ranges", "seqnos"
        )?;
        for file in level {
            print_file(file, out)?;
        }
    }
    Ok(())
}

fn print_file(file: &FileMeta, out: &mut dyn io::Write) -> io::Result<()> {
    let close = if file.largest_exclusive { ')' } else { ']' };
    let seqnos = format!("{}-{}", file.smallest_seqno, file.largest_seqno);
    write!(
        out,
        "  {:>8} {:>10} {:>10} {:>10} {:>6}  {seqnos:<21}  [{} .. {}{close}",
        format!("{:06}", file.number),
        SizeBytes(file.size_bytes),
        file.entry_count,
        file.tombstone_count,
        file.range_tombstone_count,
        Abridged(&file.smallest, SHOWN_BYTES),
        Abridged(&file.largest, SHOWN_BYTES),
    )?;
    match file.ttl_due_ms {
        Some(due) => writeln!(out, "  expires from {due} ms on"),
        None => writeln!(out),
    }
}
