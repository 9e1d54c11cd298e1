//! `paired`: two stores with different settings, open at the same time in one process, take turns putting the same keys.
//!
//! A turn is four slices of puts, `a b b a` or `b a a b`, so that what drifts hits both sides alike; see
//! [`crate::estimate`] for what is made of them. Keys are made before a slice begins. A slice is timed by the clock of the
//! wall and by that of the processor for the thread that puts. What background threads do is in neither by itself: it
//! slows both sides alike, and what it costs in all is in the row's `cpu_s`, for both together.
//!
//! Every key is put once into both stores, in random order, with one thread; `--ops` and `--duration` do not shorten it.

use super::{Bench, point_read};
use crate::catalog::Workload;
use crate::estimate::{self, MIN_TURNS, Ratio, Turn};
use crate::job::{Event, Job, Observer};
use crate::report::figures::PairedFigures;
use crate::store::Store;
use anyhow::{Context, Result, bail, ensure};
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use terrace_workload::keys::{KeySpace, Permutation};
use terrace_workload::phase::{Phase, Tally, Worker};
use terrace_workload::values::Values;

/// Slices of a turn.
const SLICES: u64 = 4;
/// Slices of one side in a turn.
const SLICES_OF_SIDE: u64 = SLICES / 2;
/// Of the puts one of this many is timed by itself.
const TIME_EVERY: u64 = 64;

/// What was spent on some puts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Spent {
    wall_ns: f64,
    cpu_ns: f64,
}

/// What both sides spent on a turn.
type SpentTurn = [Spent; 2];

/// Measures the two sides.
pub fn run(job: &Job, observer: &Observer) -> Result<()> {
    let [first, second] = &job.sides[..] else { bail!("paired needs the settings of two stores") };
    ensure!(job.threads == 1, "paired puts with one thread, whose processor time it counts");
    let slice = job.settings.slice_puts;
    let turns = job.shape.keys / (slice * SLICES_OF_SIDE);
    ensure!(
        turns >= MIN_TURNS as u64,
        "paired needs {} keys for its turns; use more --keys, or --set slice=",
        MIN_TURNS as u64 * slice * SLICES_OF_SIDE
    );
    let of_side = |name: &str| Job { dir: job.dir.join(name), ..job.clone() };
    let (first_job, second_job) = (of_side("a"), of_side("b"));
    let a = Bench::open(&first_job, observer, first)?;
    let b = Bench::open(&second_job, observer, second)?;
    let spent = Mutex::new(Vec::new());
    let ops = turns * slice * SLICES;
    let phase = Phase { threads: 1, ops, duration: None, time_every: TIME_EVERY };
    let (outcome, usage) =
        a.timed(Workload::Paired.name(), phase, |_| Ok(Turns::new([&a, &b], slice, &spent)))?;
    put_rest([&a, &b], turns * slice * SLICES_OF_SIDE)?;
    a.settle()?;
    b.settle()?;
    let spent = spent.into_inner().unwrap_or_else(PoisonError::into_inner);
    let keys = a.shape().keys;
    let live = Some(keys * a.item_bytes());
    let mut row = a.row(Workload::Paired.name(), phase, &outcome, usage, keys, live)?;
    row.options = format!("a: {}; b: {}", a.facts.options, b.facts.options);
    row.paired = Some(figures(&spent, slice)?);
    observer.tell(Event::Row(Box::new(row)));
    for bench in [a, b] {
        point_read::check(&bench)?;
        bench.close()?;
    }
    Ok(())
}

/// Puts the keys that fill no turn, from number `from` of the order on.
fn put_rest(sides: [&Bench<'_>; 2], from: u64) -> Result<()> {
    for bench in sides {
        let (order, mut key) = (bench.load_order(), Vec::new());
        let mut values = Values::new(bench.shape().value_size, bench.job.settings.seed);
        for sequence in from..bench.shape().keys {
            bench.keys.present(order.apply(sequence), &mut key);
            bench.store.put(&key, values.next_value())?;
        }
    }
    Ok(())
}

fn figures(spent: &[SpentTurn], slice: u64) -> Result<PairedFigures> {
    let turns = |of: fn(&Spent) -> f64| -> Vec<Turn> {
        spent.iter().map(|[a, b]| [of(a), of(b)]).collect()
    };
    let (wall, cpu) = (turns(|spent| spent.wall_ns), turns(|spent| spent.cpu_ns));
    let puts = (spent.len() as u64 * slice * SLICES_OF_SIDE) as f64;
    let per_put = |turns: &[Turn]| {
        [0, 1].map(|side: usize| turns.iter().map(|turn| turn[side]).sum::<f64>() / puts)
    };
    let said =
        |ratio: Option<Ratio>| ratio.context("a slice took no time at all; use --set slice=");
    Ok(PairedFigures {
        turns: spent.len() as u64,
        slice_puts: slice,
        wall_ns: per_put(&wall),
        cpu_ns: per_put(&cpu),
        wall_ratio: said(estimate::of_totals(&wall))?,
        cpu_ratio: said(estimate::of_totals(&cpu))?,
        wall_typical: said(estimate::of_typical_turn(&wall))?,
        cpu_typical: said(estimate::of_typical_turn(&cpu))?,
    })
}

/// Where a put stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct At {
    /// 0 or 1.
    side: usize,
    /// Its number among the puts of its side, which is that of its key in the order.
    number: u64,
    begins_slice: bool,
    ends_slice: bool,
    ends_turn: bool,
}

