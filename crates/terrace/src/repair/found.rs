//! SSTs that the store went on without and that are taken in again, from `lost/` mostly: what they add to the files that were
//! written since.
//!
//! A merge into the last level sets sequence numbers to 0. So by its number the newest write of a key may be older than one
//! that was lost long before. Where a file with such entries was written after an SST had gone, that SST fills gaps only:
//!
//! 1. of a key that the file has with sequence number 0 nothing is taken from the SST;
//! 2. in the range of the file's keys range tombstones of such SSTs delete nothing but what comes from them as well.
//!
//! Everything else goes by sequence numbers, which are larger in what was written since. A manifest that an earlier repair has kept
//! in `lost/` tells which files were written since: the newest that names the SST was in force when it went. Where none does, it
//! may be any file in force with a larger number. A file that a repair has written was written since if what it was made of was.
//!
//! An SST that has to give way is written anew, without what is void, before the family is merged.

use super::Repair;
use super::base::is_loss;
use super::plan::Files;
use super::ssts::{Rest, Sst};
use crate::error::Result;
use crate::options::FamilyOptions;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use terrace_base::key::{MAX_KEY_BYTES, trailer_seqno};
use terrace_base::range_tombstone::Fragment;
use terrace_base::{Error, FileNumber, MAX_SEQNO, RangeTombstones, SeqNo};
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{FileMeta, salvage};
use terrace_sst::{Lookup, SstReader, is_damage};

/// The files that a manifest names.
type Named = HashMap<FileNumber, Arc<FileMeta>>;

/// What the SSTs of a family that the store went on without have to give way to.
#[derive(Default)]
pub(super) struct Found {
    /// Of each of them: the files that were written after it had gone and have sequence numbers that were set to 0. None has any
    /// if none has to give way.
    later: BTreeMap<FileNumber, Vec<FileMeta>>,
    /// The range tombstones of all of them.
    tombstones: RangeTombstones,
}

impl Found {
    /// Whether `sst` has to be written anew.
    pub fn gives_way(&self, sst: &Sst) -> bool {
        self.later.contains_key(&sst.meta.number)
    }
}

impl Repair<'_> {
    /// What the SSTs in `files` that were found have to give way to.
    pub(super) fn found(&self, files: &Files) -> Result<Found> {
        // What was hot is in force until the log is replayed, or not at all.
        let ssts = || files.ssts.iter().map(|(_, sst)| sst).filter(|sst| !sst.is_hot_checkpoint);
        let all_found = || ssts().filter(|sst| sst.is_found);
        if all_found().next().is_none() {
            return Ok(Found::default());
        }
        let manifests = self.kept_manifests()?;
        let mut later = BTreeMap::new();
        for found in all_found() {
            let since = ssts().filter(|sst| is_later(sst, found, &manifests));
            let since: Vec<FileMeta> = since.map(|sst| sst.meta.clone()).collect();
            later.insert(found.meta.number, since);
        }
        if later.values().all(Vec::is_empty) {
            return Ok(Found::default());
        }
        let mut readers = Vec::new();
        for found in all_found().filter(|sst| sst.meta.range_tombstone_count > 0) {
            readers.push(self.open_sst(found.meta.number)?);
        }
        let fragments = readers.iter().flat_map(|reader| reader.range_tombstones().fragments());
        let tombstones = fragments.flat_map(Fragment::tombstones);
        Ok(Found { later, tombstones: RangeTombstones::collapse(tombstones, |_| 0) })
    }

    /// What each of the manifests in `lost/` says, the newest first.
    fn kept_manifests(&self) -> Result<Vec<Named>> {
        let lost = names::lost_dir(self.dir);
        if !self.vfs.exists(&lost)? {
            return Ok(Vec::new());
        }
        let mut numbers: Vec<u64> = Vec::new();
        for name in self.vfs.list(&lost)? {
            if let FileName::Manifest(number) = names::parse(&name) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        let mut manifests = Vec::new();
        for number in numbers.into_iter().rev() {
            let state = match salvage::salvage(&*self.vfs, &lost, number) {
                // File numbers tell without it.
                Err(error) if is_loss(&error) || matches!(error, Error::Unsupported { .. }) => {
                    continue;
                }
                salvaged => salvaged?.map(|salvaged| salvaged.state),
            };
            let families = state.iter().flat_map(|state| state.families.values());
            let files = families.flat_map(|family| family.version.all_files());
            manifests.push(files.map(|(_, file)| (file.number, file.clone())).collect());
        }
        Ok(manifests)
    }

    /// Writes an SST of family `family` anew, without what is damaged, and without what is void by what was written after it had
    /// gone.
    pub(super) fn rewrite_found(
        &mut self,
        family: &str,
        sst: &Sst,
        found: &Found,
        (options, next): (&FamilyOptions, &(dyn Fn() -> FileNumber + Sync)),
    ) -> Result<Vec<FileMeta>> {
        let number = sst.meta.number;
        let Some(later) = found.later.get(&number) else {
            return self.rewrite(sst, options, next, None);
        };
        let tombstones = without(self.open_sst(number)?.range_tombstones(), later);
        let open = |file: &FileMeta| self.open_sst(file.number);
        let mut since = Since::new(later, &open);
        let mut left_out = 0;
        let mut is_left_out = |key: &[u8], trailer: u64| -> terrace_base::Result<bool> {
            let deleted = found.tombstones.covering_seqno(key, MAX_SEQNO);
            if deleted.is_some_and(|seqno| seqno > trailer_seqno(trailer)) {
                return Ok(true);
            }
            let is_void = since.have(key)?;
            left_out += u64::from(is_void);
            Ok(is_void)
        };
        let rest = Rest { tombstones, is_left_out: &mut is_left_out };
        let written = self.rewrite(sst, options, next, Some(rest))?;
        if left_out > 0 {
            let entries = sst.meta.entry_count;
            self.note(format!(
                "SST {number} of family `{family}`: {left_out} of its {entries} entries are not taken in: files that were \
                 written after it had gone have their keys"
            ));
        }
        Ok(written)
    }
}

