//! Which filters are in memory: the units of all filter partitions of a store compete for one
//! budget, by the lookups that they keep from reading in vain.
//!
//! [`FilterBudget`] keeps the registry (`registry`), told by the table cache which readers open and
//! close and by `install` which files come and go. One thread of `worker` calls
//! [`FilterBudget::step`] while there are lookups: it takes the counts that the read path left in
//! the readers, estimates every partition's heat (`heat`), lets an allocator decide (`price` or
//! `multi_queue`), drops first, and then loads in batches. Reads never wait for any of this.
//!
//! | module | |
//! |---|---|
//! | `curve` | what the units of a filter cost and save |
//! | `heat` | how many lookups reach a partition in vain |
//! | `allocator`, `price`, `multi_queue` | who gets units |
//! | `borrowing` | how much filters borrow from the block cache |
//! | `inherit`, `adoption` | what a new file takes over from those it replaces |
//! | `packed` | heat as the manifest keeps it |
//! | `registry` | files, partitions, bytes |
//!
//! What filters do not need is lent to the block cache and taken back in small steps, and where filters earn
//! more than the cache they borrow from it ([`FilterBudget::plan_loan`], `borrowing`).

mod adoption;
mod allocator;
mod borrowing;
mod curve;
mod filter_registry;
mod heat;
mod inherit;
mod multi_queue;
mod packed;
mod price;

pub(crate) use adoption::Adoption;
pub(crate) use borrowing::CacheFacts;

use crate::event;
use crate::metrics::Metrics;
use crate::options::FilterAllocator;
use allocator::{Allocator, Offer, Room};
use borrowing::{Borrowing, FilterFacts, Wish};
use filter_registry::{FilterRegistry, Load};
use multi_queue::MultiQueue;
use packed::Restored;
use price::Price;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use terrace_base::FileNumber;
use terrace_base::sync::{Instant, Mutex};
use terrace_manifest::FileMeta;
use terrace_sst::{FilterMemory, SstReader, UnitLoad, load_filter_units};

/// Partitions that one step looks at, about.
const SLICE_PARTITIONS: usize = 16 << 10;
/// Bytes that one step loads at most.
const STEP_LOAD_BYTES: usize = 4 << 20;
/// Partitions whose units are read in one batch.
const BATCH_LOADS: usize = 64;
/// Files of one kind, new ones or ones that were hot before, that one step opens at most.
const STEP_OPENS: usize = 32;
/// Adoptions that wait at most; the oldest are given up.
const MAX_ADOPTIONS: usize = 256;
/// Wasted lookups per lookup that all filter memory together must be able to save before it is
/// worth having: below, memory is lent to the block cache.
const MIN_SAVING: f64 = 1e-4;
/// A loan changes by one part in this many of the budget at a time.
const LOAN_PART: usize = 64;
/// Nor by less than this.
const MIN_LOAN_BYTES: usize = 16 << 10;

/// The filter memory of a store. See the module's head.
pub(crate) struct FilterBudget {
    allocator: FilterAllocator,
    budget_bytes: AtomicUsize,
    /// Every store has one thread that steps; this sees to it.
    stepping: Mutex<()>,
    ledger: Mutex<Ledger>,
}

struct Ledger {
    registry: FilterRegistry,
    allocator: Box<dyn Allocator>,
    adoptions: VecDeque<Adoption>,
    /// New files that inherit nothing: they are opened when reads may come, so that a store which
    /// is only written reads no filters that are merged away before they are of use.
    newcomers: VecDeque<FileNumber>,
    /// Heat of files that were not opened since the store was.
    restored: Restored,
    /// Those files, the hottest last.
    to_open: Vec<FileNumber>,
    /// Bytes of the budget that units do not take any more, and those that the block cache has
    /// got. Below zero is what they may take, and the cache has given, besides the budget.
    spared_bytes: isize,
    lent_bytes: isize,
    borrowing: Borrowing,
    /// Expected wasted reads per lookup: of the last pass, and of the one that goes on.
    expected_waste: f64,
    waste_in_pass: f64,
    /// Whether the last step moved anything.
    moving: bool,
    /// Whether a pass was completed.
    surveyed: bool,
    /// Lookups when the heat was saved last.
    saved_at: u64,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Whether there may be more to do although nothing new happens.
    pub more: bool,
    /// How long the registry were in use.
    pub took: Duration,
}

