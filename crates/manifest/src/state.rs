//! What the manifest says: the sum of its edits.
//!
//! Counters never go down: an edit with a smaller one changes nothing. They also rise by
//! themselves past every number that an edit uses, so that no number is ever used twice whatever
//! the edit says about counters.
//!
//! `ManifestState::prepare` is for one edit on a live state; `Replay` for a whole file, where
//! only the last version of each family is built.

use crate::codec::{self, ManifestRecord, SnapshotHead};
use crate::edit::{FamilyEdit, MAX_OPTIONS_BYTES, SegmentMeta, VersionEdit};
use crate::file_meta::FileMeta;
use crate::version::{Version, place_name};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use terrace_base::{FileNumber, MAX_SEQNO, SegmentNumber, SeqNo};

/// The family that every store starts with.
pub const DEFAULT_FAMILY: &str = "default";

/// One column family.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyState {
    /// Never reused, not even after the family is dropped.
    pub id: u32,
    /// Unique among the families.
    pub name: String,
    /// Its live files.
    pub version: Arc<Version>,
    /// Log segments below this one hold nothing that the family still needs.
    pub min_log_segment: SegmentNumber,
    /// Every write of the family up to here is in its SSTs.
    pub flushed_seqno: SeqNo,
    /// The name of its merge operator, if it has one.
    pub merge_operator: Option<String>,
    /// Its options, in the engine's text; none in a store of a build that did not write them.
    pub options: Option<Arc<str>>,
}

/// Everything a manifest says.
#[derive(Debug, Clone, PartialEq)]
pub struct ManifestState {
    /// The column families by id.
    pub families: BTreeMap<u32, FamilyState>,
    /// No file number at or above this one has been used.
    pub next_file_number: FileNumber,
    /// The newest sequence number known to be used.
    pub last_seqno: SeqNo,
    /// The id of the next family.
    pub next_family_id: u32,
    /// Drawn when the store was made.
    pub store_id: u64,
    /// Where filters are hot, in the engine's bytes; empty if it never said.
    pub filter_heat: Arc<[u8]>,
    /// The value segments by number.
    pub segments: BTreeMap<SegmentNumber, SegmentMeta>,
    /// Every log segment that is needed exists, and evidence files say what was synced: so it is
    /// in every store that a build of this version has opened for writing.
    pub keeps_evidence: bool,
    /// Files that edits took out of the store and that may still lie in its directory: the one that
    /// finds one may remove it. The newest [`MAX_RETIRED`] of them.
    pub retired: BTreeSet<FileNumber>,
}

/// How many retired files are remembered.
pub const MAX_RETIRED: usize = 4096;

/// What files and segments of a store say of themselves is less than this in sum: a sum of some of it, or a few times
/// that, stays within 64 bits.
const MAX_TOTAL: u64 = 1 << 60;

/// Adds the files that `edit` takes out for good; one that only moves to another level stays.
fn retire(retired: &mut BTreeSet<FileNumber>, edit: &VersionEdit) {
    retired.extend(edit.segments_removed.iter().map(|number| number.file()));
    for family in &edit.families {
        retired.extend(family.removed.iter().map(|(_, number)| *number));
        for (_, file) in &family.added {
            retired.remove(&file.number);
        }
    }
    retired.extend(&edit.retired);
    while retired.len() > MAX_RETIRED {
        retired.pop_first();
    }
}

/// Makes the edit's value segments begin and end.
fn apply_segments(
    segments: &mut BTreeMap<SegmentNumber, SegmentMeta>,
    edit: &VersionEdit,
) -> Result<(), String> {
    for segment in &edit.segments_added {
        if segments.insert(segment.number, *segment).is_some() {
            return Err(format!("segment {} is a value segment already", segment.number));
        }
    }
    for number in &edit.segments_removed {
        if segments.remove(number).is_none() {
            return Err(format!("there is no value segment {number}"));
        }
    }
    Ok(())
}

/// The state after an edit, for the parts that it touches.
#[derive(Debug)]
pub(crate) struct Prepared {
    counters: Counters,
    /// `None` for a family that is dropped.
    families: Vec<(u32, Option<FamilyState>)>,
    filter_heat: Option<Arc<[u8]>>,
    /// `None` if they stay as they are.
    segments: Option<BTreeMap<SegmentNumber, SegmentMeta>>,
    keeps_evidence: bool,
    retired: BTreeSet<FileNumber>,
}

/// The numbers that only grow.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counters {
    next_file_number: FileNumber,
    last_seqno: SeqNo,
    next_family_id: u32,
}

