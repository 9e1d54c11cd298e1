//! Numbers for new files. SSTs, log segments and value segments share one number space; the counter
//! starts above every file of the store, named by the manifest or left behind by a crash.
//!
//! A file whose number lies far past all others is not the store's but was copied there. It must
//! not raise the counter, since segments with values have numbers of 32 bits and no number is used
//! twice. It is never read, removed or written over.

use std::sync::atomic::{AtomicU64, Ordering};
use terrace_base::FileNumber;
use terrace_manifest::names::{foreign_numbers, number_of};

/// See the module.
#[derive(Debug)]
pub(crate) struct FileNumbers {
    next: AtomicU64,
    /// Numbers of files that are not the store's, ascending.
    foreign: Vec<FileNumber>,
}

impl FileNumbers {
    /// For a directory with the files of `listing`, of which the manifest says that numbers from
    /// `next` on are free.
    pub fn new(listing: &[String], next: FileNumber) -> Self {
        let (next, foreign) = foreign_numbers(listing, next);
        Self { next: AtomicU64::new(next.get()), foreign }
    }

    /// A number for a file that is about to be created.
    pub fn take(&self) -> FileNumber {
        loop {
            let number = FileNumber::new(self.next.fetch_add(1, Ordering::Relaxed));
            if self.foreign.binary_search(&number).is_err() {
                return number;
            }
        }
    }

    /// All numbers taken so far lie below this.
    pub fn next(&self) -> FileNumber {
        FileNumber::new(self.next.load(Ordering::Relaxed))
    }

    /// Whether the files with this number are not the store's.
    pub fn is_foreign(&self, number: FileNumber) -> bool {
        self.foreign.binary_search(&number).is_ok()
    }

    /// Whether `name` is that of a file which only looks like one of the store.
    pub fn is_foreign_name(&self, name: &str) -> bool {
        number_of(name).is_some_and(|number| self.is_foreign(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_manifest::names::MIN_FOREIGN_GAP;

    fn of(files: &[&str], next: u64) -> FileNumbers {
        let listing: Vec<String> = files.iter().map(|name| name.to_string()).collect();
        FileNumbers::new(&listing, FileNumber::new(next))
    }

    #[test]
    fn what_a_crash_left_behind_raises_the_counter_and_what_lies_far_ahead_does_not() {
        let left_behind = ["000004.sst", "000009.log", "000012.vlog", "MANIFEST-000099", "x.sst"];
        assert_eq!(of(&left_behind, 7).next(), FileNumber::new(13));
        assert_eq!(of(&[], 7).next(), FileNumber::new(7));
        let ahead = format!("{:06}.sst", 7 + MIN_FOREIGN_GAP);
        let within = format!("{:06}.log", 6 + MIN_FOREIGN_GAP);
        assert_eq!(of(&[&ahead], 7).next(), FileNumber::new(7));
        assert_eq!(of(&[&within], 7).next(), FileNumber::new(7 + MIN_FOREIGN_GAP));
        // The gap counts from the file before.
        let numbers = of(&[&ahead, &within, "18446744073709551615.sst"], 7);
        assert_eq!(numbers.next(), FileNumber::new(8 + MIN_FOREIGN_GAP));
        assert!(
            numbers.is_foreign(FileNumber::new(u64::MAX))
                && !numbers.is_foreign(FileNumber::new(7 + MIN_FOREIGN_GAP))
        );
        assert!(numbers.is_foreign_name("18446744073709551615.log"));
        assert!(!numbers.is_foreign_name("MANIFEST-18446744073709551615"));
    }

    #[test]
    fn a_foreign_number_is_never_taken() {
        let foreign = 5 + MIN_FOREIGN_GAP;
        let numbers = of(&[&format!("{foreign}.sst"), &format!("{}.log", foreign + 1)], 5);
        numbers.next.store(foreign - 1, Ordering::Relaxed);
        assert_eq!(
            [numbers.take(), numbers.take()],
            [foreign - 1, foreign + 2].map(FileNumber::new)
        );
    }
}
