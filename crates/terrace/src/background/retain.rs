//! Which versions survive: the rules of flush and compaction, pure, fed one entry at a time in
//! internal order.
//!
//! Live snapshots cut the sequence numbers into stripes: two versions are in one stripe if no
//! snapshot lies between them, that is, if every reader that sees the older one sees the newer one
//! as well. Stripe 0 is the oldest: all readers see it.
//!
//! ```text
//!   seqno    1 .. 10 | 11 .. 25 | 26 ..        snapshots 10 and 25
//!   stripe      0    |    1     |   2
//! ```
//!
//! 1. Of one user key only the newest version of a stripe survives, and below an operand of a merge the next one.
//! 2. A version dies if a newer range tombstone *of its own stripe* covers it.
//! 3. A value past its expiry is a tombstone: nobody sees it, and it hides what is older.
//! 4. A tombstone dies in stripe 0 if nothing below the output may hold its key: all that it hides
//!    is among the inputs, in stripe 0 as well, and dies by rule 1.
//! 5. A value in stripe 0 with nothing below gets sequence number 0, unless an input's range
//!    tombstone spans its key: an older tombstone may live on in the output (rule 6 looks at whole
//!    fragments) and must not come to cover it.
//! 6. Of a range tombstone fragment only the newest sequence number of a stripe survives, and the
//!    one of stripe 0 only if something below may hold a key of the fragment.
//!
//! "Below" ([`Below`]) is every file that may hold older versions and is not an input. The caller
//! guarantees that the inputs hold *all* versions of their keys between the newest input and the
//! output level, and that no snapshot is taken later below a sequence number in an input.
//!
//! Operands survive as they are; `fold`, the next stage, makes values of them, and asks the family's compaction filter
//! about the rest ([`Retain::deleted`]). Called by it.

use std::iter::Peekable;
use terrace_base::key::{EXPIRY_BYTES, pack_trailer, trailer_kind, trailer_seqno};
use terrace_base::range_tombstone::Fragments;
use terrace_base::{MAX_SEQNO, RangeTombstoneRef, RangeTombstones, SeqNo, ValueKind};
use terrace_manifest::FileMeta;

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It stays, under this trailer (its own, or with sequence number 0).
    Keep { trailer: u64 },
    /// It is an operand of a merge, and the next older version of its stripe counts as well.
    Operand {
        /// Whether there is nothing below if no version of its stripe follows.
        is_last: bool,
    },
    /// A value that has expired, or that a filter removed, and that still hides something: it stays as a point
    /// tombstone, without value.
    Tombstone { trailer: u64 },
    /// Nobody can see it and it hides nothing.
    Drop,
}

/// The key ranges that may hold versions older than the output's.
#[derive(Debug, Clone)]
pub(crate) struct Below {
    everywhere: bool,
    /// Sorted, disjoint.
    spans: Vec<Span>,
    /// The first span that does not end before the key asked last.
    at: usize,
}

#[derive(Debug, Clone)]
struct Span {
    start: Vec<u8>,
    end: Vec<u8>,
    end_exclusive: bool,
}

impl Span {
    fn ends_before(&self, key: &[u8]) -> bool {
        match self.end_exclusive {
            true => self.end.as_slice() <= key,
            false => self.end.as_slice() < key,
        }
    }
}

impl Below {
    /// Anything may lie below (a flush that does not ask).
    pub fn everywhere() -> Self {
        Self { everywhere: true, spans: Vec::new(), at: 0 }
    }

