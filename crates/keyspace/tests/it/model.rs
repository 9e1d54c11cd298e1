//! What a keyspace should hold: a plain map.

use std::collections::BTreeMap;

/// What is under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
}

impl Data {
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
        }
    }
}

/// What is under a key, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub data: Data,
    pub expires_at_ms: Option<u64>,
}

/// All databases.
#[derive(Debug, Clone, Default)]
pub struct Model {
    items: BTreeMap<(u8, Vec<u8>), Item>,
}

impl Model {
    pub fn live(&self, now_ms: u64) -> impl Iterator<Item = (&(u8, Vec<u8>), &Item)> {
        self.items.iter().filter(move |(_, item)| item.expires_at_ms.is_none_or(|at| at > now_ms))
    }

    pub fn get(&self, db: u8, key: &[u8], now_ms: u64) -> Option<&Item> {
        let item = self.items.get(&(db, key.to_vec()));
        item.filter(|item| item.expires_at_ms.is_none_or(|at| at > now_ms))
    }

    pub fn put(&mut self, db: u8, key: &[u8], data: Data, expires_at_ms: Option<u64>) {
        self.items.insert((db, key.to_vec()), Item { data, expires_at_ms });
    }

    pub fn remove(&mut self, db: u8, key: &[u8]) {
        self.items.remove(&(db, key.to_vec()));
    }

    pub fn flush(&mut self, db: Option<u8>) {
        self.items.retain(|(other, _), _| db.is_some_and(|db| db != *other));
    }
}
