//! How many files each of the stores that are open may have open. The limit is that of the process, which has files of its
//! own: all stores together take two fifths of it, and each half of what is left of that. The first one gets a fifth of
//! the limit, which is what LevelDB takes.

use libc::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::vfs;

/// LevelDB's own least `max_open_files`: 64 tables and 10 other files.
const LEAST_WANTED: u64 = 74;

/// What a store gets when nothing is left.
const LEAST_FILES: u64 = 16;

/// What the stores of this process have.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The files that a store may have open, given back when this is dropped.
pub struct OpenFiles {
    count: u64,
    taken: &'static AtomicU64,
}

impl OpenFiles {
    /// For a store of a program that asks for `wanted` (`max_open_files`). LevelDB's default is more than many processes
    /// may have, and LevelDB gets along with any limit. The limit is the program's, and is not raised.
    pub fn take(wanted: c_int) -> Self {
        Self::take_of(&TAKEN, wanted, vfs::open_file_soft_limit())
    }

    fn take_of(taken: &'static AtomicU64, wanted: c_int, limit: u64) -> Self {
        let mut count = 0;
        let add = |before: u64| {
            count = share(wanted, limit, before);
            Some(before.saturating_add(count))
        };
        let _ = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        Self { count, taken }
    }

    pub fn count(&self) -> u64 {
        self.count
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// What the next store gets if those that are open have `taken`.
fn share(wanted: c_int, limit: u64, taken: u64) -> u64 {
    let left = (limit / 5).saturating_mul(2).saturating_sub(taken);
    let wanted = u64::try_from(wanted).unwrap_or(0).max(LEAST_WANTED);
    wanted.min((left / 2).max(LEAST_FILES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_gets_what_it_wants_or_a_fifth_of_the_limit() {
        assert_eq!(share(1000, 1024, 0), 204);
        assert_eq!(share(100, 1024, 0), 100);
        assert_eq!(share(1000, u64::MAX, 0), 1000);
        for wanted in [c_int::MIN, -1, 0, 1, 74] {
            assert_eq!(share(wanted, 1024, 0), 74);
        }
        assert_eq!(share(1000, 20, 0), 16);
    }

    /// However many there are, stores leave most files to the program, and what one had another gets.
    #[test]
    fn stores_share_two_fifths_of_the_limit() {
        let taken: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
        let limit = vfs::open_file_soft_limit();
        let open = || OpenFiles::take_of(taken, 1000, 1024);
        let mut stores: Vec<_> = (0..20).map(|_| open()).collect();
        let all: u64 = stores.iter().map(OpenFiles::count).sum();
        assert_eq!(taken.load(Ordering::Relaxed), all);
        assert!(all <= 2 * 204 + 20 * LEAST_FILES, "{all}");
        assert!(stores.is_sorted_by(|a, b| a.count() >= b.count()));
        assert_eq!((stores[0].count(), stores[19].count()), (204, LEAST_FILES));
        stores.clear();
        assert_eq!(taken.load(Ordering::Relaxed), 0);
        assert_eq!(open().count(), 204);
        assert_eq!(vfs::open_file_soft_limit(), limit, "the limit is the program's");
    }
}
