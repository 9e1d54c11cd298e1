//! What the filter partitions of a new file take over from those whose keys they hold.
//!
//! The lookups that reached a stretch of the key space go on coming, so the heat of a partition is
//! shared out among the new partitions that overlap it, by their numbers of keys. Of the runs that
//! were merged the deepest one counts, where it has a partition: a lookup that a run above wasted
//! and one below found is not wasted on their merge. A flushed file lies above all others: the
//! newest run counts. Where no run has a partition nothing is taken over.

/// A stretch of the key space: above (or from) its start, up to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch<'a> {
    pub start: &'a [u8],
    /// Whether `start` belongs to it: only of the first partition of a file.
    pub from_start: bool,
    pub end: &'a [u8],
}

impl Stretch<'_> {
    /// Whether all of it lies before all of `other`.
    fn precedes(&self, other: &Stretch<'_>) -> bool {
        match other.from_start {
            true => self.end < other.start,
            false => self.end <= other.start,
        }
    }
}

/// A filter partition of an input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub stretch: Stretch<'a>,
    /// Wasted lookups per lookup.
    pub rate: f64,
}

/// A filter partition of an output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heir<'a> {
    pub stretch: Stretch<'a>,
    pub key_count: u64,
}

/// The heat of each heir, `None` where nothing is known. `runs` in the order of their weight: a
/// later one replaces an earlier one where both say something. The partitions of a run and the
/// heirs are each in key order and do not overlap.
pub(crate) fn inherit(runs: &[Vec<Source<'_>>], heirs: &[Heir<'_>]) -> Vec<Option<f64>> {
    let mut rates = vec![None; heirs.len()];
    for run in runs {
        let mut shares: Vec<Option<f64>> = vec![None; heirs.len()];
        let mut first = 0;
        for source in run {
            first += heirs[first..]
                .iter()
                .take_while(|heir| heir.stretch.precedes(&source.stretch))
                .count();
            let count = heirs[first..]
                .iter()
                .take_while(|heir| !source.stretch.precedes(&heir.stretch))
                .count();
            let overlapping = first..first + count;
            let keys = |heir: &Heir<'_>| heir.key_count.max(1) as f64;
            let all: f64 = heirs[overlapping.clone()].iter().map(keys).sum();
            for at in overlapping {
                *shares[at].get_or_insert(0.0) += source.rate * keys(&heirs[at]) / all;
            }
        }
        for (rate, share) in rates.iter_mut().zip(shares) {
            *rate = share.or(*rate);
        }
    }
    rates
}

#[cfg(test)]
mod tests;
