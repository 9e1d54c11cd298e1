//! How much filters borrow from the block cache, beyond their share of the budget; pure.
//!
//! Both sides are measured in the same currency, **device reads saved per byte**, over the same *window* of
//! lookups and block reads:
//!
//! - a byte more of filters saves what the price of filter memory says, scaled to the lookups that were
//!   really wasted meanwhile, times the share of block reads that reach the device;
//! - a byte more of the cache saves its ghost hits per byte of the ghost list; and a byte less of it costs at
//!   most what its blocks save on average, where they are hit ever less often in the order of eviction.
//!
//! What keeps a loan from swinging:
//!
//! - **Dead band.** Filters borrow while they earn [`BORROW_RATIO`] times what the ghosts say, and at
//!   least what the cache's blocks earn on average. They give back when the ghosts say [`RETURN_RATIO`] times what
//!   filters earn, or when what they have borrowed saves nothing. Both with bounds of the ghosts' scatter that
//!   speak against the change; a window that decides nothing goes on, up to [`LONGEST_WINDOW`].
//! - **Damping.** Each turn from giving back to borrowing doubles the wait before the next one, up to
//!   [`MOST_RESTLESS`] times; giving back never waits. Restlessness fades in windows without a turn.
//! - **Catching up.** Filters that have not filled what they have borrow no more.
//!
//! What decides is counted in lookups and block reads. A step is at least a 64th of what both pools have, so whatever
//! the workload becomes, all that the cache earns more with is back after at most [`LONGEST_WINDOW`] and 64 times
//! [`WINDOW`] of them; or later on a fast store, since each step takes the filters' thread two turns of 50 ms.

/// Lookups, or reads of blocks if there are more, before anything is decided.
pub(super) const WINDOW: u64 = 2048;
/// And after which a window ends in any case.
pub(super) const LONGEST_WINDOW: u64 = 8 * WINDOW;
/// A loan changes by one part in this many of what filters and the cache have together.
pub(super) const STEP_PART: usize = 64;
/// Nor by less than this.
const MIN_STEP_BYTES: usize = 4096;
/// Filters that borrow must earn so much more than the cache would.
const BORROW_RATIO: f64 = 2.0;
/// The cache must earn so much more than filters do to get its bytes back.
const RETURN_RATIO: f64 = 1.25;
/// Where one side earns this many times what the other does, a step is [`FAST_STEPS`] steps.
const FAST_RATIO: f64 = 8.0;
const FAST_STEPS: usize = 4;
/// Wasted lookups per lookup that all that is borrowed must be able to save; twice that to borrow more.
const MIN_SAVING: f64 = 1e-4;
/// Fewer wasted lookups in a window say nothing.
const MIN_WASTED: u64 = 8;
/// What a hit of the ghost list stands for: one key in this many is watched.
const GHOST_SAMPLE: f64 = 8.0;
/// Standard errors between a measured ghost rate and its bounds.
const DEVIATIONS: f64 = 2.0;
/// The most that turns double the wait.
const MOST_RESTLESS: u32 = 6;

/// The block cache and what came of lookups; counters since the open, but for bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CacheFacts {
    /// Point reads.
    pub lookups: u64,
    /// Those of them, once for each file, that searched a file in vain.
    pub wasted: u64,
    /// Data blocks found in memory, and those that were not.
    pub block_hits: u64,
    pub block_misses: u64,
    /// Insertions that a cache larger by `ghost_bytes` would have spared.
    pub ghost_hits: u64,
    pub ghost_bytes: u64,
    /// What left the cache for lack of room.
    pub evictions: u64,
    /// What the cache may hold now.
    pub capacity_bytes: usize,
    /// The most that filters may borrow.
    pub most_borrowed_bytes: usize,
}

/// The filters' side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FilterFacts {
    /// Wasted lookups saved per lookup and byte, by the unit that just deserves memory.
    pub lambda: f64,
    /// Wasted lookups per lookup that `lambda` was reckoned with.
    pub expected_waste: f64,
    /// What they may use, what they borrow of it, and what they use.
    pub have_bytes: usize,
    pub borrowed_bytes: usize,
    pub used_bytes: usize,
    /// Bytes of units that are worth anything.
    pub wanted_bytes: usize,
}

/// What is to become of the loan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nothing.
    Stay,
    /// It grows by this many bytes.
    Borrow(usize),
    /// It shrinks by this many bytes.
    Return(usize),
}

/// What is remembered between windows.
#[derive(Debug, Default)]
pub(super) struct Borrowing {
    /// The counters when the window began.
    before: Option<CacheFacts>,
    /// Whether the last change gave bytes back.
    returned: bool,
    /// Turns from giving back to borrowing that are not forgotten.
    restless: u32,
    /// Lookups or block reads since the last change, or since restlessness changed.
    calm: u64,
    /// How many of them there are to be before filters borrow again.
    wait: u64,
}

/// What happened in a window.
#[derive(Debug, Clone, Copy)]
struct Window {
    accesses: u64,
    /// Reads saved by a byte more of filters; nothing if too few lookups were wasted to tell.
    filters: f64,
    /// Whether what filters save is known: enough was wasted, or would have been if it were as it was.
    is_telling: bool,
    /// Those saved by a byte more of the cache, at least and at most; `None` if that is not known.
    ghosts: Option<(f64, f64)>,
    /// Those that a byte of the cache saves on average.
    blocks: f64,
}

