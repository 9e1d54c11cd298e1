//! Which keys are written most: counted from segments of the log, each once: when it is needed no more, or before, if
//! somebody asks. Written by `write/count_written.rs`, read by `Db::top_written`.

use crate::options::WriteTracking;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use terrace_base::SegmentNumber;
use terrace_base::sync::Mutex;
use terrace_sketch::HeavyKeys;

/// A key that is written often.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrittenKey {
    /// Its column family.
    pub family: String,
    /// The key.
    pub key: Vec<u8>,
    /// About how many writes of it were counted.
    pub count: u64,
    /// So much of `count` was estimated: it was written at least `count - error` times.
    pub error: u64,
    /// Average bytes of key and value of a write.
    pub entry_bytes: u64,
}

/// The most written keys of a store, and all writes beside them. Everything is halved as
/// [`WriteTracking::halved_every`] says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TopWritten {
    /// All puts and deletes that were counted.
    pub writes: u64,
    /// Bytes of their keys and values.
    pub write_bytes: u64,
    /// The keys, the most written first.
    pub keys: Vec<WrittenKey>,
}

struct Counted {
    heavy: HeavyKeys,
    halved_at_us: u64,
    /// Segments that are counted and still in the log.
    ahead: BTreeSet<SegmentNumber>,
}

/// The counters of a store.
pub(crate) struct WrittenKeys {
    counted: Option<Mutex<Counted>>,
    halved_every_us: u64,
}

impl WrittenKeys {
    pub fn new(options: &WriteTracking, now_us: u64) -> Self {
        let counted = (options.keys > 0).then(|| {
            let heavy = HeavyKeys::new(options.keys, RandomState::new().hash_one(0));
            Mutex::new(Counted { heavy, halved_at_us: now_us, ahead: BTreeSet::new() })
        });
        let halved_every_us = options.halved_every.as_micros().try_into().unwrap_or(u64::MAX);
        Self { counted, halved_every_us: halved_every_us.max(1) }
    }

    pub fn is_on(&self) -> bool {
        self.counted.is_some()
    }

    /// Counts what `each` shows of a segment: families, keys, bytes. Nothing if it was counted while it was in the log;
    /// `stays`: it is in the log still.
    pub fn count(
        &self,
        now_us: u64,
        (segment, stays): (SegmentNumber, bool),
        each: impl FnOnce(&mut dyn FnMut(u32, &[u8], u64)),
    ) {
        let Some(counted) = &self.counted else { return };
        let mut counted = counted.lock();
        let is_counted = match stays {
            true => !counted.ahead.insert(segment),
            false => counted.ahead.remove(&segment),
        };
        if is_counted {
            return;
        }
        // However long it was: after 64 halvings nothing is left.
        let intervals = now_us.saturating_sub(counted.halved_at_us) / self.halved_every_us;
        (0..intervals.min(64)).for_each(|_| counted.heavy.age());
        counted.halved_at_us += intervals * self.halved_every_us;
        let mut name = Vec::new();
        each(&mut |family, key, bytes| {
            name.clear();
            name.extend_from_slice(&family.to_le_bytes());
            name.extend_from_slice(key);
            counted.heavy.observe(&name, bytes);
        });
    }

    /// The `n` most written keys; `name_of` a family that is not any more gives `None`.
    pub fn top(&self, n: usize, name_of: impl Fn(u32) -> Option<String>) -> TopWritten {
        let Some(counted) = &self.counted else { return TopWritten::default() };
        let (top, writes, write_bytes) = {
            let counted = counted.lock();
            (counted.heavy.top(n), counted.heavy.operations(), counted.heavy.bytes())
        };
        let keys = top.into_iter().filter_map(|heavy| {
            let (family, key) = heavy.key.split_first_chunk()?;
            Some(WrittenKey {
                family: name_of(u32::from_le_bytes(*family))?,
                key: key.to_vec(),
                count: heavy.count,
                error: heavy.error,
                entry_bytes: heavy.bytes,
            })
        });
        TopWritten { writes, write_bytes, keys: keys.collect() }
    }
}
