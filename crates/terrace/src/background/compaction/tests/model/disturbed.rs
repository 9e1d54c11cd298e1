//! What disturbs the store: files that cannot be read, segments to be emptied, garbage to be found, and deletions above a
//! file that is rewritten without what they hide.

use super::*;

impl Job {
    /// Whether a file above hides `entry` of the input from everybody.
    pub(super) fn hides(&self, (key, trailer, _): &Entry) -> bool {
        let seqno = trailer_seqno(*trailer);
        let seen = self.snapshots.iter().copied().find(|snapshot| *snapshot >= seqno);
        let seen = seen.unwrap_or(MAX_SEQNO);
        let is_newer = |newer: SeqNo| newer > seqno && newer <= seen;
        self.above.iter().any(|content| {
            let covering = content.tombstones.covering_seqno(key, seen);
            let mut versions = content.entries.iter().filter(|entry| entry.0 == *key);
            covering.is_some_and(is_newer) || versions.any(|entry| is_newer(trailer_seqno(entry.1)))
        })
    }
}

impl Store {
    /// Lets a file become unreadable, or all of them readable again. No job reads it.
    pub(super) fn quarantine(&mut self) {
        let busy: HashSet<FileNumber> =
            self.jobs.iter().flat_map(|j| j.compaction.files().map(|f| f.number)).collect();
        let files = self.version.files().map(|(_, file)| file.number);
        let free: Vec<FileNumber> = files.filter(|number| !busy.contains(number)).collect();
        match free.is_empty() || self.rng.one_in(8) {
            true => self.quarantined.clear(),
            false => {
                let at = self.rng.below(free.len() as u64) as usize;
                self.quarantined.insert(free[at]);
            }
        }
    }

    /// Chooses some of the segments that files refer to, and lets some files hide garbage.
    pub(super) fn victims(&mut self) {
        let files: Vec<FileMeta> = self.version.files().map(|(_, f)| FileMeta::clone(f)).collect();
        for reference in files.iter().flat_map(|file| &file.value_refs) {
            if self.rng.one_in(8) {
                self.victims.insert(reference.segment);
            }
        }
        self.hidden.clear();
        for file in &files {
            if self.rng.one_in(4) {
                self.hidden.insert(file.number, self.rng.below(4000));
            }
        }
    }

    /// Rewrites until no file refers to a victim.
    pub(super) fn empty_victims(&mut self) {
        self.force = true;
        for round in 0.. {
            assert!(round < 2000, "victims segments are never empty\n{}", self.version);
            while !self.jobs.is_empty() {
                self.end();
            }
            match self.with_input(pick_values) {
                Some(choice) => self.begin(choice),
                None => break,
            };
        }
        let refers = |file: &FileMeta| {
            file.value_refs.iter().any(|reference| self.victims.contains(&reference.segment))
        };
        assert!(!self.version.files().any(|(_, file)| refers(file)), "{}", self.version);
        self.victims.clear();
    }

    /// Rewrites below deletions until there is no more to do; they end, whatever has been done before.
    pub(super) fn rewrite_under_deletions(&mut self) {
        for round in 0.. {
            assert!(round < 2000, "rewrites below deletions have no end\n{}", self.version);
            while !self.jobs.is_empty() {
                self.end();
            }
            let choice = self.under_deletions();
            if !self.begin(choice) {
                break;
            }
        }
    }
}