    /// Exactly the ranges of `files`, in any order, overlapping or not.
    pub fn files<'a>(files: impl IntoIterator<Item = &'a FileMeta>) -> Self {
        let span = |f: &FileMeta| Span {
            start: f.smallest.clone(),
            end: f.largest.clone(),
            end_exclusive: f.largest_exclusive,
        };
        let mut input: Vec<Span> = files.into_iter().map(span).collect();
        input.sort_by(|a, b| a.start.cmp(&b.start));
        let mut spans: Vec<Span> = Vec::with_capacity(input.len());
        for next in input {
            match spans.last_mut() {
                Some(last) if !last.ends_before(&next.start) => {
                    // An inclusive end reaches further than an exclusive one of the same bytes.
                    if (&last.end, !last.end_exclusive) < (&next.end, !next.end_exclusive) {
                        last.end = next.end;
                        last.end_exclusive = next.end_exclusive;
                    }
                }
                _ => spans.push(next),
            }
        }
        Self { everywhere: false, spans, at: 0 }
    }

    /// Whether `key` may have older versions below. Keys must not descend from call to call.
    #[inline]
    fn may_hold(&mut self, key: &[u8]) -> bool {
        while let Some(span) = self.spans.get(self.at) {
            if !span.ends_before(key) {
                return span.start.as_slice() <= key;
            }
            self.at += 1;
        }
        self.everywhere
    }

    /// Whether any key of `[start, end)` may have older versions below.
    fn may_hold_in(&self, start: &[u8], end: &[u8]) -> bool {
        let first = self.spans.partition_point(|span| span.ends_before(start));
        self.everywhere || self.spans.get(first).is_some_and(|span| span.start.as_slice() < end)
    }
}

/// The stripe of `seqno`: how many of the ascending `snapshots` do not see it.
#[inline]
fn stripe_of(snapshots: &[SeqNo], seqno: SeqNo) -> usize {
    match snapshots {
        [] => 0,
        _ => snapshots.partition_point(|snapshot| *snapshot < seqno),
    }
}

/// The state between two entries: the current user key and what is known of it.
pub(crate) struct Retain<'a> {
    snapshots: &'a [SeqNo],
    /// From the first fragment on that ends after `key`.
    tombstones: Peekable<Fragments<'a>>,
    below: &'a mut Below,
    now_ms: u64,
    zero_seqnos: bool,
    key: Vec<u8>,
    /// Stripe of the version before, of the same key; `None` at the first entry of all.
    last_stripe: Option<usize>,
    /// Whether the version before was an operand.
    stacked: bool,
    /// Whether the version judged last lies under an operand of its stripe.
    under_operand: bool,
    /// Whether the version judged last is the first, that is, the newest, of its key.
    first: bool,
    /// Whether the next fragment covers `key`.
    covered: bool,
    below_holds: Option<bool>,
}

impl<'a> Retain<'a> {
    /// Starts before the first entry. `snapshots` ascend; `tombstones` are those of all inputs;
    /// `zero_seqnos` allows rule 5 (not for outputs in L0, whose order is by sequence number).
    pub fn new(
        snapshots: &'a [SeqNo],
        tombstones: &'a RangeTombstones,
        now_ms: u64,
        below: &'a mut Below,
        zero_seqnos: bool,
    ) -> Self {
        debug_assert!(snapshots.is_sorted());
        Self {
            snapshots,
            tombstones: tombstones.fragments().peekable(),
            below,
            now_ms,
            zero_seqnos,
            key: Vec::new(),
            last_stripe: None,
            stacked: false,
            under_operand: false,
            first: false,
            covered: false,
            below_holds: None,
        }
    }

    /// Judges the next entry; entries come in internal order.
    #[inline]
    pub fn next(&mut self, user_key: &[u8], trailer: u64, value: &[u8]) -> Verdict {
        let seqno = trailer_seqno(trailer);
        let stripe = stripe_of(self.snapshots, seqno);
        let stacked = std::mem::take(&mut self.stacked);
        self.under_operand = false;
        self.first = false;
        match self.last_stripe {
            Some(last) if self.key == user_key => {
                if last == stripe {
                    if !stacked {
                        return Verdict::Drop;
                    }
                    self.under_operand = true;
                }
            }
            _ => {
                self.enter(user_key);
                self.first = true;
            }
        }
        self.last_stripe = Some(stripe);
        if self.covered && self.is_deleted_by_range(seqno, stripe) {
            return Verdict::Drop;
        }
        let kind = trailer_kind(trailer);
        if kind.is_some_and(ValueKind::is_operand) {
            self.stacked = true;
            return Verdict::Operand { is_last: stripe == 0 && !self.may_hold_below() };
        }
        let expired = kind.is_some_and(ValueKind::expires) && is_expired(value, self.now_ms);
        if stripe == 0 && !self.may_hold_below() {
            return match kind {
                Some(ValueKind::Delete) => Verdict::Drop,
                Some(_) if expired => Verdict::Drop,
                Some(kind) if self.zero_seqnos && !self.covered => {
                    Verdict::Keep { trailer: pack_trailer(SeqNo::ZERO, kind) }
                }
                _ => Verdict::Keep { trailer },
            };
        }
        match expired {
            true => Verdict::Tombstone { trailer: pack_trailer(seqno, ValueKind::Delete) },
            false => Verdict::Keep { trailer },
        }
    }

