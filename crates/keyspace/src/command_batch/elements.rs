//! The elements of collections: those that are stored, with what the batch wrote over them.

use super::{CommandBatch, Undo, Value, WrittenElement};
use crate::encode;
use crate::error::Result;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace::{EntryInfo, Iter, ReadOptions};

/// Which way [`CommandBatch::visit`] goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

impl Direction {
    fn order(self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        match self {
            Self::Up => a.cmp(b),
            Self::Down => b.cmp(a),
        }
    }
}

/// What a batch wrote of one collection, in order.
struct Overlay;

impl Overlay {
    fn of<'t>(
        elements: &'t BTreeMap<Vec<u8>, WrittenElement>,
        prefix: &[u8],
        from: Option<&[u8]>,
        direction: Direction,
    ) -> Box<dyn Iterator<Item = (&'t [u8], &'t WrittenElement)> + 't> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        if elements.is_empty() {
            return Box::new(std::iter::empty());
        }
        let end = encode::end_of(prefix);
        let whole_end = end.as_deref().map_or(Unbounded, Excluded);
        let entry = |(key, value): (&'t Vec<u8>, &'t WrittenElement)| (&key[..], value);
        match direction {
            Direction::Up => {
                let start = from.filter(|from| *from > prefix).unwrap_or(prefix);
                if end.as_deref().is_some_and(|end| start >= end) {
                    return Box::new(std::iter::empty());
                }
                Box::new(elements.range::<[u8], _>((Included(start), whole_end)).map(entry))
            }
            Direction::Down => {
                let last = match from {
                    Some(from) if from < prefix => return Box::new(std::iter::empty()),
                    Some(from) if end.as_deref().is_none_or(|end| from < end) => Included(from),
                    _ => whole_end,
                };
                Box::new(elements.range::<[u8], _>((Included(prefix), last)).rev().map(entry))
            }
        }
    }
}

impl CommandBatch {
    /// The value of an element by its engine key.
    pub(crate) fn element(&self, element_key: &[u8]) -> Result<Option<Value>> {
        if let Some(written) = self.elements.get(element_key) {
            self.saw_written(true);
            return Ok(written.clone().map(Value::Written));
        }
        if self.removed.find(element_key).is_some() {
            self.saw_written(true);
            return Ok(None);
        }
        let found = self.space.elements.get_with(element_key, &self.reading)?;
        Ok(found.map(Value::Stored))
    }

    /// Whether there is an element with this engine key.
    pub(crate) fn has_element(&self, element_key: &[u8]) -> Result<bool> {
        Ok(self.element_info(element_key)?.is_some())
    }

    /// The length of the value of an element, if there is one. The value is read only if it is compressed by itself.
    pub(crate) fn element_len(&self, element_key: &[u8]) -> Result<Option<usize>> {
        match self.element_info(element_key)? {
            Some(EntryInfo { value_bytes: None, .. }) => {
                Ok(self.element(element_key)?.map(|value| value.len()))
            }
            info => Ok(info.and_then(|info| info.value_bytes)),
        }
    }

    fn element_info(&self, element_key: &[u8]) -> Result<Option<EntryInfo>> {
        if let Some(written) = self.elements.get(element_key) {
            self.saw_written(true);
            let info = |value: &Arc<[u8]>| EntryInfo {
                expires_at_ms: None,
                value_bytes: Some(value.len()),
                stored_bytes: value.len(),
            };
            return Ok(written.as_ref().map(info));
        }
        if self.removed.find(element_key).is_some() {
            self.saw_written(true);
            return Ok(None);
        }
        Ok(self.space.elements.get_info(element_key, &self.reading)?)
    }

    /// Writes an element. The lock of its collection is held.
    pub(crate) fn put_element(&mut self, element_key: Vec<u8>, value: &[u8]) {
        self.batch.put_cf(&self.space.elements, &element_key, value);
        self.note_element(element_key, Some(value.into()));
    }

    /// Removes an element. The lock of its collection is held.
    pub(crate) fn delete_element(&mut self, element_key: Vec<u8>) {
        self.batch.delete_cf(&self.space.elements, &element_key);
        self.note_element(element_key, None);
    }

