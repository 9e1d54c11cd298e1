//! What a run does, as a function of its seed: lives of one store, the clients of each life and
//! what they do, what fails and when. The scheduler draws the rest.

use crate::families::OwnStep;
use crate::model::{Batch, FAMILIES, MERGING, Op};
use std::fmt;
use std::time::Duration;
use terrace::MemorySplit;
use terrace::vfs::{FaultKind, OpClass};
use terrace_base::rng::{Rng, SplitMix64};

/// When everything happens, on the wall clock.
pub const START_MS: u64 = 1_000_000;

/// Keys that occur.
pub const KEYS: u64 = 60;

/// The end of a life before its time.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    pub at_op: u64,
    /// Whether only the process is killed, and the kernel keeps what it was given.
    pub killed: bool,
    pub seed: u64,
}

/// What goes wrong with the device, from an operation on.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    Fault {
        at_op: u64,
        kind: FaultKind,
        forever: bool,
        filter: Option<OpClass>,
    },
    /// It is full, but for `room` bytes.
    Full {
        at_op: u64,
        room: u64,
    },
    Room {
        at_op: u64,
    },
}

impl Trouble {
    pub fn at_op(&self) -> u64 {
        match self {
            Self::Fault { at_op, .. } | Self::Full { at_op, .. } | Self::Room { at_op } => *at_op,
        }
    }
}

/// One thing that a client does.
#[derive(Debug, Clone)]
pub enum Step {
    /// The last says whether it asks for a sync by itself.
    Write(Batch, bool),
    /// Reads the keys, and writes the batch if none has changed.
    Transaction(Vec<(usize, Vec<u8>)>, Batch),
    Get(usize, Vec<u8>),
    MultiGet(usize, Vec<Vec<u8>>),
    Scan {
        family: usize,
        backward: bool,
    },
    TakeSnapshot,
    DropSnapshot,
    ReadSnapshot {
        family: usize,
        key: Vec<u8>,
        scan: bool,
    },
    /// Opens an iterator that is read a little at a time.
    OpenIter(usize),
    ReadIter(usize),
    Flush,
    Sync,
    Compact {
        family: usize,
        start: Vec<u8>,
        end: Vec<u8>,
    },
    CollectGarbage(f64),
    Checkpoint,
    WaitIdle,
    Verify,
    /// Of the wall clock, which expiries follow.
    TurnClock(u64),
    /// The memory budget is this many bytes from now on.
    Budget(usize),
    /// It moves between its pools from now on, or not.
    Split(MemorySplit),
    /// With the family that is the client's own.
    Own(OwnStep),
    Sleep(Duration),
}

/// A store from one open to its end.
#[derive(Debug, Clone, Default)]
pub struct Life {
    pub clients: Vec<Vec<Step>>,
    pub cut: Option<Cut>,
    pub troubles: Vec<Trouble>,
    /// A planted fault: every write that returns is taken for durable, whatever the store promises.
    pub believes_writes: bool,
}

/// What a run does.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub lives: Vec<Life>,
}

