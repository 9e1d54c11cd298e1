//! What a store should hold, kept in ordered maps: the oracle of every reliability test.
//!
//! [`History`] is the ordered list of batches that were written; [`State`] what a prefix of it
//! amounts to. Expiries are absolute, so a state can be looked at as of any time.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// The column families of every test store, by index; the first is the default one.
pub const FAMILIES: [&str; 3] = ["default", "users", "logs"];

/// The family with a merge operator, which appends.
pub const MERGING: usize = 1;

/// What it puts between two operands.
pub const SEPARATOR: &[u8] = b"|";

/// One change of one family (an index into [`FAMILIES`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Put {
        family: usize,
        key: Vec<u8>,
        value: Vec<u8>,
        expiry_ms: Option<u64>,
    },
    /// Only in [`MERGING`].
    Merge {
        family: usize,
        key: Vec<u8>,
        operand: Vec<u8>,
    },
    Delete {
        family: usize,
        key: Vec<u8>,
    },
    DeleteRange {
        family: usize,
        start: Vec<u8>,
        end: Vec<u8>,
    },
}

/// Changes that happen together.
pub type Batch = Vec<Op>;

/// Files of one family to be ingested, in key order: each first what it deletes of the store by ranges, then
/// its keys.
pub type Files = Vec<Batch>;

/// Whether the store has anything to log for it: a range from a key to a smaller one is nothing.
/// An empty write promises nothing about those before it.
pub fn is_empty(batch: &Batch) -> bool {
    batch.iter().all(|op| matches!(op, Op::DeleteRange { start, end, .. } if start >= end))
}

/// Keys and values of every family, as a reader sees them.
pub type Contents = Vec<BTreeMap<Vec<u8>, Vec<u8>>>;

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// A value with the time from which on it is absent.
    base: Option<(Vec<u8>, Option<u64>)>,
    /// What was merged since: what is there when the value has expired, too.
    merged: Option<Vec<u8>>,
}

impl Held {
    pub fn of_value(value: Vec<u8>, expiry_ms: Option<u64>) -> Self {
        Self { base: Some((value, expiry_ms)), merged: None }
    }

    /// With `operand` merged in.
    pub fn merge(&mut self, operand: &[u8]) {
        match &mut self.merged {
            None => self.merged = Some(operand.to_vec()),
            Some(merged) => {
                merged.extend_from_slice(SEPARATOR);
                merged.extend_from_slice(operand);
            }
        }
    }

    /// What a reader sees at `now_ms`.
    pub fn at(&self, now_ms: u64) -> Option<Cow<'_, [u8]>> {
        let alive = |(_, expiry): &&(Vec<u8>, Option<u64>)| expiry.is_none_or(|at| now_ms < at);
        let value = self.base.as_ref().filter(alive).map(|(value, _)| value.as_slice());
        match (value, &self.merged) {
            (Some(value), Some(merged)) => Some([value, merged].join(SEPARATOR).into()),
            (Some(value), None) => Some(value.into()),
            (None, merged) => merged.as_deref().map(Cow::from),
        }
    }
}

/// What is stored in one family, expired values included.
type Stored = BTreeMap<Vec<u8>, Held>;

/// What is stored, expired values included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    families: Vec<Stored>,
}

impl Default for State {
    fn default() -> Self {
        Self { families: vec![BTreeMap::new(); FAMILIES.len()] }
    }
}

impl State {
    pub fn apply(&mut self, batch: &Batch) {
        for op in batch {
            match op {
                Op::Put { family, key, value, expiry_ms } => {
                    let held = Held::of_value(value.clone(), *expiry_ms);
                    self.families[*family].insert(key.clone(), held);
                }
                Op::Merge { family, key, operand } => {
                    self.families[*family].entry(key.clone()).or_default().merge(operand);
                }
                Op::Delete { family, key } => {
                    self.families[*family].remove(key);
                }
                Op::DeleteRange { family, start, end } => {
                    if start < end {
                        let gone: Vec<_> = self.families[*family]
                            .range(start.clone()..end.clone())
                            .map(|(key, _)| key.clone())
                            .collect();
                        gone.iter().for_each(|key| drop(self.families[*family].remove(key)));
                    }
                }
            }
        }
    }

