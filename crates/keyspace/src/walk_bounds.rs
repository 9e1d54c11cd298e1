//! Which of the engine's keys a walk over a database sees.
//!
//! With placement `range`, or within one slot, that is one range. Over all slots it is a part of each,
//! with other databases between: the walk skips what is outside. Called by `key_scan`.

use crate::encode;
use crate::key_layout::{KeyLayout, SLOT_BYTES};
use std::cell::RefCell;
use terrace_cluster::{SLOT_COUNT, Slot, hash_tag, slot_of};

/// Which keys [`CommandBatch::walk_keys`](crate::CommandBatch::walk_keys) shows.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyRange<'a> {
    /// Not below this one.
    pub start: &'a [u8],
    /// Only below this one.
    pub end: Option<&'a [u8]>,
    /// Only those that begin with this.
    pub prefix: &'a [u8],
}

/// What to do with a key of the engine.
pub(crate) enum Step {
    /// It is within the bounds.
    Show,
    /// It is not, nor is any before this one.
    Seek(Vec<u8>),
}

/// The part of each slot that is seen.
struct PartOfSlots {
    /// The first key of the user.
    start: Vec<u8>,
    /// The first behind.
    end: RefCell<Option<Vec<u8>>>,
    /// See [`WalkBounds::cut`].
    cut: RefCell<Option<Vec<u8>>>,
}

/// See the module.
pub(crate) struct WalkBounds {
    pub db: u8,
    /// The first of the engine's keys.
    pub lower: Vec<u8>,
    /// The first behind the last.
    pub upper: Vec<u8>,
    part: Option<PartOfSlots>,
    /// Whether slots may be cut. If not, all of them are one range in the order of the store.
    cuts: bool,
}

impl WalkBounds {
    /// Over a whole database.
    pub fn new(layout: KeyLayout, db: u8, range: &KeyRange<'_>) -> Self {
        // A prefix with a whole hash tag says in which slot all its keys are.
        let slot = hash_tag(range.prefix).len() < range.prefix.len();
        if !layout.has_slots() || slot {
            return Self::of_slot(layout, slot_of(range.prefix), db, range);
        }
        let start = range.start.max(range.prefix).to_vec();
        let end = RefCell::new(end_of(range));
        let first = 0_u16.to_be_bytes();
        let lower = [&first[..], &[db], &start].concat();
        let upper = SLOT_COUNT.to_be_bytes().to_vec();
        Self {
            db,
            lower,
            upper,
            part: Some(PartOfSlots { start, end, cut: RefCell::default() }),
            cuts: false,
        }
    }

    /// Over a slot of a database; with placement `range` over a whole database.
    pub fn of_slot(layout: KeyLayout, slot: Slot, db: u8, range: &KeyRange<'_>) -> Self {
        let stem = layout.stem(slot, db);
        let lower = [&stem[..], range.start.max(range.prefix)].concat();
        let upper = match end_of(range) {
            Some(end) => [&stem[..], &end].concat(),
            // Databases end before FF: there always is a key behind.
            None => encode::end_of(&stem).unwrap_or_default(),
        };
        Self { db, lower, upper, part: None, cuts: false }
    }

    /// For a walk that ends each slot by itself where too many keys are not shown.
    pub fn cutting(mut self) -> Self {
        self.cuts = true;
        self
    }

    pub fn is_empty(&self) -> bool {
        self.lower >= self.upper
    }

    /// Leaves out what is not behind this key of the engine.
    pub fn go_on_after(&mut self, engine_key: &[u8]) {
        self.go_on_at(&[engine_key, &[0]].concat());
    }

    /// Leaves out what is before this key of the engine.
    pub fn go_on_at(&mut self, engine_key: &[u8]) {
        if engine_key > &self.lower[..] {
            self.lower = engine_key.to_vec();
        }
    }

    /// From now on leaves out, of every slot, this key of the user and what is behind it.
    pub fn end_at(&self, key: &[u8]) {
        if let Some(part) = &self.part {
            lower_end(&mut part.end.borrow_mut(), key);
        }
    }

    /// What is behind this key of the engine in its slot is not known. From now on what is behind that key of the user is left
    /// out of every slot. Gives whether slots may be cut; if not, the walk ends here.
    pub fn cut_at(&self, engine_key: &[u8]) -> bool {
        let part = self.part.as_ref().filter(|_| self.cuts);
        let (Some(part), Some((_, key))) = (part, engine_key.split_at_checked(SLOT_BYTES + 1))
        else {
            return false;
        };
        lower_end(&mut part.end.borrow_mut(), &[key, &[0]].concat());
        lower_end(&mut part.cut.borrow_mut(), key);
        true
    }

    /// The least key of the user at which a slot was cut: behind it not all keys are known.
    pub fn cut(&self) -> Option<Vec<u8>> {
        self.part.as_ref()?.cut.borrow().clone()
    }

    /// Of a key of the engine the slot, if there are several that may be cut.
    pub fn slot_bytes_of<'k>(&self, engine_key: &'k [u8]) -> Option<&'k [u8]> {
        self.part.as_ref().filter(|_| self.cuts).and(engine_key.get(..SLOT_BYTES))
    }

    /// Whether a key between `lower` and `upper` is seen.
    pub fn look_at(&self, engine_key: &[u8]) -> Step {
        let Some(part) = &self.part else { return Step::Show };
        let from = |slot: [u8; SLOT_BYTES]| [&slot[..], &[self.db], &part.start].concat();
        let mut slot = [0; SLOT_BYTES];
        slot.iter_mut().zip(engine_key).for_each(|(to, byte)| *to = *byte);
        // Another program may have written a key that is too short for a server's: it comes before all of its slot.
        let Some((&db, key)) = engine_key.get(SLOT_BYTES..).and_then(<[u8]>::split_first) else {
            return Step::Seek(from(slot));
        };
        if (db, key) < (self.db, &part.start[..]) {
            return Step::Seek(from(slot));
        }
        let is_before_end = part.end.borrow().as_deref().is_none_or(|end| key < end);
        if db == self.db && is_before_end {
            return Step::Show;
        }
        Step::Seek(from((u16::from_be_bytes(slot) + 1).to_be_bytes()))
    }
}

fn lower_end(end: &mut Option<Vec<u8>>, key: &[u8]) {
    if end.as_deref().is_none_or(|end| key < end) {
        *end = Some(key.to_vec());
    }
}

/// The first key behind a range, if there is one.
fn end_of(range: &KeyRange<'_>) -> Option<Vec<u8>> {
    let behind_prefix = encode::end_of(range.prefix);
    match (range.end, behind_prefix) {
        (Some(end), Some(behind)) => Some(behind.min(end.to_vec())),
        (Some(end), None) => Some(end.to_vec()),
        (None, behind) => behind,
    }
}
