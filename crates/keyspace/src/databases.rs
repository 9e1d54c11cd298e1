//! A set of databases that many threads read and change. Called by `keyspace`, `command_batch` and `active_expire`.

use crate::key_layout::MAX_DATABASES;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module. Empty at first; databases from [`MAX_DATABASES`] on are never in it.
#[derive(Debug, Default)]
pub(crate) struct Databases([AtomicU64; MAX_DATABASES / 64]);

impl Clone for Databases {
    fn clone(&self) -> Self {
        let bits = |n: usize| AtomicU64::new(self.0[n].load(Ordering::Relaxed));
        Self(std::array::from_fn(bits))
    }
}

impl PartialEq for Databases {
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits()
    }
}

impl Databases {
    /// All that there can be.
    pub fn all() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(u64::MAX)))
    }

    fn bits(&self) -> u128 {
        let bits = self.0.iter().rev().map(|bits| u128::from(bits.load(Ordering::Relaxed)));
        bits.fold(0, |all, bits| all << 64 | bits)
    }

    /// Whether no other than this one is in it.
    pub fn has_none_but(&self, db: u8) -> bool {
        self.bits() & !1_u128.checked_shl(db.into()).unwrap_or(0) == 0
    }

    pub fn has(&self, db: u8) -> bool {
        // Relaxed: who may rely on what it says holds the lock of a key, or has been told of a commit.
        let bits = self.0.get(usize::from(db) / 64);
        bits.is_some_and(|bits| bits.load(Ordering::Relaxed) >> (db % 64) & 1 == 1)
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| bits.load(Ordering::Relaxed) == 0)
    }

    pub fn add(&self, db: u8) {
        if !self.has(db)
            && let Some(bits) = self.0.get(usize::from(db) / 64)
        {
            bits.fetch_or(1 << (db % 64), Ordering::Relaxed);
        }
    }

    /// Takes out those of `gone`, as bits, but those in `kept`.
    pub fn remove(&self, gone: u128, kept: u128) {
        let gone = gone & !kept;
        for (bits, gone) in self.0.iter().zip([gone as u64, (gone >> 64) as u64]) {
            bits.fetch_and(!gone, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_database_comes_and_goes_alone() {
        let databases = Databases::default();
        for db in [0, 63, 64, 127] {
            assert!(!databases.has(db));
            databases.add(db);
            databases.add(db);
        }
        let all =
            |databases: &Databases| (0..128).filter(|db| databases.has(*db)).collect::<Vec<_>>();
        assert_eq!(all(&databases), [0, 63, 64, 127]);
        assert!(!databases.has_none_but(0) && !databases.clone().has_none_but(127));
        databases.remove(1 << 63 | 1 << 64 | 1 << 5, 1 << 64);
        assert_eq!(all(&databases), [0, 64, 127]);
        assert!(!databases.is_empty());
        databases.remove(u128::MAX, 1 << 127);
        assert!(databases.has_none_but(127) && !databases.has_none_but(126));
        databases.remove(u128::MAX, 0);
        assert!(databases.is_empty() && databases == Databases::default());
        assert!((0..128).all(|db| Databases::all().has(db)) && databases != Databases::all());
        for db in [128, 200, 255] {
            databases.add(db);
            assert!(!databases.has(db) && databases.has_none_but(db), "there is no such database");
        }
    }
}