impl Counters {
    /// Raised to what `edit` says and past every number it uses.
    fn raised(mut self, edit: &VersionEdit) -> Result<Self, String> {
        self.use_file_numbers_below(edit.next_file_number.unwrap_or_default())?;
        self.use_seqno(edit.last_seqno.unwrap_or_default())?;
        for segment in &edit.segments_added {
            self.use_file_numbers_below(segment.number.file().next())?;
        }
        for family in &edit.families {
            self.use_file_numbers_below(family.min_log_segment.unwrap_or_default().file())?;
            self.use_seqno(family.flushed_seqno.unwrap_or_default())?;
            for (_, file) in &family.added {
                self.use_file_numbers_below(file.number.next())?;
                self.use_seqno(file.largest_seqno)?;
            }
            if family.create.is_some() {
                self.next_family_id = match family.id.checked_add(1) {
                    Some(next) if family.id >= self.next_family_id => next,
                    _ => return Err(format!("family id {} was used before", family.id)),
                };
            }
        }
        Ok(self)
    }

    fn use_file_numbers_below(&mut self, next: FileNumber) -> Result<(), String> {
        if next.get() == u64::MAX {
            return Err(format!("file number {next} is out of range"));
        }
        self.next_file_number = self.next_file_number.max(next);
        Ok(())
    }

    fn use_seqno(&mut self, seqno: SeqNo) -> Result<(), String> {
        if seqno > MAX_SEQNO {
            return Err(format!("sequence number {seqno} is out of range"));
        }
        self.last_seqno = self.last_seqno.max(seqno);
        Ok(())
    }
}

/// What `edit` says of a family besides its files, checked against whether the family exists.
fn check_family(edit: &FamilyEdit, exists: bool) -> Result<(), String> {
    let id = edit.id;
    match (&edit.create, exists) {
        (Some(_), true) => return Err(format!("family {id} exists already")),
        (None, false) => return Err(format!("there is no family {id}")),
        _ => {}
    }
    let changes = edit.create.is_some()
        || edit.merge_operator.is_some()
        || edit.options.is_some()
        || edit.min_log_segment.is_some()
        || edit.flushed_seqno.is_some()
        || !edit.added.is_empty()
        || !edit.removed.is_empty();
    if edit.drop && changes {
        return Err(format!("family {id} is to be dropped and changed"));
    }
    if edit.drop && id == 0 {
        return Err(format!("the family `{DEFAULT_FAMILY}` cannot be dropped"));
    }
    let options_bytes = edit.options.as_ref().map_or(0, |options| options.len());
    if options_bytes > MAX_OPTIONS_BYTES {
        return Err(format!("the options of family {id} take {options_bytes} bytes"));
    }
    Ok(())
}

/// Gives a family its merge operator: one that has another keeps it, since its operands mean what
/// that one makes of them.
fn settle_operator(operator: &mut Option<String>, given: Option<&str>) -> Result<(), String> {
    match (&*operator, given) {
        (Some(has), Some(given)) if has != given => {
            Err(format!("the merge operator `{given}` is given to it and it has `{has}`"))
        }
        (None, Some(given)) => {
            *operator = Some(given.to_owned());
            Ok(())
        }
        _ => Ok(()),
    }
}

fn check_distinct(edit: &VersionEdit) -> Result<(), String> {
    let mut ids: Vec<u32> = edit.families.iter().map(|family| family.id).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("family {} is in one edit twice", pair[0])),
        None => Ok(()),
    }
}

impl ManifestState {
    /// The oldest segment of the log that any family needs: the log begins with it.
    pub fn oldest_log_segment(&self) -> SegmentNumber {
        self.families.values().map(|family| family.min_log_segment).min().unwrap_or_default()
    }

    /// A new store: family 0, [`DEFAULT_FAMILY`], and nothing else.
    pub fn fresh(store_id: u64) -> Self {
        let default = FamilyState {
            id: 0,
            name: DEFAULT_FAMILY.into(),
            version: Arc::default(),
            min_log_segment: SegmentNumber::ZERO,
            flushed_seqno: SeqNo::ZERO,
            merge_operator: None,
            options: None,
        };
        Self {
            families: BTreeMap::from([(0, default)]),
            next_file_number: FileNumber::new(1),
            last_seqno: SeqNo::ZERO,
            next_family_id: 1,
            store_id,
            filter_heat: Arc::default(),
            segments: BTreeMap::new(),
            keeps_evidence: false,
            retired: BTreeSet::new(),
        }
    }

