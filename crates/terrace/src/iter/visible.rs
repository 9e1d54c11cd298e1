//! From internal entries to what a reader sees: of every user key the newest version at or below
//! the read's sequence number, unless that is a tombstone, expired, or covered by a newer range
//! tombstone; within the bounds; in both directions.
//!
//! Forward, the cursor below stands on the entry that is shown, so key and value are borrowed from
//! it. Backward, versions come oldest first and the newest visible one is known only when the next
//! key has been reached: the cursor stands before all versions of the key that is shown, and key
//! and value are copies in buffers that are reused.
//!
//! If the newest version is an operand of a merge, the versions below it are folded into a value, which is
//! a copy. Forward, the cursor then stands on an older version of the key, or on the next key.
//!
//! A separated value is shown as the handle that is stored in its place; `iter/values`, the layer
//! above, reads it.
//!
//! Versions that are not shown are stepped over; after [`MAX_STEPS`] over one key the cursor seeks
//! instead, so that a key with many versions costs a bounded number of steps.

use crate::iter::ScanCursor;
use crate::iter::cover::Cover;
use crate::merge_operator::{MergeOperator, Offered, Operands};
use crate::values::value_source::ValueSource;
use std::path::Path;
use std::sync::Arc;
use terrace_base::key::{
    EXPIRY_BYTES, same_key, seek_trailer, set_key, trailer_kind, trailer_seqno,
};
use terrace_base::{Error, HANDLE_BYTES, Result, SeqNo, ValueHandle, ValueKind};

/// Steps over versions of one user key before the cursor seeks past them.
const MAX_STEPS: u32 = 8;

/// Entries met in a row, covered by the same range tombstones, before whole runs are asked to move
/// past them.
const COVERED_STEPS: u32 = 4;

/// A buffer larger than this is given back when a much smaller value takes its place.
const KEPT_VALUE_BYTES: usize = 1 << 20;

/// What a read may see.
pub(crate) struct View {
    /// The read's sequence number.
    pub seqno: SeqNo,
    /// Wall-clock time in Unix milliseconds; entries that expire at or before it are absent.
    pub now_ms: u64,
    /// The first key shown.
    pub lower: Option<Vec<u8>>,
    /// The first key past those shown.
    pub upper: Option<Vec<u8>>,
    /// The range tombstones.
    pub cover: Cover,
    /// Whether only keys are wanted: then operands are not folded.
    pub keys_only: bool,
    /// How operands are folded, if the column family has a merge operator.
    pub fold: Option<Fold>,
}

/// What folding the operands of a key takes.
pub(crate) struct Fold {
    pub operator: Arc<dyn MergeOperator>,
    /// Where the values below them are read from, if they are separated.
    pub values: Box<dyn ValueSource + Send + Sync>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No seek yet, or nothing to show at this end.
    Nowhere,
    /// The cursor stands on what is shown.
    Forward,
    /// `key` and `value` hold what is shown; the cursor stands before all its versions.
    Backward,
    /// `key` and `value` hold what is shown; the cursor stands behind its newest visible version.
    Folded,
}

/// Which entries of user key `Visible::key` the forward search passes over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Skip {
    Nothing,
    /// All that are left: a newer version has been judged.
    Rest,
    /// Those too new to be seen.
    TooNew,
}

/// The visible entries of a cursor over internal keys.
pub(crate) struct Visible<I> {
    iter: I,
    view: View,
    state: State,
    /// Backward: the key shown. Forward: scratch, the key whose versions are passed over.
    key: Vec<u8>,
    /// Backward: the stored value.
    value: Vec<u8>,
    /// Where the caller's value lies in what is stored.
    live: Live,
    /// Scratch: the operands of a key.
    operands: Operands,
    /// Keys stepped over that are deleted or expired, without those that range tombstones cover.
    stepped_over: u64,
    /// Keys stepped over that range tombstones cover, and times that runs were asked to move past such keys.
    covered_steps: u64,
    /// Keys stepped over of which all versions are too new to be seen.
    too_new: u64,
    /// A move that would make all of these more than this is refused.
    most_stepped_over: u64,
}

