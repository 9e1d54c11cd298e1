//! Keys of a database in order: strings and collections together, with what the batch wrote.
//!
//! Four rows are merged, two stored ones and what this batch wrote of each; a key that the batch wrote
//! hides the stored one. All stored keys are of one moment.

use crate::command_batch::CommandBatch;
use crate::encode::{self, Meta};
use crate::error::{Error, Result};
use crate::keys::Type;
use crate::members::Page;
use crate::random;
use std::iter::Peekable;
use terrace::{Iter, ReadOptions};

/// Keys up to this many are counted one by one.
const COUNTED: u64 = 4096;

/// A random key is drawn by up to this many bytes.
const DRAWN_BYTES: usize = 32;

/// Which keys [`CommandBatch::walk_keys`] shows.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyRange<'a> {
    /// Not below this one.
    pub start: &'a [u8],
    /// Only below this one.
    pub end: Option<&'a [u8]>,
    /// Only those that begin with this.
    pub prefix: &'a [u8],
}

impl KeyRange<'_> {
    /// The first of the engine's keys, and the first behind the last.
    fn bounds(&self, db: u8) -> (Vec<u8>, Vec<u8>) {
        let lower = encode::user_key(db, self.start.max(self.prefix));
        let of_prefix = encode::user_key(db, self.prefix);
        // Databases end before FF: there always is a key behind.
        let behind = encode::end_of(&of_prefix).unwrap_or_default();
        let upper = match self.end {
            Some(end) => behind.min(encode::user_key(db, end)),
            None => behind,
        };
        (lower, upper)
    }
}

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

/// A stored row of keys.
struct Stored(Option<Iter>);

impl Stored {
    fn key(&self) -> Option<&[u8]> {
        self.0.as_ref().filter(|iter| iter.valid()).map(Iter::key)
    }

    fn value(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], Iter::value)
    }

    fn advance(&mut self) -> Result<()> {
        match &mut self.0 {
            Some(iter) => Ok(iter.next()?),
            None => Ok(()),
        }
    }
}