    /// The family of this name.
    pub fn family_named(&self, name: &str) -> Option<&FamilyState> {
        self.families.values().find(|family| family.name == name)
    }

    /// Takes the files of `before`, a state that was read earlier, in the place of equal ones: a count of the holders of
    /// a file then includes those of earlier states. Costs a hash lookup for each file.
    pub fn share_files(&mut self, before: &Self) {
        for (id, family) in &mut self.families {
            if let Some(before) = before.families.get(id) {
                Arc::make_mut(&mut family.version).share_files(&before.version);
            }
        }
    }

    /// Works out what `edit` changes, or says why it does not fit. Changes nothing.
    pub(crate) fn prepare(&self, edit: &VersionEdit) -> Result<Prepared, String> {
        check_distinct(edit)?;
        let counters = self.counters().raised(edit)?;
        let mut families = Vec::with_capacity(edit.families.len());
        for change in &edit.families {
            families.push((change.id, self.prepare_family(change, edit)?));
        }
        let mut segments = None;
        if !edit.segments_added.is_empty() || !edit.segments_removed.is_empty() {
            apply_segments(segments.insert(self.segments.clone()), edit)?;
        }
        let mut retired = self.retired.clone();
        let dropped = edit.families.iter().filter(|change| change.drop);
        let dropped = dropped.filter_map(|change| self.families.get(&change.id));
        retired.extend(dropped.flat_map(|f| f.version.all_files()).map(|(_, file)| file.number));
        retire(&mut retired, edit);
        let (filter_heat, keeps_evidence) = (edit.filter_heat.clone(), edit.keeps_evidence);
        Ok(Prepared { counters, families, filter_heat, segments, keeps_evidence, retired })
    }

    fn prepare_family(
        &self,
        change: &FamilyEdit,
        edit: &VersionEdit,
    ) -> Result<Option<FamilyState>, String> {
        check_family(change, self.families.contains_key(&change.id))?;
        if change.drop {
            return Ok(None);
        }
        let mut family = match (self.families.get(&change.id), &change.create) {
            (Some(family), _) => family.clone(),
            (None, name) => {
                let name = name.clone().unwrap_or_default();
                self.check_name(&name, change.id, edit)?;
                let version = Arc::default();
                FamilyState {
                    id: change.id,
                    name,
                    version,
                    min_log_segment: SegmentNumber::ZERO,
                    flushed_seqno: SeqNo::ZERO,
                    merge_operator: None,
                    options: None,
                }
            }
        };
        if !change.added.is_empty() || !change.removed.is_empty() {
            let version = family.version.apply(change);
            let in_family =
                |why: String| format!("family {} (`{}`): {why}", family.id, family.name);
            family.version = Arc::new(version.map_err(in_family)?);
        }
        raise(&mut family.min_log_segment, change.min_log_segment);
        raise(&mut family.flushed_seqno, change.flushed_seqno);
        settle_operator(&mut family.merge_operator, change.merge_operator.as_deref())
            .map_err(|why| format!("family {} (`{}`): {why}", family.id, family.name))?;
        family.options = change.options.clone().or(family.options);
        Ok(Some(family))
    }

    /// Refuses the name of a family that exists after `edit`.
    fn check_name(&self, name: &str, id: u32, edit: &VersionEdit) -> Result<(), String> {
        let dropped = |id: u32| edit.families.iter().any(|change| change.id == id && change.drop);
        let taken = self.family_named(name).is_some_and(|family| !dropped(family.id))
            || edit.families.iter().any(|c| c.id != id && c.create.as_deref() == Some(name));
        if taken { Err(format!("there is a family `{name}` already")) } else { Ok(()) }
    }

    /// Makes a prepared edit part of the state.
    pub(crate) fn commit(&mut self, prepared: Prepared) {
        self.next_file_number = prepared.counters.next_file_number;
        self.last_seqno = prepared.counters.last_seqno;
        self.next_family_id = prepared.counters.next_family_id;
        if let Some(heat) = prepared.filter_heat {
            self.filter_heat = heat;
        }
        if let Some(segments) = prepared.segments {
            self.segments = segments;
        }
        self.keeps_evidence |= prepared.keeps_evidence;
        self.retired = prepared.retired;
        for (id, family) in prepared.families {
            match family {
                Some(family) => self.families.insert(id, family),
                None => self.families.remove(&id),
            };
        }
    }

