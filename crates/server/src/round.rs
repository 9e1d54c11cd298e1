//! What a client has on its way to others: one round of requests, until all of them have been answered.
//!
//! Commands of one client on one key are executed in their order only if they go the same way: what goes to
//! another target, or into the loop's batch, may overtake what was sent before. A route can change between two commands of
//! a pipeline, when the move of a key ends. So a command whose key went another way before waits until the
//! round is over. Keys are known by their hashes: two with the same hash are taken for one, and wait without need.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::LazyLock;
use terrace_cluster::CallTarget;
use terrace_resp::Protocol;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// After a round with more keys than this the memory is given back.
const KEPT_KEYS: usize = 1024;

/// Keys of a command, by their hashes, each with where it goes.
pub(crate) type Ways = Vec<(u64, CallTarget)>;

/// Of this process, so that nobody can make keys whose hashes are alike.
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));

/// The hash that a key is known by.
pub(crate) fn hash_of(key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, *SEED)
}

/// Of what is a hash already.
#[derive(Debug, Clone, Copy, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Round {
    is_open: bool,
    comes_back: bool,
    /// Few: those that the client's commands go to. Replies in another protocol are another call.
    targets: Vec<(CallTarget, Protocol)>,
    /// Which of them, by the hash of a key.
    of_key: HashMap<u64, u16, BuildHasherDefault<Hashed>>,
}

impl Round {
    /// Whether replies have yet to come.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether some of it comes back to this node as a call. What else is for this node's store goes the same way,
    /// so as not to overtake it.
    pub(crate) fn comes_back(&self) -> bool {
        self.comes_back
    }

    /// Whether a command on this key is on its way.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        !self.of_key.is_empty() && self.of_key.contains_key(&hash_of(key))
    }

    /// A command is to go to others, its keys these ways. Refused if one of the keys went another way before, or
    /// goes two ways now: then nothing is changed.
    pub(crate) fn send(&mut self, ways: &Ways, protocol: Protocol) -> bool {
        let mut added = Vec::new();
        for (hash, target) in ways {
            let number = self.number_of((*target, protocol));
            match self.of_key.get(hash) {
                Some(known) if *known == number => {}
                Some(_) => {
                    added.iter().for_each(|hash| _ = self.of_key.remove(hash));
                    return false;
                }
                None => {
                    self.of_key.insert(*hash, number);
                    added.push(*hash);
                }
            }
        }
        true
    }

    /// As [`Self::send`], of a command with one key.
    pub(crate) fn send_one(&mut self, key: &[u8], target: CallTarget, protocol: Protocol) -> bool {
        let number = self.number_of((target, protocol));
        *self.of_key.entry(hash_of(key)).or_insert(number) == number
    }

    fn number_of(&mut self, target: (CallTarget, Protocol)) -> u16 {
        let known = self.targets.iter().position(|one| *one == target);
        let at = known.unwrap_or_else(|| {
            self.targets.push(target);
            self.targets.len() - 1
        });
        at as u16
    }

    /// The command is on its way; with `comes_back`, some of it to this node.
    pub(crate) fn open(&mut self, comes_back: bool) {
        self.is_open = true;
        self.comes_back |= comes_back;
    }

    /// Everything has been answered.
    pub(crate) fn end(&mut self) {
        (self.is_open, self.comes_back) = (false, false);
        self.targets.clear();
        match self.of_key.capacity() > KEPT_KEYS {
            true => self.of_key = HashMap::default(),
            false => self.of_key.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_cluster::NodeId;

    fn to(node: u8) -> CallTarget {
        CallTarget::Owner(NodeId([node; 20]))
    }

    #[test]
    fn a_key_goes_one_way_until_everything_is_answered() {
        let [a, b, c] = [b"a", b"b", b"c"].map(|key| hash_of(key));
        let mut round = Round::default();
        assert!(round.send(&vec![(a, to(1)), (b, to(2))], Protocol::Resp2));
        assert!(round.has(b"a") && round.has(b"b") && !round.has(b"c"));
        assert!(round.send(&vec![(a, to(1))], Protocol::Resp2), "the same way");
        assert!(!round.send(&vec![(a, to(2))], Protocol::Resp2), "another target");
        assert!(!round.send(&vec![(a, to(1))], Protocol::Resp3), "another call");
        assert!(!round.send(&vec![(c, to(1)), (b, to(1))], Protocol::Resp2));
        assert!(!round.send(&vec![(c, to(1)), (c, to(2))], Protocol::Resp2), "two ways at once");
        assert!(!round.has(b"c"), "it was not sent");
        assert!(round.send_one(b"a", to(1), Protocol::Resp2), "the same way");
        assert!(!round.send_one(b"a", to(2), Protocol::Resp2), "another target");
        assert!(round.send_one(b"c", to(2), Protocol::Resp2) && round.has(b"c"));
        round.end();
        assert!(!round.has(b"a"));
        assert!(round.send(&vec![(a, to(2))], Protocol::Resp2));
    }
}
