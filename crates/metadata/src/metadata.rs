//! The trait: a map whose entries carry the revision of their last change, transactions that compare
//! those revisions, leases that take their entries with them, and watches.
//!
//! Every call answers within a bound. No lock service: it would be used as if it were exclusive,
//! which a lease cannot promise (Kleppmann, "How to do distributed locking", 2016; Jepsen, "etcd
//! 3.4.3", 2020, section 3.2). Exclusion comes from comparing revisions.

use crate::error::Result;
use async_trait::async_trait;
use std::time::Duration;

/// A lease: what is bound to it is deleted when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId(pub i64);

/// A lease that was granted, or kept alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Its name.
    pub lease: LeaseId,
    /// It does not end before this has passed since the request was *sent*. May be longer than what was
    /// asked for.
    pub ttl: Duration,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Of the transaction that wrote it last.
    pub mod_revision: u64,
    /// What it ends with.
    pub lease: Option<LeaseId>,
}

/// All entries below a prefix at one moment, which is not before the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// In the order of their keys.
    pub entries: Vec<Entry>,
    /// A watch from the next revision on misses nothing.
    pub revision: u64,
}

/// A condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// The key that is looked at.
    pub key: Vec<u8>,
    /// Its revision; 0 if it must not exist.
    pub mod_revision: u64,
}

/// A step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Writes an entry; ends with the lease, if there is one.
    Put {
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// What it ends with.
        lease: Option<LeaseId>,
    },
    /// Deletes an entry, if it exists.
    Delete {
        /// Its key.
        key: Vec<u8>,
    },
}

/// Writes that happen together if all conditions hold, or not at all. No key may be written twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// The writes.
    pub writes: Vec<Write>,
}

impl Transaction {
    /// One that does nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if the key's last change was at `mod_revision` (0: it does not exist).
    #[must_use]
    pub fn when(mut self, key: impl Into<Vec<u8>>, mod_revision: u64) -> Self {
        self.compares.push(Compare { key: key.into(), mod_revision });
        self
    }

    /// Writes an entry.
    #[must_use]
    pub fn put(self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.put_leased(key, value, None)
    }

    /// Writes an entry that ends with `lease`.
    #[must_use]
    pub fn put_leased(
        mut self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
        lease: impl Into<Option<LeaseId>>,
    ) -> Self {
        let (key, value, lease) = (key.into(), value.into(), lease.into());
        self.writes.push(Write::Put { key, value, lease });
        self
    }

    /// Deletes an entry.
    #[must_use]
    pub fn delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.writes.push(Write::Delete { key: key.into() });
        self
    }
}

/// What happened to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was written.
    Put(Entry),
    /// It was deleted, or its lease ended.
    Deleted {
        /// Its key.
        key: Vec<u8>,
        /// Of the deletion.
        mod_revision: u64,
    },
}

impl Change {
    /// The key that changed.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Deleted { key, .. } => key,
        }
    }

    /// When.
    pub fn mod_revision(&self) -> u64 {
        match self {
            Self::Put(entry) => entry.mod_revision,
            Self::Deleted { mod_revision, .. } => *mod_revision,
        }
    }
}

/// Whole transactions, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Of the last of them.
    pub revision: u64,
    /// At least one.
    pub changes: Vec<Change>,
}

/// Changes as they happen.
#[async_trait]
pub trait Watch: Send {
    /// Waits for the next changes. May be dropped and called again; nothing is lost.
    ///
    /// # Errors
    /// Any error ends the watch: begin another one from the revision after the last that was seen, or
    /// after [`Error::Compacted`](crate::Error::Compacted) from a new snapshot. A store that is silent
    /// for longer than the bound is an error too.
    async fn next(&mut self) -> Result<Changes>;
}

/// See the module.
#[async_trait]
pub trait Metadata: Send + Sync {
    /// Everything whose key starts with `prefix`, as of now: what is committed before the call is
    /// seen by it.
    ///
    /// # Errors
    /// As [`Error`](crate::Error) says.
    async fn snapshot(&self, prefix: &[u8]) -> Result<Snapshot>;

    /// Commits a transaction: its revision, or `None` if a condition does not hold. Never sent twice.
    ///
    /// # Errors
    /// As [`Error`](crate::Error) says; after `Unavailable` the outcome is unknown.
    async fn commit(&self, transaction: Transaction) -> Result<Option<u64>>;

    /// Watches everything whose key starts with `prefix`, from a revision on (included).
    ///
    /// # Errors
    /// As [`Error`](crate::Error) says.
    async fn watch(&self, prefix: &[u8], from_revision: u64) -> Result<Box<dyn Watch>>;

    /// Makes a lease that lives for at least `ttl`, rounded up to whole seconds.
    ///
    /// # Errors
    /// As [`Error`](crate::Error) says.
    async fn grant(&self, ttl: Duration) -> Result<Grant>;

    /// Begins the lease's time again.
    ///
    /// # Errors
    /// [`Error::LeaseGone`](crate::Error::LeaseGone) if it has ended, or as
    /// [`Error`](crate::Error) says.
    async fn keep_alive(&self, lease: LeaseId) -> Result<Grant>;

    /// Ends a lease, and deletes what is bound to it.
    ///
    /// # Errors
    /// [`Error::LeaseGone`](crate::Error::LeaseGone) if it has ended, or as
    /// [`Error`](crate::Error) says.
    async fn revoke(&self, lease: LeaseId) -> Result<()>;
}

/// The first key after all that start with `prefix`; `None` if there is no such key.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_one_starts() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xFF\xFF"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xFF"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
