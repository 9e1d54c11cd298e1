//! Commands on the whole database: one part for each store of the cluster.
//!
//! A part goes to the owner of a shard of the store, with the shard before the command
//! ([`super::ON_SHARD`]); every key is in exactly one store. The parts are not of one moment, and a key
//! that is moved meanwhile may be seen twice, or not at all. A flush has two rounds
//! (`terrace_cluster::Flushes`), and no key outlives it.

use super::merge::Merge;
use super::split::{Part, Split};
use super::{Away, ON_SHARD, Place, Placing, refused};
use crate::command::{ANNOUNCE, CommandSpec, EXECUTE, is_flush_option};
use crate::session::Caller;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use terrace_cluster::{CallTarget, FlushId, Route, ShardId, Topology, Unserved};
use terrace_resp::{Command, parse_integer, write_request};

/// Stores that cursors can tell from one another.
const MAX_STORES: u64 = 1024;

/// Whether a command without keys is one on all of them.
pub(crate) fn is_for_all(name: &str) -> bool {
    matches!(name, "scan" | "tscan" | "keys" | "dbsize" | "randomkey" | "flushdb" | "flushall")
}

/// One shard of each store, in the order of shards.
fn shards_of_stores(topology: &Topology) -> Vec<ShardId> {
    let mut seen = BTreeSet::new();
    topology.shards.values().filter(|shard| seen.insert(shard.instance)).map(|one| one.id).collect()
}

