//! Whether this node's store has the part of the key space that the metadata say. If not, the cluster was created
//! again with its nodes in another order: the store is used in the name of no shard, since its keys would not be found,
//! and what it keeps for other shards would be taken for left behind. Nor is one that has keys of no cluster, some of
//! which are not of the part that it would get.

use crate::part::Part;
use crate::store::StoreError;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_cluster::{DbKey, NodeId, Topology};

/// See the module.
pub(crate) struct PartCheck {
    me: NodeId,
    state: Mutex<State>,
    /// The answer is [`Answer::Refused`].
    is_refused: AtomicBool,
    /// The store remembers no part, and it is not known that it has none.
    is_unsettled: AtomicBool,
}

struct State {
    /// What the store remembers.
    known: Option<Part>,
    /// What the latest metadata say that it has; not known before there were any.
    wanted: Option<Option<Part>>,
    /// It remembers no part, and has this key, which is not of that one.
    stray: Option<(Part, DbKey)>,
    answer: Answer,
}

enum Answer {
    /// No topology was seen yet.
    Unknown,
    /// The store has what the metadata say, which is this, or remembers nothing.
    Fits(Option<Part>),
    Refused(String),
}

/// Why a store does not get a part: it has a key that is not of it.
pub(crate) fn stray_text(part: &Part, key: &DbKey) -> String {
    const SHOWN: usize = 64;
    let shown = key.key[..key.key.len().min(SHOWN)].escape_ascii();
    format!(
        "its store has keys of before it was in a cluster that would not be found in this one, such as \"{shown}\" in \
         database {}; it would have {} in database 0",
        key.db,
        part.describe()
    )
}

impl State {
    fn judge(&self) -> Answer {
        let Some(wanted) = &self.wanted else { return Answer::Unknown };
        match (&self.known, wanted, &self.stray) {
            (Some(known), _, _) if wanted.as_ref() != Some(known) => {
                let wanted = wanted.as_ref().map_or("none".into(), |wanted| wanted.describe());
                Answer::Refused(format!(
                    "its store has {}, and the metadata give it {wanted}: the cluster was created again in another \
                     order; its metadata must be removed, and it be created in the order that fits",
                    known.describe()
                ))
            }
            (None, Some(part), Some((of, key))) if part == of => {
                Answer::Refused(stray_text(part, key))
            }
            _ => Answer::Fits(wanted.clone()),
        }
    }
}

impl PartCheck {
    /// Of the store of node `me`, that remembers `known`.
    pub fn new(me: NodeId, known: Option<Part>) -> Self {
        let is_unsettled = AtomicBool::new(known.is_none());
        let state = State { known, wanted: None, stray: None, answer: Answer::Unknown };
        let state = Mutex::new(state);
        Self { me, state, is_refused: AtomicBool::new(false), is_unsettled }
    }

    /// What the store remembers.
    pub fn known(&self) -> Option<Part> {
        self.state.lock().known.clone()
    }

    /// The latest metadata. A contradiction is logged when it is first seen.
    pub fn see(&self, topology: &Topology) {
        let wanted = Part::in_topology(topology, self.me);
        let mut state = self.state.lock();
        state.wanted = Some(wanted);
        self.judge(&mut state);
    }

    /// Something is known that was not, or has changed.
    fn judge(&self, state: &mut State) {
        let answer = state.judge();
        if let Answer::Refused(why) = &answer
            && !matches!(&state.answer, Answer::Refused(before) if before == why)
        {
            tracing::error!("node {} serves no shard: {why}", self.me);
        }
        // A node that is no instance has nothing to remember.
        let is_unsettled = state.known.is_none() && !matches!(answer, Answer::Fits(None));
        self.is_unsettled.store(is_unsettled, Ordering::Release);
        // Release: who sees that it is refused no more sees the answer.
        self.is_refused.store(matches!(answer, Answer::Refused(_)), Ordering::Release);
        state.answer = answer;
    }

    /// Whether the store is used in the name of no shard.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }

    /// Why it is.
    pub fn refusal(&self) -> Option<String> {
        match &self.state.lock().answer {
            Answer::Refused(why) => Some(why.clone()),
            Answer::Unknown | Answer::Fits(_) => None,
        }
    }

    /// Whether the store is used in the name of no shard before [`Self::settle`] has made it remember its part.
    pub fn is_unsettled(&self) -> bool {
        self.is_unsettled.load(Ordering::Acquire)
    }