/// What is to become of the loan to the block cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loan {
    /// Nothing.
    AsItIs,
    /// The next step makes room for a larger one.
    Soon,
    /// It is to be this many bytes, below zero if filters borrow; to be confirmed with
    /// [`FilterBudget::confirm_loan`].
    Change(isize),
}

/// The memory of filters at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilterMemoryUse {
    /// What they may use together with what they lend, and without what they borrow.
    pub budget_bytes: usize,
    pub used_bytes: usize,
    /// What the block cache has of it or, below zero, they of the block cache's.
    pub loan_bytes: isize,
    /// Wasted lookups saved per lookup and byte by the unit that just deserves memory.
    pub lambda: f64,
}

/// How a reader of a file is had; `None` if it should not or cannot be opened now.
pub(crate) type OpenReader<'a> = &'a dyn Fn(&FileMeta) -> Option<Arc<SstReader>>;

impl FilterMemoryUse {
    /// What they may use now.
    pub fn limit_bytes(&self) -> usize {
        after_loan(self.budget_bytes, self.loan_bytes)
    }

    /// What the block cache has of it.
    pub fn lent_bytes(&self) -> usize {
        self.loan_bytes.max(0).unsigned_abs()
    }

    /// What they have of the block cache's.
    pub fn borrowed_bytes(&self) -> usize {
        self.loan_bytes.min(0).unsigned_abs()
    }
}

/// What is left of a budget after a loan, or is there with what is borrowed.
fn after_loan(budget_bytes: usize, loan_bytes: isize) -> usize {
    match loan_bytes {
        0.. => budget_bytes.saturating_sub(loan_bytes.unsigned_abs()),
        _ => budget_bytes.saturating_add(loan_bytes.unsigned_abs()),
    }
}

impl FilterBudget {
    /// A budget of this many bytes, of which nothing is used.
    pub fn new(allocator: FilterAllocator, budget_bytes: usize) -> Self {
        let decides: Box<dyn Allocator> = match allocator {
            FilterAllocator::Mq => Box::new(MultiQueue::new()),
            _ => Box::new(Price::new()),
        };
        let ledger = Ledger {
            registry: FilterRegistry::default(),
            allocator: decides,
            adoptions: VecDeque::new(),
            newcomers: VecDeque::new(),
            restored: Restored::default(),
            to_open: Vec::new(),
            spared_bytes: 0,
            lent_bytes: 0,
            borrowing: Borrowing::default(),
            expected_waste: 0.0,
            waste_in_pass: 0.0,
            moving: false,
            surveyed: false,
            saved_at: 0,
        };
        let budget_bytes = AtomicUsize::new(budget_bytes);
        Self { allocator, budget_bytes, stepping: Mutex::new(()), ledger: Mutex::new(ledger) }
    }

    /// None: filters live in the block cache.
    #[cfg(test)]
    pub fn cached() -> Arc<Self> {
        Arc::new(Self::new(FilterAllocator::Cached, 0))
    }

    /// Whether units are loaded and dropped here at all.
    pub fn is_elastic(&self) -> bool {
        self.allocator != FilterAllocator::Cached
    }

    fn budget_bytes(&self) -> usize {
        self.budget_bytes.load(Ordering::Relaxed)
    }

    /// Changes the budget. What filters have over it goes in the next steps; that no more is lent than it has is the
    /// caller's to see to.
    pub fn set_budget_bytes(&self, bytes: usize) {
        self.budget_bytes.store(bytes, Ordering::Relaxed);
        self.ledger.lock().borrowing.restart();
    }

    /// How readers are to be opened.
    pub fn filter_memory(&self) -> FilterMemory {
        match self.is_elastic() {
            true => FilterMemory::Elastic,
            false => FilterMemory::Cached,
        }
    }

    /// File `meta` is live at `level`: it is new, or has moved there.
    pub fn file_lives(&self, level: usize, meta: &Arc<FileMeta>) {
        if self.is_elastic() {
            self.ledger.lock().registry.add_file(level, meta);
        }
    }

    /// File `number` is not live any more.
    pub fn file_leaves(&self, number: FileNumber) {
        if self.is_elastic() {
            self.ledger.lock().registry.leave(number);
        }
    }

    /// File `number` is about to be deleted; its reader was closed.
    pub fn forget(&self, number: FileNumber) {
        if self.is_elastic() {
            let mut ledger = self.ledger.lock();
            for id in ledger.registry.forget(number) {
                ledger.allocator.forget(id);
            }
        }
    }