/// Where put number `sequence` of both sides together stands, of slices of this many puts.
fn at(sequence: u64, slice: u64) -> At {
    let (slice_number, within) = (sequence / slice, sequence % slice);
    let (turn, place) = (slice_number / SLICES, slice_number % SLICES);
    let is_inner = place == 1 || place == 2;
    let of_side = turn * SLICES_OF_SIDE + place / SLICES_OF_SIDE;
    At {
        side: usize::from(is_inner != (turn % 2 == 1)),
        number: of_side * slice + within,
        begins_slice: within == 0,
        ends_slice: within + 1 == slice,
        ends_turn: within + 1 == slice && place + 1 == SLICES,
    }
}

/// Both clocks.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    wall: Instant,
    cpu_ns: f64,
}

impl Clocks {
    fn now() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Self { wall: Instant::now(), cpu_ns: time.tv_sec as f64 * 1e9 + time.tv_nsec as f64 }
    }

    fn spent_since(self, before: Self) -> Spent {
        Spent {
            wall_ns: self.wall.duration_since(before.wall).as_nanos() as f64,
            cpu_ns: self.cpu_ns - before.cpu_ns,
        }
    }
}

/// The thread that puts.
struct Turns<'a> {
    stores: [&'a dyn Store; 2],
    keys: KeySpace,
    order: Permutation,
    values: [Values; 2],
    slice: u64,
    /// Those of the slice under way.
    slice_keys: Vec<Vec<u8>>,
    began: Clocks,
    turn: SpentTurn,
    spent: &'a Mutex<Vec<SpentTurn>>,
    tally: Tally,
}

impl<'a> Turns<'a> {
    fn new(sides: [&'a Bench<'_>; 2], slice: u64, spent: &'a Mutex<Vec<SpentTurn>>) -> Self {
        let [first, second] = sides;
        let values = || Values::new(first.shape().value_size, first.job.settings.seed);
        Self {
            stores: [&*first.store, &*second.store],
            keys: first.keys,
            order: first.load_order(),
            values: [values(), values()],
            slice,
            slice_keys: vec![Vec::new(); slice as usize],
            began: Clocks::now(),
            turn: SpentTurn::default(),
            spent,
            tally: Tally::default(),
        }
    }

    fn begin_slice(&mut self, first: u64) {
        for (key, number) in self.slice_keys.iter_mut().zip(first..) {
            self.keys.present(self.order.apply(number), key);
        }
        self.began = Clocks::now();
    }

    fn end_slice(&mut self, at: At) {
        let spent = Clocks::now().spent_since(self.began);
        let side = &mut self.turn[at.side];
        side.wall_ns += spent.wall_ns;
        side.cpu_ns += spent.cpu_ns;
        if at.ends_turn {
            let turn = std::mem::take(&mut self.turn);
            self.spent.lock().unwrap_or_else(PoisonError::into_inner).push(turn);
        }
    }
}

impl Worker for Turns<'_> {
    fn step(&mut self, sequence: u64) -> Result<()> {
        let at = at(sequence, self.slice);
        if at.begins_slice {
            self.begin_slice(at.number);
        }
        let key = &self.slice_keys[(at.number % self.slice) as usize];
        let value = self.values[at.side].next_value();
        self.stores[at.side].put(key, value)?;
        self.tally.user_bytes += (key.len() + value.len()) as u64;
        if at.ends_slice {
            self.end_slice(at);
        }
        Ok(())
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns_both_ways_and_put_the_same_keys_in_the_same_order() {
        let slice = 3;
        let all: Vec<At> = (0..slice * SLICES * 4).map(|sequence| at(sequence, slice)).collect();
        let sides: String =
            all.iter().filter(|at| at.begins_slice).map(|at| ["a", "b"][at.side]).collect();
        assert_eq!(sides, "abbabaababbabaab");
        for side in 0..2 {
            let numbers = all.iter().filter(|at| at.side == side).map(|at| at.number);
            assert!(numbers.eq(0..slice * SLICES_OF_SIDE * 4), "{side}");
        }
        assert_eq!(all.iter().filter(|at| at.ends_slice).count() as u64, 4 * SLICES);
        assert_eq!(all.iter().filter(|at| at.ends_turn).count(), 4);
        assert!(all.last().unwrap().ends_turn);
    }

    #[test]
    fn figures_are_by_put_and_side() {
        let spent = |wall_ns, cpu_ns| Spent { wall_ns, cpu_ns };
        let turns = [[spent(2000.0, 1000.0), spent(3000.0, 1010.0)]; MIN_TURNS];
        let figures = figures(&turns, 5).unwrap();
        assert_eq!(
            (figures.turns, figures.wall_ns, figures.cpu_ns),
            (20, [200.0, 300.0], [100.0, 101.0])
        );
        assert!((figures.wall_ratio.ratio - 1.5).abs() < 1e-9);
        assert!((figures.cpu_typical.ratio - 1.01).abs() < 1e-9);
        assert!(super::figures(&turns[1..], 5).is_err());
    }
}
