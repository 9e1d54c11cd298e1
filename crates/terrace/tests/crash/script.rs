//! What a thread of the child does: a function of the seed, so that the driver knows it without
//! being told. Threads share families but no keys, except those of the shared counter.

use std::collections::{BTreeMap, BTreeSet};
use terrace::FilterDecision;
use terrace_base::rng::{Rng, SplitMix64};

/// Threads of a child, each with keys of its own.
pub const THREADS: usize = 4;

/// Families that every thread writes to. Each thread also has [`OWN`], which comes and goes.
pub const SHARED: [&str; 5] = ["default", "users", "logs", "merged", "swept"];

/// The place of the family with a merge operator, which puts [`JOINT`] between values.
pub const MERGED: usize = 3;
pub const JOINT: &str = "+";

/// The place of the family with a compaction filter ([`sweep`]).
pub const SWEPT: usize = 4;

/// The place of a thread's own family, after the shared ones.
pub const OWN: usize = SHARED.len();

/// Keys of a thread in every family.
pub const KEYS: u64 = 120;

/// Keys of the shared counter that are kept.
pub const COUNTED: u64 = 40;

/// The name of the family at `place` as `thread` sees it.
pub fn family_name(thread: usize, place: usize) -> String {
    SHARED.get(place).map_or_else(|| format!("own-{thread}"), |name| name.to_string())
}

/// What all keys of a thread begin with.
pub fn prefix(thread: usize) -> Vec<u8> {
    format!("k{thread}-").into_bytes()
}

/// Key `number` of a thread.
pub fn key(thread: usize, number: u64) -> Vec<u8> {
    format!("k{thread}-{number:04}").into_bytes()
}

/// The key, in the default family, under which marked batches write their own number.
pub fn marker_key(thread: usize) -> Vec<u8> {
    format!("m{thread}").into_bytes()
}

/// Where the shared counter is.
pub const COUNTER: &[u8] = b"counter";

/// The key that the `n`th increment of the shared counter writes.
pub fn counted_key(n: u64) -> Vec<u8> {
    format!("count-{n:010}").into_bytes()
}

/// A value, short enough to be kept by the thousand: its bytes follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    pub tag: u64,
    pub len: u32,
    pub random: bool,
    /// Whether the compaction filter has changed it.
    pub swept: bool,
}

/// What the bytes of a value begin with that the compaction filter has changed.
const SWEPT_MARK: &str = "swept ";

/// What the compaction filter does to a value: to one in five, and to another one in five, and to each only once.
pub fn sweep(value: &[u8]) -> FilterDecision {
    let tag = value.get(..16).and_then(|tag| std::str::from_utf8(tag).ok());
    let Some(tag) = tag.and_then(|tag| u64::from_str_radix(tag, 16).ok()) else {
        return FilterDecision::Keep;
    };
    match tag % 5 {
        0 => FilterDecision::Remove,
        1 => FilterDecision::Change(Value { tag, len: 0, random: false, swept: true }.bytes()),
        _ => FilterDecision::Keep,
    }
}

/// What a key holds: one value, or those that were merged into it as well.
pub type Content = Vec<Value>;

/// The bytes of a content.
pub fn bytes_of(content: &Content) -> Vec<u8> {
    content.iter().map(Value::bytes).collect::<Vec<_>>().join(JOINT.as_bytes())
}

/// Whether a key of the family at `place` that was left with `content` may be read as `got`.
pub fn may_be(place: usize, content: &Content, got: Option<&[u8]>) -> bool {
    let bytes = bytes_of(content);
    got == Some(&*bytes)
        || place == SWEPT
            && match sweep(&bytes) {
                FilterDecision::Remove => got.is_none(),
                FilterDecision::Change(changed) => got == Some(&*changed),
                _ => false,
            }
}

