//! Walks that step over many deleted rows, and what clears these. What a walk noted is made into range deletions by the
//! next command that writes to the collection; nothing that lives is written again. Called by `members.rs`, by the types
//! that it serves, and by `sorted_sets.rs`.

use super::{CommandBatch, Direction};
use crate::dead_runs::DeadRun;
use crate::encode::{self, Meta};
use crate::error::Result;
use terrace::ReadOptions;

/// After more steps than this of a walk over deleted elements they are cleared by range deletions: a range costs every later
/// read of the neighbourhood a look, but they cost every later walk. A range that knows all newer keys within it takes
/// fewer steps; one that does not is replaced, since a new one has none.
pub(crate) const MANY_PASSED: u64 = 1000;

/// Up to this many between two rows that live stay.
const MANY_IN_GAP: u64 = 128;

/// Most ranges at a time.
pub(crate) const MOST_GAPS: usize = 64;

/// The first key behind this one.
pub(crate) fn behind(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// Deleted rows next to each other: the rows that live on both sides, the one that the walk met first in front. `None` is
/// where the walk began, or the end.
type Gap = (Option<Vec<u8>>, Option<Vec<u8>>);

impl DeadRun {
    /// The keys of a gap.
    fn range(&self, (near, far): Gap) -> Option<(Vec<u8>, Vec<u8>)> {
        let whole_end = encode::end_of(&self.prefix);
        let (start, end) = match self.is_down {
            false => {
                let first = || self.from.clone().unwrap_or_else(|| self.prefix.clone());
                (near.map_or_else(first, behind), far.or(whole_end))
            }
            true => {
                let last = || self.from.clone().map(behind).or(whole_end);
                (far.map_or_else(|| self.prefix.clone(), behind), near.or_else(last))
            }
        };
        end.filter(|end| start < *end).map(|end| (start, end))
    }
}

impl CommandBatch {
    /// As [`Self::visit`], without values if it is to be `keys_only`; notes the walk if it steps over many deleted rows.
    pub(crate) fn visit_noting(
        &self,
        prefix: &[u8],
        from: Option<&[u8]>,
        direction: Direction,
        keys_only: bool,
        mut seen: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let steps_before = self.deleted_steps();
        let (mut before, mut rows, mut more, mut past_gaps) = (self.passed(), 0_u64, true, None);
        let reading =
            ReadOptions { prefix: Some(prefix.to_vec()), keys_only, ..self.reading().clone() };
        self.visit_with(&reading, from, direction, |key, value| {
            rows += 1;
            if self.is_large_gap(before) {
                past_gaps = Some(rows);
            }
            more = seen(key, value)?;
            before = self.passed();
            Ok(more)
        })?;
        if more && self.is_large_gap(before) {
            past_gaps = Some(u64::MAX);
        }
        if let Some(rows) = past_gaps
            && self.deleted_steps() - steps_before > MANY_PASSED
        {
            let (prefix, from) = (prefix.to_vec(), from.map(<[u8]>::to_vec));
            let is_down = direction == Direction::Down;
            self.space.dead_runs.note(DeadRun { prefix, from, is_down, rows });
        }
        Ok(())
    }

    /// Clears what a walk through a collection has noted. The lock is held; a command calls this when it has read what it
    /// needs, before it writes.
    pub(crate) fn clear_dead_rows(&mut self, db: u8, meta: &Meta) -> Result<()> {
        let Some(run) = self.space.dead_runs.take(&encode::elements_of(db, meta.id)) else {
            return Ok(());
        };
        match self.large_gaps(&run) {
            Ok(gaps) => {
                for (start, end) in gaps.into_iter().filter_map(|gap| run.range(gap)) {
                    self.delete_elements(start, end);
                }
                Ok(())
            }
            Err(error) => {
                // For the thread that may take longer.
                self.space.dead_runs.note(run);
                Err(error)
            }
        }
    }

    /// The large gaps that a walk comes by now.
    fn large_gaps(&self, run: &DeadRun) -> Result<Vec<Gap>> {
        let direction = if run.is_down { Direction::Down } else { Direction::Up };
        let (mut gaps, mut before, mut rows) = (Vec::new(), self.passed(), 0_u64);
        let (mut last, mut more) = (None, true);
        self.visit_keys(&run.prefix, run.from.as_deref(), direction, |key| {
            rows += 1;
            if self.is_large_gap(before) {
                gaps.push((last.take(), Some(key.to_vec())));
            }
            last = Some(key.to_vec());
            more = rows < run.rows && gaps.len() < MOST_GAPS;
            before = self.passed();
            Ok(more)
        })?;
        if more && self.is_large_gap(before) {
            gaps.push((last, None));
        }
        Ok(gaps)
    }

    fn passed(&self) -> (u64, u64) {
        (self.rows_passed(), self.deleted_steps())
    }

    /// Whether there are many deleted rows behind the one at which this was [`Self::passed`].
    fn is_large_gap(&self, (rows, steps): (u64, u64)) -> bool {
        self.rows_passed() - rows > MANY_IN_GAP || self.deleted_steps() - steps > MANY_PASSED
    }
}
