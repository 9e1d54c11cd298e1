//! The heat of a filter partition: how many lookups of the store, per lookup, reach it in vain.
//!
//! Time is counted in lookups. A partition's history is an average over about its last
//! [`MEMORY_EVENTS`] wasted lookups, so that every estimate is equally sharp, however rarely the
//! partition is met; hot ones forget within few lookups of the store, cold ones within many. What
//! came since is a block of its own, which joins the history when it is complete. If the block and
//! the history can hardly have the same rate (twice the log-likelihood ratio of two Poisson samples
//! above [`SURPRISE`]), the history is dropped: a hot range that has moved is seen after a few
//! dozen of its lookups, and one that was left after about five lookups that did not come.
//!
//! ```text
//!   wasted  |  history: 40 at most  | block: up to 10 |
//!   ---------------------------------------------------> lookups of the store
//! ```
//!
//! Counts may be sampled, so each comes with its variance; n wasted lookups of variance v weigh as
//! much as n²/v that were counted one by one.

/// Wasted lookups that the history weighs at most: its standard error is 16 %, which costs 1.5 %
/// of the wasted reads where a unit halves them.
const MEMORY_EVENTS: f32 = 40.0;
/// Wasted lookups, seen or expected, with which a block is complete.
const BLOCK_EVENTS: f32 = 10.0;
/// Twice the log-likelihood ratio from which on two samples have different rates: three standard
/// deviations.
const SURPRISE: f32 = 9.0;
/// What of a history that is dropped stays, so that a false alarm does little harm.
const REMEMBERED_EVENTS: f32 = 0.25;
/// Fewer wasted lookups than this are no sign of a rate that has risen.
const MIN_EVENTS: f32 = 3.0;
/// Lookups with which a block is complete if the history is no longer, and the most that are
/// remembered.
const FIRST_LOOKUPS: f32 = 65_536.0;
const MAX_LOOKUPS: f32 = 4e9;
/// Wasted lookups that what is usual weighs as much as.
const PRIOR_EVENTS: f32 = 0.5;
/// Wasted lookups that a rate taken over from elsewhere weighs as much as.
const HEARSAY_EVENTS: f32 = 8.0;

/// No partition is colder.
const MIN_RATE: f64 = 1e-12;

/// Codes per doubling of the rate in a packed heat.
const CODES_PER_OCTAVE: f64 = 6.0;
/// The rate of code 1 is two to the minus this.
const MIN_OCTAVE: f64 = 42.0;

/// Wasted lookups among some lookups of the store.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Sample {
    wasted: f32,
    variance: f32,
    lookups: f32,
}

impl Sample {
    fn add(&mut self, other: Sample) {
        self.wasted += other.wasted;
        self.variance += other.variance;
        self.lookups += other.lookups;
    }

    /// Lookups counted one by one that would say as much.
    fn events(&self) -> f32 {
        self.wasted * self.wasted / self.variance.max(f32::MIN_POSITIVE).max(self.wasted)
    }

    fn times(&self, factor: f32) -> Self {
        Self {
            wasted: self.wasted * factor,
            variance: self.variance * factor,
            lookups: self.lookups * factor,
        }
    }

    /// Weighs at most `events`, and [`MAX_LOOKUPS`].
    fn at_most(&self, events: f32) -> Self {
        let too_many = (self.events() / events).max(self.lookups / MAX_LOOKUPS);
        if too_many > 1.0 { self.times(1.0 / too_many) } else { *self }
    }
}

/// How often lookups of the store reach one filter partition in vain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Heat {
    history: Sample,
    block: Sample,
}

impl Heat {
    /// The heat of a partition of which nothing is known but what is usual.
    pub fn usual(rate: f64) -> Self {
        Self::believed(rate, PRIOR_EVENTS)
    }

    /// The heat of a partition that somebody else knows.
    pub fn hearsay(rate: f64) -> Self {
        Self::believed(rate, HEARSAY_EVENTS)
    }

