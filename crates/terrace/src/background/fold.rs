//! What `retain` keeps, with the operands of merges folded: a stage of flush and compaction.
//!
//! Operands of one stripe that lie on each other are gathered until it is known what lies below them:
//!
//! - a value, or nothing (a tombstone, an expired value, the end of the store): they become one value, under
//!   the sequence number of the newest;
//! - a value with an expiry: they stay, since after the expiry they count from nothing;
//! - it is not known, or a snapshot lies between: the operator makes one operand of them, if it can.
//!
//! What the operator refuses stays as it is, for a reader to get the error. Entries that `retain` keeps
//! and that have nothing to do with operands pass through, the newest of a key by the family's compaction filter
//! (`filter`). Called by `flush` and `compaction/job`.

use super::filter::Filter;
use super::retain::{Retain, Verdict};
use crate::compaction_filter::FilterDecision;
use crate::merge_operator::{MergeOperator, Offered, Operands};
use terrace_base::key::{EXPIRY_BYTES, MAX_VALUE_BYTES, pack_trailer, trailer_kind, trailer_seqno};
use terrace_base::{Result, ValueHandle, ValueKind};
use terrace_buf::Slice;

/// Where the entries go.
pub(crate) trait Sink {
    /// The next entry of the output.
    fn keep(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) -> Result<()>;

    /// An entry of the input that is not in the output.
    fn drop(&mut self, user_key: &[u8], trailer: u64, value: &[u8]);
}

/// Reads a separated value; `None` if that is not possible here.
pub(crate) type ReadValue<'a> = dyn Fn(&[u8], ValueHandle) -> Option<Slice> + 'a;

/// How operands are folded.
#[derive(Clone, Copy)]
pub(crate) struct Folding<'a> {
    /// The family's, if it has one.
    pub operator: Option<&'a dyn MergeOperator>,
    pub read_value: &'a ReadValue<'a>,
}

/// The stage.
pub(crate) struct Fold<'a> {
    retain: Retain<'a>,
    folding: Folding<'a>,
    filter: Option<Filter<'a>>,
    /// The key of `operands`.
    key: Vec<u8>,
    operands: Operands,
    /// Whether there is nothing below them if no version of their stripe follows.
    is_last: bool,
}

impl<'a> Fold<'a> {
    /// The stage behind `retain`.
    pub fn new(retain: Retain<'a>, folding: Folding<'a>) -> Self {
        let (key, operands) = (Vec::new(), Operands::default());
        Self { retain, folding, filter: None, key, operands, is_last: false }
    }

    /// Asks `filter`, if there is one.
    pub fn with_filter(self, filter: Option<Filter<'a>>) -> Self {
        Self { filter, ..self }
    }

    /// Takes the next entry of the input; entries come in internal order.
    #[inline]
    pub fn next(
        &mut self,
        user_key: &[u8],
        trailer: u64,
        value: &[u8],
        sink: &mut impl Sink,
    ) -> Result<()> {
        let verdict = self.retain.next(user_key, trailer, value);
        if !self.operands.is_empty() {
            if self.retain.under_operand() {
                return self.below(user_key, trailer, value, verdict, sink);
            }
            self.end(sink)?;
        }
        match verdict {
            Verdict::Operand { is_last } => {
                self.key.clear();
                self.key.extend_from_slice(user_key);
                self.is_last = is_last;
                self.operand(user_key, trailer, value, sink)
            }
            Verdict::Keep { trailer: kept } if self.filter.is_some() => {
                self.filtered(user_key, trailer, value, kept, sink)
            }
            verdict => settle(user_key, trailer, value, verdict, sink),
        }
    }