impl Placing<'_> {
    /// Where a command on the whole database is executed.
    pub(super) fn for_all(&self, spec: &CommandSpec, args: &Command<'_>) -> Place {
        if let Some(shard) = self.session.shard {
            return self.on_shard(shard, args);
        }
        let Some(topology) = self.coordinator.topology() else {
            return refused(format!("CLUSTERDOWN {}", Unserved::NoTopology));
        };
        let shards = shards_of_stores(&topology);
        let is_alone = shards.len() == 1;
        if is_alone && self.coordinator.route_shard(shards[0]) == Route::Local {
            return Place::Here(true);
        }
        if spec.check_form(args).is_err() {
            // The command says what is wrong.
            return Place::Here(false);
        }
        let words: Vec<&[u8]> = args.iter().collect();
        let merge = match spec.name {
            "scan" => return self.scan(&shards, words),
            "tscan" => Merge::Sorted { shape: tscan_shape(&words) },
            "keys" => Merge::Concatenated,
            "dbsize" => Merge::Sum { all: true },
            "randomkey" => Merge::Any,
            _ if args.iter().skip(1).all(is_flush_option) => {
                return self.flush(&shards, spec.name).unwrap_or_else(|place| place);
            }
            // The command says what is wrong.
            _ => return Place::Here(false),
        };
        match self.parts_on(&shards, &words) {
            Ok(parts) => Away::Split(Box::new(Split { parts, then: Vec::new(), merge })).into(),
            Err(place) => place,
        }
    }

    /// Both rounds of a flush of all stores.
    fn flush(&self, shards: &[ShardId], name: &str) -> Result<Place, Place> {
        // Another one each time.
        let id = FlushId(RandomState::new().build_hasher().finish()).to_string();
        let parts = self.parts_on(shards, &[name.as_bytes(), ANNOUNCE, id.as_bytes()])?;
        let execute =
            |shard: &ShardId| on_shard(*shard, &[name.as_bytes(), EXECUTE, id.as_bytes()]);
        let then = shards.iter().map(execute).collect();
        Ok(Away::Split(Box::new(Split { parts, then, merge: Merge::AllOk { all: true } })).into())
    }

    fn parts_on(&self, shards: &[ShardId], words: &[&[u8]]) -> Result<Vec<Part>, Place> {
        shards.iter().map(|shard| self.part_on(*shard, words)).collect()
    }

    /// A command for a whole shard, of which this node is the owner to the mind of another.
    fn on_shard(&self, shard: ShardId, args: &Command<'_>) -> Place {
        match self.coordinator.route_shard(shard) {
            _ if self.session.has_moved => self.moved(),
            Route::Local | Route::Held => Place::Here(true),
            Route::Owner(_) if self.session.caller == Caller::Owner => self.moved(),
            // With the shard's number: an instance that does not take it gives it back to be routed again.
            Route::Owner(_) | Route::Instance(_) => {
                match self.part_on(shard, &args.iter().collect::<Vec<_>>()) {
                    Ok(part) => {
                        let (parts, then) = (vec![part], Vec::new());
                        Away::Split(Box::new(Split { parts, then, merge: Merge::Only })).into()
                    }
                    Err(place) => place,
                }
            }
            Route::Changing(shard) => self.wait_for_owner(shard),
            Route::Unserved(why) => refused(format!("CLUSTERDOWN {why}")),
        }
    }

    /// The part of a command for the store of a shard.
    fn part_on(&self, shard: ShardId, words: &[&[u8]]) -> Result<Part, Place> {
        // Also to an instance: if it does not take the call, this is routed again as what it is.
        let requests = on_shard(shard, words);
        let target = match self.coordinator.route_shard(shard) {
            Route::Local | Route::Held => CallTarget::Owner(self.coordinator.me()),
            Route::Owner(node) if self.session.caller != Caller::Owner => CallTarget::Owner(node),
            Route::Owner(_) => return Err(self.moved()),
            Route::Instance(call) => CallTarget::Instance(call),
            Route::Changing(shard) => return Err(self.wait_for_owner(shard)),
            Route::Unserved(why) => return Err(refused(format!("CLUSTERDOWN {why}"))),
        };
        Ok(Part { target, requests, replies: 1, keys: Vec::new() })
    }

    /// The cursor carries which store it is of: it is that of the store times [`MAX_STORES`], plus the
    /// store's place. Of one store it is that of the store: its owner, which executes the command without this, gives the
    /// same. How many stores a cluster has never changes.
    fn scan(&self, shards: &[ShardId], words: Vec<&[u8]>) -> Place {
        let Some(cursor) = words.get(1).and_then(|word| parse_cursor(word)) else {
            return refused("ERR invalid cursor");
        };
        let stores = if shards.len() == 1 { 1 } else { MAX_STORES };
        let (at, inner) = ((cursor % stores) as usize, (cursor / stores).to_string());
        let Some(shard) = shards.get(at) else { return refused("ERR invalid cursor") };
        let words: Vec<&[u8]> =
            [words[0], inner.as_bytes()].into_iter().chain(words.into_iter().skip(2)).collect();
        let next = (at + 1 < shards.len()).then_some(at as u64 + 1);
        let merge = Merge::Page { at: at as u64, next, stores };
        match self.part_on(*shard, &words) {
            Ok(part) => {
                Away::Split(Box::new(Split { parts: vec![part], then: Vec::new(), merge })).into()
            }
            Err(place) => place,
        }
    }
}

/// A command for a whole shard.
fn on_shard(shard: ShardId, words: &[&[u8]]) -> Vec<u8> {
    let (number, mut request) = (shard.to_string(), Vec::new());
    write_request(&mut request, &[&[ON_SHARD, number.as_bytes()], words].concat());
    request
}

fn parse_cursor(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// What a `TSCAN` shows: keys alone or with values, and at most how many.
fn tscan_shape(words: &[&[u8]]) -> (bool, usize) {
    let (mut keys_only, mut limit) = (false, crate::command::TSCAN_LIMIT as usize);
    let mut options = words.iter().skip(3);
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"keys") {
            keys_only = true;
        } else if let Some(given) = options.next().and_then(|word| parse_integer(word)) {
            limit = usize::try_from(given).unwrap_or(limit);
        }
    }
    (keys_only, limit)
}