impl Value {
    /// Its bytes, which no other value has.
    pub fn bytes(&self) -> Vec<u8> {
        if self.swept {
            return format!("{SWEPT_MARK}{:016x}", self.tag).into_bytes();
        }
        let mut bytes = format!("{:016x}:", self.tag).into_bytes();
        let mut rng = SplitMix64::new(self.tag);
        while bytes.len() < self.len as usize {
            let word = if self.random { rng.next_u64() } else { self.tag };
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// One change within a batch; `family` is a place.
#[derive(Debug, Clone)]
pub enum Change {
    Put { family: usize, key: u64, value: Value, expiry_ms: Option<u64> },
    Merge { family: usize, key: u64, value: Value },
    Delete { family: usize, key: u64 },
    DeleteRange { family: usize, start: u64, end: u64 },
}

/// What a thread does next.
#[derive(Debug, Clone)]
pub enum Op {
    Write {
        batch: Vec<Change>,
        synced: bool,
        marked: bool,
    },
    /// Adds one to the shared counter, in a transaction.
    Count,
    Flush,
    Sync,
    Compact {
        family: usize,
        start: u64,
        end: u64,
    },
    Collect(f64),
    Checkpoint,
    CreateOwn,
    DropOwn,
    /// Files into a family, in key order: what each deletes by ranges, then its keys in their order.
    Ingest {
        family: usize,
        files: Vec<Vec<Change>>,
    },
    /// Changes an option of the open store.
    SetOption(&'static str, &'static str),
    Read,
    TakeSnapshot,
    /// Reads at the oldest snapshot and lets go of it.
    ReadSnapshot,
}

impl Op {
    /// Whether everything acknowledged before it survives a kill once it is acknowledged, in a
    /// store whose log is buffered in the process too.
    pub fn hands_over(&self) -> bool {
        match self {
            Op::Write { synced, .. } => *synced,
            Op::Flush | Op::Sync | Op::Compact { .. } | Op::Checkpoint | Op::Ingest { .. } => true,
            _ => false,
        }
    }
}

/// Draws the operations of one thread in one round.
pub struct Script {
    rng: SplitMix64,
    now_ms: u64,
    own_exists: bool,
    tags: u64,
    /// One batch in this many is a large group by itself.
    large_one_in: u64,
}

impl Script {
    pub fn new(seed: u64, thread: usize, own_exists: bool, now_ms: u64) -> Self {
        let mut rng = SplitMix64::new(seed ^ (0x5c21_97f0 + thread as u64));
        let large_one_in = [30, 200, 1000][rng.below(3) as usize];
        Self { tags: rng.next_u64() << 20, rng, now_ms, own_exists, large_one_in }
    }

    fn family(&mut self) -> usize {
        self.rng.below(SHARED.len() as u64 + u64::from(self.own_exists)) as usize
    }

    fn value(&mut self) -> Value {
        self.tags += 1;
        let len = match self.rng.below(40) {
            0 => 4000 + self.rng.below(30_000),
            1..=6 => 300 + self.rng.below(2000),
            _ => self.rng.below(120),
        };
        Value { tag: self.tags, len: len as u32, random: self.rng.one_in(3), swept: false }
    }

    fn change(&mut self, family: usize) -> Change {
        match self.rng.below(30) {
            0..=4 => Change::Delete { family, key: self.rng.below(KEYS) },
            5 => {
                let start = self.rng.below(KEYS);
                Change::DeleteRange { family, start, end: start + 1 + self.rng.below(KEYS / 6) }
            }
            draw if family == MERGED => {
                let key = self.rng.below(KEYS);
                match draw < 20 {
                    true => Change::Merge { family, key, value: self.value() },
                    // What operands do to expiries is tested elsewhere.
                    false => Change::Put { family, key, value: self.value(), expiry_ms: None },
                }
            }
            draw => {
                let expiry_ms = (draw < 9).then(|| self.now_ms + 1 + self.rng.below(60_000));
                Change::Put { family, key: self.rng.below(KEYS), value: self.value(), expiry_ms }
            }
        }
    }

    fn write(&mut self) -> Op {
        let large = self.rng.one_in(self.large_one_in);
        let spans = large || self.rng.one_in(3);
        let count = match (large, spans) {
            (true, _) => 100 + self.rng.below(500),
            (_, true) => 2 + self.rng.below(8),
            _ => 1 + self.rng.below(2),
        };
        let home = self.family();
        let batch = (0..count)
            .map(|_| {
                let family = if spans { self.family() } else { home };
                self.change(family)
            })
            .collect();
        Op::Write { batch, synced: self.rng.one_in(12), marked: !self.rng.one_in(4) }
    }

    fn ingestion(&mut self) -> Op {
        let family = self.family();
        let keys: BTreeSet<u64> =
            (0..1 + self.rng.below(KEYS / 3)).map(|_| self.rng.below(KEYS)).collect();
        let keys: Vec<u64> = keys.into_iter().collect();
        let per_file = keys.len().div_ceil(1 + self.rng.below(3) as usize);
        let mut files = Vec::new();
        for keys in keys.chunks(per_file) {
            let mut file = Vec::new();
            if let [start, .., end] = *keys
                && self.rng.one_in(3)
            {
                file.push(Change::DeleteRange { family, start, end });
            }
            for key in keys.iter().copied() {
                let expires = family != MERGED && self.rng.one_in(8);
                let expiry_ms = expires.then(|| self.now_ms + self.rng.below(60_000));
                file.push(match self.rng.one_in(6) {
                    true => Change::Delete { family, key },
                    false => Change::Put { family, key, value: self.value(), expiry_ms },
                });
            }
            files.push(file);
        }
        Op::Ingest { family, files }
    }

    fn maintenance(&mut self) -> Op {
        match self.rng.below(20) {
            16..=19 => self.ingestion(),
            0..=3 => Op::Flush,
            4 => Op::Sync,
            5..=7 => {
                let start = self.rng.below(KEYS);
                let family = self.rng.below(SHARED.len() as u64) as usize;
                Op::Compact { family, start, end: start + self.rng.below(KEYS) }
            }
            8 | 9 => Op::Collect([0.0, 0.2, 0.7][self.rng.below(3) as usize]),
            10 => Op::Checkpoint,
            11 => [
                Op::SetOption("gc_garbage_ratio", "0.1"),
                Op::SetOption("gc_garbage_ratio", "0.5"),
                Op::SetOption("value_separation_threshold", "64"),
                Op::SetOption("value_separation_threshold", "2000"),
                Op::SetOption("rate_limit_bytes_per_s", "0"),
                Op::SetOption("filter", "bloom:4x2"),
                Op::SetOption("compression", "none"),
                Op::SetOption("l0_compaction_trigger", "1"),
            ][self.rng.below(8) as usize]
                .clone(),
            _ => {
                self.own_exists = !self.own_exists;
                if self.own_exists { Op::CreateOwn } else { Op::DropOwn }
            }
        }
    }

    /// The next operation; there is no end.
    pub fn next(&mut self) -> Op {
        match self.rng.below(60) {
            0 => self.maintenance(),
            1..=4 => Op::Read,
            5 => Op::TakeSnapshot,
            6 => Op::ReadSnapshot,
            7..=10 => Op::Count,
            _ => self.write(),
        }
    }
}

/// The state of one key.
pub type Entry = (Content, Option<u64>);

/// What one thread's part of the store holds after some of its operations.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub shared: [BTreeMap<u64, Entry>; SHARED.len()],
    /// By how often the family was created; those before the last are gone.
    pub own: BTreeMap<u32, BTreeMap<u64, Entry>>,
    /// How often it was created.
    pub created: u32,
    pub own_exists: bool,
}

impl Model {
    fn family(&mut self, place: usize) -> &mut BTreeMap<u64, Entry> {
        match place {
            OWN => self.own.entry(self.created).or_default(),
            _ => &mut self.shared[place],
        }
    }

    /// Which of the thread's own families there is.
    pub fn incarnation(&self) -> Option<u32> {
        self.own_exists.then_some(self.created)
    }

    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::CreateOwn => {
                self.created += 1;
                self.own_exists = true;
            }
            Op::DropOwn => self.own_exists = false,
            Op::Write { batch, .. } => batch.iter().for_each(|change| self.change(change)),
            Op::Ingest { files, .. } => {
                files.iter().flatten().for_each(|change| self.change(change));
            }
            _ => {}
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Put { family, key, value, expiry_ms } => {
                self.family(*family).insert(*key, (vec![*value], *expiry_ms));
            }
            Change::Merge { family, key, value } => {
                self.family(*family).entry(*key).or_default().0.push(*value);
            }
            Change::Delete { family, key } => {
                self.family(*family).remove(key);
            }
            Change::DeleteRange { family, start, end } => {
                self.family(*family).retain(|key, _| !(start..end).contains(&key));
            }
        }
    }

