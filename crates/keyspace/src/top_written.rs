//! Which keys of users are written most: the engine's count, with keys as users know them.

use crate::encode::COLLECTIONS;
use crate::keyspace::Keyspace;

/// A key that is written often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenUserKey {
    /// Its database.
    pub db: u8,
    /// The key.
    pub key: Vec<u8>,
    /// About how many writes of it were counted. Of a collection, each command that changed it.
    pub count: u64,
    /// So much of `count` was estimated: it was written at least `count - error` times.
    pub error: u64,
    /// Average bytes of a write, without the elements of a collection.
    pub entry_bytes: u64,
}

/// The most written keys, and all writes beside them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopWrittenKeys {
    /// Writes of strings and of records of collections.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// The keys, the most written first.
    pub keys: Vec<WrittenUserKey>,
}

impl Keyspace {
    /// The `n` most written keys, if `AdvancedOptions::write_tracking` is on; see
    /// [`terrace::Db::top_written`].
    pub fn top_written(&self, n: usize) -> TopWrittenKeys {
        // Marks and notes of the store may be among them.
        let top = self.db.top_written(usize::MAX);
        let keys = top.keys.into_iter().filter_map(|written| {
            let is_of_user = written.family == self.strings.name() || written.family == COLLECTIONS;
            let (db, key) = self.layout.parts(&written.key).filter(|_| is_of_user)?;
            Some(WrittenUserKey {
                db,
                key: key.to_vec(),
                count: written.count,
                error: written.error,
                entry_bytes: written.entry_bytes,
            })
        });
        TopWrittenKeys {
            writes: top.writes,
            write_bytes: top.write_bytes,
            keys: keys.take(n).collect(),
        }
    }
}
