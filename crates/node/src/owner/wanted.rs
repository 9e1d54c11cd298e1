//! From what is wanted of the keys of a shard to what its mover is to do: of all keys after a plan, of one key after an
//! order for it, and at the end of its move.

use super::Owner;
use std::collections::BTreeSet;
use terrace_cluster::{Assignment, DbKey, Misplaced, MoveId, ShardId, Topology};

impl Owner {
    pub(super) fn place_of(&self, key: &DbKey) -> Option<ShardId> {
        self.owned.keys.read().exceptions.get(key.db, &key.key).map(|it| it.at)
    }

    /// Lets the mover do what is missing of what is wanted: how many keys. Those that are in a move are looked at
    /// again when it is over: where they are then is not known before. Cost: O(n log n) of all keys that are away, or shall be.
    pub(super) fn want(&mut self) -> u64 {
        let topology = self.shared.topology();
        let is_elsewhere = |it: &Assignment| self.is_elsewhere(topology.as_deref(), it.at);
        let part: Vec<Assignment> = self.wishes.assignments().filter(is_elsewhere).collect();
        let mut misplaced = self.owned.keys.read().exceptions.misplaced(&part);
        let count = misplaced.len() as u64;
        let needed: BTreeSet<&DbKey> = self.wishes.needed_at_home().collect();
        misplaced.retain(|it| !needed.contains(&it.key));
        let (busy, misplaced): (Vec<_>, Vec<_>) =
            misplaced.into_iter().partition(|it| self.mover.is_busy(&it.key));
        self.mover.want(misplaced);
        for Misplaced { key, to, .. } in busy {
            if let Some(to) = to {
                self.mover.send_on(key, to);
            }
        }
        for key in needed {
            if let Some(at) = self.place_of(key) {
                self.mover.recall(key.clone(), at);
            }
        }
        count
    }

    /// As [`Self::want`] for one key, whatever the others are. Cost: O(log n).
    pub(super) fn want_one(&mut self, key: &DbKey) {
        let from = self.place_of(key);
        if self.wishes.is_needed_at_home(key) {
            if let Some(at) = from {
                self.mover.recall(key.clone(), at);
            }
            return;
        }
        let topology = self.shared.topology();
        let is_elsewhere = |at: &ShardId| self.is_elsewhere(topology.as_deref(), *at);
        let to = self.wishes.place_of(key).filter(is_elsewhere);
        self.mover.want_one(Misplaced { key: key.clone(), from, to });
    }

    /// Answers the orders of a move that was undone and is not over, as the other instance is away. What is wanted of its keys at a third one
    /// is looked at when it is over.
    pub(super) fn answer_undone(&mut self, id: MoveId) {
        let Some(it) = self.mover.get(id).filter(|it| it.stays_undone()) else { return };
        let (other, keys) = (it.other(), it.keys().to_vec());
        for key in &keys {
            if self.wishes.place_of(key).is_none_or(|to| to == other) {
                let (at, why) = (self.place_of(key), "the other instance does not answer");
                self.wishes.fail(key, at, why);
            }
        }
    }

    /// Whether a shard has another store than this one: what is planned for a shard of the same store is at home.
    fn is_elsewhere(&self, topology: Option<&Topology>, at: ShardId) -> bool {
        let shard = topology.and_then(|topology| topology.shards.get(&at));
        shard.is_none_or(|shard| shard.instance != self.owned.instance)
    }
}