/// Whether `file` has sequence numbers that were set to 0 and was written, or may have been, after `found` had gone.
fn is_later(file: &Sst, found: &Sst, manifests: &[Named]) -> bool {
    let (meta, lost) = (&file.meta, &found.meta);
    let overlaps = !meta.precedes(lost) && !lost.precedes(meta);
    if file.age <= lost.number || meta.smallest_seqno > SeqNo::ZERO || !overlaps {
        return false;
    }
    match manifests.iter().find(|named| has(named, lost)) {
        // Or what it was made of was in force.
        Some(named) => {
            !has(named, meta) && (file.age == meta.number || !named.contains_key(&file.age))
        }
        // What was lost with it was in force beside it.
        None => !file.is_found,
    }
}

/// Whether `file` is among those that a manifest names.
fn has(named: &Named, file: &FileMeta) -> bool {
    named
        .get(&file.number)
        .is_some_and(|named| named.marks() == file.marks() && named.size_bytes == file.size_bytes)
}

/// Files that were written after an SST had gone, asked for one key after the other.
struct Since<'a> {
    /// Those that begin behind the last key, by their first.
    waiting: VecDeque<&'a FileMeta>,
    open: Vec<(&'a FileMeta, Arc<SstReader>)>,
    open_file: &'a dyn Fn(&FileMeta) -> terrace_base::Result<Arc<SstReader>>,
}

impl<'a> Since<'a> {
    fn new(
        files: &'a [FileMeta],
        open_file: &'a dyn Fn(&FileMeta) -> terrace_base::Result<Arc<SstReader>>,
    ) -> Self {
        let mut waiting: Vec<&FileMeta> = files.iter().collect();
        waiting.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        Self { waiting: waiting.into(), open: Vec::new(), open_file }
    }