    /// Before the store is used in the name of a shard in a new term: has `remember` store its part durably, if it
    /// remembers none; or say which key the store has that is not of it.
    ///
    /// # Errors
    /// The store has another part, or such a key, or that is not known yet; or `remember` fails.
    pub fn settle(
        &self,
        remember: impl FnOnce(&Part) -> Result<Option<DbKey>, StoreError>,
    ) -> Result<(), StoreError> {
        let wanted = match &*self.state.lock() {
            State { answer: Answer::Unknown, .. } => {
                return Err(StoreError("there is no topology yet".into()));
            }
            State { answer: Answer::Refused(why), .. } => return Err(StoreError(why.clone())),
            State { known: None, answer: Answer::Fits(Some(wanted)), .. } => wanted.clone(),
            State { answer: Answer::Fits(_), .. } => return Ok(()),
        };
        // Not locked: it waits for the device, and calls of clients ask meanwhile. One fence at a time is here.
        let stray = remember(&wanted)?;
        let mut state = self.state.lock();
        match stray {
            Some(key) => state.stray = Some((wanted, key)),
            None => state.known = Some(wanted),
        }
        // The metadata may say something else meanwhile.
        self.judge(&mut state);
        match &state.answer {
            Answer::Refused(why) => Err(StoreError(why.clone())),
            _ if state.known.is_none() => Err(StoreError("the metadata have just changed".into())),
            Answer::Unknown | Answer::Fits(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_cluster::{KeyRange, Node, Placement, Revision, Shard, ShardId};

    fn topology(order: [u8; 2]) -> Topology {
        let nodes = [1, 2, 3].map(|number| Node {
            id: NodeId([number; 20]),
            redis_address: String::new(),
            rpc_address: String::new(),
            is_alive: true,
        });
        let ranges = [KeyRange::Slots(0, 99), KeyRange::Slots(100, 16_383)];
        let shards = [0, 1].map(|at| Shard {
            id: ShardId(at as u32 + 1),
            instance: NodeId([order[at]; 20]),
            owner: None,
            ranges: vec![ranges[at].clone()],
        });
        Topology::new(Revision(1), Placement::Slots, nodes, shards).unwrap()
    }

    #[test]
    fn a_part_is_remembered_once_and_another_one_is_refused() {
        let me = NodeId([1; 20]);
        let fresh = PartCheck::new(me, None);
        let never = |_: &Part| panic!("nothing to remember");
        assert!(fresh.settle(never).is_err(), "no topology");
        fresh.see(&topology([1, 2]));
        assert!(fresh.settle(|_| Err(StoreError("full".into()))).is_err());
        assert_eq!(fresh.known(), None, "it is not durable");
        assert!(fresh.is_unsettled());
        let mut stored = None;
        let write = |part: &Part| {
            stored = Some(part.clone());
            Ok(None)
        };
        fresh.settle(write).unwrap();
        fresh.settle(never).unwrap();
        assert_eq!((fresh.known(), fresh.refusal()), (stored.clone(), None));
        assert!(!fresh.is_unsettled());

        let again = PartCheck::new(me, stored);
        assert!(!again.is_unsettled());
        for order in [[2, 1], [2, 3]] {
            again.see(&topology(order));
            assert!(again.is_refused());
            let why = again.settle(never).unwrap_err().to_string();
            assert!(why.contains("slots 0-99 as shard 1"), "{why}");
        }
        again.see(&topology([1, 3]));
        again.settle(never).unwrap();
        assert!(!again.is_refused() && again.refusal().is_none());
        // A node that is no instance has nothing, and may become one of a cluster that is made later.
        let other = PartCheck::new(NodeId([3; 20]), None);
        assert!(other.is_unsettled());
        other.see(&topology([1, 2]));
        other.settle(never).unwrap();
        assert!(!other.is_unsettled(), "it would be settled again and again");
    }

    #[test]
    fn metadata_that_change_while_a_part_is_remembered_are_seen() {
        let check = PartCheck::new(NodeId([1; 20]), None);
        check.see(&topology([1, 2]));
        let settled = check.settle(|_| {
            check.see(&topology([2, 1]));
            Ok(None)
        });
        assert!(settled.is_err() && check.is_refused(), "{settled:?}");
        check.see(&topology([1, 2]));
        assert!(!check.is_refused());
    }

    /// The keys of a server that was in no cluster, of which the others are to be found as well.
    #[test]
    fn a_store_with_a_key_that_is_not_of_its_part_is_refused() {
        let check = PartCheck::new(NodeId([1; 20]), None);
        check.see(&topology([1, 2]));
        let stray = |_: &Part| Ok(Some(DbKey::new(3, [b'k'; 1000])));
        for _ in 0..2 {
            let why = check.settle(stray).unwrap_err().to_string();
            assert!(why.contains("database 3; it would have slots 0-99 as shard 1"), "{why}");
            assert!(why.len() < 400 && check.is_refused() && check.known().is_none());
        }
        // Another part may be one that it is of.
        check.see(&topology([2, 1]));
        assert!(!check.is_refused() && check.is_unsettled());
        check.settle(|_| Ok(None)).unwrap();
        assert!(check.known().unwrap().describe().contains("as shard 2"));
    }

    #[test]
    fn a_stray_key_of_a_part_that_is_not_wanted_any_more_settles_nothing() {
        let check = PartCheck::new(NodeId([1; 20]), None);
        check.see(&topology([1, 2]));
        let settled = check.settle(|_| {
            check.see(&topology([2, 1]));
            Ok(Some(DbKey::new(0, "k")))
        });
        assert!(settled.is_err() && !check.is_refused() && check.is_unsettled());
    }
}