    /// Removes the elements with engine keys in `[start, end)`. The lock of their collection is held.
    pub(crate) fn delete_elements(&mut self, start: Vec<u8>, end: Vec<u8>) {
        use std::ops::Bound::{Excluded, Included};
        self.batch.delete_range_cf(&self.space.elements, &start, &end);
        let range = self.elements.range::<[u8], _>((Included(&start[..]), Excluded(&end[..])));
        let written: Vec<_> = range.map(|(key, _)| key.clone()).collect();
        for key in written {
            // The range says that it is not there: a walk does not step over it any more.
            let before = self.elements.remove(&key);
            if self.attempts > 0 {
                self.undo.push(Undo(key, before));
            }
        }
        self.removed.add(start, end, self.attempts > 0);
    }

    /// Moves past stored elements that this batch has removed.
    fn pass_removed(&self, stored: &mut Iter, direction: Direction) -> Result<()> {
        while !self.removed.is_empty()
            && stored.valid()
            && let Some((start, end)) = self.removed.find(stored.key())
        {
            self.note_passed(0, 1)?;
            match direction {
                Direction::Up => stored.seek(end)?,
                Direction::Down => {
                    stored.seek_for_prev(start)?;
                    if stored.valid() && stored.key() == start {
                        stored.prev()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn note_element(&mut self, element_key: Vec<u8>, value: WrittenElement) {
        if self.attempts > 0 {
            let before = self.elements.get(&element_key).cloned();
            self.undo.push(Undo(element_key.clone(), before));
        }
        self.elements.insert(element_key, value);
    }

    /// Shows the elements whose engine keys begin with `prefix`, in order, from `from` on
    /// (inclusive; going down: from the last one not above it), until `seen` says no more.
    pub(crate) fn visit(
        &self,
        prefix: &[u8],
        from: Option<&[u8]>,
        direction: Direction,
        seen: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let reading = ReadOptions { prefix: Some(prefix.to_vec()), ..self.reading.clone() };
        self.visit_with(&reading, from, direction, seen)
    }

    /// As [`Self::visit`], without reading values.
    pub(crate) fn visit_keys(
        &self,
        prefix: &[u8],
        from: Option<&[u8]>,
        direction: Direction,
        mut seen: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        let prefix = Some(prefix.to_vec());
        let reading = ReadOptions { prefix, keys_only: true, ..self.reading.clone() };
        self.visit_with(&reading, from, direction, |key, _| seen(key))
    }

    /// A walk has stepped over deleted rows, and has made steps to get past covered ones. A command that makes many
    /// takes long.
    fn note_passed(&self, rows: u64, covered_steps: u64) -> Result<()> {
        if rows + covered_steps > 0 {
            self.rows_passed.set(self.rows_passed.get() + rows);
            self.deleted_steps.set(self.deleted_steps.get() + rows + covered_steps);
            self.allow_walk(self.deleted_steps.get() - self.steps_before)?;
        }
        Ok(())
    }

    /// As [`Self::visit`], of the prefix in `reading`.
    pub(super) fn visit_with(
        &self,
        reading: &ReadOptions,
        from: Option<&[u8]>,
        direction: Direction,
        mut seen: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let prefix = reading.prefix.as_deref().unwrap_or_default();
        let mut stored = self.space.elements.iter_with(reading)?;
        match (direction, from) {
            (Direction::Up, None) => stored.seek_to_first()?,
            (Direction::Up, Some(from)) => stored.seek(from)?,
            (Direction::Down, None) => stored.seek_to_last()?,
            (Direction::Down, Some(from)) => stored.seek_for_prev(from)?,
        }
        self.saw_written(!self.elements.is_empty() || !self.removed.is_empty());
        let mut written = Overlay::of(&self.elements, prefix, from, direction).peekable();
        let (mut passed, mut covered_steps) = (0, 0);
        loop {
            self.pass_removed(&mut stored, direction)?;
            let (now_passed, now_covered) = (stored.stepped_over(), stored.covered_steps());
            self.note_passed(now_passed - passed, now_covered - covered_steps)?;
            (passed, covered_steps) = (now_passed, now_covered);
            let stored_key = stored.valid().then(|| stored.key());
            let first = match (written.peek(), stored_key) {
                (None, None) => return Ok(()),
                (Some((key, _)), Some(stored_key)) => direction.order(key, stored_key),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
            };
            if first.is_gt() {
                if !seen(stored.key(), stored.value())? {
                    return Ok(());
                }
            } else {
                match written.next() {
                    Some((key, Some(value))) if !seen(key, value)? => return Ok(()),
                    Some((_, None)) => self.note_passed(1, 0)?,
                    _ => {}
                }
            }
            if first.is_ge() {
                match direction {
                    Direction::Up => stored.next()?,
                    Direction::Down => stored.prev()?,
                }
            }
        }
    }
}
