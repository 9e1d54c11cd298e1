//! Keys of a database in the order of the store: strings and collections together, with what the batch wrote.
//!
//! Four rows are merged, two stored ones and what this batch wrote of each; a key that the batch wrote
//! hides the stored one. All stored keys are of one moment.

use crate::command_batch::{CommandBatch, Mode};
use crate::encode::Meta;
use crate::error::{Error, Result, Wait};
use crate::keys::Type;
use crate::pending_writes::PendingWrites;
use crate::step_allowance::{InParts, StepAllowance};
use crate::walk_bounds::{KeyRange, Step, WalkBounds};
use std::collections::BTreeMap;
use terrace::{Iter, ReadOptions};
use terrace_cluster::{SLOT_COUNT, Slot, slot_of};

/// Keys up to this many are counted one by one: some tens of milliseconds.
const COUNTED: u64 = 100_000;

/// And this many where others wait meanwhile: what [`CommandBatch::allow_walk`] lets through.
const COUNTED_IN_MEMORY: u64 = 4096;

/// With placement `slots`, a walk goes by a search past what a slot has of other databases, or in front of a prefix: this
/// often where others wait meanwhile. About a millisecond.
const SEARCHES_IN_MEMORY: u64 = 512;

/// Nothing is counted where the engine takes it for this many times what would be: keys that stand in every sorted run
/// count in each of them.
const MANY_TIMES: u64 = 32;

/// With placement `slots`, keys that are held to be shown in order.
const MAX_HELD_KEYS: usize = 1 << 21;

/// One key of a walk.
#[derive(Debug, Clone, Copy)]
pub struct SeenKey<'a> {
    /// The key.
    pub key: &'a [u8],
    /// What is under it.
    pub kind: Type,
    /// The string under it; `None` for a collection. Empty if values are not wanted.
    pub value: Option<&'a [u8]>,
}

/// What [`CommandBatch::scan_keys`] looks for.
#[derive(Debug, Clone, Copy)]
pub struct KeyScan<'a> {
    /// 0, or what the last page gave.
    pub cursor: u64,
    /// Only keys that begin with this.
    pub prefix: &'a [u8],
    /// Only keys of this type.
    pub kind: Option<Type>,
    /// How many keys are looked at: at least 1.
    pub count: u64,
}

/// A stored row of keys: those within bounds.
struct Stored<'b> {
    iter: Option<Iter>,
    bounds: &'b WalkBounds,
    /// How many searches it may make for what is within the bounds.
    searches: u64,
    /// How many keys it may step over that are not shown; `None`: any number.
    steps: Option<StepAllowance>,
    /// If any number: how many at a time.
    parts: Option<InParts<'b>>,
    /// What is behind this key of the engine is not known: there were too many of those.
    known_until: Option<Vec<u8>>,
}

impl Stored<'_> {
    fn key(&self) -> Option<&[u8]> {
        self.iter.as_ref().filter(|iter| iter.valid()).map(Iter::key)
    }

    fn value(&self) -> &[u8] {
        self.iter.as_ref().map_or(&[], Iter::value)
    }

    /// Goes on to the first key within the bounds, from where it stands.
    fn settle(&mut self) -> Result<()> {
        while let Some(iter) = self.iter.as_mut().filter(|iter| iter.valid())
            && let Step::Seek(next) = self.bounds.look_at(iter.key())
        {
            let left = self.searches.checked_sub(1);
            self.searches = left.ok_or(Error::Elsewhere(Wait::Walk))?;
            let moved = iter.seek(&next);
            self.go_on(moved)?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        if let Some(iter) = &mut self.iter {
            let moved = iter.next();
            self.go_on(moved)?;
        }
        self.settle()
    }

    /// After a move of the iterator. One that would have stepped over too many keys cuts the slot and goes on with the next
    /// one; with one range the row ends. Where there may be any number it goes on behind these, if that is wanted still.
    fn go_on(&mut self, mut moved: terrace::Result<()>) -> Result<()> {
        let Self { iter: Some(iter), bounds, steps, parts, .. } = self else {
            return Ok(moved?);
        };
        while moved.is_err() {
            let Some(at) = iter.refused_at().map(<[u8]>::to_vec) else { break };
            let behind = [&at[..], &[0]].concat();
            let step = match (&mut *steps, *parts) {
                (Some(steps), _) => {
                    // What was stepped over may have been of slots before.
                    let is_in_other_slot = steps.enter(bounds.slot_bytes_of(&at));
                    iter.step_over_at_most(steps.renew(iter.stepped_over() + iter.covered_steps()));
                    match bounds.look_at(&at) {
                        Step::Show if is_in_other_slot => Step::Seek(behind),
                        Step::Show if bounds.cut_at(&at) => bounds.look_at(&behind),
                        step => step,
                    }
                }
                (None, Some(parts)) if (parts.goes_on)() => {
                    iter.step_over_at_most(parts.steps);
                    match bounds.look_at(&at) {
                        Step::Show => Step::Seek(behind),
                        step => step,
                    }
                }
                (None, Some(_)) => Step::Show,
                // The engine refuses it.
                (None, None) => break,
            };
            let Step::Seek(next) = step else {
                (self.known_until, self.iter) = (Some(at), None);
                return Ok(());
            };
            moved = iter.seek(&next);
        }
        Ok(moved?)
    }
}

