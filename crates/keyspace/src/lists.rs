//! Lists: values at consecutive indices, so both ends and any index cost the same.
//!
//! Only insertions in the middle and removals by value move others: those of the shorter side.

use crate::command_batch::{CommandBatch, Direction, Value};
use crate::encode::{self, ELEMENT_PREFIX_BYTES, Kind, Meta};
use crate::error::{Error, Result};
use crate::members::ranks;
use crate::result_size::{ResultSize, check_added};
use std::ops::Range;

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The first element.
    Front,
    /// The last element.
    Back,
}

/// What [`CommandBatch::list_insert`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// There is no list.
    NoList,
    /// There is no such element in it.
    NoPivot,
    /// It was inserted, and the list is this long now.
    Length(u64),
}

/// Bytes of the key of an element.
const INDEX_KEY_BYTES: usize = ELEMENT_PREFIX_BYTES + size_of::<i64>();

fn key_at(db: u8, list: &Meta, place: u64) -> Vec<u8> {
    encode::index_key(db, list.id, list.first.wrapping_add_unsigned(place))
}

impl CommandBatch {
    /// The list under `key`, to be read in this command.
    pub fn list(&mut self, db: u8, key: &[u8]) -> Result<Option<Meta>> {
        self.read_collection(db, key, Kind::List)
    }

    /// The element at an index; below 0 it counts from the end.
    pub fn list_get(&self, db: u8, list: &Meta, index: i64) -> Result<Option<Value>> {
        match place_at(index, list.count) {
            Some(place) => self.element(&key_at(db, list, place)),
            None => Ok(None),
        }
    }

    /// Shows `count` elements from place `first` on, until `seen` says no more. Costs O(shown).
    pub fn list_each(
        &self,
        db: u8,
        list: &Meta,
        first: u64,
        count: u64,
        mut seen: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        let mut left = count.min(list.count.saturating_sub(first));
        self.allow_walk(left)?;
        if left == 0 {
            return Ok(());
        }
        let prefix = encode::elements_of(db, list.id);
        self.visit(&prefix, Some(&key_at(db, list, first)), Direction::Up, |_, value| {
            left -= 1;
            Ok(seen(value)? && left > 0)
        })
    }