    /// A reader was opened.
    pub fn reader_opened(&self, number: FileNumber, reader: &Arc<SstReader>) {
        if !self.is_elastic() {
            return;
        }
        let mut ledger = self.ledger.lock();
        ledger.registry.open(number, reader);
        let partitions = ledger.registry.partition_count(number);
        if let Some(rates) = ledger.restored.take(number, partitions) {
            ledger.registry.believe(number, &rates);
        }
    }

    /// A reader was closed: it holds no units any more, or will not after a load under way.
    pub fn reader_closed(&self, number: FileNumber, reader: &Arc<SstReader>) {
        if self.is_elastic() {
            self.ledger.lock().registry.close(number, reader);
        }
    }

    /// Bytes that are known of files and their partitions, whatever units are in memory.
    pub fn own_bytes(&self) -> usize {
        if self.is_elastic() { self.ledger.lock().registry.own_bytes() } else { 0 }
    }

    /// What new files can take over from `runs`, the weightiest last (see `inherit`); the files
    /// may then leave.
    pub fn adopt(&self, heirs: &[Arc<FileMeta>], runs: &[Vec<Arc<FileMeta>>]) {
        if !self.is_elastic() || heirs.is_empty() {
            return;
        }
        let mut ledger = self.ledger.lock();
        let adoption = Adoption::new(heirs, runs, |number| ledger.registry.known_rates(number));
        if adoption.is_empty() {
            ledger.newcomers.extend(heirs.iter().map(|file| file.number));
            return;
        }
        ledger.adoptions.push_back(adoption);
        if ledger.adoptions.len() > MAX_ADOPTIONS {
            ledger.adoptions.pop_front();
        }
    }

    /// Heat as [`FilterBudget::packed_heat`] gave it when the store was open before. To be called
    /// after the live files are known.
    pub fn restore(&self, packed: &[u8]) {
        let mut ledger = self.ledger.lock();
        let mut restored = Restored::decode(packed);
        restored.retain(|number| ledger.registry.is_live(number));
        ledger.to_open = restored.hottest_first();
        ledger.to_open.reverse();
        ledger.restored = restored;
    }

    /// Heat to be restored when the store is opened again; `None` if there were no lookups since
    /// the last call.
    pub fn packed_heat(&self) -> Option<Vec<u8>> {
        if !self.is_elastic() {
            return None;
        }
        let mut ledger = self.ledger.lock();
        let lookups = ledger.registry.lookups;
        if lookups == std::mem::replace(&mut ledger.saved_at, lookups) {
            return None;
        }
        let rates = ledger.registry.all_rates();
        drop(ledger);
        Some(packed::encode(rates))
    }

    /// Looks at the next slice of partitions after `lookups` lookups of the store, and does what
    /// the allocator says. `calm`: nothing is being written, so that what is new will stay.
    pub fn step(&self, lookups: u64, calm: bool, open: OpenReader<'_>) -> Progress {
        let Some(_turn) = self.stepping.try_lock() else {
            return Progress { more: false, took: Duration::ZERO };
        };
        self.settle_adoptions(open);
        let calm = calm || lookups != self.ledger.lock().registry.lookups;
        let newcomers = calm && self.open_files(open, |ledger| ledger.newcomers.pop_front());
        let opened = self.open_files(open, |ledger| ledger.to_open.pop());
        let start = Instant::now();
        let (loads, moved, ends) = {
            let mut ledger = self.ledger.lock();
            ledger.registry.lookups = lookups;
            // Until its loads are done a step is under way.
            ledger.moving = true;
            ledger.decide(self.budget_bytes())
        };
        let took = start.elapsed();
        self.load(loads);
        let mut ledger = self.ledger.lock();
        ledger.moving = opened || newcomers || moved || !ends;
        let waits = !ledger.adoptions.is_empty() || ledger.registry.changed;
        Progress { more: ledger.moving || waits, took }
    }

    /// New files are opened and take over what is known of their keys.
    fn settle_adoptions(&self, open: OpenReader<'_>) {
        loop {
            let Some(adoption) = self.ledger.lock().adoptions.pop_front() else { return };
            for (number, rates) in adoption.settle(open) {
                self.ledger.lock().registry.believe(number, &rates);
            }
        }
    }

