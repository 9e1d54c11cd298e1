//! All files of a family merged into one sorted run, since their levels are unknown.

use super::Repair;
use crate::background::compaction::job::{self, JobContext};
use crate::background::compaction::pick::{Compaction, File, Reason};
use crate::env::rate_limit::RateLimiter;
use crate::error::Result;
use crate::jobs::job_list::JobProgress;
use crate::open::read_write::Nouns;
use crate::options::FamilyOptions;
use crate::version::unpublished;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_base::{FileNumber, SeqNo};
use terrace_manifest::{FileMeta, LEVEL_COUNT, Version};

/// The level of what was merged.
pub(super) const LAST_LEVEL: u8 = LEVEL_COUNT as u8 - 1;

impl Repair<'_> {
    /// Merges `files`, which are all of a family: of every key the newest version survives, unless it is deleted.
    /// `ages` has the numbers of the files that they are as old as. What comes out is as old as the newest of them, and has its
    /// names when this returns.
    pub(super) fn merge(
        &self,
        family: u32,
        files: Vec<FileMeta>,
        ages: &HashMap<FileNumber, FileNumber>,
        options: &FamilyOptions,
        flushed_seqno: SeqNo,
        next_file_number: &(dyn Fn() -> FileNumber + Sync),
    ) -> Result<Vec<FileMeta>> {
        if files.len() < 2 {
            return Ok(files);
        }
        let newest = files.iter().map(|file| age(file, ages)).max();
        let options = &FamilyOptions { as_old_as: newest, ..options.clone() };
        let parts = Nouns::new(self.dir, &self.options, true)?;
        let compaction = Compaction {
            family,
            start_level: 0,
            output_level: LAST_LEVEL,
            inputs: runs(files, ages).into_iter().map(|run| (1, run)).collect(),
            grandparents: Vec::new(),
            above: None,
            reason: Reason::Manual,
        };
        let context = JobContext {
            vfs: &self.vfs,
            dir: self.dir,
            table_cache: &parts.table_cache,
            next_file_number,
            options,
            flushed_seqno,
            snapshots: Vec::new(),
            clock: &*self.options.advanced.clock,
            limiter: &RateLimiter::new(0),
            cancel: &AtomicBool::new(false),
            // Nothing lies below.
            version: &Version::empty(),
            progress: &JobProgress::default(),
            moving: None,
            filtering: None,
            kept_room: None,
        };
        let merged = job::run(&context, &compaction)?;
        let added = merged.map(|merged| merged.edit.added).unwrap_or_default();
        let files: Vec<FileMeta> = added.into_iter().map(|(_, file)| file).collect();
        unpublished::publish(&*self.vfs, self.dir, files.iter().map(|file| file.number))?;
        Ok(files)
    }
}

/// The number of the file that `file` is as old as.
fn age(file: &FileMeta, ages: &HashMap<FileNumber, FileNumber>) -> FileNumber {
    ages.get(&file.number).copied().unwrap_or(file.number)
}

/// Sorted runs of disjoint files, newest first: of two files that overlap, the one made later stands in an
/// earlier run. That decides between versions of a key with the same sequence number, which a merge has set to 0.
fn runs(mut files: Vec<FileMeta>, ages: &HashMap<FileNumber, FileNumber>) -> Vec<Vec<File>> {
    files.sort_by_key(|file| std::cmp::Reverse(age(file, ages)));
    let mut runs: Vec<BTreeMap<Vec<u8>, File>> = Vec::new();
    for file in files {
        let overlaps = |run: &BTreeMap<Vec<u8>, File>| {
            let before = run.range(..=file.smallest.clone()).next_back();
            let after = run.range(file.smallest.clone()..).next();
            before.is_some_and(|(_, other)| !other.precedes(&file))
                || after.is_some_and(|(_, other)| !file.precedes(other))
        };
        let at = runs.iter().rposition(overlaps).map_or(0, |last| last + 1);
        if at == runs.len() {
            runs.push(BTreeMap::new());
        }
        runs[at].insert(file.smallest.clone(), Arc::new(file));
    }
    runs.into_iter().map(|run| run.into_values().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_base::rng::{Rng, SplitMix64};

    #[test]
    fn runs_are_disjoint_and_of_overlapping_files_the_later_one_comes_first() {
        let mut rng = SplitMix64::new(1);
        for _ in 0..200 {
            let files: Vec<FileMeta> = (0..rng.below(30))
                .map(|number| {
                    let start = rng.below(50) as u8;
                    FileMeta {
                        number: FileNumber::new(number),
                        smallest: vec![start],
                        largest: vec![start + rng.below(12) as u8],
                        ..FileMeta::default()
                    }
                })
                .collect();
            // Some are written anew, under numbers behind all others.
            let mut ages = HashMap::new();
            let mut anew = files.clone();
            for file in anew.iter_mut().filter(|file| file.number.get().is_multiple_of(3)) {
                let number = FileNumber::new(1000 - file.number.get());
                ages.insert(number, file.number);
                file.number = number;
            }
            let runs = runs(anew, &ages);
            assert_eq!(runs.iter().map(Vec::len).sum::<usize>(), files.len());
            for run in &runs {
                assert!(run.windows(2).all(|pair| pair[0].precedes(&pair[1])));
            }
            for (at, run) in runs.iter().enumerate() {
                for (later, other) in runs[at + 1..].iter().flatten().map(|f| (f, run)) {
                    for file in other.iter().filter(|f| !f.precedes(later) && !later.precedes(f)) {
                        assert!(age(file, &ages) > age(later, &ages));
                    }
                }
            }
        }
    }
}
