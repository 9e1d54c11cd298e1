//! The last changes, for watches: a bounded queue of transactions.

use crate::metadata::Change;
use std::collections::VecDeque;

/// How many transactions are kept. A watch that is further behind reads everything again.
pub(super) const KEPT_TRANSACTIONS: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct History {
    /// Revision and changes of each transaction, in order.
    transactions: VecDeque<(u64, Vec<Change>)>,
    /// Changes up to this revision are not kept.
    compacted: u64,
}

impl History {
    /// That keeps what comes after `revision`.
    pub(super) fn after(revision: u64) -> Self {
        Self { transactions: VecDeque::new(), compacted: revision }
    }

    pub(super) fn push(&mut self, revision: u64, changes: Vec<Change>) {
        self.transactions.push_back((revision, changes));
        if self.transactions.len() > KEPT_TRANSACTIONS
            && let Some((revision, _)) = self.transactions.pop_front()
        {
            self.compacted = revision;
        }
    }

    /// All changes from `revision` on below `prefix`.
    ///
    /// # Errors
    /// Some of them are not kept any more: the first revision that is.
    pub(super) fn since(&self, revision: u64, prefix: &[u8]) -> Result<Vec<Change>, u64> {
        if revision <= self.compacted {
            return Err(self.compacted + 1);
        }
        let from = self.transactions.partition_point(|(at, _)| *at < revision);
        let later = self.transactions.range(from..);
        let changes = later.flat_map(|(_, changes)| changes);
        Ok(changes.filter(|change| change.key().starts_with(prefix)).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: u64) -> Change {
        Change::Deleted { key: b"a".to_vec(), mod_revision: revision }
    }

    #[test]
    fn what_is_dropped_is_said() {
        let mut history = History::after(10);
        assert_eq!(history.since(10, b""), Err(11));
        assert_eq!(history.since(11, b""), Ok(vec![]));
        let last = 10 + KEPT_TRANSACTIONS as u64 + 2;
        for revision in 11..=last {
            history.push(revision, vec![change(revision)]);
        }
        assert_eq!(history.since(12, b""), Err(13), "two were dropped");
        assert_eq!(history.since(13, b"").unwrap().len(), KEPT_TRANSACTIONS);
        assert_eq!(history.since(last, b"a"), Ok(vec![change(last)]));
        assert_eq!(history.since(last, b"b"), Ok(vec![]));
        assert_eq!(history.since(last + 1, b""), Ok(vec![]));
    }
}
