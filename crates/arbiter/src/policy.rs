//! From which pool to which, how much, or why nothing moves.
//!
//! A step moves 1 or 2 % of the budget between the two pools where that saves the most, and 4 % after a row of
//! moves in one direction ([`LONG_MOVES`]). What keeps the split from swinging:
//!
//! - **Dead band.** What is gained is to exceed what is lost by [`DEAD_BAND`], both by the bounds of
//!   `smoothed` that speak against the move, and the move is to save at least [`LEAST_SAVED_US`].
//! - **Damping.** A pool that moves against its last direction becomes more restless. Its first turn is
//!   free; each one after that halves its moves and doubles the wait after them. Restlessness fades, the more
//!   slowly the more there is of it ([`CALM_STEPS`]), and with every move of several in the same direction.
//! - **Another workload.** When things have settled, every pool's gain is noted. If one has then risen or fallen
//!   by the factor [`CHANGE_RATIO`] and no move since explains that, the workload is another one: the
//!   restlessness of every pool is halved. A move explains the change of one pool that is restless: its gain may
//!   rise after it gave bytes, and fall after it got some. If the gains of two pools change, no move explains it.
//! - **Catching up.** A pool that does not use what it has is given no more, so that a cache is filled
//!   before its gain is believed.

use crate::smoothed::Smoothed;
use std::fmt;

/// Parts of the budget that one step moves: where gains have long differed very much, where they differ
/// much, and otherwise.
const LONGEST_STEP: f64 = 0.04;
const LARGE_STEP: f64 = 0.02;
const SMALL_STEP: f64 = 0.01;
/// Gains that differ by these factors differ very much, and much.
const LONGEST_STEP_RATIO: f64 = 4.0;
const LARGE_STEP_RATIO: f64 = 2.0;
/// After this many moves without a turn, all of them between gains that differ very much, the steps are the longest.
const LONG_MOVES: u32 = 4;
/// A pool gives at most one part in this many of what it has above its floor, so that its gain is seen
/// to rise before it has nothing left.
const GIVEN_PART: u64 = 4;
/// What is gained must exceed what is lost by this factor.
const DEAD_BAND: f64 = 1.25;
/// Microseconds per second that a move must be expected to save.
const LEAST_SAVED_US: f64 = 20.0;
/// The most that turns halve a step, and double the wait after it.
const MOST_RESTLESS: u32 = 8;
/// After this many steps without a turn, doubled for every turn before, a pool is less restless by one.
const CALM_STEPS: u64 = 30;
/// A turn after this many steps is none: it answers another workload.
const FORGOTTEN_STEPS: u64 = 120;
/// A gain that has changed by this factor, for this many steps, is of another workload.
const CHANGE_RATIO: f64 = 3.0;
const CHANGE_STEPS: u32 = 3;
/// Things have settled this many steps after a move.
const SETTLED_STEPS: u64 = 12;
/// Smaller gains than this are as good as none.
const LEAST_GAIN: f64 = 1.0;

/// A pool as it is now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolReading {
    /// What people know it by.
    pub name: &'static str,
    /// Bytes that it may use.
    pub bytes: u64,
    /// It keeps at least these.
    pub floor_bytes: u64,
    /// It can use at most these.
    pub ceiling_bytes: u64,
    /// Device microseconds per second that one more MiB would save, as measured since the last step. `None`
    /// where that is not known: then the pool neither gives nor gets.
    pub gain: Option<f64>,
    /// Relative standard error of `gain`, 0 to 1.
    pub noise: f64,
    /// Whether it uses what it has.
    pub is_full: bool,
    /// Moves are multiples of this.
    pub grain_bytes: u64,
}

/// Bytes that go from one pool to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Move {
    /// Places in the readings.
    pub from: usize,
    /// The same.
    pub to: usize,
    /// What goes.
    pub bytes: u64,
    /// [`PoolReading::name`].
    pub from_name: &'static str,
    /// The same.
    pub to_name: &'static str,
    /// The gain that decided, in microseconds per second and MiB.
    pub from_gain: f64,
    /// The same.
    pub to_gain: f64,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} KiB from {} to {}: a MiB more of {} saves {} of device time per second, one of {} {}",
            self.bytes >> 10,
            self.from_name,
            self.to_name,
            self.to_name,
            Us(self.to_gain),
            self.from_name,
            Us(self.from_gain)
        )
    }
}

/// Microseconds, for people.
struct Us(f64);

impl fmt::Display for Us {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us if us >= 10_000.0 => write!(f, "{:.1} ms", us / 1000.0),
            us if us >= 10.0 => write!(f, "{us:.0} us"),
            us => write!(f, "{us:.1} us"),
        }
    }
}

/// Why nothing moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// Of fewer than two pools it is known what more would save.
    Unknown,
    /// No pool would save anything with more memory.
    Idle,
    /// The gains are equal, as well as one can tell.
    Balanced,
    /// Who gains the most can get no more, or who gains the least has nothing left to give.
    AtBounds,
    /// After a turn: the measurements are to catch up first.
    Waiting,
}