    /// Asks the filter about an entry that stays, under the trailer `kept`, if it may see it.
    fn filtered(
        &mut self,
        user_key: &[u8],
        trailer: u64,
        value: &[u8],
        kept: u64,
        sink: &mut impl Sink,
    ) -> Result<()> {
        let is_given = |filter: &Filter<'_>| {
            self.retain.is_newest()
                && (self.retain.is_unseen() || filter.filtering.ignores_snapshots())
        };
        let decision = match (self.filter.filter(is_given), trailer_kind(trailer)) {
            (Some(Filter { filtering, read_value }), Some(kind)) => {
                filtering.judge(user_key, kind, value, read_value)?
            }
            _ => FilterDecision::Keep,
        };
        match decision {
            FilterDecision::Keep => sink.keep(user_key, kept, value),
            FilterDecision::Remove => {
                settle(user_key, trailer, value, self.retain.deleted(trailer), sink)
            }
            FilterDecision::Change(changed) => {
                sink.drop(user_key, trailer, value);
                let expires = trailer_kind(trailer).is_some_and(ValueKind::expires);
                let expiry = value.get(..EXPIRY_BYTES).filter(|_| expires);
                let kind = if expires { ValueKind::PutTtl } else { ValueKind::Put };
                let trailer = pack_trailer(trailer_seqno(kept), kind);
                match expiry {
                    Some(expiry) => sink.keep(user_key, trailer, &[expiry, &changed].concat()),
                    None => sink.keep(user_key, trailer, &changed),
                }
            }
        }
    }

    /// Ends with what is gathered.
    pub fn finish(mut self, sink: &mut impl Sink) -> Result<()> {
        self.end(sink)
    }

    #[cold]
    fn operand(
        &mut self,
        user_key: &[u8],
        trailer: u64,
        value: &[u8],
        sink: &mut impl Sink,
    ) -> Result<()> {
        let kind = trailer_kind(trailer).unwrap_or(ValueKind::Merge);
        match self.operands.offer(trailer_seqno(trailer), kind, value) {
            Offered::Operand | Offered::Base => {
                sink.drop(user_key, trailer, value);
                Ok(())
            }
            // A reader reports it.
            Offered::Malformed => {
                self.combine(sink)?;
                sink.keep(user_key, trailer, value)
            }
        }
    }

    /// Takes the version that the operands lie on.
    #[cold]
    fn below(
        &mut self,
        user_key: &[u8],
        trailer: u64,
        value: &[u8],
        verdict: Verdict,
        sink: &mut impl Sink,
    ) -> Result<()> {
        let kind = trailer_kind(trailer);
        if matches!(verdict, Verdict::Operand { .. }) {
            return self.operand(user_key, trailer, value, sink);
        }
        // An operand that a range tombstone covers is none of them.
        if let Some(kind) = kind.filter(|kind| !kind.is_operand()) {
            self.operands.offer(trailer_seqno(trailer), kind, value);
        }
        let is_none = matches!(verdict, Verdict::Drop | Verdict::Tombstone { .. })
            || kind == Some(ValueKind::Delete);
        let is_folded = match kind {
            _ if self.operands.is_empty() => false,
            _ if is_none => self.fold(None, sink)?,
            Some(ValueKind::Put) => self.fold(Some(value), sink)?,
            Some(kind @ ValueKind::PutHandle) => {
                let handle = ValueHandle::of_entry(kind, value);
                match handle.and_then(|handle| (self.folding.read_value)(user_key, handle)) {
                    Some(read) => self.fold(Some(&read), sink)?,
                    None => false,
                }
            }
            _ => false,
        };
        match is_folded {
            true => sink.drop(user_key, trailer, value),
            false => {
                self.combine(sink)?;
                settle(user_key, trailer, value, verdict, sink)?;
            }
        }
        Ok(())
    }

    /// No version of their stripe follows the operands.
    #[cold]
    fn end(&mut self, sink: &mut impl Sink) -> Result<()> {
        if self.operands.is_empty() || (self.is_last && self.fold(None, sink)?) {
            return Ok(());
        }
        self.combine(sink)
    }

    /// Makes a value of the operands, if the operator does not refuse them.
    fn fold(&mut self, existing: Option<&[u8]>, sink: &mut impl Sink) -> Result<bool> {
        let folded = self.operands.fold(self.folding.operator, &self.key, existing);
        let Some(folded) = folded.ok().filter(|value| value.len() <= MAX_VALUE_BYTES) else {
            return Ok(false);
        };
        let trailer = pack_trailer(self.operands.newest(), ValueKind::Put);
        self.operands.clear();
        sink.keep(&self.key, trailer, &folded)?;
        Ok(true)
    }

    fn combine(&mut self, sink: &mut impl Sink) -> Result<()> {
        let key = &self.key;
        let mut write = |trailer, stored: &[u8]| sink.keep(key, trailer, stored);
        self.operands.write_combined(self.folding.operator, key, &mut write)?;
        self.operands.clear();
        Ok(())
    }
}

/// Does with an entry what the verdict says.
#[inline]
fn settle(
    user_key: &[u8],
    trailer: u64,
    value: &[u8],
    verdict: Verdict,
    sink: &mut impl Sink,
) -> Result<()> {
    match verdict {
        Verdict::Keep { trailer: kept } => sink.keep(user_key, kept, value),
        Verdict::Operand { .. } => sink.keep(user_key, trailer, value),
        Verdict::Tombstone { trailer: as_deleted } => {
            sink.drop(user_key, trailer, value);
            sink.keep(user_key, as_deleted, &[])
        }
        Verdict::Drop => {
            sink.drop(user_key, trailer, value);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
