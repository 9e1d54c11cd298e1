//! Records of the log that change nothing when they are replayed: the change feed reads them.
//!
//! - A batch without operations says which sequence number comes next, at the front of the first segment after
//!   an open.
//! - A batch of *inverted ranges* says that files were ingested, which are not in the log: one range delete for each
//!   file, with its number, from its largest key to its smallest. Nothing lies in such a range, and
//!   [`WriteBatch`](super::WriteBatch) leaves out ranges that are empty.

use super::HEADER_BYTES;
use terrace_base::codec::{put_bytes, put_varint};
use terrace_base::{SeqNo, ValueKind};

/// A batch that says that `next` is the next sequence number.
pub(crate) fn without_ops(next: SeqNo) -> Vec<u8> {
    header(next, 0)
}

/// A batch that says that files with these smallest and largest keys were ingested into `family`, the first as
/// number `first`.
pub(crate) fn of_ingestion<'a>(
    first: SeqNo,
    family: u32,
    files: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>,
) -> Vec<u8> {
    let mut bytes = header(first, files.len() as u32);
    for (smallest, largest) in files {
        bytes.push(ValueKind::RangeDelete as u8);
        put_varint(&mut bytes, u64::from(family));
        put_bytes(&mut bytes, largest);
        put_bytes(&mut bytes, smallest);
    }
    bytes
}

fn header(first: SeqNo, count: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&first.get().to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::decode;

    #[test]
    fn what_is_written_is_read() {
        let bytes = without_ops(SeqNo::new(7));
        let (first, count, mut ops) = decode(&bytes).unwrap();
        assert_eq!((first, count), (SeqNo::new(7), 0));
        assert!(ops.next().is_none());
        let files = [(&b"a"[..], &b"m"[..]), (b"n", b"n"), (b"", b"")];
        let bytes = of_ingestion(SeqNo::new(9), 3, files.into_iter());
        let (first, count, ops) = decode(&bytes).unwrap();
        let ops: Vec<_> = ops.map(|op| op.unwrap()).collect();
        assert_eq!((first, count), (SeqNo::new(9), 3));
        assert!(ops.iter().all(|op| op.family == 3));
        let read: Vec<_> = ops.iter().map(|op| op.ingested().unwrap()).collect();
        assert_eq!(read, files);
    }
}
