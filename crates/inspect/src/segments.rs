//! Statistics of the value log: how much of every value segment the live SSTs refer to.
//!
//! A segment of the commit log can be referred to while it is still part of the log: it is then in
//! no list of the manifest, and becomes a value segment when its memtables are flushed.

use crate::text::SizeBytes;
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use terrace_base::{SegmentNumber, ValueRef};
use terrace_manifest::{SegmentKind, SegmentMeta, names};

/// One segment that values are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Segment {
    /// What the manifest says of it; `None` if it names no such value segment.
    pub meta: Option<SegmentMeta>,
    /// What the live SSTs refer to: keys, stored values and checksums.
    pub live_bytes: u64,
    /// How many live SSTs refer to it.
    pub files: u64,
}

/// Every value segment, and every other segment that a live SST refers to.
pub(crate) fn of(tree: &Tree) -> BTreeMap<SegmentNumber, Segment> {
    let known = |meta: &SegmentMeta| Segment { meta: Some(*meta), ..Segment::default() };
    let mut segments: BTreeMap<SegmentNumber, Segment> =
        tree.segments.iter().map(|(number, meta)| (*number, known(meta))).collect();
    for ValueRef { segment, bytes } in tree.files().flat_map(|file| &file.value_refs) {
        let segment = segments.entry(*segment).or_default();
        segment.live_bytes = segment.live_bytes.saturating_add(*bytes);
        segment.files += 1;
    }
    segments
}

/// Where segment `number` of the store in `dir` lies. One that the manifest does not know is a
/// segment of the commit log.
pub(crate) fn path(dir: &Path, number: SegmentNumber, meta: Option<&SegmentMeta>) -> PathBuf {
    match meta.map(|meta| meta.kind) {
        Some(SegmentKind::Values) => names::value_log_path(dir, number),
        Some(SegmentKind::CommitLog) | None => names::log_path(dir, number),
    }
}

/// Prints a line per segment and their sum; nothing if there are none.
pub(crate) fn print(tree: &Tree, out: &mut dyn io::Write) -> io::Result<()> {
    let segments = of(tree);
    if segments.is_empty() {
        return Ok(());
    }
    let (mut size_bytes, mut live_bytes) = (0u64, 0u64);
    writeln!(out, "\nvalue segments: {}", segments.len())?;
    writeln!(
        out,
        "  {:>8} {:>10} {:>10} {:>7} {:>6}  origin",
        "segment", "size", "live", "garbage", "files"
    )?;
    for (number, segment) in &segments {
        let Segment { meta, live_bytes: live, files } = segment;
        let size = meta.map_or_else(|| "-".into(), |meta| SizeBytes(meta.size_bytes).to_string());
        let share = meta.map_or_else(|| "-".into(), |meta| garbage(meta.size_bytes, *live));
        let origin = match meta.map(|meta| meta.kind) {
            Some(SegmentKind::CommitLog) => "commit log",
            Some(SegmentKind::Values) => "garbage collection",
            None => "still part of the commit log",
        };
        let live = SizeBytes(*live);
        writeln!(out, "    {number:06} {size:>10} {live:>10} {share:>7} {files:>6}  {origin}")?;
        if let Some(meta) = meta {
            size_bytes = size_bytes.saturating_add(meta.size_bytes);
            live_bytes = live_bytes.saturating_add(segment.live_bytes);
        }
    }
    let (size, live, share) =
        (SizeBytes(size_bytes), SizeBytes(live_bytes), garbage(size_bytes, live_bytes));
    writeln!(out, "  {:>8} {size:>10} {live:>10} {share:>7}", "sum")
}

/// The share of `size_bytes` that is not live.
fn garbage(size_bytes: u64, live_bytes: u64) -> String {
    let dead = size_bytes.saturating_sub(live_bytes);
    format!("{:.1} %", 100.0 * dead as f64 / size_bytes.max(1) as f64)
}