/// Batches and steps as they are read in reports.
pub struct Shown<'a>(pub &'a [Op]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(8)]).into_owned();
        for op in self.0 {
            match op {
                Op::Put { family, key, value, expiry_ms } => {
                    write!(f, " put {family}/{}={}..{}", text(key), text(value), value.len())?;
                    expiry_ms.map_or(Ok(()), |at| write!(f, " until {at}"))?;
                }
                Op::Merge { family, key, operand } => {
                    write!(f, " merge {family}/{} with {}..", text(key), text(operand))?;
                }
                Op::Delete { family, key } => write!(f, " delete {family}/{}", text(key))?,
                Op::DeleteRange { family, start, end } => {
                    write!(f, " delete_range {family}/{}..{}", text(start), text(end))?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            Self::Write(batch, sync) => write!(f, "write{} (sync: {sync})", Shown(batch)),
            Self::Transaction(reads, batch) => {
                let keys = reads.iter().map(|(family, key)| format!("{family}/{}", text(key)));
                write!(f, "transaction of {}:{}", keys.collect::<Vec<_>>().join(", "), Shown(batch))
            }
            Self::Get(family, key) => write!(f, "get {family}/{}", text(key)),
            Self::Compact { family, start, end } => {
                write!(f, "compact {family}/{}..{}", text(start), text(end))
            }
            Self::Own(step) => write!(f, "{step}"),
            Self::MultiGet(family, keys) => write!(f, "multi_get {family}, {} keys", keys.len()),
            other => write!(f, "{other:?}"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, life) in self.lives.iter().enumerate() {
            writeln!(f, "life {number}: {:?} {:?}", life.cut, life.troubles)?;
            for (client, steps) in life.clients.iter().enumerate() {
                steps.iter().try_for_each(|step| writeln!(f, "  client {client}: {step}"))?;
            }
        }
        Ok(())
    }
}

/// The key number `n`.
pub fn key(n: u64) -> Vec<u8> {
    format!("key-{n:04}").into_bytes()
}

/// The batch without expiries and ranges that hold nothing.
fn lasting(batch: Batch) -> Batch {
    let put = |op| match op {
        Op::Put { family, key, value, .. } => Op::Put { family, key, value, expiry_ms: None },
        Op::DeleteRange { family, start, end } if start >= end => Op::Delete { family, key: start },
        op => op,
    };
    batch.into_iter().map(put).collect()
}

/// Draws steps; values tell every write from every other.
struct Draw {
    rng: SplitMix64,
    writes: u64,
    value_bytes: u64,
    sync_one_in: u64,
    maintain_one_in: u64,
    own_one_in: u64,
    /// Every other key is one of this many.
    hot_keys: u64,
}

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    fn key(&mut self) -> Vec<u8> {
        let most = if self.rng.one_in(2) { self.hot_keys } else { KEYS };
        key(self.rng.below(most))
    }

    fn family(&mut self) -> usize {
        if self.rng.one_in(2) { 0 } else { self.below(FAMILIES.len() as u64) as usize }
    }

    fn value(&mut self) -> Vec<u8> {
        self.writes += 1;
        let mut value = format!("{:06}-", self.writes).into_bytes();
        let len = if self.rng.one_in(10) { 4 * self.value_bytes } else { self.value_bytes };
        let fill = self.below(len + 1) as usize;
        // Every other byte is random, so that compression has something to do.
        value.extend((0..fill).map(|n| if n % 2 == 0 { b'v' } else { self.rng.next_u64() as u8 }));
        value
    }

    fn op(&mut self, family: usize) -> Op {
        match self.below(20) {
            0..=2 => Op::Delete { family, key: self.key() },
            3 => {
                let from = self.below(KEYS);
                let end = key(from + self.below(KEYS / 5));
                Op::DeleteRange { family, start: key(from), end }
            }
            draw if family == MERGING && draw % 2 == 1 => {
                Op::Merge { family, key: self.key(), operand: self.value() }
            }
            draw => {
                let expiry_ms = (draw == 4).then(|| START_MS + 500 + self.below(20_000));
                Op::Put { family, key: self.key(), value: self.value(), expiry_ms }
            }
        }
    }

    fn batch(&mut self) -> Batch {
        let spans = self.rng.one_in(4);
        let count = match self.below(12) {
            0 => 20 + self.below(40),
            1..=4 => 2 + self.below(6),
            _ => 1,
        };
        let home = self.family();
        (0..count)
            .map(|n| {
                let family = if spans { (home + n as usize) % FAMILIES.len() } else { home };
                self.op(family)
            })
            .collect()
    }

    fn step(&mut self) -> Step {
        if self.rng.one_in(self.maintain_one_in) {
            return self.maintenance();
        }
        if self.own_one_in > 0 && self.rng.one_in(self.own_one_in) {
            return Step::Own(self.own_step());
        }
        match self.below(40) {
            0 => Step::TakeSnapshot,
            1 => Step::DropSnapshot,
            2 | 3 => {
                let (family, key) = (self.family(), self.key());
                Step::ReadSnapshot { family, key, scan: self.rng.one_in(3) }
            }
            4 => Step::OpenIter(self.family()),
            5 | 6 => Step::ReadIter(1 + self.below(20) as usize),
            7..=11 => Step::Get(self.family(), self.key()),
            12 => Step::MultiGet(self.family(), (0..8).map(|_| self.key()).collect()),
            13 | 14 => Step::Scan { family: self.family(), backward: self.rng.one_in(2) },
            15..=17 => {
                let reads = (0..1 + self.below(3)).map(|_| (self.family(), self.key())).collect();
                Step::Transaction(reads, self.batch())
            }
            18 => Step::Sleep(Duration::from_millis(self.below(200))),
            _ => {
                Step::Write(self.batch(), self.sync_one_in > 0 && self.rng.one_in(self.sync_one_in))
            }
        }
    }

    fn own_step(&mut self) -> OwnStep {
        match self.below(16) {
            0 | 1 => OwnStep::ComeOrGo,
            2 | 3 => OwnStep::Read,
            4 => OwnStep::Compact,
            _ => {
                let batch = (0..1 + self.below(6)).map(|_| self.op(0)).collect();
                let sync = self.sync_one_in > 0 && self.rng.one_in(self.sync_one_in);
                OwnStep::Write(lasting(batch), sync)
            }
        }
    }

    fn maintenance(&mut self) -> Step {
        match self.below(14) {
            0..=2 => Step::Flush,
            3 | 4 => Step::Sync,
            5 | 6 => {
                let (a, b) = (self.key(), self.key());
                let (start, end) = (a.clone().min(b.clone()), a.max(b));
                Step::Compact { family: self.family(), start, end }
            }
            7 => Step::CollectGarbage([0.0, 0.3, 0.9][self.below(3) as usize]),
            8 => Step::Checkpoint,
            9 => Step::WaitIdle,
            10 => Step::Verify,
            // Seconds, in which memory moves.
            11 => Step::Sleep(Duration::from_millis(1000 + self.below(3000))),
            12 => match self.below(3) {
                0 => Step::Split([MemorySplit::Fixed, MemorySplit::Auto][self.below(2) as usize]),
                _ => Step::Budget((4 << 20) << self.below(3)),
            },
            _ => Step::TurnClock(self.below(4000)),
        }
    }

    fn trouble(&mut self, ops: u64) -> Vec<Trouble> {
        let at_op = 1 + self.below(ops);
        if self.rng.one_in(3) {
            let room = self.below(40_000);
            return vec![
                Trouble::Full { at_op, room },
                Trouble::Room { at_op: at_op + self.below(ops) },
            ];
        }
        let kinds = [
            FaultKind::Eio,
            FaultKind::Enospc,
            FaultKind::ShortWrite,
            FaultKind::Eintr,
            FaultKind::SyncFails,
        ];
        let classes = [
            OpClass::Append,
            OpClass::Sync,
            OpClass::SyncDir,
            OpClass::Create,
            OpClass::Remove,
            OpClass::Read,
        ];
        let filter = self.rng.one_in(2).then(|| classes[self.below(6) as usize]);
        let kind = kinds[self.below(5) as usize];
        vec![Trouble::Fault { at_op, kind, forever: self.rng.one_in(3), filter }]
    }

    fn life(&mut self) -> Life {
        let clients = 1 + self.below(4);
        let steps = 40 + self.below(160);
        let clients =
            (0..clients).map(|_| (0..steps / clients).map(|_| self.step()).collect()).collect();
        let ops = steps * 4;
        let cut = (!self.rng.one_in(3)).then(|| Cut {
            at_op: 1 + self.below(ops),
            killed: self.rng.one_in(4),
            seed: self.rng.next_u64(),
        });
        let mut troubles = Vec::new();
        if self.rng.one_in(4) {
            troubles = self.trouble(ops);
        }
        Life { clients, cut, troubles, ..Life::default() }
    }
}

impl Plan {
    pub fn draw(seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed ^ 0x51a1_a710);
        let mut draw = Draw {
            value_bytes: [20, 100, 300, 1500][rng.below(4) as usize],
            sync_one_in: [0, 2, 8][rng.below(3) as usize],
            maintain_one_in: [3, 12, 30, 80][rng.below(4) as usize],
            own_one_in: [0, 3, 8][rng.below(3) as usize],
            hot_keys: [2, 8, KEYS][rng.below(3) as usize],
            writes: 0,
            rng,
        };
        let lives = (0..1 + draw.below(3)).map(|_| draw.life()).collect();
        Self { seed, lives }
    }

    /// Steps of all clients.
    pub fn len(&self) -> usize {
        self.lives.iter().flat_map(|life| &life.clients).map(Vec::len).sum()
    }
}
