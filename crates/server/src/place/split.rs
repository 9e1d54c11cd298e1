//! Commands that are executed key by key: one part for each node that has some of the keys.

use super::merge::Merge;
use super::{Away, Placing};
use crate::round::{Ways, hash_of};
use terrace_cluster::{CallTarget, Route};
use terrace_resp::{Command, write_request};

/// A command in parts.
pub(crate) struct Split {
    /// Each for another node, or in another's name.
    pub parts: Vec<Part>,
    /// Requests that are routed, each for itself, when all parts are executed and none was answered with an error: then
    /// the reply is made of the replies to these.
    pub then: Vec<Vec<u8>>,
    /// What makes one reply of theirs.
    pub merge: Merge,
}

/// A part of a command.
pub(crate) struct Part {
    /// Where it is executed.
    pub target: CallTarget,
    /// Requests in RESP.
    pub requests: Vec<u8>,
    /// How many they are; the reply of the part is that of the last.
    pub replies: u32,
    /// The hashes of its keys.
    pub keys: Vec<u64>,
}

impl Split {
    /// Where each key goes.
    pub fn ways(&self) -> Ways {
        let of_part = |part: &Part| {
            let target = part.target;
            part.keys.iter().map(move |hash| (*hash, target)).collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(of_part).collect()
    }
}

/// Whether a command with several keys is as many commands with one.
pub(super) fn splits(name: &str) -> bool {
    matches!(name, "mget" | "mset" | "del" | "unlink" | "exists" | "touch")
}

/// One part for each target of the routes. Keys that are here go to this node by a call, so that
/// the parts are all alike.
pub(super) fn by_target(
    placing: &Placing<'_>,
    name: &str,
    args: &Command<'_>,
    keys: &[&[u8]],
    routes: &[Route],
) -> Away {
    let here = CallTarget::Owner(placing.coordinator.me());
    let mut groups: Vec<(CallTarget, Vec<usize>)> = Vec::new();
    for (at, route) in routes.iter().enumerate() {
        let target = match route {
            Route::Owner(node) => CallTarget::Owner(*node),
            Route::Instance(call) => CallTarget::Instance(*call),
            Route::Local | Route::Held | Route::Changing(_) | Route::Unserved(_) => here,
        };
        match groups.iter_mut().find(|(known, _)| *known == target) {
            Some((_, places)) => places.push(at),
            None => groups.push((target, vec![at])),
        }
    }
    let part = |(target, places): &(CallTarget, Vec<usize>)| {
        let mut words: Vec<&[u8]> = vec![args.name()];
        for at in places {
            words.push(keys[*at]);
            if name == "mset" {
                words.push(args.get(2 * at + 2).unwrap_or_default());
            }
        }
        let mut requests = Vec::new();
        write_request(&mut requests, &words);
        let keys = places.iter().map(|at| hash_of(keys[*at])).collect();
        Part { target: *target, requests, replies: 1, keys }
    };
    let parts = groups.iter().map(part).collect();
    let merge = match name {
        "mget" => Merge::Places(groups.into_iter().map(|(_, places)| places).collect()),
        "mset" => Merge::AllOk { all: false },
        _ => Merge::Sum { all: false },
    };
    Away::Split(Box::new(Split { parts, then: Vec::new(), merge }))
}
