//! A point read that tells what it does.
//!
//! [`explain`] is a lookup like every other: the same functions over the same state, with a
//! [`LookupTrace`] that writes down each answer when it is there, how long it took, and how often this
//! thread read the device meanwhile. It fills the cache and feeds the heat of filters as every
//! lookup does. So an explanation cannot say what a lookup would not do.

use super::{Answer, Reading, traced};
use crate::error::Result;
use crate::version::family::Family;
use crate::version::read_env::ReadEnv;
use std::num::NonZeroU64;
use terrace_base::key::{trailer_kind, trailer_seqno};
use terrace_base::sync::Instant;
use terrace_base::{FileNumber, SeqNo, ValueHandle, ValueKind};
use terrace_buf::Slice;
use terrace_sst::{BlockPlace, BlockSaid, FilterSaid, InLevel, LookupTrace, RunPlace, SstReader};

/// What a step of a lookup asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExplainPart {
    /// The memtable, or one that waits for its flush; with its range tombstones.
    Memtable,
    /// A file that was not open: its end was read.
    Open,
    /// Which file of a level may have the key.
    Level,
    /// The range tombstones of a file.
    RangeTombstones,
    /// The filter of a file.
    Filter,
    /// A learned index: of a file, or of a level.
    Model,
    /// The index of a file.
    Index,
    /// A data block.
    Block,
    /// What the version that was found means.
    Version,
    /// The value log.
    Value,
}

/// What the answer of a step decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExplainOutcome {
    /// The key is not there: the lookup goes on elsewhere.
    No,
    /// The key may be there, or a version of it is: the lookup looks closer.
    Maybe,
    /// There was nothing that could be asked: the lookup goes on without.
    Skip,
    /// The version that was found is deleted, or has expired.
    Deleted,
    /// The version that was found is the value.
    Found,
}

/// One step of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainStep {
    /// What was asked.
    pub part: ExplainPart,
    /// The level; `None` above L0 and below L6.
    pub level: Option<u8>,
    /// The number of the SST, or of the log segment that has the value; `None` in memory.
    pub file: Option<u64>,
    /// Where, for people: "memtable", "L3 000123.sst filter".
    pub place: String,
    /// What was asked, for people.
    pub asked: String,
    /// What it answered, for people.
    pub answer: String,
    /// What that decides.
    pub outcome: ExplainOutcome,
    /// Whether the key, or the value, was found by this step: in a memtable, a data block, or the
    /// log.
    pub is_hit: bool,
    /// Nanoseconds that it took.
    pub ns: u64,
    /// Reads of the device. Of a thread beyond the 63rd of the process that reads, others' too.
    pub device_reads: u32,
}

/// A lookup, step by step.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// What it did, in this order.
    pub steps: Vec<ExplainStep>,
    /// What it found.
    pub found: Option<Slice>,
    /// When that expires, in ms of wall-clock time; `None` if it does not.
    pub expires_at_ms: Option<u64>,
    /// Nanoseconds that all of it took, telling included.
    pub ns: u64,
}

/// Looks `key` up and tells how.
pub(crate) fn explain(env: &ReadEnv, family: &Family, key: &[u8]) -> Result<Explanation> {
    super::check(env, family)?;
    let start = Instant::now();
    let mut explainer = Explainer::new(env);
    let answer = traced(env, family, key, Reading::default(), &mut explainer)?;
    let (found, expires_at_ms) = match answer {
        Answer::Value(value, expiry) => (Some(value), expiry.map(NonZeroU64::get)),
        Answer::Absent | Answer::Separated(..) | Answer::Operand => (None, None),
    };
    explainer.conclude(found.is_some(), expires_at_ms);
    let ns = start.elapsed().as_nanos() as u64;
    Ok(Explanation { steps: explainer.steps, found, expires_at_ms, ns })
}

/// The steps so far, and what the next one is measured against.
struct Explainer<'a> {
    env: &'a ReadEnv,
    steps: Vec<ExplainStep>,
    at: Instant,
    reads: u64,
    /// The file that is being asked: level, number, filter units in all.
    file: Option<(u8, FileNumber)>,
    filter_units: Vec<u8>,
    /// The newest range tombstone met so far that covers the key.
    covered: SeqNo,
    found: Option<u64>,
    /// Whether the value that is wanted is in the cache.
    cached: bool,
}

impl<'a> Explainer<'a> {
    fn new(env: &'a ReadEnv) -> Self {
        Self {
            env,
            steps: Vec::new(),
            reads: env.table_cache.counters().own_device_reads(),
            at: Instant::now(),
            file: None,
            filter_units: Vec::new(),
            covered: SeqNo::ZERO,
            found: None,
            cached: false,
        }
    }

