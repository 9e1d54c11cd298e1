//! The arbiter of a store: what it has decided, and what it waits for. What it decides by is in
//! [`terrace_arbiter`]; who lets it take a step is in `background::rebalance`.
//!
//! A move has two halves, so that the pools never have more than the budget: first the one that gives may
//! use less; once it does, which for memtables may take a flush, the other one may use more.

use crate::metrics::MEMORY_POOLS;
use crate::metrics::trends::Counts;
use terrace_arbiter::{Arbiter, Decision, Move};

/// Between two steps, by the clock of the store.
pub(crate) const STEP_US: u64 = 1_000_000;

/// The pools, in the order in which the arbiter knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pool {
    Memtables,
    Blocks,
    Filters,
}

impl Pool {
    pub const ALL: [Self; MEMORY_POOLS.len()] = [Self::Memtables, Self::Blocks, Self::Filters];

    /// What people know it by.
    pub fn name(self) -> &'static str {
        MEMORY_POOLS[self as usize]
    }
}

/// Bytes that one pool has given up and another has not got yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pending {
    pub from: Pool,
    pub to: Pool,
    pub bytes: usize,
}

/// See the module's head. All of it is under one lock.
#[derive(Default)]
pub(crate) struct ArbiterState {
    pub policy: Arbiter,
    pub pending: Option<Pending>,
    /// When the last step was, and what was counted then.
    last: Option<(u64, Counts)>,
    pub moves: u64,
    pub moved_bytes: u64,
    last_move: Option<Move>,
    decision: Option<Decision>,
}

impl ArbiterState {
    /// When it took its last step and what was counted then, if it is time for one; the first time only
    /// notes where counting begins.
    pub fn begin_step(&mut self, now_us: u64, counts: &Counts) -> Option<(u64, Counts)> {
        match self.last {
            Some((at_us, _)) if now_us.saturating_sub(at_us) < STEP_US => None,
            before => {
                self.last = Some((now_us, *counts));
                before
            }
        }
    }

    /// Whether a step is due.
    pub fn is_due(&self, now_us: u64) -> bool {
        self.last.is_none_or(|(at_us, _)| now_us.saturating_sub(at_us) >= STEP_US)
    }

    /// Notes what was decided.
    pub fn note(&mut self, decision: Decision) {
        if let Decision::Move(moved) = decision {
            self.moves += 1;
            self.moved_bytes += moved.bytes;
            self.last_move = Some(moved);
        }
        self.decision = Some(decision);
    }

    /// Why nothing moves, or what does, in words.
    pub fn decision_in_words(&self) -> Option<String> {
        self.decision.map(|decision| match (decision, self.pending) {
            (Decision::Move(moved), Some(pending)) => {
                format!("moving {moved} ({} have not given it up yet)", pending.from.name())
            }
            (Decision::Move(moved), None) => format!("moved {moved}"),
            (Decision::Stay(why), _) => format!("nothing moves: {why}"),
        })
    }

    /// The last move, in words.
    pub fn last_move_in_words(&self) -> Option<String> {
        self.last_move.map(|moved| moved.to_string())
    }
}
