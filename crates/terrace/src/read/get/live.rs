//! What the newest version of a key says of it (get): the value, where it lies, or that there is none.

use super::{Answer, Expiry};
use crate::version::read_env::ReadEnv;
use std::num::NonZeroU64;
use terrace_base::key::{EXPIRY_BYTES, trailer_kind, trailer_seqno};
use terrace_base::{SeqNo, ValueHandle, ValueKind};
use terrace_sst::Entry;

/// The user's value of a version and its expiry, unless it is a tombstone, deleted by a range, or
/// expired.
#[inline]
fn live<'a>(
    (env, now_ms): (&ReadEnv, Option<u64>),
    trailer: u64,
    value: &'a [u8],
    covered: SeqNo,
) -> Option<(&'a [u8], Expiry)> {
    if trailer_seqno(trailer) < covered {
        return None;
    }
    match trailer_kind(trailer)? {
        ValueKind::Put | ValueKind::PutHandle => Some((value, None)),
        ValueKind::PutTtl | ValueKind::PutTtlHandle => {
            let (expiry, value) = value.split_first_chunk::<EXPIRY_BYTES>()?;
            let expiry = u64::from_le_bytes(*expiry);
            let now_ms = now_ms.unwrap_or_else(|| env.base.clock.wall_ms());
            (expiry > now_ms).then_some((value, NonZeroU64::new(expiry)))
        }
        ValueKind::Merge | ValueKind::Merged => Some((value, None)),
        ValueKind::Delete | ValueKind::RangeDelete => None,
    }
}

/// What a version in a memtable says.
#[inline]
pub(super) fn from_memtable(
    at: (&ReadEnv, Option<u64>),
    trailer: u64,
    value: &[u8],
    covered: SeqNo,
) -> Answer {
    match live(at, trailer, value, covered) {
        None => Answer::Absent,
        Some((value, expiry)) => {
            separated(trailer, value, expiry).unwrap_or_else(|| Answer::Value(value.into(), expiry))
        }
    }
}

/// The answer of a version whose live value is a handle, or an operand.
#[inline]
fn separated(trailer: u64, live: &[u8], expiry: Expiry) -> Option<Answer> {
    let kind = trailer_kind(trailer)?;
    if kind.is_operand() {
        return Some(Answer::Operand);
    }
    if !kind.is_handle() {
        return None;
    }
    // Handles in SSTs were checked when their block was loaded, those in memtables made here.
    live.try_into().ok().map(|bytes| Answer::Separated(ValueHandle::decode(bytes), expiry))
}

/// What a version in an SST says, a value pinned to its block.
#[inline]
pub(super) fn pinned(at: (&ReadEnv, Option<u64>), entry: Entry, covered: SeqNo) -> Answer {
    if trailer_kind(entry.trailer) == Some(ValueKind::Put)
        && trailer_seqno(entry.trailer) >= covered
    {
        return Answer::Value(entry.value, None);
    }
    let Some((live, expiry)) = live(at, entry.trailer, &entry.value, covered) else {
        return Answer::Absent;
    };
    separated(entry.trailer, live, expiry).unwrap_or_else(|| {
        Answer::Value(entry.value.part(entry.value.len() - live.len(), live.len()), expiry)
    })
}
