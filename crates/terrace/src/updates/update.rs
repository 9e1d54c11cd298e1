//! What a change feed gives: batches as they were committed, and the operations in them.

use crate::batch::{self, Op, Ops};
use crate::error::Result;
use crate::version::read_env::{Families, family_of};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use terrace_base::key::{EXPIRY_BYTES, MAX_VALUE_BYTES};
use terrace_base::{SeqNo, ValueKind};
use terrace_compression::Compression;

/// Where a record of the log lies, for messages.
#[derive(Debug, Clone)]
pub(super) struct RecordPlace {
    pub path: PathBuf,
    pub offset: u64,
}

/// A batch of writes, committed as one: its operations have consecutive sequence numbers from
/// [`UpdateBatch::first_seqno`] on.
#[derive(Clone)]
pub struct UpdateBatch {
    first: SeqNo,
    count: u32,
    /// The record of the log; its checksum matched, and it was decoded once.
    payload: Vec<u8>,
    place: RecordPlace,
    families: Arc<Families>,
}

/// One operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Update<'a> {
    /// Its sequence number.
    pub seqno: u64,
    /// The name of its column family; `None` if that was dropped since.
    pub family: Option<&'a str>,
    /// What was done.
    pub op: UpdateOp<'a>,
}

/// What an operation did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateOp<'a> {
    /// `key` was set.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value, also where SSTs only refer to it.
        value: Cow<'a, [u8]>,
        /// From when on the key is absent, in Unix milliseconds; a time to live was added to the clock of the commit.
        expires_at_ms: Option<u64>,
    },
    /// `key` was deleted.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// All keys in `[start, end)` were deleted.
    DeleteRange {
        /// The first key.
        start: &'a [u8],
        /// The first key after the range.
        end: &'a [u8],
    },
    /// `operand` was merged into the value of `key`.
    Merge {
        /// The key.
        key: &'a [u8],
        /// The operand.
        operand: &'a [u8],
    },
    /// A file was ingested, or was about to be when the store crashed. The log does not have its entries: what is in
    /// this range of keys is to be read from the store.
    Ingested {
        /// The smallest key of the file.
        smallest: &'a [u8],
        /// The largest key of the file, or the end of its last range deletion.
        largest: &'a [u8],
    },
}

impl UpdateBatch {
    /// A batch of the log.
    ///
    /// # Errors
    /// `Corruption` if an operation is malformed.
    pub(super) fn new(
        payload: &[u8],
        place: RecordPlace,
        families: Arc<Families>,
    ) -> terrace_base::Result<Self> {
        let wrong = |at| {
            let why = batch::not_a_batch(at);
            terrace_base::Error::corruption(&place.path, place.offset, why)
        };
        let (first, count, mut ops) = batch::decode(payload).ok_or_else(|| wrong(0))?;
        if let Some(at) = ops.find_map(|op| op.err()) {
            return Err(wrong(at));
        }
        Ok(Self { first, count, payload: payload.to_vec(), place, families })
    }

    /// The sequence number of the first operation.
    pub fn first_seqno(&self) -> u64 {
        self.first.get()
    }

    /// The sequence number of the last operation: go on with the one after it.
    pub fn last_seqno(&self) -> u64 {
        (self.first + u64::from(self.count)).previous().get()
    }

    /// The number of operations; 1 or more.
    #[allow(clippy::len_without_is_empty, reason = "no batch of a feed is empty")]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// The operations in their order.
    ///
    /// # Errors
    /// `Corruption` for a compressed value that cannot be decompressed.
    pub fn updates(&self) -> impl Iterator<Item = Result<Update<'_>>> {
        let ops = batch::decode(&self.payload).map(|(_, _, ops)| ops);
        let ops = ops.into_iter().flat_map(|ops: Ops<'_>| ops.flatten());
        self.first.onward().zip(ops).map(move |(seqno, op)| {
            let family = family_of(&self.families, op.family);
            let family = family.filter(|family| !family.is_dropped());
            Ok(Update {
                seqno: seqno.get(),
                family: family.map(|family| family.name.as_str()),
                op: self.op(&op)?,
            })
        })
    }

    fn op<'a>(&self, op: &Op<'a>) -> Result<UpdateOp<'a>> {
        let key = op.key;
        if let Some((smallest, largest)) = op.ingested() {
            return Ok(UpdateOp::Ingested { smallest, largest });
        }
        Ok(match op.kind {
            ValueKind::Delete => UpdateOp::Delete { key },
            ValueKind::RangeDelete => UpdateOp::DeleteRange { start: key, end: op.value },
            ValueKind::Merge | ValueKind::Merged => UpdateOp::Merge { key, operand: op.value },
            ValueKind::Put => put(key, op.value.into(), None),
            ValueKind::PutTtl => match op.value.split_first_chunk::<EXPIRY_BYTES>() {
                Some((expiry, value)) => put(key, value.into(), Some(*expiry)),
                None => put(key, op.value.into(), None),
            },
            ValueKind::PutHandle | ValueKind::PutTtlHandle => {
                put(key, self.value(op)?, op.separated.and_then(|separated| separated.expiry))
            }
        })
    }

    /// The value of an operation whose value stays in the log.
    fn value<'a>(&self, op: &Op<'a>) -> Result<Cow<'a, [u8]>> {
        let byte = op.separated.map_or(0, |separated| separated.compression);
        let wrong =
            |why: String| terrace_base::Error::corruption(&self.place.path, self.place.offset, why);
        match Compression::from_byte(byte) {
            Some(Compression::None) => Ok(op.value.into()),
            Some(compression) => {
                let value = terrace_compression::decompress(op.value, compression, MAX_VALUE_BYTES);
                Ok(value.map_err(|fault| wrong(fault.to_string()))?.into())
            }
            None => {
                let why = format!("a value is compressed in way {byte}, which does not exist");
                Err(wrong(why).into())
            }
        }
    }
}

impl std::fmt::Debug for UpdateBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.updates()).finish()
    }
}

fn put<'a>(
    key: &'a [u8],
    value: Cow<'a, [u8]>,
    expiry: Option<[u8; EXPIRY_BYTES]>,
) -> UpdateOp<'a> {
    UpdateOp::Put { key, value, expires_at_ms: expiry.map(u64::from_le_bytes) }
}
