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

    /// Ends what runs, and goes on as a store that is opened with other options.
    pub(super) fn reopen(&mut self) {
        while !self.jobs.is_empty() {
            self.end();
        }
        let options = &mut self.options;
        options.style = match self.rng.one_in(2) {
            true => CompactionStyle::Leveled,
            false => CompactionStyle::Tiered,
        };
        options.target_file_bytes = 300_u64 << self.rng.below(7);
        options.level_base_bytes = 500_u64 << self.rng.below(5);
        options.level_multiplier = 2.0 + self.rng.unit() * 8.0;
        options.l0_compaction_trigger = 1 + self.rng.below(4) as usize;
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

/// What is chosen again without end is found by [`Store::settle`].
#[test]
fn idle_work_ends_whatever_options_a_store_is_opened_with_and_whatever_snapshots_there_are() {
    let mut styles = HashSet::new();
    for seed in 0..150 {
        let mut store = Store::new(1000 + seed, CompactionStyle::Leveled);
        for _ in 0..4 {
            for _ in 0..40 {
                store.step();
            }
            store.reopen();
            styles.insert(store.options.style == CompactionStyle::Tiered);
            store.settle();
            store.check(10);
        }
        store.snapshots.clear();
        store.now_ms += 10_000;
        store.settle();
        store.check(10);
    }
    assert_eq!(styles.len(), 2);
}