    fn counters(&self) -> Counters {
        Counters {
            next_file_number: self.next_file_number,
            last_seqno: self.last_seqno,
            next_family_id: self.next_family_id,
        }
    }

    /// Appends the payload of a snapshot record of this state.
    pub(crate) fn encode_snapshot(&self, out: &mut Vec<u8>) {
        let head = SnapshotHead { store_id: self.store_id, next_family_id: self.next_family_id };
        codec::encode_snapshot_head(head, out);
        let segments: Vec<SegmentMeta> = self.segments.values().copied().collect();
        let retired: Vec<FileNumber> = self.retired.iter().copied().collect();
        let head = codec::Head {
            next_file_number: Some(self.next_file_number),
            last_seqno: Some(self.last_seqno),
            filter_heat: Some(&*self.filter_heat).filter(|heat| !heat.is_empty()),
            segments_added: &segments,
            segments_removed: &[],
            keeps_evidence: self.keeps_evidence,
            retired: &retired,
            family_count: self.families.len(),
        };
        codec::put_head(&head, out);
        for family in self.families.values() {
            let head = codec::FamilyHead {
                id: family.id,
                create: Some(&family.name),
                drop: false,
                min_log_segment: Some(family.min_log_segment),
                flushed_seqno: Some(family.flushed_seqno),
                merge_operator: family.merge_operator.as_deref(),
                options: family.options.as_deref(),
            };
            codec::put_family(&head, out);
            codec::put_removed(&[], out);
            let files = family.version.all_files().map(|(level, file)| (level, &**file));
            codec::put_added(family.version.file_count(), files, out);
        }
    }
}

fn raise<N: Copy + Ord + Default>(value: &mut N, to: Option<N>) {
    *value = (*value).max(to.unwrap_or_default());
}

/// Adds up the records of a manifest file. Costs a hash lookup per file added or removed,
/// whatever the number of live files.
#[derive(Default)]
pub(crate) struct Replay {
    started: Option<(SnapshotHead, Counters)>,
    families: BTreeMap<u32, FamilyReplay>,
    filter_heat: Arc<[u8]>,
    segments: BTreeMap<SegmentNumber, SegmentMeta>,
    keeps_evidence: bool,
    retired: BTreeSet<FileNumber>,
}

struct FamilyReplay {
    name: String,
    merge_operator: Option<String>,
    options: Option<Arc<str>>,
    min_log_segment: SegmentNumber,
    flushed_seqno: SeqNo,
    /// In the order in which they were added, so that sorting a snapshot again is one pass; empty
    /// where a file was removed.
    files: Vec<Option<(u8, Arc<FileMeta>)>>,
    /// Index in `files` by file number, of the first `indexed` ones: a snapshot that no edit
    /// removes anything from needs none.
    places: HashMap<FileNumber, usize>,
    indexed: usize,
}

impl FamilyReplay {
    fn remove(&mut self, level: u8, number: FileNumber) -> Result<(), String> {
        self.places.reserve(self.files.len() - self.indexed);
        for (at, entry) in self.files.iter().enumerate().skip(self.indexed) {
            if let Some((_, file)) = entry
                && self.places.insert(file.number, at).is_some()
            {
                return Err(format!("file {} is added twice", file.number));
            }
        }
        self.indexed = self.files.len();
        let place = self.places.remove(&number);
        match place.and_then(|at| self.files.get_mut(at)).and_then(Option::take) {
            Some((at, _)) if at == level => Ok(()),
            _ => Err(format!("file {number} is to be removed and is not in {}", place_name(level))),
        }
    }
}

impl Replay {
    /// Adds the next record; says why it does not fit.
    pub(crate) fn add(&mut self, record: ManifestRecord) -> Result<(), String> {
        let edit = record.edit;
        let before = match (record.snapshot, self.started) {
            (Some(head), None) => {
                // The families of a snapshot are all created by it, below its own next id.
                let counters = Counters {
                    next_file_number: FileNumber::new(1),
                    last_seqno: SeqNo::ZERO,
                    next_family_id: 0,
                };
                (head, counters)
            }
            (None, Some(started)) => started,
            (Some(_), Some(_)) => return Err("a second snapshot".into()),
            (None, None) => return Err("an edit where a snapshot should be".into()),
        };
        check_distinct(&edit)?;
        let mut counters = before.1.raised(&edit)?;
        if record.snapshot.is_some() {
            if counters.next_family_id > before.0.next_family_id {
                return Err("a family id that the snapshot says is not used yet".into());
            }
            counters.next_family_id = before.0.next_family_id;
        }
        self.started = Some((before.0, counters));
        apply_segments(&mut self.segments, &edit)?;
        self.keeps_evidence |= edit.keeps_evidence;
        let dropped = edit.families.iter().filter(|change| change.drop);
        for family in dropped.filter_map(|change| self.families.get(&change.id)) {
            self.retired.extend(family.files.iter().flatten().map(|(_, file)| file.number));
        }
        retire(&mut self.retired, &edit);
        if let Some(heat) = edit.filter_heat {
            self.filter_heat = heat;
        }
        for change in edit.families {
            self.add_family(change)?;
        }
        Ok(())
    }