/// What the batch wrote of strings or collections: those within bounds, in order.
struct Written<'b, V> {
    all: &'b PendingWrites<V>,
    bounds: &'b WalkBounds,
    place: usize,
    /// The key here, with what was written last and its tail.
    row: Option<(&'b [u8], &'b V, &'b [u8])>,
}

impl<'b, V> Written<'b, V> {
    /// [`CommandBatch::sort_written`] goes before.
    fn within(bounds: &'b WalkBounds, all: &'b PendingWrites<V>) -> Self {
        let mut written = Self { all, bounds, place: 0, row: None };
        written.go_to(all.position(&bounds.lower));
        written
    }

    /// Goes to the first key within the bounds, from a place on.
    fn go_to(&mut self, place: usize) {
        self.place = place;
        loop {
            let row = self.all.row(self.place);
            self.row = row.filter(|(key, ..)| *key < &self.bounds.upper[..]);
            let Some((key, ..)) = self.row else { return };
            match self.bounds.look_at(key) {
                Step::Show => return,
                Step::Seek(next) => self.place = self.all.position(&next),
            }
        }
    }

    fn advance(&mut self) {
        self.go_to(self.place + 1);
    }
}

impl CommandBatch {
    /// Shows the keys of a range, until `seen` says no more: in order, with placement `slots` slot by
    /// slot and in order within each. Strings are read only if `with_values`.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn walk_keys(
        &mut self,
        db: u8,
        range: KeyRange<'_>,
        with_values: bool,
        seen: impl FnMut(SeenKey<'_>) -> bool,
    ) -> Result<()> {
        self.walk_keys_while(db, range, with_values, InParts::of(&|| true), seen)
    }

    /// As [`Self::walk_keys`], in parts.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn walk_keys_while(
        &mut self,
        db: u8,
        range: KeyRange<'_>,
        with_values: bool,
        parts: InParts<'_>,
        mut seen: impl FnMut(SeenKey<'_>) -> bool,
    ) -> Result<()> {
        let bounds = WalkBounds::new(self.space.layout, db, &range);
        let steps = (None, Some(parts));
        self.walk_by(&bounds, with_values, steps, |_, key| seen(key)).map(drop)
    }

    /// Shows the keys of a slot, until `seen` says no more: in order, without values. Only with placement `range` this
    /// goes through all keys.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn walk_slot(
        &mut self,
        db: u8,
        slot: Slot,
        mut seen: impl FnMut(SeenKey<'_>) -> bool,
    ) -> Result<()> {
        let layout = self.space.layout;
        let bounds = WalkBounds::of_slot(layout, slot, db, &KeyRange::default());
        self.walk(&bounds, false, |_, key| {
            let is_other = !layout.has_slots() && slot_of(key.key) != slot;
            is_other || seen(key)
        })
    }

