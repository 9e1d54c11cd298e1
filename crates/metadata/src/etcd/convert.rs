//! Between the words of etcd and those of [`Metadata`](crate::Metadata).

use super::api;
use crate::error::Error;
use crate::metadata::{Entry, LeaseId, Transaction, Write, prefix_end};
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

/// The largest answer that is taken.
pub(super) const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// What an answer that is no answer means.
pub(super) fn of_status(status: &Status, url: &str) -> Error {
    let text = || format!("{url}: {}", status.message());
    match status.code() {
        Code::NotFound if status.message().contains("lease") => Error::LeaseGone,
        Code::InvalidArgument
        | Code::NotFound
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::ResourceExhausted => Error::Refused(text()),
        _ => Error::Unavailable(text()),
    }
}

/// A request that a member without a leader refuses.
pub(super) fn with_leader<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

pub(super) fn entry_of(kv: api::KeyValue) -> Entry {
    Entry {
        key: kv.key,
        value: kv.value,
        mod_revision: revision_of(kv.mod_revision),
        lease: (kv.lease != 0).then_some(LeaseId(kv.lease)),
    }
}

/// Revisions are positive; anything else is none.
pub(super) fn revision_of(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) fn number_of(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// The end of a prefix's range, as etcd wants it: `\0` is all from the start on.
pub(super) fn range_end(prefix: &[u8]) -> Vec<u8> {
    prefix_end(prefix).unwrap_or_else(|| vec![0])
}

/// The start of a prefix's range: etcd knows no empty key.
pub(super) fn range_start(prefix: &[u8]) -> Vec<u8> {
    if prefix.is_empty() { vec![0] } else { prefix.to_vec() }
}

pub(super) fn header_revision(header: Option<&api::ResponseHeader>) -> u64 {
    header.map_or(0, |header| revision_of(header.revision))
}

/// A time in whole seconds, as etcd has it.
pub(super) fn ttl_of(seconds: i64) -> Option<Duration> {
    u64::try_from(seconds).ok().filter(|&seconds| seconds > 0).map(Duration::from_secs)
}

pub(super) fn api_transaction(transaction: Transaction) -> api::TxnRequest {
    use api::compare::{CompareResult, CompareTarget, TargetUnion};
    use api::request_op::Request as Op;
    let compare = transaction.compares.into_iter().map(|compare| api::Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: compare.key,
        target_union: Some(TargetUnion::ModRevision(number_of(compare.mod_revision))),
    });
    let success = transaction.writes.into_iter().map(|write| {
        let op = match write {
            Write::Put { key, value, lease } => {
                let lease = lease.map_or(0, |lease| lease.0);
                Op::RequestPut(api::PutRequest { key, value, lease })
            }
            Write::Delete { key } => Op::RequestDeleteRange(api::DeleteRangeRequest { key }),
        };
        api::RequestOp { request: Some(op) }
    });
    api::TxnRequest { compare: compare.collect(), success: success.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_zero_or_less_is_no_lease() {
        assert_eq!(ttl_of(0), None);
        assert_eq!(ttl_of(-1), None);
        assert_eq!(ttl_of(3), Some(Duration::from_secs(3)));
    }
}