impl CommandBatch {
    /// Shows the keys of a range in order, until `seen` says no more. Strings are read only if
    /// `with_values`.
    pub fn walk_keys(
        &mut self,
        db: u8,
        range: KeyRange<'_>,
        with_values: bool,
        mut seen: impl FnMut(SeenKey<'_>) -> bool,
    ) -> Result<()> {
        self.pin();
        let (lower, upper) = range.bounds(db);
        if lower >= upper {
            return Ok(());
        }
        let mut strings = self.stored_keys(db, &lower, &upper, Some(with_values))?;
        let mut collections = self.stored_keys(db, &lower, &upper, None)?;
        let (texts, metas) = (self.written_texts(db), self.written_metas(db));
        let mut texts = within(texts, &lower, &upper);
        let mut metas = within(metas, &lower, &upper);
        loop {
            let written = (texts.peek().map(|text| text.0), metas.peek().map(|meta| meta.0));
            let stored = (strings.key(), collections.key());
            let all = [written.0, written.1, stored.0, stored.1];
            let Some(key) = all.into_iter().flatten().min() else { return Ok(()) };
            let here = all.map(|row| row == Some(key));
            let value = match texts.peek() {
                Some((_, value)) if here[0] => *value,
                _ => here[2].then(|| strings.value()),
            };
            let meta = match metas.peek() {
                Some((_, meta)) if here[1] => *meta,
                _ if here[3] => Some(Meta::read(collections.value())?),
                _ => None,
            };
            let meta = meta.filter(|meta| !meta.is_expired(self.now_ms()));
            let kind = match (value, meta) {
                (Some(_), _) => Some(Type::String),
                (None, meta) => meta.map(|meta| Type::Collection(meta.kind)),
            };
            if let Some(kind) = kind
                && !seen(SeenKey { key: &key[1..], kind, value })
            {
                return Ok(());
            }
            if here[0] {
                texts.next();
            }
            if here[1] {
                metas.next();
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
    fn stored_keys(
        &self,
        db: u8,
        lower: &[u8],
        upper: &[u8],
        values: Option<bool>,
    ) -> Result<Stored> {
        if self.is_flushed(db) || (values.is_none() && !self.may_hold_collections(db)) {
            return Ok(Stored(None));
        }
        let family = match values {
            Some(_) => &self.space.strings,
            None => &self.space.collections,
        };
        let mut iter = family.iter_with(&ReadOptions {
            lower_bound: Some(lower.to_vec()),
            upper_bound: Some(upper.to_vec()),
            keys_only: values == Some(false),
            ..self.reading().clone()
        })?;
        iter.seek_to_first()?;
        Ok(Stored(Some(iter)))
    }

    /// The keys among the next `count` that `matches` holds for, and where to go on.
    pub fn scan_keys(
        &mut self,
        db: u8,
        scan: &KeyScan<'_>,
        matches: impl Fn(&[u8]) -> bool,
    ) -> Result<Page<Vec<u8>>> {
        self.allow_walk(scan.count)?;
        let mut start = Vec::new();
        if scan.cursor != 0 {
            start = self.space.cursors.find(db, scan.cursor).ok_or(Error::UnknownCursor)?;
            start.push(0);
        }
        let mut items = Vec::new();
        let (mut left, mut last, mut is_cut) = (scan.count.max(1), Vec::new(), false);
        let range = KeyRange { start: &start, end: None, prefix: scan.prefix };
        self.walk_keys(db, range, false, |seen| {
            if left == 0 {
                is_cut = true;
                return false;
            }
            left -= 1;
            last.clear();
            last.extend_from_slice(seen.key);
            if scan.kind.is_none_or(|kind| kind == seen.kind) && matches(seen.key) {
                items.push(seen.key.to_vec());
            }
            true
        })?;
        let cursor = if is_cut { self.space.cursors.keep(db, &last) } else { 0 };
        Ok(Page { cursor, items })
    }

    /// How many keys there are: exact up to some thousands, above that the engine's estimate, in
    /// which keys that were overwritten or deleted lately may count more than once.
    pub fn count_keys(&mut self, db: u8) -> Result<u64> {
        let mut count = 0;
        self.walk_keys(db, KeyRange::default(), false, |_| {
            count += 1;
            count <= COUNTED
        })?;
        if count <= COUNTED {
            return Ok(count);
        }
        let (lower, upper) = KeyRange::default().bounds(db);
        let strings = self.space.strings.estimate(&lower[..]..&upper[..])?;
        let collections = self.space.collections.estimate(&lower[..]..&upper[..])?;
        Ok(count.max(strings.keys + collections.keys))
    }

    /// Some key, found from its first bytes on: of the keys that begin alike, a random next byte
    /// between the least and the greatest leads to the first key at or behind it. Keys that stand
    /// alone are more likely than those in crowds. Three searches for each byte at which keys part.
    pub fn random_key(&mut self, db: u8) -> Result<Option<Vec<u8>>> {
        let (mut drawn_so_far, mut prefix) = (None, Vec::new());
        for _ in 0..DRAWN_BYTES {
            let Some(first) = self.first_key(db, &[], &prefix)? else { break };
            let Some(last) = self.last_stored_key(db, &prefix)? else {
                return Ok(drawn_so_far.or(Some(first)));
            };
            let shared = first.iter().zip(&last).take_while(|(a, b)| a == b).count();
            let Some(high) = last.get(shared).map(|byte| u64::from(*byte)) else {
                return Ok(Some(first));
            };
            // A key that ends here comes before all that go on.
            let low = first.get(shared).map_or(0, |byte| u64::from(*byte) + 1);
            let drawn = low + random::below((high + 2).saturating_sub(low));
            let Some(byte) = drawn.checked_sub(1) else { return Ok(Some(first)) };
            let start = [&last[..shared], &[byte as u8]].concat();
            // The last key may be one that expired.
            let found = self.first_key(db, &start, &prefix)?.unwrap_or(first);
            if found.len() <= shared {
                return Ok(Some(found));
            }
            prefix = found[..=shared].to_vec();
            drawn_so_far = Some(found);
        }
        Ok(drawn_so_far)
    }

    /// The first key that is shown, from `start` on, of those that begin with `prefix`.
    fn first_key(&mut self, db: u8, start: &[u8], prefix: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        let range = KeyRange { start, end: None, prefix };
        self.walk_keys(db, range, false, |seen| {
            found = Some(seen.key.to_vec());
            false
        })?;
        Ok(found)
    }

    /// The last stored key that begins with `prefix`, be it a collection that expired.
    fn last_stored_key(&mut self, db: u8, prefix: &[u8]) -> Result<Option<Vec<u8>>> {
        let (lower, upper) = KeyRange { prefix, ..KeyRange::default() }.bounds(db);
        let mut last = None;
        for values in [Some(false), None] {
            let Stored(Some(mut iter)) = self.stored_keys(db, &lower, &upper, values)? else {
                continue;
            };
            iter.seek_to_last()?;
            if iter.valid() {
                last = last.max(Some(iter.key()[1..].to_vec()));
            }
        }
        Ok(last)
    }
}

/// The part of a row in order that lies within bounds.
fn within<'t, T: Copy>(
    row: Vec<(&'t [u8], T)>,
    lower: &[u8],
    upper: &[u8],
) -> Peekable<impl Iterator<Item = (&'t [u8], T)>> {
    let first = row.partition_point(|(key, _)| *key < lower);
    let last = row.partition_point(|(key, _)| *key < upper);
    row.into_iter().take(last).skip(first).peekable()
}
