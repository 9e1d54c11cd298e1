//! Targets for log segments: the reader, its way past damage, and recovery over several segments.

use std::path::{Path, PathBuf};
use terrace_base::SegmentNumber;
use terrace_base::checksum::crc32c;
use terrace_log::format::{self, HEADER_BYTES, MAGIC, RECORD_HEADER_BYTES};
use terrace_log::{LogReader, SegmentFile, Step, read_header, recover};
use terrace_vfs::SimVfs;

/// The number of the segment that targets make of their input.
pub const SEGMENT: SegmentNumber = SegmentNumber::new(7);

const PATH: &str = "000007.log";

/// Reads the bytes as segment [`SEGMENT`], as they are and with right checksums.
pub fn segment(data: &[u8]) -> bool {
    read(data) | read(&resealed(data, SEGMENT.get()))
}

/// Whether every byte belonged to a sound record.
fn read(data: &[u8]) -> bool {
    let vfs = SimVfs::new(0);
    let path = Path::new(PATH);
    vfs.write_file(path, data);
    let _ = read_header(&vfs, path);
    let Ok(mut reader) = LogReader::open(&vfs, path, SEGMENT) else { return false };
    let mut sound = reader.has_header();
    loop {
        match reader.next() {
            Ok(Step::Record(record)) => {
                let end = record.offset + (RECORD_HEADER_BYTES + record.payload.len()) as u64;
                assert!(end <= data.len() as u64, "a record past the end of the file");
                assert_eq!(end, reader.position());
            }
            Ok(Step::End { torn: None, .. }) => return sound,
            Ok(Step::End { .. }) | Err(_) => {
                sound = false;
                match reader.resync() {
                    Ok(Some(offset)) => assert_eq!(offset, reader.position()),
                    Ok(None) | Err(_) => return sound,
                }
            }
        }
    }
}

/// Recovers from two segments, the first 8 bytes of the input saying where the second begins and
/// what it continues.
pub fn recovery(data: &[u8]) -> bool {
    let Some((head, data)) = data.split_first_chunk::<8>() else { return false };
    let (cut, previous_end) = (u32_at(head, 0) as usize, u32_at(head, 4));
    let (first, second) = data.split_at(cut.min(data.len()));
    let mut second = resealed(second, SEGMENT.next().get());
    if let Some(field) = second.get_mut(20..36) {
        field[..8].copy_from_slice(&SEGMENT.get().to_le_bytes());
        field[8..].copy_from_slice(&u64::from(previous_end).to_le_bytes());
        second = resealed(&second, SEGMENT.next().get());
    }
    let vfs = SimVfs::new(0);
    let file = |number, path: &str| SegmentFile { number, path: PathBuf::from(path) };
    let segments = [file(SEGMENT, PATH), file(SEGMENT.next(), "000008.log")];
    vfs.write_file(&segments[0].path, resealed(first, SEGMENT.get()));
    vfs.write_file(&segments[1].path, second);
    let mut applied = 0;
    let recovered = recover(&vfs, &segments, &mut |_, _, _| {
        applied += 1;
        Ok(())
    });
    match recovered {
        Ok(recovered) => {
            assert_eq!(recovered.records, applied);
            recovered.torn.is_none()
        }
        Err(_) => false,
    }
}

/// The bytes as a segment `number` whose header is sound and whose records, as far as their
/// lengths can be followed, have the checksums of their place.
pub fn resealed(data: &[u8], number: u64) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let header_bytes = HEADER_BYTES as usize;
    let Some(header) = bytes.get_mut(..header_bytes) else { return bytes };
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&format::FORMAT_VERSION.to_le_bytes());
    header[12..20].copy_from_slice(&number.to_le_bytes());
    let sum = crc32c(&[&header[..40]]);
    header[40..44].copy_from_slice(&sum.to_le_bytes());
    let mut at = header_bytes;
    while let Some(head) = bytes.get(at..at + RECORD_HEADER_BYTES) {
        if head.iter().all(|byte| *byte == 0) {
            break;
        }
        let end = at + RECORD_HEADER_BYTES + u32_at(head, 4) as usize;
        let Some(covered) = bytes.get(at + 4..end) else { break };
        let sum = crc32c(&[&number.to_le_bytes(), &(at as u64).to_le_bytes(), covered]);
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
    bytes
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk);
    field.map_or(0, |field| u32::from_le_bytes(*field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealing_a_sound_segment_changes_nothing() {
        for seed in crate::seeds::of("log_segment") {
            assert_eq!(resealed(&seed, SEGMENT.get()), seed);
            let mut damaged = seed.clone();
            let Some(byte) = damaged.get_mut(HEADER_BYTES as usize + RECORD_HEADER_BYTES) else {
                continue;
            };
            *byte ^= 1;
            assert!(!read(&damaged), "the checksum should see it");
            assert!(read(&resealed(&damaged, SEGMENT.get())));
        }
    }
}