impl fmt::Display for Stay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "it is not known yet what more memory would save",
            Self::Idle => "more memory would save nothing anywhere",
            Self::Balanced => "a MiB more would save about as much in every pool",
            Self::AtBounds => "the pools that could give or get memory are at their bounds",
            Self::Waiting => "the last moves went to and fro, so the next one waits",
        })
    }
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decision {
    /// This is to be carried out.
    Move(Move),
    /// Nothing moves.
    Stay(Stay),
}

/// What is remembered of a pool.
#[derive(Debug, Clone, Copy, Default)]
struct Past {
    gain: Smoothed,
    /// Whether its last move gave it bytes, and the step in which that was.
    last: Option<(bool, u64)>,
    restless: u32,
    /// The step in which `restless` changed last.
    restless_at: u64,
    /// Its gain when things had settled, and whether the last move since took or gave it bytes.
    settled: Option<Smoothed>,
    gave: bool,
    got: bool,
}

impl Past {
    fn turns(&self, gets: bool, now: u64) -> bool {
        self.last.is_some_and(|(got, at)| got != gets && now - at < FORGOTTEN_STEPS)
    }

    fn note_move(&mut self, gets: bool, now: u64) {
        (self.gave, self.got) = (!gets, gets);
        if self.turns(gets, now) {
            self.restless = (self.restless + 1).min(MOST_RESTLESS);
            self.restless_at = now;
        }
        self.last = Some((gets, now));
    }

    fn calm_down(&mut self, now: u64) {
        let calm_steps = CALM_STEPS << (self.restless / 2);
        if self.restless > 0 && now - self.restless_at >= calm_steps {
            self.restless -= 1;
            self.restless_at = now;
        }
    }

    /// Whether the gain is another than it was when things had settled, and whether the last move may be why.
    fn change(&self) -> Option<bool> {
        let before = self.settled?;
        let far = |low: f64, high: f64| high > CHANGE_RATIO * low.max(LEAST_GAIN);
        // Small moves change much only where the pool is at the edge of what it needs.
        let swings = self.restless > 1;
        if far(before.most(), self.gain.least()) {
            return Some(self.gave && swings);
        }
        far(self.gain.most(), before.least()).then_some(self.got && swings)
    }

    /// What is now counts as settled.
    fn settle(&mut self) {
        (self.settled, self.gave, self.got) = (Some(self.gain), false, false);
    }
}

/// Decides, step by step. See the module's head.
#[derive(Debug, Clone, Default)]
pub struct Arbiter {
    pools: Vec<Past>,
    step: u64,
    /// No move before this step.
    waits_until: u64,
    /// The step of the last move.
    moved_at: u64,
    /// Whether things have settled since.
    is_settled: bool,
    /// Steps for which gains have been other than they were.
    changed_steps: u32,
    /// Moves in a row without a turn, between gains that differ very much.
    clear_moves: u32,
    turns: u64,
}

/// A possible move, with bounds of what it gains and loses per MiB.
#[derive(Debug, Clone, Copy)]
struct Pair {
    from: usize,
    to: usize,
    gains: f64,
    loses: f64,
}

impl Arbiter {
    /// One that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in what was measured since the last step, and decides what moves. `budget_bytes` is what all
    /// pools together may use. The pools are the same ones in the same order in every step.
    pub fn step(&mut self, budget_bytes: u64, pools: &[PoolReading]) -> Decision {
        self.step += 1;
        self.pools.resize(pools.len(), Past::default());
        for (past, pool) in self.pools.iter_mut().zip(pools) {
            past.calm_down(self.step);
            if let Some(gain) = pool.gain {
                past.gain.note(gain, pool.noise);
            }
        }
        if pools.iter().filter(|pool| pool.gain.is_some()).count() < 2 {
            return Decision::Stay(Stay::Unknown);
        }
        self.note_change();
        let Some((pair, bytes)) = self.best_pair(budget_bytes, pools) else {
            return Decision::Stay(self.why(pools));
        };
        if self.step < self.waits_until {
            return Decision::Stay(Stay::Waiting);
        }
        self.carry_out(&pair);
        Decision::Move(Move {
            from: pair.from,
            to: pair.to,
            bytes,
            from_name: pools[pair.from].name,
            to_name: pools[pair.to].name,
            from_gain: self.pools[pair.from].gain.mean(),
            to_gain: self.pools[pair.to].gain.mean(),
        })
    }

    /// What one MiB more of a pool would save, as it is believed now, in microseconds per second.
    pub fn gain(&self, pool: usize) -> f64 {
        self.pools.get(pool).map_or(0.0, |past| past.gain.mean())
    }

    /// How often a pool was moved against its last direction.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// The move that saves most, if any pays, and its bytes.
    fn best_pair(&self, budget_bytes: u64, pools: &[PoolReading]) -> Option<(Pair, u64)> {
        let known = |at: &usize| pools[*at].gain.is_some();
        let mut best: Option<(Pair, u64)> = None;
        let mut most_us = LEAST_SAVED_US;
        for to in (0..pools.len()).filter(known).filter(|at| pools[*at].is_full) {
            for from in (0..pools.len()).filter(known).filter(|at| *at != to) {
                let gains = self.pools[to].gain.least();
                let loses = self.pools[from].gain.most();
                if gains <= loses * DEAD_BAND {
                    continue;
                }
                let pair = Pair { from, to, gains, loses };
                let bytes = self.bytes_of(budget_bytes, pools, &pair);
                // What a pool that swings would move at once counts as a whole step, or it would never move.
                let whole = bytes << self.restless_after(&pair);
                let saved_us = (gains - loses) * whole as f64 / crate::gains::MIB;
                if bytes > 0 && saved_us >= most_us {
                    (best, most_us) = (Some((pair, bytes)), saved_us);
                }
            }
        }
        best
    }