    fn add_family(&mut self, change: FamilyEdit) -> Result<(), String> {
        let id = change.id;
        check_family(&change, self.families.contains_key(&id))?;
        if change.drop {
            self.families.remove(&id);
            return Ok(());
        }
        let family = self.families.entry(id).or_insert_with(|| FamilyReplay {
            name: change.create.unwrap_or_default(),
            merge_operator: None,
            options: None,
            min_log_segment: SegmentNumber::ZERO,
            flushed_seqno: SeqNo::ZERO,
            files: Vec::new(),
            places: HashMap::new(),
            indexed: 0,
        });
        for (level, number) in change.removed {
            family.remove(level, number).map_err(|why| format!("family {id}: {why}"))?;
        }
        let added = change.added.into_iter().map(|(level, file)| Some((level, Arc::new(file))));
        family.files.extend(added);
        raise(&mut family.min_log_segment, change.min_log_segment);
        raise(&mut family.flushed_seqno, change.flushed_seqno);
        family.options = change.options.or(family.options.take());
        settle_operator(&mut family.merge_operator, change.merge_operator.as_deref())
            .map_err(|why| format!("family {id}: {why}"))
    }

    /// The state after all records; `None` if there was no snapshot.
    pub(crate) fn finish(self) -> Result<Option<ManifestState>, String> {
        let Some((head, counters)) = self.started else { return Ok(None) };
        if let Some(name) = first_twice(self.families.values().map(|family| &*family.name)) {
            return Err(format!("two families are named `{name}`"));
        }
        if self.families.get(&0).is_none_or(|family| family.name != DEFAULT_FAMILY) {
            return Err(format!("family 0 is not there, or not called `{DEFAULT_FAMILY}`"));
        }
        let mut total = self.segments.values().fold(0, |sum, s| s.size_bytes.saturating_add(sum));
        let mut families = BTreeMap::new();
        for (id, family) in self.families {
            let name = family.name;
            let files: Vec<_> = family.files.into_iter().flatten().collect();
            total = files.iter().fold(total, |sum, (_, file)| file.total().saturating_add(sum));
            let version = Version::empty()
                .edited(files, &[])
                .map_err(|why| format!("family {id} (`{name}`): {why}"))?;
            let (min_log_segment, flushed_seqno) = (family.min_log_segment, family.flushed_seqno);
            let version = Arc::new(version);
            let (merge_operator, options) = (family.merge_operator, family.options);
            let family = FamilyState {
                id,
                name,
                version,
                min_log_segment,
                flushed_seqno,
                merge_operator,
                options,
            };
            families.insert(id, family);
        }
        if total > MAX_TOTAL {
            return Err(
                "the files that it names have more bytes and entries than files can have".into()
            );
        }
        Ok(Some(ManifestState {
            families,
            next_file_number: counters.next_file_number,
            last_seqno: counters.last_seqno,
            next_family_id: counters.next_family_id,
            store_id: head.store_id,
            filter_heat: self.filter_heat,
            segments: self.segments,
            keeps_evidence: self.keeps_evidence,
            retired: self.retired,
        }))
    }
}

/// The first of `names` that has come before.
fn first_twice<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut before = HashSet::new();
    let mut names = names;
    names.find(|name| !before.insert(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manifest may say that there are a million families, before anybody can judge that.
    #[test]
    fn a_name_that_comes_twice_is_found_among_many() {
        let mut names: Vec<String> = (0..200_000).map(|n| format!("family {n:06}")).collect();
        let start = std::time::Instant::now();
        assert_eq!(first_twice(names.iter().map(String::as_str)), None);
        names.push(names[70_000].clone());
        assert_eq!(first_twice(names.iter().map(String::as_str)), Some("family 070000"));
        // Far above what it takes; that every two are compared would show.
        assert!(start.elapsed().as_secs() < 120, "{:?}", start.elapsed());
    }
}
