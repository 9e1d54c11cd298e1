//! In which order a store has its keys: as bytes, or as a comparator of the program's says.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The name of the order of bytes, as LevelDB has it.
pub const BYTES: &[u8] = b"leveldb.BytewiseComparator";

type Compare = dyn Fn(&[u8], &[u8]) -> Ordering + Send + Sync;

/// The order of a store's keys, and its name. Keys that compare as equal are one key.
#[derive(Clone)]
pub struct Order {
    name: Arc<[u8]>,
    /// None for the order of bytes.
    compare: Option<Arc<Compare>>,
}

impl Order {
    /// The order of bytes.
    pub fn bytes() -> Self {
        Self { name: BYTES.into(), compare: None }
    }

    /// An order of the program's.
    pub fn custom(
        name: &[u8],
        compare: impl Fn(&[u8], &[u8]) -> Ordering + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), compare: Some(Arc::new(compare)) }
    }

    pub fn name(&self) -> &[u8] {
        &self.name
    }

    pub fn is_bytes(&self) -> bool {
        self.compare.is_none()
    }

    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match &self.compare {
            Some(compare) => compare(a, b),
            None => a.cmp(b),
        }
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.name))
    }
}
