//! Looking for sync markers in bytes that cannot be read in order: the proof that what was lost
//! before them had been durable.

use crate::format::{self, LogPosition, MARKER_PAYLOAD_BYTES, RECORD_HEADER_BYTES, RecordType};
use crate::window::{CHUNK_BYTES, Window};
use crc32c::crc32c_append;
use std::path::Path;
use terrace_base::{Result, SegmentNumber};
use terrace_vfs::{OpenMode, Vfs};

const MARKER_BYTES: usize = RECORD_HEADER_BYTES + MARKER_PAYLOAD_BYTES;

/// Bytes 4..9 of every marker: its length and type.
const SIGNATURE: [u8; 5] = [MARKER_PAYLOAD_BYTES as u8, 0, 0, 0, RecordType::SyncMarker as u8];

/// What a scan found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// The marker that states most, and the offset where it stands.
    pub(crate) strongest: Option<(LogPosition, u64)>,
    /// Bytes from the start of the scan to the last one that is not zero, or is damaged.
    pub(crate) data_bytes: u64,
}

/// Tries every offset of segment `segment` from `from` on. Linear in the file's length; only the
/// checksums of bytes that look like a marker are computed.
pub(crate) fn scan_markers(
    vfs: &dyn Vfs,
    path: &Path,
    segment: SegmentNumber,
    from: u64,
) -> Result<Scan> {
    let mut window = Window::new(vfs.open(path, OpenMode::default())?);
    let seed = format::segment_seed(segment);
    let mut scan = Scan::default();
    let mut base = from;
    while base < window.file_bytes() {
        let len = window.get(base, CHUNK_BYTES + MARKER_BYTES - 1)?.len();
        let bytes = window.loaded(base, len);
        let end = bytes.iter().rposition(|byte| *byte != 0).map(|last| base + last as u64 + 1);
        if let Some(end) = end.max(window.end_of_damage(base, len)) {
            scan.data_bytes = end - from;
            for at in 0..bytes.len().saturating_sub(MARKER_BYTES - 1).min(CHUNK_BYTES) {
                if bytes[at + 4..at + 9] != SIGNATURE {
                    continue;
                }
                let offset = base + at as u64;
                if !window.is_sound(offset, MARKER_BYTES) {
                    continue;
                }
                if let Some(through) = marker_at(&bytes[at..at + MARKER_BYTES], seed, offset) {
                    let stronger = scan.strongest.is_none_or(|(best, _)| through > best);
                    // A statement about bytes behind itself was never written.
                    if stronger && through <= (LogPosition { segment, offset }) {
                        scan.strongest = Some((through, offset));
                    }
                }
            }
        }
        base += CHUNK_BYTES as u64;
    }
    Ok(scan)
}

fn marker_at(bytes: &[u8], seed: u32, offset: u64) -> Option<LogPosition> {
    let (head, payload) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>()?;
    let (stored, _, _) = format::split_record_header(head);
    let sum = crc32c_append(format::checksum_start(seed, offset, head), payload);
    if sum == stored { format::decode_marker(payload) } else { None }
}
