//! Where scans over keys go on: a cursor is a number, a position a key, so a table says which is
//! which. Bounded in number and bytes; the oldest are forgotten. Those of a server before are not taken for its own:
//! numbers go on with the clock.

use parking_lot::Mutex;
use std::collections::VecDeque;

/// Most cursors that are known.
pub(crate) const MAX_CURSORS: usize = 16_384;
/// The second with which they begin: 2024.
const SINCE_S: u64 = 1_704_067_200;
/// As many cursors a second as this many bits say, and not more, are given on average.
const SECOND_BITS: u32 = 12;
/// Bits of a cursor. With ten more for the number of a store they are exact as floating-point numbers, which
/// some clients take them for.
const BITS: u32 = 43;
/// Most bytes of their keys.
const MAX_BYTES: usize = 16 << 20;

struct Position {
    db: u8,
    /// The last key that was shown.
    after: Box<[u8]>,
}

/// The cursors of a keyspace.
pub(crate) struct Cursors(Mutex<Table>);

struct Table {
    /// Cursors are numbers that follow one another; this is the first of `positions`.
    first: u64,
    positions: VecDeque<Position>,
    bytes: usize,
}

impl Cursors {
    /// None yet, at `now_ms` since 1970.
    pub fn new(now_ms: u64) -> Self {
        let seconds = (now_ms / 1000).saturating_sub(SINCE_S).min((1 << (BITS - SECOND_BITS)) - 1);
        let first = (seconds << SECOND_BITS).max(1);
        Self(Mutex::new(Table { first, positions: VecDeque::new(), bytes: 0 }))
    }

    /// A cursor behind a key of a database. Never 0.
    pub fn keep(&self, db: u8, after: &[u8]) -> u64 {
        let mut table = self.0.lock();
        table.bytes += after.len();
        table.positions.push_back(Position { db, after: after.into() });
        while (table.positions.len() > MAX_CURSORS || table.bytes > MAX_BYTES)
            && let Some(oldest) = table.positions.pop_front()
        {
            table.first += 1;
            table.bytes -= oldest.after.len();
        }
        table.first + table.positions.len() as u64 - 1
    }

    /// The key that a cursor of a database is behind; `None` if it is not known. A cursor can be
    /// used any number of times.
    pub fn find(&self, db: u8, cursor: u64) -> Option<Vec<u8>> {
        let table = self.0.lock();
        let at = usize::try_from(cursor.checked_sub(table.first)?).ok()?;
        let position = table.positions.get(at)?;
        (position.db == db).then(|| position.after.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_cursors_are_known_and_the_oldest_forgotten() {
        let cursors = Cursors::new(0);
        let first = cursors.keep(3, b"a");
        assert_eq!(cursors.find(3, first), Some(b"a".to_vec()));
        assert_eq!(cursors.find(3, first), Some(b"a".to_vec()));
        assert_eq!((cursors.find(2, first), cursors.find(3, 0)), (None, None));
        assert_eq!((cursors.find(3, first + 1), cursors.find(3, u64::MAX)), (None, None));
        let mut last = first;
        for _ in 0..MAX_CURSORS {
            last = cursors.keep(3, b"b");
        }
        assert_eq!(cursors.find(3, first), None);
        assert_eq!(cursors.find(3, first + 1), Some(b"b".to_vec()));
        assert_eq!(cursors.find(3, last), Some(b"b".to_vec()));
    }

    /// A client that goes on after a restart gets an error, not the place of another one.
    #[test]
    fn cursors_of_an_earlier_run_are_not_known() {
        const RESTART_MS: u64 = 1_795_000_000_000;
        let before = Cursors::new(RESTART_MS - 2_000);
        let old: Vec<u64> = (0..8_000).map(|_| before.keep(0, b"k")).collect();
        let after = Cursors::new(RESTART_MS);
        let new: Vec<u64> = (0..1000).map(|_| after.keep(0, b"other")).collect();
        assert!(old.iter().all(|cursor| after.find(0, *cursor).is_none()));
        assert!(new.iter().all(|cursor| after.find(0, *cursor).is_some()));
        assert!(new[0] < 1 << BITS && Cursors::new(u64::MAX).keep(0, b"k") < 1 << BITS);
    }

    #[test]
    fn long_keys_do_not_take_all_memory() {
        let cursors = Cursors::new(0);
        let long = vec![0; 60_000];
        let kept: Vec<u64> = (0..1000).map(|_| cursors.keep(0, &long)).collect();
        let known = kept.iter().filter(|cursor| cursors.find(0, **cursor).is_some()).count();
        assert_eq!(known, MAX_BYTES / long.len());
    }
}
