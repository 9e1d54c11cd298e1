//! Targets for separated values: a segment of them, and the value behind any handle.

use crate::log::{SEGMENT, resealed};
use std::io;
use std::path::Path;
use terrace_base::value_handle::VALUE_CHECKSUM_BYTES;
use terrace_base::{HANDLE_BYTES, ValueHandle, ValueKind};
use terrace_inspect::LogDetail;
use terrace_inspect::batch::{self, PayloadPlace};
use terrace_log::format::{HEADER_BYTES, RECORD_HEADER_BYTES, RecordType};
use terrace_log::value::{
    StoredValue, ValueRead, ValueScan, ValueStep, checksum, place_mask, read_value, read_values,
};
use terrace_vfs::{OpenMode, SimVfs, Vfs};

const PATH: &str = "000007.vlog";

/// Reads the bytes as a value segment, as they are and with right checksums, and every value in
/// it again by its handle.
pub fn segment(data: &[u8]) -> bool {
    scan(data) | scan(&resealed(&with_right_values(data), SEGMENT.get()))
}

/// Whether every byte belonged to a sound value.
fn scan(data: &[u8]) -> bool {
    let vfs = SimVfs::new(0);
    let path = Path::new(PATH);
    vfs.write_file(path, data);
    let _ = terrace_inspect::log(&vfs, path, LogDetail::Records, &mut io::sink());
    let Ok(file) = vfs.open(path, OpenMode::default()) else { return false };
    let Ok(mut scan) = ValueScan::open(&vfs, path, SEGMENT) else { return false };
    let mut sound = true;
    loop {
        let before = scan.position();
        let stuck = match scan.next() {
            Ok(ValueStep::Value(value)) => {
                assert!(value.handle.end() <= data.len() as u64, "a value past the end");
                let StoredValue { key, handle, stored, .. } = value;
                match read_value(&ValueRead { file: &*file, key, handle }) {
                    Ok(read) if handle.compression == 0 => assert_eq!(*read, *stored),
                    Ok(_) => {}
                    Err(_) => {
                        assert_ne!(handle.compression, 0, "sound in a scan, not by its handle");
                        sound = false;
                    }
                }
                false
            }
            Ok(ValueStep::End { torn: None, .. }) => return sound,
            Ok(ValueStep::End { .. }) => true,
            Err(_) => {
                sound = false;
                scan.position() == before
            }
        };
        if stuck {
            sound = false;
            if !matches!(scan.resync(), Ok(Some(_))) {
                return false;
            }
        }
    }
}

/// Reads the value that a handle (the first bytes of the input) names for a key (length, bytes) in
/// a file (the rest), as it is and with a right checksum.
pub fn read(data: &[u8]) -> bool {
    let _ = ValueHandle::of_entry(ValueKind::PutHandle, data);
    let _ = ValueHandle::of_entry(ValueKind::PutTtlHandle, data);
    let Some((handle, rest)) = data.split_first_chunk::<HANDLE_BYTES>() else { return false };
    let Some((len, rest)) = rest.split_first() else { return false };
    let Some((key, content)) = rest.split_at_checked(usize::from(*len)) else { return false };
    let handle = ValueHandle::decode(handle);
    assert_eq!(ValueHandle::decode(&handle.encode()), handle);
    let mut right = content.to_vec();
    seal_value(&mut right, key, &handle, 0);
    read_from(content, key, handle) | read_from(&right, key, handle)
}

fn read_from(content: &[u8], key: &[u8], handle: ValueHandle) -> bool {
    let vfs = SimVfs::new(0);
    vfs.write_file(PATH, content);
    let Ok(file) = vfs.open(Path::new(PATH), OpenMode::default()) else { return false };
    let near = ValueHandle { offset: handle.offset.saturating_sub(1), ..handle };
    let reads = [handle, near, handle].map(|handle| ValueRead { file: &*file, key, handle });
    let alone = read_value(&reads[0]);
    let together = read_values(&vfs, &reads);
    for result in [&together[0], &together[2]] {
        assert_eq!(result.as_ref().ok(), alone.as_ref().ok(), "together and alone disagree");
    }
    assert!(alone.is_err() || handle.end() <= content.len() as u64, "bytes from nowhere");
    alone.is_ok()
}

/// Makes the checksum of the value right that `handle` names for `key`, in bytes that begin at
/// file offset `from`.
fn seal_value(bytes: &mut [u8], key: &[u8], handle: &ValueHandle, from: u64) {
    let Some(start) = handle.offset.checked_sub(from) else { return };
    let (start, len) = (start as usize, handle.len as usize);
    let end = start + len + VALUE_CHECKSUM_BYTES;
    let Some((stored, sum)) = bytes.get_mut(start..end).map(|value| value.split_at_mut(len)) else {
        return;
    };
    let right = checksum(key, stored) ^ place_mask(handle.segment, handle.offset);
    sum.copy_from_slice(&right.to_le_bytes());
}

/// The segment with the right checksum behind every value in it, in a batch or by itself, as far
/// as the lengths of records can be followed.
pub fn with_right_values(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let mut at = HEADER_BYTES as usize;
    while let Some(head) = data.get(at..).and_then(<[u8]>::first_chunk::<RECORD_HEADER_BYTES>) {
        let [.., l0, l1, l2, l3, kind] = *head;
        let payload_at = at + RECORD_HEADER_BYTES;
        let end = payload_at + u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let Some(payload) = data.get(payload_at..end) else { break };
        let value = StoredValue::decode(payload, SEGMENT, payload_at as u64);
        match (RecordType::from_byte(kind), value) {
            (Some(RecordType::Value), Some(StoredValue { key, handle, .. })) => {
                seal_value(&mut bytes, key, &handle, 0);
            }
            (Some(RecordType::Data), _) => {
                let place = PayloadPlace { segment: SEGMENT, offset: payload_at as u64 };
                bytes[payload_at..end].copy_from_slice(&with_right_batch(payload, place));
            }
            _ => {}
        }
        at = end;
    }
    bytes
}

/// The batch with right checksums behind its separated values, for a payload at `place`.
pub fn with_right_batch(data: &[u8], place: PayloadPlace) -> Vec<u8> {
    let mut bytes = data.to_vec();
    for op in batch::decode(data, place).into_iter().flat_map(|batch| batch.ops) {
        if let Some(separated) = op.separated {
            seal_value(&mut bytes, op.key, &separated.handle, place.offset);
        }
    }
    bytes
}