    /// Whether the version judged last is what the operands of its key and stripe, judged right before it,
    /// lie on: if it was dropped, they lie on nothing.
    #[inline]
    pub fn under_operand(&self) -> bool {
        self.under_operand
    }

    /// Whether the version judged last is the newest of its key.
    #[inline]
    pub fn is_newest(&self) -> bool {
        self.first
    }

    /// Whether no snapshot sees the version judged last.
    #[inline]
    pub fn is_unseen(&self) -> bool {
        self.last_stripe == Some(self.snapshots.len())
    }

    /// What becomes of the version judged last, of `trailer`, if it is to be as deleted.
    pub fn deleted(&mut self, trailer: u64) -> Verdict {
        match self.last_stripe == Some(0) && !self.may_hold_below() {
            true => Verdict::Drop,
            false => {
                let seqno = trailer_seqno(trailer);
                Verdict::Tombstone { trailer: pack_trailer(seqno, ValueKind::Delete) }
            }
        }
    }

    /// Moves to the first version of another user key.
    #[inline]
    fn enter(&mut self, user_key: &[u8]) {
        debug_assert!(self.last_stripe.is_none() || self.key.as_slice() < user_key);
        self.key.clear();
        self.key.extend_from_slice(user_key);
        self.below_holds = None;
        while self.tombstones.next_if(|f| f.end <= user_key).is_some() {}
        self.covered = self.tombstones.peek().is_some_and(|f| f.start <= user_key);
    }

    /// Whether a tombstone of `stripe` newer than `seqno` covers the current key. The newest one
    /// that the stripe's readers see decides: it is the largest of the stripe, or older than it.
    fn is_deleted_by_range(&mut self, seqno: SeqNo, stripe: usize) -> bool {
        let newest_visible = self.snapshots.get(stripe).copied().unwrap_or(MAX_SEQNO);
        self.tombstones.peek().is_some_and(|f| {
            f.seqnos.iter().find(|t| **t <= newest_visible).is_some_and(|t| *t > seqno)
        })
    }

    #[inline]
    fn may_hold_below(&mut self) -> bool {
        match self.below_holds {
            Some(holds) => holds,
            None => *self.below_holds.insert(self.below.may_hold(&self.key)),
        }
    }
}

/// Whether a stored value that starts with an expiry has expired. A value too short to carry an expiry is
/// damage, which is kept for a reader to report.
#[inline]
fn is_expired(value: &[u8], now_ms: u64) -> bool {
    value.first_chunk::<EXPIRY_BYTES>().is_some_and(|at| u64::from_le_bytes(*at) <= now_ms)
}

/// `tombstones` as one set in which of every fragment only the newest sequence number of a stripe
/// is left: all that rule 2 asks for, and all of rule 6 that does not depend on what lies below.
pub(crate) fn collapse_tombstones<'a>(
    tombstones: impl IntoIterator<Item = RangeTombstoneRef<'a>>,
    snapshots: &[SeqNo],
) -> RangeTombstones {
    RangeTombstones::collapse(tombstones, |seqno| stripe_of(snapshots, seqno) as u64)
}

/// The range tombstones that the output must carry (rule 6), of those that
/// [`collapse_tombstones`] made of all inputs. Fragments that touch and carry the same are joined,
/// so that repeated cutting does not multiply them.
pub(crate) fn surviving_tombstones(
    tombstones: &RangeTombstones,
    snapshots: &[SeqNo],
    below: &Below,
) -> RangeTombstones {
    let mut survivors = RangeTombstones::default();
    for mut fragment in tombstones.fragments() {
        if !below.may_hold_in(fragment.start, fragment.end)
            && let [newer @ .., oldest] = fragment.seqnos
            && stripe_of(snapshots, *oldest) == 0
        {
            fragment.seqnos = newer;
        }
        if !fragment.seqnos.is_empty() {
            survivors.push_joined(fragment);
        }
    }
    survivors
}

#[cfg(test)]
pub(crate) mod tests;
