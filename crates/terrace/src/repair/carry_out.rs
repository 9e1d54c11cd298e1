//! Writing the repaired store.

use super::Repair;
use super::keep::is_same;
use super::merge::LAST_LEVEL;
use super::merged;
use super::misplaced::MISPLACED;
use super::plan::{Files, Plan};
use super::ssts::version_of;
use super::unended;
use crate::error::Result;
use crate::inner::Inner;
use crate::open::family_options;
use crate::open::orphans;
use crate::open::read_write;
use crate::options::FamilyOptions;
use crate::version::file_numbers::FileNumbers;
use crate::version::install;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use terrace_base::{FileNumber, SegmentNumber};
use terrace_log::SegmentFile;
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{FamilyState, FileMeta, HOT_LEVEL, ManifestState, salvage};

impl Repair<'_> {
    /// Does what `plan` says; the store that comes out, with its log replayed.
    pub(super) fn carry_out(&mut self, plan: Plan) -> Result<Inner> {
        let Plan { mut state, claims, number, numbers, families, mut aside, mended, log, .. } =
            plan;
        let first_written = numbers.next();
        let prepared = self.prepare(&mut state, families, &numbers, &mended, &mut aside);
        let kept = prepared.inspect_err(|_| self.remove_written(first_written, &numbers))?;
        let is_first = |(name, _): &(String, &str)| self.is_in_the_way(name);
        let (first, aside): (Vec<_>, Vec<_>) = aside.into_iter().partition(is_first);
        first.iter().try_for_each(|(name, suffix)| self.set_aside(name, suffix))?;
        let number = self.list_merged(number, &aside)?;
        let manifest = salvage::replace(self.vfs.clone(), self.dir, number, &state)?;
        for (name, suffix) in aside {
            match kept.contains(&name) {
                true => self.vfs.remove(&self.dir.join(name))?,
                false => self.set_aside(&name, suffix)?,
            }
        }
        self.vfs.sync_dir(self.dir)?;
        merged::end(&*self.vfs, self.dir)?;
        let (dir, salvages) = (self.dir, log.salvages);
        let (inner, log) =
            read_write::recover_log(dir, &self.options, (manifest, state), claims, salvages)?;
        self.report.log_batches = log.records;
        // `lost/` has them: a reader that looks at the store next finds nothing that it does not need.
        install::drop_dead_segments(&inner.versions)?;
        for SegmentFile { number, path } in mended {
            // What nothing needs is gone, or goes as it is when readers in other processes need it no more.
            if is_needed(&inner, number) && self.vfs.exists(&path)? {
                self.mend(number, &path)?;
            }
        }
        Ok(inner)
    }

    /// What is done before a file of the store is replaced: gives every family its version, and keeps copies; gives the names
    /// of what was copied.
    fn prepare(
        &mut self,
        state: &mut ManifestState,
        families: BTreeMap<u32, Files>,
        numbers: &FileNumbers,
        mended: &[SegmentFile],
        aside: &mut Vec<(String, &'static str)>,
    ) -> Result<HashSet<String>> {
        let damaged = damaged_segments(&families);
        for (id, files) in families {
            let Some(family) = state.families.get_mut(&id) else { continue };
            self.place(family, files, numbers, aside)?;
        }
        self.vfs.sync_dir(self.dir)?;
        state.next_file_number = state.next_file_number.max(numbers.next());
        let kept = self.back_up(state, numbers, mended)?;
        self.keep_segments(state, &damaged, &kept)?;
        self.set_unknown_aside(state, numbers, aside)?;
        if !self.report.lost.is_empty() {
            unended::write(&*self.vfs, self.dir, &self.report.lost)?;
        }
        Ok(kept)
    }

    /// Removes the SSTs with numbers from `first` on, as far as that works: no manifest names them, and the next try would write
    /// them once more, perhaps for want of the room that they take.
    fn remove_written(&self, first: FileNumber, numbers: &FileNumbers) {
        let written = (first.get()..numbers.next().get()).map(FileNumber::new);
        for number in written.filter(|number| !numbers.is_foreign(*number)) {
            for path in [names::sst_path(self.dir, number), names::temp_path(self.dir, number)] {
                let _ = self.vfs.remove(&path);
            }
        }
    }

    /// Writes the files of a family anew, as far as that has to be, and gives it its version.
    fn place(
        &mut self,
        family: &mut FamilyState,
        files: Files,
        numbers: &FileNumbers,
        aside: &mut Vec<(String, &'static str)>,
    ) -> Result<()> {
        let options = self.family_options(family);
        let next = || numbers.take();
        let mut merge = files.merge();
        let found = self.found(&files)?;
        let mut placed: Vec<(u8, FileMeta)> = Vec::new();
        // What was written anew, and of every file: which it is as old as.
        let mut fresh: HashSet<FileNumber> = HashSet::new();
        let mut ages: HashMap<FileNumber, FileNumber> = HashMap::new();
        for (level, sst) in files.ssts {
            let level = level.unwrap_or(0);
            if sst.damage.is_none() && !found.gives_way(&sst) {
                ages.insert(sst.meta.number, sst.age);
                placed.push((level, sst.meta));
                continue;
            }
            let mut written = self.rewrite_found(&family.name, &sst, &found, (&options, &next))?;
            if level == 0 {
                // It keeps its place in the order of L0, which the entries that are left may not tell: what was hot is newer
                // than files of newer writes.
                let place = sst.meta.largest_seqno;
                written.iter_mut().for_each(|f| f.largest_seqno = f.largest_seqno.max(place));
            }
            fresh.extend(written.iter().map(|file| file.number));
            ages.extend(written.iter().map(|file| (file.number, sst.age)));
            placed.extend(written.into_iter().map(|file| (level, file)));
        }
        let mut version = version_of(family.id, placed.clone());
        // What is read before the log is not merged with what the log says more about.
        let is_hot = |(level, _): &(u8, FileMeta)| *level == HOT_LEVEL;
        let (hot, placed): (Vec<_>, Vec<_>) = placed.into_iter().partition(is_hot);
        // The manifest says what cannot be.
        if version.is_none() && !merge {
            merge = true;
            let old = placed.iter().filter(|(_, file)| !fresh.contains(&file.number));
            aside.extend(old.map(|(_, file)| (format!("{:06}.sst", file.number), ".merged")));
        }
        if merge {
            let files: Vec<FileMeta> = placed.into_iter().map(|(_, file)| file).collect();
            let kept: Vec<FileNumber> = files.iter().map(|file| file.number).collect();
            let flushed = family.flushed_seqno;
            let merged = self.merge(family.id, files, &ages, &options, flushed, &next)?;
            // A single file stays as it is.
            aside.retain(|(name, suffix)| {
                let is = |file: &FileMeta| *name == format!("{:06}.sst", file.number);
                *suffix != ".merged" || !merged.iter().any(is)
            });
            let unused = fresh.into_iter().filter(|n| merged.iter().all(|file| file.number != *n));
            for number in unused.filter(|number| kept.contains(number)) {
                aside.push((format!("{number:06}.sst"), ".merged"));
            }
            let placed = merged.into_iter().map(|file| (LAST_LEVEL, file)).chain(hot).collect();
            version = version_of(family.id, placed);
        }
        family.version = version.unwrap_or_default();
        Ok(())
    }

    fn family_options(&self, family: &FamilyState) -> FamilyOptions {
        let options = family_options::given(&self.options, &family.name);
        let family = Some((family.id, family.name.clone()));
        // Files of before and after a merge may be there: only sequence numbers tell which operands
        // a value has in it already.
        FamilyOptions { family, keeps_seqnos: true, ..self.options.family(options) }
    }

    /// Copies what will be replaced or replayed to `lost/`; gives the names.
    fn back_up(
        &self,
        state: &ManifestState,
        numbers: &FileNumbers,
        mended: &[SegmentFile],
    ) -> Result<HashSet<String>> {
        let is_mended = |number: SegmentNumber| mended.iter().any(|mended| mended.number == number);
        let mut kept = HashSet::new();
        let lost = names::lost_dir(self.dir);
        self.vfs.create_dir_all(&lost)?;
        for name in self.vfs.list(self.dir)? {
            use FileName::{Current, Evidence, Log, Manifest, ValueLog};
            let stays = |n: SegmentNumber| state.segments.contains_key(&n);
            let goes = match names::parse(&name) {
                Current | Evidence(_) | Manifest(_) => true,
                Log(number) => {
                    is_mended(number) || !(stays(number) || numbers.is_foreign(number.file()))
                }
                ValueLog(number) => is_mended(number),
                _ => false,
            };
            if !goes || self.misplaced.absent.contains(&name) {
                continue;
            }
            let path = self.dir.join(&name);
            let is_segment = matches!(names::parse(&name), Log(_) | ValueLog(_));
            let kept_as = match self.misplaced.in_log.contains(&name) {
                true => format!("{name}{MISPLACED}"),
                false => name.clone(),
            };
            // One that was taken back, or that a repair which did not end had kept, is there still.
            if !is_segment || !is_same(&*self.vfs, &path, &lost.join(&kept_as)) {
                let target = orphans::free_name(&*self.vfs, self.dir, &kept_as)?;
                self.give_whole(&path, &target)?;
            }
            kept.insert(name);
        }
        self.vfs.sync_dir(&lost)?;
        Ok(kept)
    }

    /// Moves a file that the new manifest does not name to `lost/`. One that was taken back from there is there still.
    fn set_aside(&self, name: &str, suffix: &str) -> Result<()> {
        let (path, kept_as) = (self.dir.join(name), format!("{name}{suffix}"));
        let lost = names::lost_dir(self.dir);
        if self.vfs.exists(&path)? {
            match is_same(&*self.vfs, &path, &lost.join(&kept_as)) {
                true => self.vfs.remove(&path)?,
                false => {
                    let target = orphans::free_name(&*self.vfs, self.dir, &kept_as)?;
                    self.vfs.rename(&path, &target)?;
                }
            }
        }
        Ok(self.vfs.sync_dir(&lost)?)
    }
}

/// The segments with values that are damaged.
fn damaged_segments(families: &BTreeMap<u32, Files>) -> BTreeSet<SegmentNumber> {
    let ssts = families.values().flat_map(|files| &files.ssts);
    let damage = ssts.filter_map(|(_, sst)| sst.damage.as_ref());
    damage.flat_map(|damage| damage.value_segments.iter().copied()).collect()
}

/// Whether the store that came out has values in segment `number`, or change feeds read it.
fn is_needed(inner: &Inner, number: SegmentNumber) -> bool {
    let versions = &inner.versions;
    versions.manifest.lock().state.segments.contains_key(&number)
        || versions.read.value_log.has(number)
        || versions.log_history.keeps(number)
}
