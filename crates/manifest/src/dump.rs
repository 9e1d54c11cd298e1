//! Printing a manifest whatever its state, for `terrace inspect` and golden tests.

use crate::codec::{self, ManifestRecord};
use crate::edit::{FamilyEdit, SegmentKind};
use crate::file_meta::FileMeta;
use crate::version::place_name;
use std::io;
use std::path::Path;
use terrace_base::{FileNumber, Result, SegmentNumber, ValueRef};
use terrace_log::dump::{Detail, Dumped, PayloadPlace};
use terrace_vfs::Vfs;

/// Prints the manifest at `path`; `number` is used if its header is damaged.
///
/// # Errors
/// I/O; `Unsupported` for another version of the framing. Damage is printed.
pub fn dump(
    vfs: &dyn Vfs,
    path: &Path,
    number: u64,
    detail: Detail,
    out: &mut dyn io::Write,
) -> Result<Dumped> {
    let describe = |payload: &[u8], _: PayloadPlace| describe(payload);
    terrace_log::dump::dump(vfs, path, SegmentNumber::new(number), detail, &describe, out)
}

/// Says in lines what the payload of a manifest record means.
pub fn describe(payload: &[u8]) -> Vec<String> {
    let ManifestRecord { snapshot, edit } = match codec::decode_record(payload) {
        Ok(record) => record,
        Err(why) => return vec![format!("NOT AN EDIT: {why}")],
    };
    let mut lines = vec![match snapshot {
        Some(head) => format!(
            "snapshot of store {:016x}, next family id {}",
            head.store_id, head.next_family_id
        ),
        None => "edit".to_string(),
    }];
    if let Some(number) = edit.next_file_number {
        lines.push(format!("  next file number {number}"));
    }
    if let Some(seqno) = edit.last_seqno {
        lines.push(format!("  last seqno {seqno}"));
    }
    if let Some(heat) = &edit.filter_heat {
        lines.push(format!("  filter heat, {} bytes", heat.len()));
    }
    for segment in &edit.segments_added {
        let origin = match segment.kind {
            SegmentKind::CommitLog => "from the commit log",
            SegmentKind::Values => "written by garbage collection",
        };
        let (number, bytes) = (segment.number, segment.size_bytes);
        lines.push(format!("  + value segment {number}, {bytes} bytes, {origin}"));
    }
    for number in &edit.segments_removed {
        lines.push(format!("  - value segment {number}"));
    }
    if edit.keeps_evidence {
        lines.push("  evidence is kept of what was synced".into());
    }
    if !edit.retired.is_empty() {
        let numbers: Vec<String> = edit.retired.iter().map(FileNumber::to_string).collect();
        lines.push(format!("  files taken out before: {}", numbers.join(" ")));
    }
    for family in &edit.families {
        describe_family(family, &mut lines);
    }
    lines
}

fn describe_family(family: &FamilyEdit, lines: &mut Vec<String>) {
    let mut line = format!("  family {}", family.id);
    if let Some(name) = &family.create {
        line.push_str(&format!(", created as {name:?}"));
    }
    if family.drop {
        line.push_str(", dropped");
    }
    if let Some(segment) = family.min_log_segment {
        line.push_str(&format!(", needs log segments from {segment}"));
    }
    if let Some(seqno) = family.flushed_seqno {
        line.push_str(&format!(", flushed up to seqno {seqno}"));
    }
    if let Some(name) = &family.merge_operator {
        line.push_str(&format!(", merge operator {name:?}"));
    }
    if let Some(options) = &family.options {
        line.push_str(&format!(", options {options:?}"));
    }
    lines.push(line);
    for (level, number) in &family.removed {
        lines.push(format!("    - {}  {number}", place_name(*level)));
    }
    for (level, file) in &family.added {
        lines.push(format!("    + {}  {}", place_name(*level), describe_file(file)));
    }
}

/// A file in one line: as in a shape, and everything else that is known.
pub fn describe_file(file: &FileMeta) -> String {
    let mut line = format!(
        "{file} seqnos={}-{} entries={} tombstones={} range_tombstones={} raw={}B created={}",
        file.smallest_seqno,
        file.largest_seqno,
        file.entry_count,
        file.tombstone_count,
        file.range_tombstone_count,
        file.raw_bytes,
        file.created_ms
    );
    if let Some(due) = file.ttl_due_ms {
        line.push_str(&format!(" ttl_due={due}"));
    }
    for (at, ValueRef { segment, bytes }) in file.value_refs.iter().enumerate() {
        line.push_str(if at == 0 { " values=" } else { "," });
        line.push_str(&format!("{segment}:{bytes}B"));
    }
    line
}

#[cfg(test)]
mod tests;
