//! How data types lie in ordered keys.
//!
//! ```text
//! family        key                                          value
//! default       P · key                                      the string (expiry: the engine's)
//! collections   P · key                                      Meta
//!               FF · "ids"                                   the first id that was never reserved
//!               FF · "keyspace"                              the mark of the store (`store_kind.rs`)
//!               FF · "db" · db                               placement `slots`: something was written there
//! elements      Q · hash(field) · field                      value           hash
//!               Q · hash(member) · member                    -               set
//!               Q · 00 · hash(member) · member               score           sorted set
//!               Q · 01 · score · member                      -               sorted set, in order
//!               Q · index                                    value           list
//!               FF · ...                                     the rows of `collections` that begin so, again (`store_marks.rs`)
//!
//! placement     P               Q                            notes: collections that will expire (value: id)
//! range         db              db · id                      FE · db · expiry u64 · key, in collections
//! slots         slot · db       slot · db · id               slot · FE · db · expiry u64 · key, in elements
//! ```
//! `db` is one byte, `slot` two, `id` eight (after a slot six), big-endian. An id is never used twice, so what is left of a
//! deleted collection is never seen again; it carries the slot of its key. `hash` is XXH3 of 64 bits: a random place is a
//! random member, and a hash is a cursor that needs no memory. A score is eight bytes that sort as the numbers do, an index
//! eight bytes that sort as signed integers.
//!
//! With placement `range` the keys of a database are in order; with `slots` everything of a slot is one range of every
//! family ([decision 0017](../../../docs/decisions/0017-slot-first-keys.md)). Which a store has is said by its mark.
//!
//! A fourth family, `cluster`, has records of keys that are moved between instances (`move_records.rs`).
//!
//! A key is in one of `default` and `collections`, never in both.

use crate::error::{Error, Result};
use crate::first_expiries::Part;
use crate::key_layout::{KeyLayout, SLOT_BYTES};
use terrace_cluster::Slot;
use xxhash_rust::xxh3::xxh3_64;

/// Stands where a database would in the keys of notes that say which collections will expire.
pub(crate) const EXPIRIES: u8 = 0xFE;
/// The key of `collections` that says which ids are reserved.
pub(crate) const IDS: &[u8] = b"\xFFids";

/// With placement `slots`, databases in which something was written: followed by the database.
pub(crate) const WRITTEN: &[u8] = b"\xFFdb";

/// Marks an id that carries a slot: counters of placement `range` do not get so far.
const WITH_SLOT: u64 = 1 << 63;
/// Bits of an id behind the slot.
const COUNTER_BITS: u32 = 48;

/// Bytes in front of a member in the key of an element.
pub(crate) const ELEMENT_PREFIX_BYTES: usize = 9;

/// The longest key, in bytes: the note that it expires has ten bytes in front of it. With placement
/// `slots` it is two bytes less.
pub const MAX_KEY_BYTES: usize = terrace::MAX_KEY_BYTES - 10;
/// The longest member of a set or sorted set, or field of a hash, in bytes.
pub const MAX_MEMBER_BYTES: usize = terrace::MAX_KEY_BYTES - ELEMENT_PREFIX_BYTES - 9;

/// Name of the family of [`Meta`].
pub const COLLECTIONS: &str = "collections";
/// Name of the family of elements.
pub const ELEMENTS: &str = "elements";

/// What a collection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Fields with values.
    Hash = 1,
    /// Members.
    Set = 2,
    /// Members with scores.
    SortedSet = 3,
    /// Values in a row.
    List = 4,
}

/// What is known of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    /// Where its elements are.
    pub id: u64,
    /// How many there are: never 0 in a stored one.
    pub count: u64,
    /// When it expires, in ms since 1970; 0 never.
    pub expires_at_ms: u64,
    /// Of a list, the index of the first element; the last is at `first + count - 1`.
    pub first: i64,
}

impl Meta {
    /// Encoded length.
    pub const BYTES: usize = 33;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = self.kind as u8;
        bytes[1..9].copy_from_slice(&self.id.to_le_bytes());
        bytes[9..17].copy_from_slice(&self.count.to_le_bytes());
        bytes[17..25].copy_from_slice(&self.expires_at_ms.to_le_bytes());
        bytes[25..33].copy_from_slice(&self.first.to_le_bytes());
        bytes
    }

    /// The stored bytes understood; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let kind = match bytes[0] {
            1 => Kind::Hash,
            2 => Kind::Set,
            3 => Kind::SortedSet,
            4 => Kind::List,
            _ => return None,
        };
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let (id, count, expires_at_ms) = (word(1), word(9), word(17));
        Some(Self { kind, id, count, expires_at_ms, first: word(25) as i64 })
    }

    /// As [`Self::decode`], from the store.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self> {
        Self::decode(bytes).ok_or_else(|| {
            let what = "a collection's record is not one of this build's".into();
            Error::Engine(terrace::Error::InvalidArgument(what))
        })
    }

    /// Whether it has expired.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms != 0 && self.expires_at_ms <= now_ms
    }
}