impl Borrowing {
    /// A window begins now: the memory has just changed for another reason.
    pub fn restart(&mut self) {
        self.before = None;
    }

    /// Takes in what was counted, and decides. The caller carries it out.
    pub fn decide(&mut self, cache: &CacheFacts, filters: &FilterFacts) -> Wish {
        let excess = filters.borrowed_bytes.saturating_sub(cache.most_borrowed_bytes);
        let before = *self.before.get_or_insert(*cache);
        let window = Window::between(&before, cache, filters);
        if excess == 0 && window.accesses < WINDOW {
            return Wish::Stay;
        }
        let step = step_bytes(cache, filters);
        let wish = match excess {
            0 => self.weigh(&window, cache, filters, step),
            // The cache has less to lend than it had.
            _ => Wish::Return(excess.max(step).min(filters.borrowed_bytes)),
        };
        if wish == Wish::Stay && window.accesses < LONGEST_WINDOW {
            return wish;
        }
        self.before = Some(*cache);
        self.note(wish, window.accesses);
        wish
    }

    fn weigh(
        &self,
        window: &Window,
        cache: &CacheFacts,
        filters: &FilterFacts,
        step: usize,
    ) -> Wish {
        let Some((least, most)) = window.ghosts else { return Wish::Stay };
        let earned = window.filters;
        let saved = |bytes: usize| earned * bytes as f64 / window.accesses as f64;
        let borrowed = filters.borrowed_bytes;
        // The first time that must be certain: where hardly any lookup is wasted, most windows count too few.
        let is_known = window.is_telling || self.returned;
        let is_idle = is_known && saved(borrowed) < MIN_SAVING;
        if borrowed > 0 && (is_idle || least > RETURN_RATIO * earned) {
            let is_clear = is_idle || least > FAST_RATIO * earned;
            let bytes = if is_clear { FAST_STEPS * step } else { step };
            return Wish::Return(bytes.min(borrowed));
        }
        let room = cache.most_borrowed_bytes.saturating_sub(borrowed);
        let is_full = filters.used_bytes + step >= filters.have_bytes;
        if room < MIN_STEP_BYTES
            || !is_full
            || filters.wanted_bytes <= filters.have_bytes
            || self.calm + window.accesses < self.wait
            || saved(filters.have_bytes.max(step)) < 2.0 * MIN_SAVING
            || earned < BORROW_RATIO * most
            || earned < window.blocks
        {
            return Wish::Stay;
        }
        let is_clear = earned >= FAST_RATIO * most.max(window.blocks);
        let bytes = if is_clear { FAST_STEPS * step } else { step };
        Wish::Borrow(bytes.min(room))
    }

    fn note(&mut self, wish: Wish, accesses: u64) {
        self.calm += accesses;
        match wish {
            Wish::Borrow(_) if std::mem::take(&mut self.returned) => {
                self.restless = (self.restless + 1).min(MOST_RESTLESS);
                self.calm = 0;
            }
            Wish::Borrow(_) => self.wait = 0,
            Wish::Return(_) => {
                self.returned = true;
                self.wait = WINDOW << self.restless;
                self.calm = 0;
            }
            Wish::Stay => {}
        }
        if self.restless > 0 && self.calm >= 2 * (LONGEST_WINDOW << self.restless) {
            self.restless -= 1;
            self.calm = 0;
            self.wait = 0;
        }
    }
}

fn step_bytes(cache: &CacheFacts, filters: &FilterFacts) -> usize {
    ((cache.capacity_bytes + filters.have_bytes) / STEP_PART).max(MIN_STEP_BYTES)
}

impl Window {
    fn between(before: &CacheFacts, now: &CacheFacts, filters: &FilterFacts) -> Self {
        let grew = |of: fn(&CacheFacts) -> u64| of(now).saturating_sub(of(before));
        let (hits, misses) = (grew(|c| c.block_hits), grew(|c| c.block_misses));
        let (lookups, wasted) = (grew(|c| c.lookups), grew(|c| c.wasted));
        let missed = misses as f64 / (hits + misses).max(1) as f64;
        // The price was reckoned with what was wasted before: less may be now.
        let is_enough = wasted >= MIN_WASTED && filters.expected_waste > 0.0;
        let accesses = lookups.max(hits + misses);
        let telling = match is_enough {
            true => (wasted as f64 / filters.expected_waste).min(lookups as f64),
            false => 0.0,
        };
        let ghosts = grew(|c| c.ghost_hits) as f64;
        let scatter = DEVIATIONS * (GHOST_SAMPLE * ghosts.max(GHOST_SAMPLE)).sqrt();
        let ghosts = match (now.evictions, now.ghost_bytes) {
            (0, _) => Some((0.0, 0.0)),
            (_, 0) => None,
            (_, bytes) => {
                let bytes = bytes as f64;
                Some(((ghosts - scatter).max(0.0) / bytes, (ghosts + scatter) / bytes))
            }
        };
        Self {
            accesses,
            filters: filters.lambda * telling * missed,
            is_telling: is_enough
                || filters.expected_waste * accesses as f64 >= 2.0 * MIN_WASTED as f64
                || accesses >= LONGEST_WINDOW,
            ghosts,
            blocks: hits as f64 / now.capacity_bytes.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests;