    /// Shows at most `limit` of the keys that `wanted` holds for, the least first, whatever the
    /// placement. With `slots` this goes to every slot, and holds `limit` keys and values in memory.
    ///
    /// # Errors
    /// As [`Self::walk_keys_in_order_within`].
    pub fn walk_keys_in_order(
        &mut self,
        db: u8,
        range: KeyRange<'_>,
        with_values: bool,
        limit: usize,
        wanted: impl Fn(&[u8]) -> bool,
        mut seen: impl FnMut(SeenKey<'_>),
    ) -> Result<()> {
        let wanted = |key: &[u8]| Some(wanted(key));
        self.walk_keys_in_order_within(db, range, with_values, (limit, usize::MAX), wanted, |key| {
            seen(key);
            true
        })
    }

    /// As [`Self::walk_keys_in_order`], until `seen` says no more; that must be as soon as it has seen `most_bytes` of
    /// keys and values: with `slots` no more are held. Where `wanted` gives nothing the walk ends;
    /// where many keys are not shown it is asked for the empty key now and then.
    ///
    /// # Errors
    /// [`Error::TooLong`] if with `slots` more than 2,097,152 keys would be held; those of the engine.
    pub fn walk_keys_in_order_within(
        &mut self,
        db: u8,
        range: KeyRange<'_>,
        with_values: bool,
        (limit, most_bytes): (usize, usize),
        wanted: impl Fn(&[u8]) -> Option<bool>,
        mut seen: impl FnMut(SeenKey<'_>) -> bool,
    ) -> Result<()> {
        let mut left = limit;
        let goes_on = || wanted(&[]).is_some();
        let parts = InParts::of(&goes_on);
        if !self.space.layout.has_slots() {
            return self.walk_keys_while(db, range, with_values, parts, |key| {
                let Some(is_wanted) = wanted(key.key) else { return false };
                let is_shown = left > 0 && is_wanted;
                left -= usize::from(is_shown);
                (!is_shown || seen(key)) && left > 0
            });
        }
        let mut least: BTreeMap<Vec<u8>, (Type, Option<Vec<u8>>)> = BTreeMap::new();
        let bytes_of = |key: &[u8], value: Option<&[u8]>| key.len() + value.map_or(0, <[u8]>::len);
        let (mut held_bytes, most_bytes) = (0, most_bytes.max(1));
        let bounds = WalkBounds::new(self.space.layout, db, &range);
        self.walk_by(&bounds, with_values, (None, Some(parts)), |_, key| {
            let is_full = least.len() >= limit || held_bytes >= most_bytes;
            let is_less = least.last_key_value().is_none_or(|(last, _)| key.key < &last[..]);
            let is_wanted = if !is_full || is_less { wanted(key.key) } else { Some(false) };
            let Some(is_wanted) = is_wanted else { return false };
            if is_wanted {
                held_bytes += bytes_of(key.key, key.value);
                least.insert(key.key.to_vec(), (key.kind, key.value.map(<[u8]>::to_vec)));
                // The last one goes if the others are enough.
                while let Some((last, (_, value))) = least.last_key_value() {
                    let without = held_bytes - bytes_of(last, value.as_deref());
                    if least.len() <= limit && without < most_bytes {
                        break;
                    }
                    held_bytes = without;
                    least.pop_last();
                }
                if (least.len() >= limit || held_bytes >= most_bytes)
                    && let Some((last, _)) = least.last_key_value()
                {
                    bounds.end_at(last);
                }
            }
            limit > 0 && least.len() <= MAX_HELD_KEYS
        })?;
        if least.len() > MAX_HELD_KEYS {
            return Err(Error::TooLong(format!(
                "with placement `slots` no more than {MAX_HELD_KEYS} keys are put into order at a time"
            )));
        }
        for (key, (kind, value)) in &least {
            if !seen(SeenKey { key, kind: *kind, value: value.as_deref() }) {
                break;
            }
        }
        Ok(())
    }

    /// Shows the keys within bounds, each with the engine's key before it.
    fn walk(
        &mut self,
        bounds: &WalkBounds,
        with_values: bool,
        seen: impl FnMut(&[u8], SeenKey<'_>) -> bool,
    ) -> Result<()> {
        self.walk_within(bounds, with_values, None, seen).map(drop)
    }

    /// As [`Self::walk`]. It steps over no more than `most_steps` strings, and as many collections, that are not shown. A slot
    /// with more is cut ([`WalkBounds::cut`]); one range ends with the key of the engine that is given, the last that is known.
    pub(crate) fn walk_within(
        &mut self,
        bounds: &WalkBounds,
        with_values: bool,
        most_steps: Option<u64>,
        seen: impl FnMut(&[u8], SeenKey<'_>) -> bool,
    ) -> Result<Option<Vec<u8>>> {
        self.walk_by(bounds, with_values, (most_steps, None), seen)
    }

    /// As [`Self::walk_within`], in parts if that is said.
    fn walk_by(
        &mut self,
        bounds: &WalkBounds,
        with_values: bool,
        (most_steps, parts): (Option<u64>, Option<InParts<'_>>),
        mut seen: impl FnMut(&[u8], SeenKey<'_>) -> bool,
    ) -> Result<Option<Vec<u8>>> {
        // Where others wait meanwhile the engine refuses to step over many.
        let parts = parts.filter(|_| self.mode() == Mode::Device);
        self.pin();
        if bounds.is_empty() {
            return Ok(None);
        }
        self.sort_written();
        let mut strings = self.stored_keys(bounds, Some(with_values), (most_steps, parts))?;
        let mut collections = self.stored_keys(bounds, None, (most_steps, parts))?;
        let mut expired_steps = most_steps.map(StepAllowance::of);
        let mut texts = Written::within(bounds, self.written_texts());
        let mut metas = Written::within(bounds, self.written_metas());
        let prefix_bytes = self.space.layout.prefix_bytes();
        let mut unseen = 0;
        loop {
            let (text, meta) = (texts.row, metas.row);
            let written = (text.map(|row| row.0), meta.map(|row| row.0));
            let stored = (strings.key(), collections.key());
            let all = [written.0, written.1, stored.0, stored.1];
            let known_until = [&strings.known_until, &collections.known_until];
            let known_until = known_until.into_iter().flatten().min();
            let first = all.into_iter().flatten().min();
            let first = first.filter(|key| known_until.is_none_or(|until| *key <= &until[..]));
            let Some(key) = first else { return Ok(known_until.cloned()) };
            let here = all.map(|row| row == Some(key));
            let value = match text {
                Some((_, text, bytes)) if here[0] => text.is_live(self.now_ms()).then_some(bytes),
                _ => here[2].then(|| strings.value()),
            };
            let meta = match meta {
                Some((_, meta, _)) if here[1] => *meta,
                _ if here[3] => Some(Meta::read(collections.value())?),
                _ => None,
            };
            let meta = meta.filter(|meta| !meta.is_expired(self.now_ms()));
            let kind = match (value, meta) {
                (Some(_), _) => Some(Type::String),
                (None, meta) => meta.map(|meta| Type::Collection(meta.kind)),
            };
            match kind.filter(|_| !self.space.moves.hides(bounds.db, &key[prefix_bytes..])) {
                Some(kind) => {
                    if !seen(key, SeenKey { key: &key[prefix_bytes..], kind, value }) {
                        return Ok(None);
                    }
                }
                // Collections that have expired are there until they are removed.
                None => {
                    unseen += 1;
                    self.allow_walk(unseen)?;
                    let is_part = |parts: &InParts<'_>| u64::is_multiple_of(unseen, parts.steps);
                    if parts.filter(is_part).is_some_and(|parts| !(parts.goes_on)()) {
                        return Ok(Some(key.to_vec()));
                    }
                    let slot = bounds.slot_bytes_of(key);
                    if expired_steps.as_mut().is_some_and(|steps| steps.step(slot))
                        && !bounds.cut_at(key)
                    {
                        return Ok(Some(key.to_vec()));
                    }
                }
            }
            if here[0] {
                texts.advance();
            }
            if here[1] {
                metas.advance();
            }
            if here[2] {
                strings.advance()?;
            }
            if here[3] {
                collections.advance()?;
            }
        }
    }

    /// Strings, with values or without; collections if neither is said.
    fn stored_keys<'b>(
        &self,
        bounds: &'b WalkBounds,
        values: Option<bool>,
        (most_steps, parts): (Option<u64>, Option<InParts<'b>>),
    ) -> Result<Stored<'b>> {
        let db = bounds.db;
        let searches = if self.mode() == Mode::Memory { SEARCHES_IN_MEMORY } else { u64::MAX };
        let steps = most_steps.map(StepAllowance::of);
        let known_until = None;
        let mut stored = Stored { iter: None, bounds, searches, steps, parts, known_until };
        if self.is_flushed(db) || (values.is_none() && !self.may_hold_collections(db)) {
            return Ok(stored);
        }
        let family = match values {
            Some(_) => &self.space.strings,
            None => &self.space.collections,
        };
        let mut iter = family.iter_with(&ReadOptions {
            lower_bound: Some(bounds.lower.clone()),
            upper_bound: Some(bounds.upper.clone()),
            keys_only: values == Some(false),
            ..self.reading().clone()
        })?;
        if let Some(steps) = &mut stored.steps {
            steps.enter(bounds.slot_bytes_of(&bounds.lower));
            iter.step_over_at_most(steps.renew(0));
        } else if let Some(parts) = parts {
            iter.step_over_at_most(parts.steps);
        }
        let moved = iter.seek_to_first();
        stored.iter = Some(iter);
        stored.go_on(moved)?;
        stored.settle()?;
        Ok(stored)
    }

    /// How many keys there are: exact up to 100,000, above that the engine's estimate, in
    /// which keys that were overwritten or deleted lately may count more than once. Where there were more, that
    /// estimate is given for a while, also if there are fewer now. With placement
    /// `slots`, and if several databases were ever written to, that is the sum of an estimate for every slot.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn count_keys(&mut self, db: u8) -> Result<u64> {
        let most = if self.mode() == Mode::Memory { COUNTED_IN_MEMORY } else { COUNTED };
        let (layout, hidden) = (self.space.layout, self.space.moves.hidden() as u64);
        let all = WalkBounds::new(layout, db, &KeyRange::default());
        let is_one_range = !layout.has_slots() || self.space.written.has_none_but(db);
        // The engine does not know of a flush of this batch.
        let may_estimate = most == COUNTED && !self.is_flushed(db);
        let of_range = match is_one_range && may_estimate {
            true => Some(self.estimate(&all)?.saturating_sub(hidden)),
            false => None,
        };
        let before = self.space.vain_counts.begin(db, self.space.monotonic_us());
        if !is_one_range && may_estimate && before.is_vain() {
            return Ok(self.estimate_of_slots(db)?.saturating_sub(hidden));
        }
        // To count them would be in vain.
        let many = if before.is_vain() { most } else { most * MANY_TIMES };
        if let Some(estimate) = of_range.filter(|estimate| *estimate > many) {
            return Ok(estimate);
        }
        let mut count = 0;
        self.walk_keys(db, KeyRange::default(), false, |_| {
            count += 1;
            count <= most
        })?;
        if count <= most {
            return Ok(count);
        }
        // Where others wait meanwhile it is not counted further.
        self.allow_walk(count)?;
        if may_estimate {
            self.space.vain_counts.note(before, self.space.monotonic_us());
        }
        if is_one_range {
            let estimate = match of_range {
                Some(estimate) => estimate,
                None => self.estimate(&all)?.saturating_sub(hidden),
            };
            return Ok(count.max(estimate));
        }
        Ok(count.max(self.estimate_of_slots(db)?.saturating_sub(hidden)))
    }

    /// The keys of a database beside others, with placement `slots`.
    fn estimate_of_slots(&self, db: u8) -> Result<u64> {
        let mut estimate = 0;
        for slot in (0..SLOT_COUNT).filter_map(Slot::new) {
            let of_slot = WalkBounds::of_slot(self.space.layout, slot, db, &KeyRange::default());
            estimate += self.estimate(&of_slot)?;
        }
        Ok(estimate)
    }

    fn estimate(&self, bounds: &WalkBounds) -> Result<u64> {
        let range = &bounds.lower[..]..&bounds.upper[..];
        let strings = self.space.strings.estimate(range.clone())?;
        let collections = self.space.collections.estimate(range)?;
        Ok(strings.keys + collections.keys)
    }

    /// Whether walks show this key: it is there, and was not brought here by a move of which nothing more is known.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn is_shown(&mut self, db: u8, key: &[u8]) -> Result<bool> {
        // Asked before and after: it may be dropped, or brought, meanwhile.
        let was_hidden = self.space.moves.hides(db, key);
        let is_there = self.key_type(db, key)?.is_some();
        Ok(is_there && !was_hidden && !self.space.moves.hides(db, key))
    }

    /// The first key that is shown.
    pub(crate) fn first_within(&mut self, bounds: &WalkBounds) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        self.walk(bounds, false, |_, seen| {
            found = Some(seen.key.to_vec());
            false
        })?;
        Ok(found)
    }

    /// The last stored key within bounds of one slot, be it a collection that expired.
    pub(crate) fn last_stored_within(&mut self, bounds: &WalkBounds) -> Result<Option<Vec<u8>>> {
        let prefix_bytes = self.space.layout.prefix_bytes();
        let mut last = None;
        for values in [Some(false), None] {
            let Some(mut iter) = self.stored_keys(bounds, values, (None, None))?.iter else {
                continue;
            };
            iter.seek_to_last()?;
            if iter.valid() {
                last = last.max(Some(iter.key()[prefix_bytes..].to_vec()));
            }
        }
        Ok(last)
    }
}