    /// A step has ended: it took all the time since the last one. The clock starts anew after it
    /// has been written down.
    fn step(
        &mut self,
        (part, place): (ExplainPart, &str),
        asked: &str,
        (answer, outcome): (String, ExplainOutcome),
    ) {
        let ns = self.at.elapsed().as_nanos() as u64;
        let reads = self.env.table_cache.counters().own_device_reads();
        let place = match self.file {
            Some((level, number)) if place.is_empty() => format!("L{level} {number:06}.sst"),
            Some((level, number)) => format!("L{level} {number:06}.sst {place}"),
            None => place.to_string(),
        };
        self.steps.push(ExplainStep {
            part,
            level: self.file.map(|(level, _)| level),
            file: self.file.map(|(_, number)| number.get()),
            place,
            asked: asked.to_string(),
            answer,
            outcome,
            is_hit: false,
            ns,
            device_reads: u32::try_from(reads.saturating_sub(self.reads)).unwrap_or(u32::MAX),
        });
        self.reads = reads;
        self.at = Instant::now();
    }

    /// The last step has found it.
    fn hit(&mut self) {
        if let Some(step) = self.steps.last_mut() {
            step.is_hit = true;
        }
    }

    /// Adds what became of the version that was found.
    fn conclude(&mut self, live: bool, expires_at_ms: Option<u64>) {
        let Some(trailer) = self.found else { return };
        let seqno = trailer_seqno(trailer);
        let outcome = if live { ExplainOutcome::Found } else { ExplainOutcome::Deleted };
        let answer = match (live, trailer_kind(trailer)) {
            (true, _) => match expires_at_ms {
                Some(at) => format!("it is the value, until {at}"),
                None if trailer_kind(trailer).is_some_and(ValueKind::is_operand) => {
                    "the value is made of it and of what lies below it".to_string()
                }
                None => "it is the value".to_string(),
            },
            _ if seqno < self.covered => {
                format!("absent: deleted by the range tombstone at {}", self.covered)
            }
            (_, Some(ValueKind::Delete)) => "absent: it is a tombstone".to_string(),
            _ => "absent: it has expired".to_string(),
        };
        self.file = None;
        let place = describe(trailer);
        let asked = "what does the version mean?";
        self.step((ExplainPart::Version, &place), asked, (answer, outcome));
    }
}

/// A version in words.
fn describe(trailer: u64) -> String {
    let kind = match trailer_kind(trailer) {
        Some(ValueKind::Put) => "put",
        Some(ValueKind::PutTtl) => "put with an expiry",
        Some(ValueKind::PutHandle) => "put of a value in the log",
        Some(ValueKind::PutTtlHandle) => "put of a value in the log with an expiry",
        Some(ValueKind::Merge) => "operand of a merge",
        Some(ValueKind::Merged) => "operand of several merges",
        Some(ValueKind::Delete) => "tombstone",
        Some(ValueKind::RangeDelete) => "range tombstone",
        None => "version of an unknown kind",
    };
    format!("{kind} at sequence number {}", trailer_seqno(trailer))
}