    /// Opens some of the files that `next` names; whether any may be left.
    fn open_files(
        &self,
        open: OpenReader<'_>,
        next: fn(&mut Ledger) -> Option<FileNumber>,
    ) -> bool {
        for _ in 0..STEP_OPENS {
            let file = {
                let mut ledger = self.ledger.lock();
                let Some(number) = next(&mut ledger) else { return false };
                ledger.registry.closed_file(number)
            };
            if let Some(file) = file
                && open(&file).is_none()
            {
                // As many are open as may be: lookups open the others.
                let mut ledger = self.ledger.lock();
                ledger.to_open.clear();
                ledger.newcomers.clear();
            }
        }
        true
    }

    fn load(&self, loads: Vec<Load>) {
        if loads.is_empty() {
            return;
        }
        for batch in loads.chunks(BATCH_LOADS) {
            let wanted: Vec<UnitLoad<'_>> = batch
                .iter()
                .map(|load| UnitLoad {
                    reader: &load.reader,
                    partition: load.id.at as usize,
                    units: load.units,
                })
                .collect();
            let results = load_filter_units(&wanted);
            let mut ledger = self.ledger.lock();
            for (load, result) in batch.iter().zip(results) {
                if let Some(error) = &result.error {
                    event::filter_unit_lost(load.id.file, error);
                }
                ledger.registry.loaded(load, result.units, result.units < load.units);
            }
        }
        self.ledger.lock().registry.end_loads();
    }

    /// The next small change of what the block cache may have besides its own share or, below zero, without
    /// it. A loan grows in two steps, first units make room, then the cache has it; and it shrinks in two,
    /// first the cache gives bytes back, then units may take them.
    pub fn plan_loan(&self, cache: &CacheFacts) -> Loan {
        let mut ledger = self.ledger.lock();
        let budget = self.budget_bytes();
        if !self.is_elastic() || !ledger.surveyed {
            return Loan::AsItIs;
        }
        // The budget may have become smaller since.
        let spared = ledger.spared_bytes.min(signed(budget));
        let lent = ledger.lent_bytes;
        if spared > lent {
            return match ledger.registry.used_bytes() <= after_loan(budget, spared) {
                true => Loan::Change(spared),
                false => Loan::Soon,
            };
        }
        let step = (budget.max(lent.unsigned_abs()) / LOAN_PART).max(MIN_LOAN_BYTES);
        let wanted = ledger.allocator.wanted_bytes();
        // Some more than is wanted, so that what comes next finds room.
        let need = wanted.saturating_add(wanted / 16).saturating_add(2 * step);
        let target = signed(budget) - signed(need);
        let step = signed(step);
        if target >= lent + step {
            ledger.spared_bytes = lent + step;
            ledger.borrowing.restart();
            return Loan::Soon;
        }
        if lent > 0 {
            return match target < lent {
                true => Loan::Change((lent - step).max(0)),
                false => Loan::AsItIs,
            };
        }
        if budget == 0 {
            // There are to be no filters.
            ledger.spared_bytes = 0;
            return if lent < 0 { Loan::Soon } else { Loan::AsItIs };
        }
        match ledger.weigh_loan(budget, cache) {
            Wish::Stay => Loan::AsItIs,
            Wish::Borrow(bytes) => Loan::Change(lent - signed(bytes)),
            Wish::Return(bytes) => {
                ledger.spared_bytes = lent + signed(bytes);
                Loan::Soon
            }
        }
    }

    /// The block cache has `lent_bytes` besides its share now, or has given as many if they are below zero.
    pub fn confirm_loan(&self, lent_bytes: isize) {
        let mut ledger = self.ledger.lock();
        ledger.lent_bytes = lent_bytes;
        ledger.spared_bytes = lent_bytes;
    }

