//! What was read, to be checked before something that depends on it is written.
//!
//! A set holds a snapshot, and the keys and ranges of keys whose newer versions would be a conflict. While the snapshot
//! lives, flush and compaction keep, of every key, either its newest version with its own sequence
//! number or a range tombstone that hides it, if these are newer than the snapshot
//! ([`crate::background::retain`], rules 1, 4, 5 and 6); so whether a key has changed can always be told.

use crate::version::family::Family;
use crate::version::snapshots::Snapshot;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use terrace_base::SeqNo;

/// Keys that were read, of any column families of one store, and the moment as of which they were:
/// that of `Db::read_set`. `Db::write_if_unchanged` writes only if none of them has got a newer
/// version since; [`Transaction`](crate::Transaction) keeps a read set by itself.
///
/// A version is a put (also of the same value), a delete, or a range delete over the key. That a
/// time to live ends is none.
///
/// While a set lives, so does its snapshot: what is overwritten or deleted meanwhile keeps its disk
/// space.
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("terrace-doc-reads-{}", std::process::id()));
/// # let db = terrace::Db::open(&dir, terrace::Options::default())?;
/// db.put(b"stock", b"1")?;
/// let mut reads = db.read_set();
/// reads.watch(&db.default_family(), b"stock");
/// db.put(b"stock", b"0")?; // Somebody else.
///
/// let mut batch = terrace::WriteBatch::new();
/// batch.put(b"order", b"one piece");
/// let written = db.write_if_unchanged(batch, &reads, &terrace::WriteOptions::default());
/// assert!(matches!(written, Err(terrace::Error::Conflict)));
/// assert!(db.get(b"order")?.is_none());
/// # drop(reads);
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReadSet {
    snapshot: Snapshot,
    /// Shared with the leader of the write group while it checks.
    watched: Arc<Vec<Watched>>,
}

/// A range of keys, which is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub start: Box<[u8]>,
    /// The first key behind it; `None` if it has no end.
    pub end: Option<Box<[u8]>>,
}

impl KeyRange {
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.start <= *key && self.end.as_deref().is_none_or(|end| key < end)
    }

    /// Whether it has a key in common with `[start, end)`, which is not empty either.
    pub fn overlaps(&self, start: &[u8], end: &[u8]) -> bool {
        *self.start < *end && self.end.as_deref().is_none_or(|own_end| start < own_end)
    }
}

/// The keys and ranges of one family, each with the sequence number above which a version is newer.
#[derive(Clone)]
pub(crate) struct Watched {
    pub family: Arc<Family>,
    pub keys: BTreeMap<Box<[u8]>, SeqNo>,
    pub ranges: Vec<(KeyRange, SeqNo)>,
}

/// A read set on its way to the leader of a write group.
pub(crate) struct Reads {
    pub watched: Arc<Vec<Watched>>,
    /// No key has a newer version up to this sequence number.
    pub checked: SeqNo,
}

impl ReadSet {
    /// A set without keys.
    pub(crate) fn new(snapshot: Snapshot) -> Self {
        Self { snapshot, watched: Arc::default() }
    }

    /// Takes `key` in; versions newer than `since`, which is not below the snapshot, count.
    pub(crate) fn add(&mut self, family: &Arc<Family>, key: &[u8], since: SeqNo) {
        let at = self.watched.iter().position(|w| Arc::ptr_eq(&w.family, family));
        let known = at.and_then(|at| self.watched[at].keys.get(key));
        if known.is_some_and(|known| *known <= since) {
            return;
        }
        self.of_family(family).keys.insert(key.into(), since);
    }

    /// Takes `key` in, also if it is: versions newer than `since`, which is not below the snapshot, count, and no others.
    pub(crate) fn add_anew(&mut self, family: &Arc<Family>, key: &[u8], since: SeqNo) {
        self.of_family(family).keys.insert(key.into(), since);
    }

    /// A set with `key` alone, as it is in this one; without keys if it is not.
    pub(crate) fn only(&self, family: &Arc<Family>, key: &[u8]) -> Self {
        let mut only = Self::new(self.snapshot.clone());
        let own = self.watched.iter().find(|watched| Arc::ptr_eq(&watched.family, family));
        if let Some(since) = own.and_then(|own| own.keys.get(key)) {
            only.add(family, key, *since);
        }
        only
    }

    /// Takes all keys of `[start, end)` in, as [`Self::add`] does, whether they are there or not; `None` is no end.
    pub(crate) fn add_range(
        &mut self,
        family: &Arc<Family>,
        start: &[u8],
        end: Option<&[u8]>,
        since: SeqNo,
    ) {
        if end.is_some_and(|end| start >= end) {
            return;
        }
        let ranges = &mut self.of_family(family).ranges;
        // Scans go on where the last one ended.
        if let Some((last, _)) = ranges.last_mut().filter(|(_, of)| *of == since)
            && last.end.as_deref() == Some(start)
        {
            last.end = end.map(Box::from);
            return;
        }
        ranges.push((KeyRange { start: start.into(), end: end.map(Box::from) }, since));
    }

    fn of_family(&mut self, family: &Arc<Family>) -> &mut Watched {
        let watched = Arc::make_mut(&mut self.watched);
        let at = watched.iter().position(|w| Arc::ptr_eq(&w.family, family));
        let at = at.unwrap_or_else(|| {
            let (family, keys, ranges) = (family.clone(), BTreeMap::new(), Vec::new());
            watched.push(Watched { family, keys, ranges });
            watched.len() - 1
        });
        &mut watched[at]
    }

    /// The moment the set is of. Reads at it, unlike later ones, are what the check is about.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The number of keys, each counted once.
    pub fn len(&self) -> usize {
        self.watched.iter().map(|watched| watched.keys.len()).sum()
    }

    /// The number of ranges; those that were read one after the other without a gap are one.
    pub fn range_count(&self) -> usize {
        self.watched.iter().map(|watched| watched.ranges.len()).sum()
    }

    /// Whether there are no keys and no ranges.
    pub fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    pub(crate) fn watched(&self) -> &Arc<Vec<Watched>> {
        &self.watched
    }
}

impl fmt::Debug for ReadSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadSet")
            .field("snapshot", &self.snapshot)
            .field("len", &self.len())
            .field("range_count", &self.range_count())
            .finish()
    }
}
