//! Readers beside the writer: stores that are open read-only in the driver's process while children
//! write and die. They are opened, read again, refreshed and closed in turn, and live on from round
//! to round. What each shows is a prefix of the history: all that was acknowledged before it was
//! opened or refreshed, and nothing that begins later. It never goes back, and what it shows stays
//! until it is refreshed.

use crate::expected::{Bounds, Round, View, judge};
use crate::journal::Done;
use crate::script::THREADS;
use std::path::Path;
use terrace::{Db, Iter, Options, ReadOptions, Result, SyncMode};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

/// Readers at a time.
const READERS: usize = 2;

/// What the readers did, for the last line of a run.
#[derive(Default)]
pub struct Tally {
    pub opens: u64,
    pub refreshes: u64,
    /// Refreshes that brought something new.
    pub news: u64,
    /// Reads of what was read before.
    pub reread: u64,
}

/// What the driver knows while a child runs.
pub struct Now<'a> {
    /// Where the journals are.
    pub dir: &'a Path,
    pub store: &'a Path,
    pub round: &'a Round,
    /// How the child writes its log.
    pub sync: SyncMode,
}

struct Reader {
    db: Db,
    clock: ManualClock,
    /// What it showed last, and of which round.
    view: View,
    round: u64,
    /// How many operations of each thread that has.
    there: Vec<usize>,
}

/// The readers of a run.
#[derive(Default)]
pub struct Readers {
    readers: [Option<Reader>; READERS],
    /// Steps so far. Draws that depend on time must not change the rounds, so they come from these.
    steps: u64,
    pub tally: Tally,
}

impl Readers {
    /// The least that a store has which was read in `round`.
    pub fn seen(&self, round: &Round) -> Vec<usize> {
        let of_round = self.readers.iter().flatten().filter(|reader| reader.round == round.number);
        of_round.fold(vec![0; THREADS], |most, reader| {
            most.iter().zip(&reader.there).map(|(a, b)| *a.max(b)).collect()
        })
    }

    /// Closes some of them, or all.
    pub fn close(&mut self, all: bool) {
        for reader in &mut self.readers {
            self.steps += 1;
            if all || SplitMix64::new(self.steps).one_in(2) {
                *reader = None;
            }
        }
    }

    /// One reader does one thing, with `options` if it opens the store.
    pub fn step(&mut self, now: &Now<'_>, options: Options) -> std::result::Result<(), String> {
        self.steps += 1;
        let mut rng = SplitMix64::new(self.steps ^ now.round.seed);
        let at = rng.below(READERS as u64) as usize;
        let backward = rng.one_in(2);
        let Some(reader) = &mut self.readers[at] else {
            self.tally.opens += 1;
            let opened = Reader::open(now, options, backward);
            self.readers[at] = Some(opened.map_err(|why| format!("opening for reading: {why}"))?);
            return Ok(());
        };
        match rng.below(8) {
            0 => {
                let (round, there) = (reader.round, reader.there.clone());
                let next = Reader::open(now, options, backward)
                    .map_err(|why| format!("opening for reading again: {why}"))?;
                self.tally.opens += 1;
                next.must_not_go_back(round, &there)?;
                *reader = next;
            }
            1 => self.readers[at] = None,
            2 => {
                self.tally.reread += 1;
                reader.read_again(backward)?;
            }
            _ => {
                self.tally.refreshes += 1;
                let is_new = reader.refresh(now, backward);
                let is_new = is_new.map_err(|why| format!("refreshing a reader: {why}"))?;
                self.tally.news += u64::from(is_new);
            }
        }
        Ok(())
    }
}

impl Reader {
    fn open(
        now: &Now<'_>,
        mut options: Options,
        backward: bool,
    ) -> std::result::Result<Self, String> {
        let clock = ManualClock::wall_at(now.round.now_ms);
        options.advanced.clock = std::sync::Arc::new(clock.clone());
        let before = Done::read_all(now.dir);
        let db = Db::open_read_only(now.store, options).map_err(|e| e.to_string())?;
        let (view, there) = look(&db, now, &before, &[0; THREADS], backward)?;
        Ok(Self { db, clock, view, round: now.round.number, there })
    }

    /// It was opened after one that showed as much in `round` as `there` says.
    fn must_not_go_back(&self, round: u64, there: &[usize]) -> std::result::Result<(), String> {
        if self.round == round && self.there.iter().zip(there).any(|(new, old)| new < old) {
            let new = &self.there;
            return Err(format!("a reader shows {new:?} operations, the one before {there:?}"));
        }
        Ok(())
    }

    /// Without a refresh it shows what it has shown.
    fn read_again(&self, backward: bool) -> std::result::Result<(), String> {
        let view = View::of(&self.db, backward).map_err(|e| format!("reading again: {e}"))?;
        match view == self.view {
            true => Ok(()),
            false => Err("a reader that is not refreshed shows something else".into()),
        }
    }

    /// Gives whether there is anything new.
    fn refresh(&mut self, now: &Now<'_>, backward: bool) -> std::result::Result<bool, String> {
        // The writer of a later round may have dropped what expires until then.
        let same_round = self.round == now.round.number;
        let held = same_round.then(|| first_half(&self.db)).transpose();
        let held = held.map_err(|e| format!("an iterator before it: {e}"))?;
        self.clock.advance(now.round.now_ms - self.clock.now_ms());
        let before = Done::read_all(now.dir);
        let is_new = self.db.refresh().map_err(|e| e.to_string())?;
        let least = if same_round { self.there.clone() } else { vec![0; THREADS] };
        let (view, there) = look(&self.db, now, &before, &least, backward)?;
        if same_round && !is_new && view != self.view {
            return Err("it says that there is nothing new, and there is".into());
        }
        if let Some((iter, seen)) = held {
            let seen = second_half(iter, seen);
            let seen = seen.map_err(|e| format!("an iterator of before: {e}"))?;
            if !self.view.default_family().eq(seen.iter().map(|(key, value)| (key, value))) {
                return Err("an iterator of before does not show what it did".into());
            }
        }
        (self.view, self.there, self.round) = (view, there, now.round.number);
        Ok(is_new)
    }
}

/// What `db`, opened or refreshed after `before`, shows, and how many operations of each thread that
/// has, once it is found to be what it should be.
fn look(
    db: &Db,
    now: &Now<'_>,
    before: &[Done],
    least: &[usize],
    backward: bool,
) -> std::result::Result<(View, Vec<usize>), String> {
    let after = Done::read_all(now.dir);
    let view = View::of(db, backward).map_err(|e| format!("reading beside the writer: {e}"))?;
    let survives = before.iter().map(|done| done.handed_over(now.sync));
    let bounds = Bounds {
        least: survives.zip(least).map(|(survives, least)| survives.max(*least)).collect(),
        most: after.iter().map(|done| done.begun.len()).collect(),
        over: before.iter().map(|done| done.acknowledged.len()).collect(),
    };
    let (_, there) = judge(&view, now.round, &after, &bounds)?;
    Ok((view, there.into_iter().map(|(least, _)| least).collect()))
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// An iterator over the default family that has gone half way, and what it has shown.
fn first_half(db: &Db) -> Result<(Iter, Entries)> {
    let mut iter = db.iter_with(&ReadOptions::default())?;
    let mut seen = Vec::new();
    iter.seek_to_first()?;
    while iter.valid() && seen.len() < 200 {
        seen.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next()?;
    }
    Ok((iter, seen))
}

fn second_half(mut iter: Iter, mut seen: Entries) -> Result<Entries> {
    while iter.valid() {
        seen.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next()?;
    }
    Ok(seen)
}