    pub fn get(&self, family: usize, key: &[u8], now_ms: u64) -> Option<Cow<'_, [u8]>> {
        self.families[family].get(key)?.at(now_ms)
    }

    /// What a reader sees at `now_ms`.
    pub fn contents(&self, now_ms: u64) -> Contents {
        let seen = |(key, held): (&Vec<u8>, &Held)| {
            held.at(now_ms).map(|value| (key.clone(), value.into_owned()))
        };
        self.families.iter().map(|family| family.iter().filter_map(seen).collect()).collect()
    }

    /// Whether a reader at `now_ms` sees exactly `contents`.
    pub fn is_seen_as(&self, contents: &Contents, now_ms: u64) -> bool {
        self.families.iter().zip(contents).all(|(family, seen)| {
            let alive = family.iter().filter_map(|(key, held)| Some((key, held.at(now_ms)?)));
            let mut seen = seen.iter();
            let all = alive.into_iter().all(|(key, value)| {
                seen.next().is_some_and(|(k, v)| k == key && v.as_slice() == &*value)
            });
            all && seen.next().is_none()
        })
    }
}

/// Every batch in the order of the writes.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub batches: Vec<Batch>,
}

impl History {
    /// The state after the first `count` batches.
    pub fn state(&self, count: usize) -> State {
        let mut state = State::default();
        self.batches[..count].iter().for_each(|batch| state.apply(batch));
        state
    }

    /// The number of batches from `floor` to `ceiling` whose effect `contents` is; the largest, if
    /// several fit.
    pub fn prefix_of(
        &self,
        contents: &Contents,
        floor: usize,
        ceiling: usize,
        now_ms: u64,
    ) -> Result<usize, Mismatch> {
        let mut state = self.state(floor);
        let mut found = None;
        for count in floor..=ceiling.min(self.batches.len()) {
            if count > floor {
                state.apply(&self.batches[count - 1]);
            }
            if state.is_seen_as(contents, now_ms) {
                found = Some(count);
            }
        }
        found.ok_or_else(|| self.explain(contents, floor, ceiling, now_ms))
    }

    /// Says what is wrong: an older prefix is a loss, anything else a hole.
    fn explain(&self, contents: &Contents, floor: usize, ceiling: usize, now_ms: u64) -> Mismatch {
        let mut state = State::default();
        let mut older = None;
        let differences = self.differences(contents, floor, now_ms);
        for count in 0..floor {
            if state.is_seen_as(contents, now_ms) {
                older = Some(count);
            }
            state.apply(&self.batches[count]);
        }
        if let Some(count) = older {
            return Mismatch::Lost { found: count, floor, differences };
        }
        Mismatch::Hole { floor, ceiling, differences }
    }

    /// How `contents` differs from the state after `count` batches, in words.
    fn differences(&self, contents: &Contents, count: usize, now_ms: u64) -> Vec<String> {
        let want = self.state(count).contents(now_ms);
        let mut differences = Vec::new();
        for (family, (want, got)) in want.iter().zip(contents).enumerate() {
            for key in want.keys().chain(got.keys().filter(|key| !want.contains_key(*key))) {
                if want.get(key) != got.get(key) {
                    let head = |value: Option<&Vec<u8>>| {
                        value.map(|v| String::from_utf8_lossy(&v[..v.len().min(12)]).into_owned())
                    };
                    let key_text = String::from_utf8_lossy(key);
                    let (want, got) = (head(want.get(key)), head(got.get(key)));
                    differences.push(format!("{family}/{key_text}: {want:?} -> {got:?}"));
                }
            }
        }
        differences.truncate(20);
        differences
    }
}

/// Why contents are no allowed prefix.
#[derive(Debug)]
pub enum Mismatch {
    /// A prefix, but shorter than what was acknowledged as durable.
    Lost { found: usize, floor: usize, differences: Vec<String> },
    /// No prefix at all; the differences are against the floor.
    Hole { floor: usize, ceiling: usize, differences: Vec<String> },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { found, floor, differences } => write!(
                f,
                "LOST: {found} batches are there, {floor} were acknowledged as durable: {}",
                differences.join(", ")
            ),
            Self::Hole { floor, ceiling, differences } => write!(
                f,
                "HOLE: no prefix between {floor} and {ceiling} batches; against {floor}: {}",
                differences.join(", ")
            ),
        }
    }
}