    /// What is borrowed becomes part of the budget; gives its bytes, which are the caller's to take from the
    /// share of the block cache.
    pub fn keep_borrowed(&self) -> usize {
        let mut ledger = self.ledger.lock();
        if ledger.lent_bytes >= 0 {
            return 0;
        }
        let bytes = ledger.lent_bytes.unsigned_abs();
        (ledger.lent_bytes, ledger.spared_bytes) = (0, 0);
        ledger.borrowing.restart();
        self.budget_bytes.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Whether a step has something to do although there was no lookup. New files that inherit
    /// nothing wait until it is calm.
    pub fn has_work(&self, calm: bool) -> bool {
        let ledger = self.ledger.lock();
        self.is_elastic()
            && (!ledger.adoptions.is_empty()
                || (calm && !ledger.newcomers.is_empty())
                || ledger.registry.changed
                || ledger.moving
                || ledger.registry.used_bytes()
                    > after_loan(
                        self.budget_bytes(),
                        // What is to be lent, but is not yet, may be used.
                        ledger.spared_bytes.min(ledger.lent_bytes.max(0)),
                    ))
    }

    /// Wasted lookups per lookup of the store that reach file `number`, as far as is known; `None`
    /// where the block cache has the filters.
    pub fn file_rate(&self, number: FileNumber) -> Option<f64> {
        self.is_elastic().then(|| self.partition_rates(number).iter().sum())
    }

    /// The same of every filter partition of the file; none if it was never open, or its filters
    /// are the block cache's.
    pub fn partition_rates(&self, number: FileNumber) -> Vec<f64> {
        self.ledger.lock().registry.rates(number)
    }

    /// What filters have, use and lend.
    pub fn memory(&self) -> FilterMemoryUse {
        let ledger = self.ledger.lock();
        FilterMemoryUse {
            budget_bytes: self.budget_bytes(),
            used_bytes: ledger.registry.used_bytes(),
            loan_bytes: ledger.lent_bytes,
            lambda: ledger.allocator.lambda(),
        }
    }

    /// Adds what filters cost and save.
    pub fn fill(&self, m: &mut Metrics) {
        let ledger = self.ledger.lock();
        m.filter_memory_bytes = ledger.registry.used_bytes() as u64;
        m.filter_budget_bytes = after_loan(self.budget_bytes(), ledger.lent_bytes) as u64;
        m.filter_lent_bytes = ledger.lent_bytes.max(0).unsigned_abs() as u64;
        m.filter_borrowed_bytes = ledger.lent_bytes.min(0).unsigned_abs() as u64;
        m.filter_lambda = ledger.allocator.lambda();
        m.filter_expected_waste = ledger.expected_waste;
        for (row, tally) in m.levels.iter_mut().zip(&ledger.registry.tallies) {
            row.filter_stopped = tally.stopped;
            row.filter_vain = tally.vain;
            row.filter_found = tally.found;
            row.filter_units_loaded = tally.units_loaded;
            row.filter_units_dropped = tally.units_dropped;
            row.filter_memory_bytes = tally.resident_bytes;
        }
    }
}

/// Bytes as a signed number.
pub(crate) fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX / 4)
}

impl Ledger {
    /// Whether filters borrow more, or less; nothing is lent.
    fn weigh_loan(&mut self, budget_bytes: usize, cache: &CacheFacts) -> Wish {
        let filters = FilterFacts {
            lambda: self.allocator.lambda(),
            expected_waste: self.expected_waste,
            have_bytes: after_loan(budget_bytes, self.lent_bytes),
            borrowed_bytes: self.lent_bytes.unsigned_abs(),
            used_bytes: self.registry.used_bytes(),
            wanted_bytes: self.allocator.wanted_bytes(),
        };
        self.borrowing.decide(cache, &filters)
    }

    /// One slice: what is to be loaded, whether anything moves, and whether the pass ends.
    fn decide(&mut self, budget_bytes: usize) -> (Vec<Load>, bool, bool) {
        self.registry.changed = false;
        let mut offers: Vec<Offer> = Vec::new();
        let (begins_pass, ends_pass) = self.registry.sweep(SLICE_PARTITIONS, &mut offers);
        if begins_pass {
            self.waste_in_pass = 0.0;
        }
        let waste = |offer: &Offer| offer.heat * offer.curve.fpr(offer.units);
        self.waste_in_pass += offers.iter().map(waste).sum::<f64>();
        if ends_pass {
            self.expected_waste = self.waste_in_pass;
        }
        let room = Room {
            budget_bytes: after_loan(budget_bytes, self.spared_bytes),
            used_bytes: self.registry.used_bytes(),
            load_bytes: STEP_LOAD_BYTES,
            least_gain: MIN_SAVING / budget_bytes.max(1) as f64,
            lookups: self.registry.lookups,
            partitions: self.registry.partitions,
            begins_pass,
            ends_pass,
        };
        let moves = self.allocator.decide(&offers, &room);
        self.surveyed |= ends_pass;
        let moved = !moves.drops.is_empty() || !moves.loads.is_empty();
        (self.registry.carry_out(&moves, room.budget_bytes), moved, ends_pass)
    }
}

#[cfg(test)]
mod tests;