    /// Adds elements one after the other at an end, and gives the new length; with
    /// `only_existing`, 0 if there is no list. The lock is held.
    ///
    /// # Errors
    /// [`Error::TooLong`] if they take more than [`MAX_ADDED_BYTES`](crate::MAX_ADDED_BYTES); those of the engine.
    pub fn list_push<'k>(
        &mut self,
        db: u8,
        key: &[u8],
        end: End,
        only_existing: bool,
        values: impl Iterator<Item = &'k [u8]> + Clone,
    ) -> Result<u64> {
        check_added(values.clone().map(|value| INDEX_KEY_BYTES + value.len()))?;
        let mut list = match only_existing {
            true => match self.write_collection(db, key, Kind::List)? {
                Some(list) => list,
                None => return Ok(0),
            },
            false => self.open_collection(db, key, Kind::List)?,
        };
        for value in values {
            let place = match end {
                End::Front => {
                    list.first = list.first.wrapping_sub(1);
                    0
                }
                End::Back => list.count,
            };
            list.count += 1;
            self.put_element(key_at(db, &list, place), value);
        }
        self.put_meta(db, key, &list);
        Ok(list.count)
    }

    /// Takes `count` elements from an end, the outermost first; `None` if there is no list. The
    /// lock is held.
    pub fn list_pop(
        &mut self,
        db: u8,
        key: &[u8],
        end: End,
        count: u64,
    ) -> Result<Option<Vec<Value>>> {
        let mut popped = Vec::new();
        let taken = self.list_pop_each(db, key, end, count, |_, value| {
            popped.push(value);
            true
        })?;
        Ok(taken.map(|_| popped))
    }

    /// As [`Self::list_pop`]; gives how many, and shows each with how many there are, until `seen` says no more: the
    /// others are taken without being read.
    pub fn list_pop_each(
        &mut self,
        db: u8,
        key: &[u8],
        end: End,
        count: u64,
        mut seen: impl FnMut(u64, Value) -> bool,
    ) -> Result<Option<u64>> {
        let Some(mut list) = self.write_collection(db, key, Kind::List)? else { return Ok(None) };
        let count = count.min(list.count);
        self.allow_walk(count)?;
        let place = |at: u64| match end {
            End::Front => at,
            End::Back => list.count - 1 - at,
        };
        for at in 0..count {
            if let Some(value) = self.element(&key_at(db, &list, place(at)))?
                && !seen(count, value)
            {
                break;
            }
        }
        if count > 0 {
            let places = match end {
                End::Front => 0..count,
                End::Back => list.count - count..list.count,
            };
            self.remove_places(db, &list, places);
            list.count -= count;
            if end == End::Front {
                list.first = list.first.wrapping_add_unsigned(count);
            }
            self.put_meta(db, key, &list);
        }
        Ok(Some(count))
    }

    /// The list under `key`, to be written; [`Error::NoSuchKey`] if there is none.
    pub fn list_to_set(&mut self, db: u8, key: &[u8]) -> Result<Meta> {
        self.write_collection(db, key, Kind::List)?.ok_or(Error::NoSuchKey)
    }

    /// Replaces the element at an index of what [`Self::list_to_set`] gave. The lock is held.
    pub fn list_set(
        &mut self,
        db: u8,
        key: &[u8],
        list: &Meta,
        index: i64,
        value: &[u8],
    ) -> Result<()> {
        let place = place_at(index, list.count).ok_or(Error::IndexOutOfRange)?;
        self.put_element(key_at(db, list, place), value);
        self.put_meta(db, key, list);
        Ok(())
    }

    /// Keeps the elements from index `first` to `last`, both included. Costs O(removed), but for many at an end no more
    /// than for some hundreds. The lock is held.
    pub fn list_trim(&mut self, db: u8, key: &[u8], first: i64, last: i64) -> Result<()> {
        let Some(mut list) = self.write_collection(db, key, Kind::List)? else { return Ok(()) };
        let Some(kept) = ranks(first, last, list.count) else {
            return self.drop_collection(db, key, &list);
        };
        self.remove_places(db, &list, 0..*kept.start());
        self.remove_places(db, &list, *kept.end() + 1..list.count);
        list.first = list.first.wrapping_add_unsigned(*kept.start());
        list.count = kept.end() - kept.start() + 1;
        self.put_meta(db, key, &list);
        Ok(())
    }

    /// Removes the elements at an end of the list; the caller stores the meta.
    fn remove_places(&mut self, db: u8, list: &Meta, places: Range<u64>) {
        /// Up to this many elements are deleted one by one: a range tombstone costs every later read of its
        /// neighbourhood a look.
        const FEW: u64 = 512;
        let (start, end) = (key_at(db, list, places.start), key_at(db, list, places.end));
        // Indices wrap around after 2^63 pushes to one end.
        if places.end - places.start > FEW && start < end {
            return self.delete_elements(start, end);
        }
        for place in places {
            self.delete_element(key_at(db, list, place));
        }
    }

    /// Removes elements that equal `value`: the first `count`, or the last `-count` if that is
    /// below 0, or all if it is 0. Gives how many. Costs O(elements), and as much memory as the
    /// elements on the shorter side of those removed, and as the places of these, each at most
    /// [`MAX_STORED_BYTES`](crate::MAX_STORED_BYTES). The lock is held.
    pub fn list_remove(&mut self, db: u8, key: &[u8], count: i64, value: &[u8]) -> Result<u64> {
        let Some(mut list) = self.write_collection(db, key, Kind::List)? else { return Ok(0) };
        let order = if count < 0 { Direction::Down } else { Direction::Up };
        let most = if count == 0 { u64::MAX } else { count.unsigned_abs() };
        let mut found = self.places_of(db, &list, order, most, value)?;
        found.sort_unstable();
        let (Some(lowest), Some(highest)) = (found.first().copied(), found.last().copied()) else {
            return Ok(0);
        };
        let removed = found.len() as u64;
        if list.count - lowest <= highest + 1 {
            // Those behind the first one move to the front.
            let kept = self.elements_between(db, &list, lowest, list.count - lowest, &found)?;
            for (place, value) in (lowest..).zip(&kept) {
                self.put_element(key_at(db, &list, place), value);
            }
            self.remove_places(db, &list, list.count - removed..list.count);
        } else {
            let kept = self.elements_between(db, &list, 0, highest + 1, &found)?;
            for (place, value) in (removed..).zip(&kept) {
                self.put_element(key_at(db, &list, place), value);
            }
            self.remove_places(db, &list, 0..removed);
            list.first = list.first.wrapping_add_unsigned(removed);
        }
        list.count -= removed;
        self.put_meta(db, key, &list);
        Ok(removed)
    }

    /// Inserts an element before or behind the first one that equals `pivot`. Costs O(elements),
    /// and as much memory as the elements on the shorter side, at most [`MAX_STORED_BYTES`](crate::MAX_STORED_BYTES).
    /// The lock is held.
    pub fn list_insert(
        &mut self,
        db: u8,
        key: &[u8],
        before: bool,
        pivot: &[u8],
        value: &[u8],
    ) -> Result<Inserted> {
        let Some(mut list) = self.write_collection(db, key, Kind::List)? else {
            return Ok(Inserted::NoList);
        };
        let found = self.places_of(db, &list, Direction::Up, 1, pivot)?;
        let Some(pivot) = found.first() else { return Ok(Inserted::NoPivot) };
        let place = if before { *pivot } else { *pivot + 1 };
        if place < list.count / 2 {
            let moved = self.elements_between(db, &list, 0, place, &[])?;
            list.first = list.first.wrapping_sub(1);
            for (place, value) in (0..).zip(&moved) {
                self.put_element(key_at(db, &list, place), value);
            }
        } else {
            let moved = self.elements_between(db, &list, place, list.count - place, &[])?;
            for (place, value) in (place + 1..).zip(&moved) {
                self.put_element(key_at(db, &list, place), value);
            }
        }
        list.count += 1;
        self.put_element(key_at(db, &list, place), value);
        self.put_meta(db, key, &list);
        Ok(Inserted::Length(list.count))
    }

    /// The places of the first `most` elements that equal `value`, in the order they are met: they take at most
    /// [`MAX_STORED_BYTES`](crate::MAX_STORED_BYTES).
    fn places_of(
        &self,
        db: u8,
        list: &Meta,
        direction: Direction,
        most: u64,
        value: &[u8],
    ) -> Result<Vec<u64>> {
        let (mut places, mut size) = (Vec::new(), ResultSize::default());
        self.walk_places(db, list, direction, (0, most, u64::MAX), value, |place| {
            places.push(place);
            size.add_bytes(size_of::<u64>())?;
            Ok(true)
        })?;
        Ok(places)
    }

    /// Shows the places of elements that equal `value`, from the front or the back: those after the first
    /// `skip`, at most `most` of them, among the first `walk` elements, until `seen` says no more. Costs
    /// O(elements walked by).
    pub fn list_each_place(
        &self,
        db: u8,
        list: &Meta,
        from: End,
        (skip, most, walk): (u64, u64, u64),
        value: &[u8],
        mut seen: impl FnMut(u64) -> bool,
    ) -> Result<()> {
        let direction = if from == End::Front { Direction::Up } else { Direction::Down };
        let limits = (skip, most, walk);
        self.walk_places(db, list, direction, limits, value, |place| Ok(seen(place)))
    }

    fn walk_places(
        &self,
        db: u8,
        list: &Meta,
        direction: Direction,
        (mut skip, most, walk): (u64, u64, u64),
        value: &[u8],
        mut seen: impl FnMut(u64) -> Result<bool>,
    ) -> Result<()> {
        let walk = list.count.min(walk);
        self.allow_walk(walk)?;
        let (mut found, mut walked, mut more) = (0, 0, true);
        // Beyond the ends there is what was popped.
        let from = match direction {
            Direction::Up => key_at(db, list, 0),
            Direction::Down => key_at(db, list, list.count.saturating_sub(1)),
        };
        self.visit(&encode::elements_of(db, list.id), Some(&from), direction, |_, stored| {
            if stored == value && skip > 0 {
                skip -= 1;
            } else if stored == value {
                found += 1;
                more = seen(match direction {
                    Direction::Up => walked,
                    Direction::Down => list.count.saturating_sub(1 + walked),
                })?;
            }
            walked += 1;
            Ok(more && found < most && walked < walk)
        })
    }

    /// Takes an element from an end of a list and adds it at an end of a list, perhaps the same
    /// one; `None` if there is nothing to take. The locks are held.
    pub fn list_move(
        &mut self,
        db: u8,
        (from, from_end): (&[u8], End),
        (to, to_end): (&[u8], End),
    ) -> Result<Option<Value>> {
        let Some(list) = self.write_collection(db, from, Kind::List)? else { return Ok(None) };
        self.write_collection(db, to, Kind::List)?;
        if from == to && list.count == 1 {
            // It stays, and with it when it expires.
            self.put_meta(db, from, &list);
            return self.list_get(db, &list, 0);
        }
        self.attempt(|turn| {
            let taken = turn.list_pop(db, from, from_end, 1)?.and_then(|mut taken| taken.pop());
            if let Some(value) = &taken {
                turn.list_push(db, to, to_end, false, std::iter::once(&**value))?;
            }
            Ok(taken)
        })
    }

    /// Replaces whatever is under `key` with a list, and gives its length. The lock is held.
    pub fn list_replace(&mut self, db: u8, key: &[u8], values: &[Vec<u8>]) -> Result<u64> {
        let mut result_size = ResultSize::default();
        values.iter().try_for_each(|value| result_size.add(value.len()))?;
        if values.is_empty() {
            return self.replace_with_nothing(db, key);
        }
        self.attempt(|turn| {
            turn.clear_key(db, key)?;
            turn.list_push(db, key, End::Back, false, values.iter().map(|value| &value[..]))
        })
    }

    /// `count` elements from place `first` on, without those at the places in `without`, which are
    /// sorted.
    fn elements_between(
        &self,
        db: u8,
        list: &Meta,
        first: u64,
        count: u64,
        without: &[u64],
    ) -> Result<Vec<Vec<u8>>> {
        let (mut elements, mut place, mut size) = (Vec::new(), first, ResultSize::default());
        self.list_each(db, list, first, count, |value| {
            if without.binary_search(&place).is_err() {
                size.add(value.len())?;
                elements.push(value.to_vec());
            }
            place += 1;
            Ok(true)
        })?;
        Ok(elements)
    }
}

/// The place of an index, which counts from the end below 0, in a list of `count`.
fn place_at(index: i64, count: u64) -> Option<u64> {
    match index < 0 {
        true => count.checked_sub(index.unsigned_abs()),
        false => Some(index.unsigned_abs()).filter(|place| *place < count),
    }
}