    /// Why no pair pays.
    fn why(&self, pools: &[PoolReading]) -> Stay {
        let known = || (0..pools.len()).filter(|at| pools[*at].gain.is_some());
        let gain = |at: &usize| self.pools[*at].gain.mean();
        let by_gain = |a: &usize, b: &usize| gain(a).total_cmp(&gain(b));
        let best = known().max_by(by_gain);
        let Some(best) = best.filter(|at| gain(at) >= LEAST_GAIN) else { return Stay::Idle };
        let is_better = |at: &usize| gain(&best) > gain(at) * DEAD_BAND * DEAD_BAND;
        let can_give = |at: &usize| is_better(at) && left_bytes(&pools[*at]) > 0;
        match known().any(|at| is_better(&at)) {
            true if room_bytes(&pools[best]) == 0 || !known().any(|at| can_give(&at)) => {
                Stay::AtBounds
            }
            _ => Stay::Balanced,
        }
    }

    fn bytes_of(&self, budget_bytes: u64, pools: &[PoolReading], pair: &Pair) -> u64 {
        let (from, to) = (&pools[pair.from], &pools[pair.to]);
        let differ = |ratio: f64| pair.gains >= pair.loses * ratio;
        let part = if self.clear_moves >= LONG_MOVES && differ(LONGEST_STEP_RATIO) {
            LONGEST_STEP
        } else if differ(LARGE_STEP_RATIO) {
            LARGE_STEP
        } else {
            SMALL_STEP
        };
        let restless = self.restless_after(pair);
        let grain = from.grain_bytes.max(to.grain_bytes).max(1);
        let whole = |bytes: u64| bytes / grain * grain;
        let wanted = (budget_bytes as f64 * part) as u64 >> restless;
        let left = left_bytes(from);
        let given = (left / GIVEN_PART).max(grain).min(left);
        whole(wanted.max(grain).min(given).min(room_bytes(to)))
    }

    /// How restless the two will be when the move is made.
    fn restless_after(&self, pair: &Pair) -> u32 {
        let after = |at: usize, gets: bool| {
            let past = &self.pools[at];
            past.restless + u32::from(past.turns(gets, self.step))
        };
        // The first turn is free.
        after(pair.from, false).max(after(pair.to, true)).saturating_sub(1).min(MOST_RESTLESS)
    }

    fn carry_out(&mut self, pair: &Pair) {
        let turned = [(pair.from, false), (pair.to, true)]
            .into_iter()
            .any(|(at, gets)| self.pools[at].turns(gets, self.step));
        self.pools.iter_mut().for_each(|past| (past.gave, past.got) = (false, false));
        self.pools[pair.from].note_move(false, self.step);
        self.pools[pair.to].note_move(true, self.step);
        self.turns += u64::from(turned);
        self.clear_moves = match pair.gains >= pair.loses * LONGEST_STEP_RATIO && !turned {
            true => self.clear_moves + 1,
            false => 0,
        };
        if self.clear_moves > 1 {
            for at in [pair.from, pair.to] {
                self.pools[at].restless = self.pools[at].restless.saturating_sub(1);
            }
        }
        let restless = self.pools[pair.from].restless.max(self.pools[pair.to].restless);
        self.waits_until = self.step + (1 << restless.saturating_sub(1));
        (self.moved_at, self.is_settled) = (self.step, false);
    }

    /// Gains that change by themselves are of another workload: what swung in the old one may not in this.
    fn note_change(&mut self) {
        let changes = || self.pools.iter().filter_map(Past::change);
        // A small move may be the last straw for one pool, hardly for two.
        let has_changed = changes().count() > 1 || changes().any(|is_explained| !is_explained);
        self.changed_steps = if has_changed { self.changed_steps + 1 } else { 0 };
        if self.changed_steps >= CHANGE_STEPS {
            for past in &mut self.pools {
                (past.restless, past.last) = (past.restless / 2, None);
                past.settle();
            }
            (self.waits_until, self.changed_steps) = (self.step, 0);
            self.is_settled = true;
        } else if !self.is_settled && !has_changed && self.step >= self.moved_at + SETTLED_STEPS {
            self.pools.iter_mut().for_each(Past::settle);
            self.is_settled = true;
        }
    }
}

/// What a pool can give.
fn left_bytes(pool: &PoolReading) -> u64 {
    pool.bytes.saturating_sub(pool.floor_bytes)
}

/// What a pool can get.
fn room_bytes(pool: &PoolReading) -> u64 {
    pool.ceiling_bytes.saturating_sub(pool.bytes)
}