    fn believed(rate: f64, events: f32) -> Self {
        let lookups = (f64::from(events) / rate.max(1e-30)).min(f64::from(MAX_LOOKUPS));
        let wasted = (rate * lookups) as f32;
        let history = Sample { wasted, variance: wasted, lookups: lookups as f32 };
        Self { history, block: Sample::default() }
    }

    /// Whether it rests on more than what is usual.
    pub fn is_known(&self) -> bool {
        self.history.events() + self.block.events() > 2.0 * PRIOR_EVENTS
    }

    /// Of the last `lookups` lookups of the store, about `wasted` came here in vain, give or take
    /// the square root of `variance`.
    pub fn note(&mut self, wasted: u32, variance: u32, lookups: u64) {
        if wasted == 0 && lookups == 0 {
            return;
        }
        let (wasted, variance) = (wasted as f32, variance.max(wasted) as f32);
        self.block.add(Sample { wasted, variance, lookups: lookups as f32 });
        if differ(&self.history, &self.block) {
            let before = self.history.at_most(REMEMBERED_EVENTS);
            self.history = std::mem::take(&mut self.block);
            self.history.add(before);
            self.history = self.history.at_most(MEMORY_EVENTS);
        } else if self.is_complete() {
            let block = std::mem::take(&mut self.block);
            self.history.add(block);
            self.history = self.history.at_most(MEMORY_EVENTS);
        }
    }

    fn is_complete(&self) -> bool {
        let (history, block) = (&self.history, &self.block);
        let expected = history.events() / history.lookups.max(1.0) * block.lookups;
        block.events().max(expected) >= BLOCK_EVENTS
            || block.lookups >= history.lookups.max(FIRST_LOOKUPS)
    }

    /// Wasted lookups per lookup of the store.
    #[inline]
    pub fn rate(&self) -> f64 {
        let wasted = f64::from(self.history.wasted + self.block.wasted);
        let lookups = f64::from(self.history.lookups + self.block.lookups);
        (wasted / lookups.max(1.0)).clamp(MIN_RATE, 1.0)
    }
}

/// Whether two samples can hardly have the same rate.
fn differ(a: &Sample, b: &Sample) -> bool {
    // Both counted in events of the variance that they have together.
    let wasted = a.wasted + b.wasted;
    let scale = wasted / (a.variance + b.variance).max(wasted).max(f32::MIN_POSITIVE);
    let (n1, n2) = (a.wasted * scale, b.wasted * scale);
    let part = b.lookups / (a.lookups + b.lookups);
    let (m1, m2) = ((n1 + n2) * (1.0 - part), (n1 + n2) * part);
    if n2 > m2 && n2 < MIN_EVENTS {
        return false;
    }
    // Cheap: within two standard deviations there is nothing to compute.
    if (n2 - m2) * (n2 - m2) <= 4.0 * m2 * (1.0 - part) {
        return false;
    }
    let term = |n: f32, m: f32| if n > 0.0 { n * (n / m).ln() } else { 0.0 };
    2.0 * (term(n1, m1) + term(n2, m2)) > SURPRISE
}

/// A rate in a byte: 0 is none, the others are steps of an eighth on a logarithmic scale.
pub(crate) fn pack(rate: f64) -> u8 {
    if rate <= 0.0 {
        return 0;
    }
    let code = (rate.log2() + MIN_OCTAVE) * CODES_PER_OCTAVE + 1.0;
    code.round().clamp(1.0, f64::from(u8::MAX)) as u8
}

/// The rate of a byte made by [`pack`]; `None` for none.
pub(crate) fn unpack(code: u8) -> Option<f64> {
    let octave = || (f64::from(code) - 1.0) / CODES_PER_OCTAVE - MIN_OCTAVE;
    (code > 0).then(|| octave().exp2().min(1.0))
}

#[cfg(test)]
mod tests;