/// What stands where the value of an entry lies that is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Value,
    Handle,
    /// An operand of a merge: the value is still to be made.
    Operand,
}

/// Where the value of an entry lies that is there.
#[derive(Clone, Copy)]
struct Live {
    /// Where it starts in what is stored: behind the expiry, if there is one.
    start: u8,
    content: Content,
}

impl Live {
    const fn at_start(content: Content) -> Self {
        Self { start: 0, content }
    }
}

/// Where the caller's value lies, or `None` if the entry says that the key is absent. `stored` is
/// called only for an entry with an expiry.
#[inline]
fn live_value<'a>(
    trailer: u64,
    stored: impl FnOnce() -> &'a [u8],
    now_ms: u64,
) -> Result<Option<Live>> {
    match trailer_kind(trailer) {
        Some(ValueKind::Put) => Ok(Some(Live::at_start(Content::Value))),
        Some(ValueKind::Delete) => Ok(None),
        Some(ValueKind::PutTtl) => live_from_expiry(stored(), Content::Value, now_ms),
        Some(ValueKind::PutHandle) => Ok(Some(Live::at_start(Content::Handle))),
        Some(ValueKind::PutTtlHandle) => live_from_expiry(stored(), Content::Handle, now_ms),
        Some(ValueKind::Merge | ValueKind::Merged) => Ok(Some(Live::at_start(Content::Operand))),
        Some(ValueKind::RangeDelete) | None => {
            Err(damaged(format!("an entry is of unknown kind {}", trailer as u8)))
        }
    }
}

fn live_from_expiry(stored: &[u8], content: Content, now_ms: u64) -> Result<Option<Live>> {
    match stored.first_chunk::<EXPIRY_BYTES>() {
        Some(expiry) if u64::from_le_bytes(*expiry) > now_ms => {
            Ok(Some(Live { start: EXPIRY_BYTES as u8, content }))
        }
        Some(_) => Ok(None),
        None => Err(damaged(format!(
            "a value with an expiry has {} bytes instead of at least {EXPIRY_BYTES}",
            stored.len()
        ))),
    }
}

/// The cursor does not say which file an entry came from.
#[cold]
fn damaged(detail: String) -> Error {
    Error::corruption(Path::new("an SST or memtable of the store"), 0, detail)
}

impl<I: ScanCursor> Visible<I> {
    /// What `view` shows of `iter`; shows nothing until the first seek.
    pub fn new(iter: I, view: View) -> Self {
        let (key, value) = (Vec::new(), Vec::new());
        let (live, operands) = (Live::at_start(Content::Value), Operands::default());
        Self {
            iter,
            view,
            state: State::Nowhere,
            key,
            value,
            live,
            operands,
            stepped_over: 0,
            covered_steps: 0,
            too_new: 0,
            most_stepped_over: u64::MAX,
        }
    }

    /// Refuses, with [`Error::NotInMemory`], moves that would from now on step over more keys than this in all that are
    /// deleted, expired, covered or too new: for a thread that must not take long.
    pub fn step_over_at_most(&mut self, most: u64) {
        self.most_stepped_over = self.all_steps().saturating_add(most);
    }

    /// The key at which a move was refused since it would have stepped over too many: neither it nor a key that the move has
    /// passed is shown.
    pub fn refused_at(&self) -> Option<&[u8]> {
        let is_refused = !self.valid() && self.all_steps() > self.most_stepped_over;
        is_refused.then_some(&self.key[..])
    }

    fn all_steps(&self) -> u64 {
        self.stepped_over + self.covered_steps + self.too_new
    }

    /// A key is stepped over.
    fn note_step(&mut self, is_covered: bool) -> Result<()> {
        self.stepped_over += u64::from(!is_covered);
        self.covered_steps += u64::from(is_covered);
        self.check_steps()
    }

    fn check_steps(&self) -> Result<()> {
        match self.all_steps() > self.most_stepped_over {
            true => Err(Error::NotInMemory),
            false => Ok(()),
        }
    }

    /// How many keys were stepped over since they are deleted or expired, without those that range tombstones cover.
    pub fn stepped_over(&self) -> u64 {
        self.stepped_over
    }