impl LookupTrace for Explainer<'_> {
    fn memtable(&mut self, at: usize, found: Option<u64>, covered: SeqNo) {
        let place = match at {
            0 => "hot table".to_string(),
            1 => "memtable".to_string(),
            _ => format!("immutable memtable {}", at - 1),
        };
        let mut answer = found.map_or("no version".to_string(), describe);
        if covered > self.covered {
            self.covered = covered;
            answer += &format!("; the range tombstone at {covered} covers the key");
        }
        self.file = None;
        let outcome = found.map_or(ExplainOutcome::No, |_| ExplainOutcome::Maybe);
        let asked = "has it a version of the key?";
        self.step((ExplainPart::Memtable, &place), asked, (answer, outcome));
        if found.is_some() {
            self.found = found;
            self.hit();
        }
    }

    fn opened(&mut self, run: RunPlace) {
        self.file = Some((run.level as u8, run.file_number));
        let reads = self.env.table_cache.counters().own_device_reads();
        if reads > self.reads {
            let answer = "it was not open: footer, top-level index and properties were read";
            let answer = (answer.to_string(), ExplainOutcome::Maybe);
            self.step((ExplainPart::Open, ""), "is it open?", answer);
        }
    }

    fn asks(&mut self, run: RunPlace, reader: &SstReader) {
        self.file = Some((run.level as u8, run.file_number));
        let units = |at| reader.filter_partition(at).shape.unit_count;
        self.filter_units = (0..reader.filter_partition_count()).map(units).collect();
        let (asked, answer) = match run.by_level_model {
            false if run.level == 0 => ("may the key be in it?", "the key is within its bounds"),
            false => ("which file of the level may have the key?", "this one, by its bounds"),
            true => ("which file of the level may have the key?", "this one, by a model"),
        };
        let answer = (answer.to_string(), ExplainOutcome::Maybe);
        self.step((ExplainPart::Level, ""), asked, answer);
    }

    fn range_tombstones(&mut self, count: u64, covered: SeqNo) {
        let answer = match covered > self.covered {
            true => (format!("yes, the one at {covered}, of {count}"), ExplainOutcome::Maybe),
            false => {
                (format!("none of {count} that is newer than what is known"), ExplainOutcome::No)
            }
        };
        self.covered = self.covered.max(covered);
        let asked = "does one cover the key?";
        self.step((ExplainPart::RangeTombstones, "range tombstones"), asked, answer);
    }

    fn filter(&mut self, at: usize, units: u8, said: FilterSaid) {
        let all = self.filter_units.get(at).copied().unwrap_or(0);
        let with = format!("{units} of {all} units, partition {at}");
        let answer = match said {
            FilterSaid::NoFilter => ("the file has none".to_string(), ExplainOutcome::Skip),
            FilterSaid::Above => {
                ("no: it is above all keys of the file".to_string(), ExplainOutcome::No)
            }
            FilterSaid::NotInMemory => (
                format!("none of the {all} units of partition {at} is in memory: goes on without"),
                ExplainOutcome::Skip,
            ),
            FilterSaid::No => (format!("no ({with})"), ExplainOutcome::No),
            FilterSaid::Maybe => (format!("maybe ({with})"), ExplainOutcome::Maybe),
        };
        self.step((ExplainPart::Filter, "filter"), "may the file have the key?", answer);
    }

    fn model(&mut self, block: Option<u32>) {
        let answer = match block {
            Some(block) => format!("block {block}, if anywhere"),
            None => "it cannot tell".to_string(),
        };
        let answer = (answer, ExplainOutcome::Maybe);
        self.step((ExplainPart::Model, "model"), "which block may have the key?", answer);
    }

    fn index(&mut self, partition: usize, block: usize) {
        let answer = format!("block {block} of partition {partition}, if anywhere");
        let answer = (answer, ExplainOutcome::Maybe);
        self.step((ExplainPart::Index, "index"), "which block may have the key?", answer);
    }

    fn block(&mut self, partition: Option<usize>, block: usize, said: BlockSaid) {
        let place = match partition {
            Some(partition) => format!("block {block} of partition {partition}"),
            None => format!("block {block}"),
        };
        let reads = self.env.table_cache.counters().own_device_reads();
        let from = if reads > self.reads { "read from the device" } else { "in memory" };
        let (what, outcome) = match said {
            BlockSaid::Found => ("the key is here", ExplainOutcome::Maybe),
            BlockSaid::Absent => ("the key is not in the file", ExplainOutcome::No),
            BlockSaid::Before => ("the key is before its first", ExplainOutcome::No),
            BlockSaid::After => ("the key is after its last", ExplainOutcome::No),
        };
        let answer = (format!("{what} ({from})"), outcome);
        self.step((ExplainPart::Block, &place), "has it a visible version of the key?", answer);
        if said == BlockSaid::Found {
            self.hit();
        }
    }

    fn by_level_model(&mut self, block: BlockPlace, in_bounds: bool, answer: &InLevel) {
        let is_hit = matches!(answer, InLevel::Found(_));
        let (answer, outcome) = match answer {
            InLevel::Found(_) => ("the key is here", ExplainOutcome::Maybe),
            InLevel::Absent => {
                ("the block proves that the level does not have the key", ExplainOutcome::No)
            }
            InLevel::Stopped if in_bounds => ("the filter says no", ExplainOutcome::No),
            InLevel::Stopped => {
                ("the filter says no, but the file may be the wrong one", ExplainOutcome::Maybe)
            }
            InLevel::Unknown => {
                ("that proves nothing: the level is searched", ExplainOutcome::Maybe)
            }
        };
        let place = format!("block {}", block.ordinal);
        let asked = "is the key where a model of the level says?";
        self.step((ExplainPart::Model, &place), asked, (answer.to_string(), outcome));
        if is_hit {
            self.hit();
        }
    }

    fn value(&mut self, handle: &ValueHandle, found: bool) {
        let answer = match (found, self.cached) {
            (true, true) => format!("{} stored bytes, from the cache", handle.len),
            (true, false) => format!("{} stored bytes, read from the device", handle.len),
            (false, _) => "the segment was collected meanwhile: look the key up again".to_string(),
        };
        self.file = None;
        let place = format!("log segment {:06} at {}", handle.segment, handle.offset);
        let answer = (answer, ExplainOutcome::Maybe);
        self.step((ExplainPart::Value, &place), "what is the value?", answer);
        if let Some(step) = self.steps.last_mut() {
            step.file = Some(handle.segment.get());
            // The value log counts its reads for itself.
            step.device_reads = u32::from(found && !self.cached);
            step.is_hit = found;
        }
    }

    fn found(&mut self, trailer: u64, covered: SeqNo) {
        self.found = Some(trailer);
        self.covered = self.covered.max(covered);
    }

    fn wants_value(&mut self, key: &[u8], handle: &ValueHandle) {
        self.cached = self.env.value_log.has_in_memory(key, handle);
        self.at = Instant::now();
    }
}
