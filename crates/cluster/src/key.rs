//! A key of a user, and the name of a move of keys.

use crate::id::Epoch;
use std::fmt;

/// A key of one of the databases.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DbKey {
    /// The number of the database.
    pub db: u8,
    /// The key in it.
    pub key: Vec<u8>,
}

impl DbKey {
    /// The key `key` of database `db`.
    pub fn new(db: u8, key: impl Into<Vec<u8>>) -> Self {
        Self { db, key: key.into() }
    }
}

impl fmt::Display for DbKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.db, self.key.escape_ascii())
    }
}

/// The name of a move of keys of one shard. Ids of later moves of the shard are larger: within a term
/// of its owner the numbers grow, and a later owner has a larger epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MoveId {
    /// The term of the owner that began the move.
    pub epoch: Epoch,
    /// Of the move within that term.
    pub number: u64,
}

impl fmt::Display for MoveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.number)
    }
}