/// Refuses a key that is too long to be written.
pub(crate) fn check_key(layout: KeyLayout, key: &[u8]) -> Result<()> {
    check(key, "key", MAX_KEY_BYTES - layout.slot_bytes())
}

/// Refuses a member or field that is too long to be written.
pub(crate) fn check_member(member: &[u8]) -> Result<()> {
    check(member, "member or field", MAX_MEMBER_BYTES)
}

fn check(bytes: &[u8], what: &str, limit: usize) -> Result<()> {
    let len = bytes.len();
    if len <= limit {
        return Ok(());
    }
    Err(Error::TooLong(format!("a {what} of {len} bytes is over the limit of {limit} bytes")))
}

/// The id of a collection of placement `slots`; `None` when there are no more.
pub(crate) fn id_in_slot(slot: Slot, counter: u64) -> Option<u64> {
    let in_slot = u64::from(slot.number()) << COUNTER_BITS;
    (counter >> COUNTER_BITS == 0).then_some(WITH_SLOT | in_slot | counter)
}

/// The counter in an id, of whatever layout.
pub(crate) fn counter_of(id: u64) -> u64 {
    if id & WITH_SLOT == 0 { id } else { id & ((1 << COUNTER_BITS) - 1) }
}

/// What the keys of all elements of a collection start with.
pub(crate) fn elements_of(db: u8, id: u64) -> [u8; ELEMENT_PREFIX_BYTES] {
    let mut bytes = [0; ELEMENT_PREFIX_BYTES];
    if id & WITH_SLOT == 0 {
        bytes[0] = db;
        bytes[1..].copy_from_slice(&id.to_be_bytes());
        return bytes;
    }
    let id = (id & !WITH_SLOT).to_be_bytes();
    bytes[..SLOT_BYTES].copy_from_slice(&id[..SLOT_BYTES]);
    bytes[SLOT_BYTES] = db;
    bytes[SLOT_BYTES + 1..].copy_from_slice(&id[SLOT_BYTES..]);
    bytes
}

/// The place of a member among others: also what cursors are made of.
pub(crate) fn place_of(member: &[u8]) -> u64 {
    xxh3_64(member)
}

/// Key of a hash's field or a set's member.
pub(crate) fn member_key(db: u8, id: u64, member: &[u8]) -> Vec<u8> {
    joined(&elements_of(db, id), &[], &place_of(member).to_be_bytes(), member)
}

/// Key that has the score of a sorted set's member.
pub(crate) fn scored_member_key(db: u8, id: u64, member: &[u8]) -> Vec<u8> {
    joined(&elements_of(db, id), &[0], &place_of(member).to_be_bytes(), member)
}

/// Key of a sorted set's member in the order of scores.
pub(crate) fn score_key(db: u8, id: u64, score: f64, member: &[u8]) -> Vec<u8> {
    joined(&elements_of(db, id), &[1], &ordered_score(score), member)
}

/// Key of a list's element.
pub(crate) fn index_key(db: u8, id: u64, index: i64) -> Vec<u8> {
    joined(&elements_of(db, id), &[], &ordered_index(index), &[])
}

/// Key of the note that a collection will expire.
pub(crate) fn expiry_key(layout: KeyLayout, expires_at_ms: u64, user_key: &[u8]) -> Vec<u8> {
    let (slot, rest) = user_key.split_at(layout.slot_bytes());
    let (db, key) = rest.split_at(1);
    let note = joined(&[EXPIRIES], db, &expires_at_ms.to_be_bytes(), key);
    joined(slot, &note, &[], &[])
}

/// What the keys of all notes of a part begin with.
pub(crate) fn expiries_of(layout: KeyLayout, part: Part) -> Vec<u8> {
    let slot = part.slot.to_be_bytes();
    [&slot[..layout.slot_bytes()], &[EXPIRIES, part.db]].concat()
}

