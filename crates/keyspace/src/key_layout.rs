//! Whether the keys of a database are in order, or by the slots of a cluster. See `encode.rs` for the
//! whole of the keys, and `store_kind.rs` for where a store says it.

use terrace_cluster::{Placement, SLOT_COUNT, Slot, slot_of};

/// Databases: 0 to this, exclusive. Higher bytes in their place are reserved.
pub const MAX_DATABASES: usize = 128;

/// Bytes of a slot in front of a key.
pub(crate) const SLOT_BYTES: usize = 2;

/// The form of the keys of a store. Chosen when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLayout(Placement);

impl KeyLayout {
    /// That of a placement.
    pub fn of(placement: Placement) -> Self {
        Self(placement)
    }

    /// `Range`: keys of a database are in order. `Slots`: by slot, then in order.
    pub fn placement(self) -> Placement {
        self.0
    }

    pub(crate) fn has_slots(self) -> bool {
        self.0 == Placement::Slots
    }

    /// Bytes in front of the database in the engine's keys: those of a slot, or none.
    pub fn slot_bytes(self) -> usize {
        if self.has_slots() { SLOT_BYTES } else { 0 }
    }

    /// Bytes in front of a user's key in the engine's keys.
    pub(crate) fn prefix_bytes(self) -> usize {
        self.slot_bytes() + 1
    }

    /// The engine's key of a user's key, in `default` and `collections`.
    pub fn user_key(self, db: u8, key: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.prefix_bytes() + key.len());
        self.write_user_key(&mut bytes, db, key);
        bytes
    }

    /// As [`Self::user_key`], behind what is in `bytes`.
    #[inline]
    pub(crate) fn write_user_key(self, bytes: &mut Vec<u8>, db: u8, key: &[u8]) {
        if self.has_slots() {
            bytes.extend_from_slice(&slot_of(key).number().to_be_bytes());
        }
        bytes.push(db);
        bytes.extend_from_slice(key);
    }

    /// The database and the user's key in an engine's key of `default` or `collections`; `None` if
    /// it is no user's key.
    pub fn parts(self, user_key: &[u8]) -> Option<(u8, &[u8])> {
        let (slot, rest) = user_key.split_at_checked(self.slot_bytes())?;
        // What belongs to the store has no slot.
        if slot > &(SLOT_COUNT - 1).to_be_bytes()[..] {
            return None;
        }
        let (&db, key) = rest.split_first()?;
        (usize::from(db) < MAX_DATABASES).then_some((db, key))
    }

    /// The database of an engine's key that [`Self::user_key`] made.
    #[inline]
    pub(crate) fn db_of(self, user_key: &[u8]) -> u8 {
        user_key[self.slot_bytes()]
    }

    /// What engine's keys of a database in a slot start with; in placement `range` the slot is of
    /// no importance.
    pub(crate) fn stem(self, slot: Slot, db: u8) -> Vec<u8> {
        let mut stem = Vec::with_capacity(self.prefix_bytes());
        if self.has_slots() {
            stem.extend_from_slice(&slot.number().to_be_bytes());
        }
        stem.push(db);
        stem
    }
}
