//! How large a store is.

use serde::{Deserialize, Serialize};

/// The size of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSize {
    /// Keys it is loaded with.
    pub keys: u64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
}

impl StoreSize {
    /// Bytes of all keys and values.
    pub fn raw_bytes(self) -> u64 {
        self.keys.saturating_mul((self.key_size + self.value_size) as u64)
    }
}