/// The database, the expiry and the user's key of a note; `None` if it is none.
pub(crate) fn expiry_of(layout: KeyLayout, note: &[u8]) -> Option<(u8, u64, &[u8])> {
    let (&EXPIRIES, rest) = note.get(layout.slot_bytes()..)?.split_first()? else {
        return None;
    };
    let (&db, rest) = rest.split_first()?;
    let (expiry, key) = rest.split_first_chunk()?;
    Some((db, u64::from_be_bytes(*expiry), key))
}

fn joined(a: &[u8], b: &[u8], c: &[u8], d: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(a.len() + b.len() + c.len() + d.len());
    for part in [a, b, c, d] {
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Eight bytes that sort as scores do; -0 is 0.
pub(crate) fn ordered_score(score: f64) -> [u8; 8] {
    let bits = (score + 0.0).to_bits();
    let flipped = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    flipped.to_be_bytes()
}

/// The score of [`ordered_score`].
pub(crate) fn score_of(bytes: [u8; 8]) -> f64 {
    let flipped = u64::from_be_bytes(bytes);
    f64::from_bits(if flipped >> 63 == 1 { flipped & !(1 << 63) } else { !flipped })
}

/// Eight bytes that sort as indices do.
pub(crate) fn ordered_index(index: i64) -> [u8; 8] {
    (index as u64 ^ 1 << 63).to_be_bytes()
}

/// The first key behind all that start with `prefix`; `None` if there is none.
pub(crate) fn end_of(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use terrace_cluster::{Placement, slot_of};

    proptest! {
        #[test]
        fn metas_round_trip(id: u64, count: u64, expires_at_ms: u64, first: i64, kind in 1_u8..5) {
            let kind = [Kind::Hash, Kind::Set, Kind::SortedSet, Kind::List][kind as usize - 1];
            let meta = Meta { kind, id, count, expires_at_ms, first };
            prop_assert_eq!(Meta::decode(&meta.encode()), Some(meta));
        }

        #[test]
        fn scores_sort_as_numbers(a: f64, b: f64) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            let order = ordered_score(a).cmp(&ordered_score(b));
            prop_assert_eq!(Some(order), a.partial_cmp(&b));
            prop_assert_eq!(score_of(ordered_score(a)), a);
        }

        #[test]
        fn indices_sort_as_numbers(a: i64, b: i64) {
            prop_assert_eq!(ordered_index(a).cmp(&ordered_index(b)), a.cmp(&b));
        }

        #[test]
        fn an_end_is_behind_its_prefix_and_no_further(prefix: Vec<u8>, rest: Vec<u8>) {
            let key = [&prefix[..], &rest].concat();
            match end_of(&prefix) {
                Some(end) => prop_assert!(key < end && !end.starts_with(&prefix)),
                None => prop_assert!(prefix.iter().all(|byte| *byte == 0xFF)),
            }
        }
    }

    #[test]
    fn ids_with_slots_keep_their_elements_in_the_slot() {
        let slot = Slot::new(0x1234).unwrap();
        let id = id_in_slot(slot, 0x0102_0304_0506).unwrap();
        assert_eq!(elements_of(7, id), [0x12, 0x34, 7, 1, 2, 3, 4, 5, 6]);
        assert_eq!(elements_of(7, 0x0102), [7, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!((counter_of(id), counter_of(9)), (0x0102_0304_0506, 9));
        assert_eq!(id_in_slot(slot, 1 << 48), None);
    }

    #[test]
    fn notes_round_trip_in_both_placements() {
        for layout in [Placement::Range, Placement::Slots].map(KeyLayout::of) {
            let user_key = layout.user_key(3, b"key");
            let note = expiry_key(layout, 77, &user_key);
            assert_eq!(expiry_of(layout, &note), Some((3, 77, &b"key"[..])));
            assert_eq!(expiry_of(layout, &user_key), None);
            let slot = if layout.has_slots() { slot_of(b"key").number() } else { 0 };
            assert!(note.starts_with(&expiries_of(layout, Part { slot, db: 3 })));
            assert_eq!(note[..layout.slot_bytes()], user_key[..layout.slot_bytes()]);
        }
    }

    #[test]
    fn zeros_of_both_signs_are_one_score() {
        assert_eq!(ordered_score(-0.0), ordered_score(0.0));
        assert!(ordered_score(f64::NEG_INFINITY) < ordered_score(f64::MIN));
        assert!(ordered_score(f64::INFINITY) > ordered_score(f64::MAX));
    }

    #[test]
    fn damaged_metas_are_refused() {
        assert_eq!(Meta::decode(&[]), None);
        assert_eq!(Meta::decode(&[9; Meta::BYTES]), None);
        assert_eq!(Meta::decode(&[1; Meta::BYTES + 1]), None);
    }
}