    /// Whether one of them has `key` with a sequence number that was set to 0. Keys do not descend from call to call.
    fn have(&mut self, key: &[u8]) -> terrace_base::Result<bool> {
        self.open.retain(|(file, _)| !file.ends_before(key));
        while let Some(file) = self.waiting.front()
            && file.smallest.as_slice() <= key
        {
            if !file.ends_before(key) {
                self.open.push((*file, (self.open_file)(file)?));
            }
            self.waiting.pop_front();
        }
        for (_, reader) in &self.open {
            match reader.get_unfiltered(&Lookup::new(key, SeqNo::ZERO)) {
                Ok(Some(_)) => return Ok(true),
                Ok(None) => {}
                // What is lost of it hides nothing.
                Err(error) if is_damage(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// What `tombstones` cover outside of the ranges of `files`.
fn without(tombstones: &RangeTombstones, files: &[FileMeta]) -> RangeTombstones {
    let mut spans: Vec<(&[u8], Option<Vec<u8>>)> =
        files.iter().map(|file| (file.smallest.as_slice(), end_of(file))).collect();
    spans.sort();
    let mut rest = RangeTombstones::default();
    // Up to here everything is done; the first one begins anywhere.
    let mut done: Option<Vec<u8>> = None;
    for (start, end) in spans {
        if done.as_deref().is_none_or(|done| done < start) {
            let between = tombstones.fragments_in(done.as_deref(), Some(start));
            between.for_each(|fragment| rest.push(fragment));
        }
        let Some(end) = end else { return rest };
        if done.as_ref().is_none_or(|done| *done < end) {
            done = Some(end);
        }
    }
    tombstones.fragments_in(done.as_deref(), None).for_each(|fragment| rest.push(fragment));
    rest
}

/// The first key behind those of a file, if there can be one.
fn end_of(file: &FileMeta) -> Option<Vec<u8>> {
    let mut end = file.largest.clone();
    if file.largest_exclusive {
        return Some(end);
    }
    if end.len() < MAX_KEY_BYTES {
        end.push(0);
        return Some(end);
    }
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    *end.last_mut()? += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice::from_ref;
    use terrace_base::RangeTombstone;

    fn file(number: u64, smallest: &str, largest: &str) -> FileMeta {
        FileMeta {
            number: FileNumber::new(number),
            smallest: smallest.into(),
            largest: largest.into(),
            ..FileMeta::default()
        }
    }

    fn sst(meta: FileMeta, is_found: bool) -> Sst {
        Sst {
            age: meta.number,
            meta,
            family: None,
            flushed_seqno: SeqNo::ZERO,
            is_hot_checkpoint: false,
            merge_operator: None,
            has_operands: false,
            is_found,
            damage: None,
        }
    }

    fn named(files: &[FileMeta]) -> Named {
        files.iter().map(|file| (file.number, Arc::new(file.clone()))).collect()
    }

    #[test]
    fn the_newest_manifest_that_names_an_sst_tells_what_was_written_after_it_had_gone() {
        let found = sst(file(10, "c", "f"), true);
        let beside = sst(file(12, "a", "z"), false);
        let later = sst(file(20, "a", "z"), false);
        let older = sst(file(9, "a", "z"), false);
        let named_with = named(&[found.meta.clone(), beside.meta.clone()]);
        let (alone, after) = (named(from_ref(&found.meta)), named(from_ref(&beside.meta)));
        for manifests in [vec![named_with.clone()], vec![after, named_with.clone(), alone.clone()]]
        {
            assert!(!is_later(&beside, &found, &manifests), "it was in force beside it");
            assert!(is_later(&later, &found, &manifests));
            assert!(!is_later(&older, &found, &manifests));
        }
        assert!(
            is_later(&beside, &found, &[alone]),
            "the newest that names it does not name the other"
        );
        // Another file has its number by now.
        let mut other = found.meta.clone();
        other.created_ms += 1;
        assert!(is_later(&beside, &found, &[named(&[other, beside.meta.clone()])]));
    }

    #[test]
    fn without_a_manifest_file_numbers_tell_of_files_in_force() {
        let found = sst(file(10, "c", "f"), true);
        assert!(is_later(&sst(file(12, "a", "c"), false), &found, &[]));
        assert!(!is_later(&sst(file(12, "a", "b"), false), &found, &[]), "no key of both");
        assert!(!is_later(&sst(file(9, "a", "z"), false), &found, &[]));
        assert!(!is_later(&sst(file(12, "a", "z"), true), &found, &[]), "both were lost");
        let mut numbered = file(12, "a", "z");
        numbered.smallest_seqno = SeqNo::new(1);
        assert!(!is_later(&sst(numbered, false), &found, &[]), "its sequence numbers tell");
    }

    #[test]
    fn what_a_repair_has_written_is_as_old_as_what_it_was_made_of() {
        let made_of =
            |number| Sst { age: FileNumber::new(number), ..sst(file(30, "a", "z"), false) };
        let found = sst(file(10, "c", "f"), true);
        let beside = named(&[found.meta.clone(), file(9, "a", "z"), file(12, "a", "z")]);
        let none: &[Named] = &[];
        for manifests in [none, &[beside]] {
            for number in [9, 10] {
                assert!(!is_later(&made_of(number), &found, manifests), "made of {number}");
            }
            assert!(is_later(&made_of(20), &found, manifests));
            assert_eq!(is_later(&made_of(12), &found, manifests), manifests.is_empty());
        }
        // It was there when its number was the newest, however old what it has is.
        let rewritten = Sst { is_found: true, ..made_of(9) };
        assert!(!is_later(&sst(file(12, "a", "z"), false), &rewritten, &[]));
    }

    #[test]
    fn range_tombstones_end_where_later_files_begin() {
        let tombstone = |start: &str, end: &str, seqno| RangeTombstone {
            start: start.into(),
            end: end.into(),
            seqno: SeqNo::new(seqno),
        };
        let set = RangeTombstones::new([tombstone("b", "m", 7), tombstone("f", "z", 9)]);
        let covers =
            |set: &RangeTombstones, key: &str| set.covering_seqno(key.as_bytes(), MAX_SEQNO);
        let mut open_end = file(3, "p", "q");
        open_end.largest_exclusive = true;
        // In no order, one in another, one before all tombstones.
        let files = [open_end, file(1, "c", "g"), file(2, "d", "e"), file(4, "a", "a")];
        let rest = without(&set, &files);
        for key in ["b", "bz", "g\0", "h", "o", "q", "y"] {
            assert_eq!(covers(&rest, key), covers(&set, key), "{key}");
        }
        for key in ["a", "c", "d", "f", "g", "p", "pz", "z"] {
            assert_eq!(covers(&rest, key), None, "{key}");
        }
        assert!(without(&set, &[]).iter().eq(set.iter()));
    }

    #[test]
    fn the_key_behind_a_longest_one_is_none_that_is_longer() {
        let of = |largest: Vec<u8>| end_of(&FileMeta { largest, ..FileMeta::default() });
        assert_eq!(of(b"k".to_vec()).unwrap(), b"k\0");
        let mut longest = vec![u8::MAX; MAX_KEY_BYTES];
        assert_eq!(of(longest.clone()), None);
        longest[0] = b'a';
        assert_eq!(of(longest).unwrap(), b"b");
    }
}
