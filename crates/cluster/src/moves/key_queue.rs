//! Keys that wait for their move, each once: the first one goes first, and any of them can be taken away.

use crate::key::DbKey;
use std::collections::{BTreeMap, HashMap};

/// See the module. What is done with one key takes O(log n).
#[derive(Debug, Clone, Default)]
pub(super) struct KeyQueue {
    /// By tickets, which grow.
    keys: BTreeMap<u64, DbKey>,
    tickets: HashMap<DbKey, u64>,
    next_ticket: u64,
}

impl KeyQueue {
    /// How many wait.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// A key waits as the last one; if it does already, where it is.
    pub fn push_back(&mut self, key: DbKey) {
        if self.tickets.contains_key(&key) {
            return;
        }
        self.tickets.insert(key.clone(), self.next_ticket);
        self.keys.insert(self.next_ticket, key);
        self.next_ticket += 1;
    }

    /// The first one.
    pub fn front(&self) -> Option<&DbKey> {
        self.keys.first_key_value().map(|(_, key)| key)
    }

    /// The first one, which waits no longer.
    pub fn pop_front(&mut self) -> Option<DbKey> {
        let (_, key) = self.keys.pop_first()?;
        self.tickets.remove(&key);
        Some(key)
    }

    /// A key waits no longer.
    pub fn remove(&mut self, key: &DbKey) {
        if let Some(ticket) = self.tickets.remove(key) {
            self.keys.remove(&ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_wait_once_in_their_order_until_they_are_taken_away() {
        let key = |name: &str| DbKey::new(0, name);
        let mut queue = KeyQueue::default();
        ["a", "b", "c", "a", "d"].iter().for_each(|name| queue.push_back(key(name)));
        assert_eq!((queue.count(), queue.front()), (4, Some(&key("a"))));
        queue.remove(&key("b"));
        queue.remove(&key("in no queue"));
        assert_eq!(queue.pop_front(), Some(key("a")));
        // Behind the others.
        queue.push_back(key("a"));
        let rest: Vec<DbKey> = std::iter::from_fn(|| queue.pop_front()).collect();
        assert_eq!(rest, ["c", "d", "a"].map(key));
        assert!(queue.is_empty() && queue.front().is_none());
    }
}