    /// How many steps it took to get past keys that range tombstones cover.
    pub fn covered_steps(&self) -> u64 {
        self.covered_steps
    }

    /// Whether there is an entry to show.
    #[inline]
    pub fn valid(&self) -> bool {
        self.state != State::Nowhere
    }

    /// The key shown. Empty if not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.state {
            State::Forward => self.iter.user_key(),
            State::Backward | State::Folded => &self.key,
            State::Nowhere => &[],
        }
    }

    /// The value shown, or the handle in its place. Empty if not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        let stored = match self.state {
            State::Forward => self.iter.value(),
            State::Backward | State::Folded => &self.value,
            State::Nowhere => return &[],
        };
        stored.get(usize::from(self.live.start)..).unwrap_or(&[])
    }

    /// When what is shown expires, if it does.
    pub fn expires_at_ms(&self) -> Option<u64> {
        let stored = match self.state {
            State::Forward if self.live.start > 0 => self.iter.value(),
            State::Backward if self.live.start > 0 => &self.value,
            _ => return None,
        };
        stored.first_chunk::<EXPIRY_BYTES>().map(|expiry| u64::from_le_bytes(*expiry))
    }

    /// Whether what is shown has a handle in place of its value.
    #[inline]
    pub fn shows_handle(&self) -> bool {
        self.live.content == Content::Handle && self.valid()
    }

    /// The handle shown in place of a value.
    ///
    /// # Errors
    /// `Corruption` if what is shown cannot be one.
    pub fn handle(&self) -> Result<ValueHandle> {
        match self.value().try_into() {
            Ok(bytes) if self.shows_handle() => Ok(ValueHandle::decode(bytes)),
            _ => Err(damaged(format!(
                "a value handle has {} bytes instead of {HANDLE_BYTES}",
                self.value().len()
            ))),
        }
    }

    /// Shows nothing until the next seek.
    pub fn leave(&mut self) {
        self.state = State::Nowhere;
    }

    /// Shows the first entry.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.state = State::Nowhere;
        match &self.view.lower {
            Some(lower) => self.iter.seek(lower, seek_trailer(self.view.seqno))?,
            None => self.iter.seek_to_first()?,
        }
        self.find_forward(Skip::Nothing)
    }

    /// Shows the last entry.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.state = State::Nowhere;
        match &self.view.upper {
            Some(upper) => self.iter.seek_before(upper, u64::MAX)?,
            None => self.iter.seek_to_last()?,
        }
        self.find_backward()
    }

    /// Shows the first entry whose key is at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.state = State::Nowhere;
        if self.view.upper.as_deref().is_some_and(|upper| key >= upper) {
            return Ok(());
        }
        let from = match self.view.lower.as_deref() {
            Some(lower) if key < lower => lower,
            _ => key,
        };
        self.iter.seek(from, seek_trailer(self.view.seqno))?;
        self.find_forward(Skip::Nothing)
    }

    /// Shows the last entry whose key is at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.state = State::Nowhere;
        if self.view.lower.as_deref().is_some_and(|lower| key < lower) {
            return Ok(());
        }
        match self.view.upper.as_deref() {
            Some(upper) if key >= upper => self.iter.seek_before(upper, u64::MAX)?,
            // Trailer 0 would be a point tombstone that deletes nothing.
            _ => self.iter.seek_before(key, 0)?,
        }
        self.find_backward()
    }

    /// Shows the next entry; nothing happens if not valid.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Nowhere) {
            State::Nowhere => return Ok(()),
            State::Forward => {
                set_key(&mut self.key, self.iter.user_key());
                self.iter.next()?;
                if self.is_plain() {
                    (self.state, self.live) = (State::Forward, Live::at_start(Content::Value));
                    return Ok(());
                }
            }
            State::Backward => self.iter.seek(&self.key, 0)?,
            State::Folded => {}
        }
        self.find_forward(Skip::Rest)
    }

    /// Shows the previous entry; nothing happens if not valid.
    pub fn prev(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Nowhere) {
            State::Nowhere => return Ok(()),
            State::Forward => {
                set_key(&mut self.key, self.iter.user_key());
                self.leave_key_backward()?;
            }
            State::Backward => {}
            State::Folded => self.iter.seek_before(&self.key, u64::MAX)?,
        }
        self.find_backward()
    }

    /// Whether a step from `self.key` has come, as most do, to a value of another key that is certain to be shown.
    /// [`Self::find_forward`] finds the same.
    #[inline]
    fn is_plain(&self) -> bool {
        let (iter, view) = (&self.iter, &self.view);
        iter.valid()
            && trailer_kind(iter.trailer()) == Some(ValueKind::Put)
            && trailer_seqno(iter.trailer()) <= view.seqno
            && view.cover.is_empty()
            && !same_key(iter.user_key(), &self.key)
            && view.upper.as_deref().is_none_or(|upper| iter.user_key() < upper)
    }

    /// From the cursor on, the first entry to show. `skip` says which entries of `self.key` are
    /// passed over.
    #[inline]
    fn find_forward(&mut self, mut skip: Skip) -> Result<()> {
        let mut steps = 0;
        let mut covered = 0;
        while self.iter.valid() {
            let user_key = self.iter.user_key();
            if self.view.upper.as_deref().is_some_and(|upper| user_key >= upper) {
                break;
            }
            if skip == Skip::Rest && same_key(user_key, &self.key) {
                steps = (steps + 1) % MAX_STEPS;
                match steps {
                    0 => self.iter.seek_onward(&self.key, 0)?,
                    _ => self.iter.next()?,
                }
                continue;
            }
            if skip == Skip::TooNew && !same_key(user_key, &self.key) {
                // None of its versions was old enough.
                skip = Skip::Nothing;
                self.too_new += 1;
                self.check_steps()?;
            }
            let trailer = self.iter.trailer();
            if trailer_seqno(trailer) > self.view.seqno {
                if skip != Skip::TooNew {
                    set_key(&mut self.key, user_key);
                    (skip, steps) = (Skip::TooNew, 0);
                }
                steps = (steps + 1) % MAX_STEPS;
                match steps {
                    0 => self.iter.seek_onward(&self.key, seek_trailer(self.view.seqno))?,
                    _ => self.iter.next()?,
                }
                continue;
            }
            let live = live_value(trailer, || self.iter.value(), self.view.now_ms)?;
            let cover_seqno = self.view.cover.seqno_at(user_key)?;
            let is_covered = cover_seqno > trailer_seqno(trailer);
            if let Some(live) = live
                && !is_covered
            {
                if live.content == Content::Operand && !self.view.keys_only {
                    self.fold(cover_seqno)?;
                    self.state = State::Folded;
                    return Ok(());
                }
                (self.state, self.live) = (State::Forward, live);
                return Ok(());
            }
            set_key(&mut self.key, user_key);
            (skip, steps) = (Skip::Rest, 0);
            covered = if is_covered { covered + 1 } else { 0 };
            self.note_step(is_covered)?;
            match self.view.cover.covered_until() {
                Some(end) if covered >= COVERED_STEPS => {
                    self.covered_steps += 1;
                    self.iter.skip_covered(end, cover_seqno)?;
                    covered = 0;
                }
                _ => self.iter.next()?,
            }
        }
        Ok(())
    }

    /// From the cursor back, the last entry to show.
    fn find_backward(&mut self) -> Result<()> {
        let mut covered = 0;
        while self.iter.valid() {
            let user_key = self.iter.user_key();
            if self.view.lower.as_deref().is_some_and(|lower| user_key < lower) {
                break;
            }
            set_key(&mut self.key, user_key);
            let Some(trailer) = self.take_newest_backward()? else {
                self.too_new += 1;
                self.check_steps()?;
                continue;
            };
            let live = live_value(trailer, || &self.value, self.view.now_ms)?;
            let cover_seqno = self.view.cover.seqno_at(&self.key)?;
            let is_covered = cover_seqno > trailer_seqno(trailer);
            if let Some(live) = live
                && !is_covered
            {
                if live.content == Content::Operand && !self.view.keys_only {
                    self.iter.seek(&self.key, seek_trailer(self.view.seqno))?;
                    self.fold(cover_seqno)?;
                    self.iter.seek_before(&self.key, u64::MAX)?;
                } else {
                    self.live = live;
                }
                self.state = State::Backward;
                return Ok(());
            }
            covered = if is_covered { covered + 1 } else { 0 };
            self.note_step(is_covered)?;
            if covered >= COVERED_STEPS && self.iter.valid() {
                self.covered_steps += 1;
                self.iter.skip_covered_back(self.view.cover.covered_from(), cover_seqno)?;
                covered = 0;
            }
        }
        Ok(())
    }

    /// Makes `key` and `value` what the versions of the cursor's key from here on say together; the first is an
    /// operand that `cover_seqno`, of the newest range tombstone that covers the key, does not cover. Moves the
    /// cursor onto older versions.
    #[cold]
    fn fold(&mut self, cover_seqno: SeqNo) -> Result<()> {
        set_key(&mut self.key, self.iter.user_key());
        self.operands.clear();
        let mut base = None;
        loop {
            let (trailer, stored) = (self.iter.trailer(), self.iter.value());
            let kind = trailer_kind(trailer).filter(|_| trailer_seqno(trailer) >= cover_seqno);
            // Covered by the range tombstone: there is nothing below.
            let Some(kind) = kind else { break };
            match self.operands.offer(trailer_seqno(trailer), kind, stored) {
                Offered::Operand => self.iter.next()?,
                Offered::Malformed => {
                    return Err(damaged("a combined operand is malformed".into()));
                }
                Offered::Base => {
                    base = live_value(trailer, || stored, self.view.now_ms)?;
                    break;
                }
            }
            if !self.on_key() {
                break;
            }
        }
        let Some(Fold { operator, values }) = &self.view.fold else {
            self.operands.fold(None, &self.key, None)?;
            return Ok(());
        };
        let operator = Some(&**operator);
        let stored = base.map(|live| self.iter.value().get(usize::from(live.start)..));
        let existing = stored.map(|bytes| bytes.unwrap_or_default());
        self.value = match (base, existing) {
            (Some(Live { content: Content::Handle, .. }), Some(bytes)) => {
                let handle = bytes.try_into().map(ValueHandle::decode);
                let handle = handle.map_err(|_| damaged("a value handle is cut off".into()))?;
                let read = values.read(&[(&self.key, handle)], usize::MAX).pop();
                let value = read.unwrap_or_else(|| Err(damaged("a value was not read".into())))?;
                self.operands.fold(operator, &self.key, Some(&value))?
            }
            _ => self.operands.fold(operator, &self.key, existing)?,
        };
        self.live = Live::at_start(Content::Value);
        Ok(())
    }

    /// Moves the cursor, which stands on the oldest version of `self.key`, before all its
    /// versions; puts the newest visible one into `self.value` and returns its trailer.
    fn take_newest_backward(&mut self) -> Result<Option<u64>> {
        let mut newest = None;
        for _ in 0..MAX_STEPS {
            let trailer = self.iter.trailer();
            if trailer_seqno(trailer) > self.view.seqno {
                self.leave_key_backward()?;
                return Ok(newest);
            }
            newest = Some(trailer);
            self.copy_value();
            self.iter.prev()?;
            if !self.on_key() {
                return Ok(newest);
            }
        }
        self.iter.seek(&self.key, seek_trailer(self.view.seqno))?;
        if self.on_key() {
            newest = Some(self.iter.trailer());
            self.copy_value();
        }
        self.iter.seek_before(&self.key, u64::MAX)?;
        Ok(newest)
    }

    /// Moves the cursor, which stands on a version of `self.key`, before all its versions.
    fn leave_key_backward(&mut self) -> Result<()> {
        for _ in 0..MAX_STEPS {
            self.iter.prev()?;
            if !self.on_key() {
                return Ok(());
            }
        }
        self.iter.seek_before(&self.key, u64::MAX)
    }

    fn on_key(&self) -> bool {
        self.iter.valid() && same_key(self.iter.user_key(), &self.key)
    }

    fn copy_value(&mut self) {
        let value = self.iter.value();
        if self.value.capacity() > KEPT_VALUE_BYTES && value.len() < self.value.capacity() / 4 {
            self.value = Vec::new();
        }
        self.value.clear();
        self.value.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests;