    /// The entries of the family at `place` that are seen at `now_ms`.
    pub fn seen(&self, place: usize, now_ms: u64) -> BTreeMap<u64, Content> {
        self.seen_of(place, self.incarnation(), now_ms)
    }

    /// As [`Self::seen`], if the own family is that which was created as number `own`.
    pub fn seen_of(&self, place: usize, own: Option<u32>, now_ms: u64) -> BTreeMap<u64, Content> {
        let entries = match place {
            OWN => own.and_then(|own| self.own.get(&own)),
            _ => self.shared.get(place),
        };
        let alive =
            |(content, expiry): &Entry| expiry.is_none_or(|e| e > now_ms).then(|| content.clone());
        let entries = entries.into_iter().flatten();
        entries.filter_map(|(key, entry)| Some((*key, alive(entry)?))).collect()
    }

    /// Forgets families that are gone and entries that have expired: the next round's time is later.
    pub fn tidy(&mut self, own: Option<u32>, now_ms: u64) {
        self.own_exists = own.is_some();
        self.own.retain(|number, _| Some(*number) == own);
        let all = self.shared.iter_mut().chain(self.own.values_mut());
        all.for_each(|entries| entries.retain(|_, (_, e)| e.is_none_or(|e| e > now_ms)));
    }
}
