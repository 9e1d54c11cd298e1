//! Where a command is executed, in a cluster: here, at another node, at several, or not yet.
//!
//! ```text
//! keys of the command ── route of each ──► all here                      executed as without a cluster
//!                                      ├─► all at one other node         sent there as it came
//!                                      ├─► at several, and it splits     one part for each, replies merged
//!                                      ├─► at several, and it does not   exceptions are brought home first
//!                                      └─► held, and it writes, or between two owners: it waits
//! ```
//! Pure: nothing has happened yet when [`place`] answers, so a command that waits, or that another thread has
//! to execute, is placed again. Called by the dispatch, between who may and the command's function.

mod fan_out;
mod merge;
mod split;
mod transaction;

pub(crate) use fan_out::is_for_all;
pub(crate) use merge::{LIMITS, Merge, is_error};
pub(crate) use split::{Part, Split};
pub(crate) use transaction::{aside_of, check_queued, keys_of, requests_of};

use crate::cluster::{AdminRequest, Cluster, unit_of};
use crate::command::{CommandSpec, Flags, Keys};
use crate::round::{Ways, hash_of};
use crate::session::{Caller, Session};
use std::borrow::Cow;
use terrace_cluster::{CallTarget, Coordinator, NodeId, Placement, Route, ShardId, slot_of};
use terrace_resp::Command;

/// The error by which a node tells another that it does not own a shard, with the revision by which it
/// judges. Between nodes only.
pub(crate) const MOVED: &str = "TERRACEMOVED";

/// The error by which a node says to another that a request would have to wait, and others with it. It is sent
/// again in a call of its own. Between nodes only.
pub(crate) const HELD: &str = "TERRACEHELD";

/// The word before the requests of a call that may wait. Between nodes only.
pub(crate) const PATIENT: &[u8] = b"PATIENT";

/// Redis's words where a command cannot be executed now, but soon.
pub(crate) const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
const STARTING: &str = "CLUSTERDOWN this node has not joined its cluster yet";

/// The word before a command for a whole shard, and its number. Between nodes only.
pub(crate) const ON_SHARD: &[u8] = b"ONSHARD";

/// Where a command is executed.
pub(crate) enum Place {
    /// Here. `true`: only while this node's lease lasts.
    Here(bool),
    /// Nowhere: the error.
    Refused(Cow<'static, str>),
    /// Nowhere: a watched key is not here any more, so `EXEC` answers null.
    Aborted,
    /// Elsewhere.
    Away(Away),
}

/// What has to be done for a command that is not simply executed here.
pub(crate) enum Away {
    /// It is sent as it is.
    Send(CallTarget),
    /// The transaction is sent as a whole.
    Exec(CallTarget),
    /// Its parts are sent, and their replies merged.
    Split(Box<Split>),
    /// It has to wait, and is to be placed again.
    Wait(Await),
}

/// What a command waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Await {
    /// Writes of this key are held.
    Release(Vec<u8>),
    /// This key is elsewhere, the others are not: it is brought home.
    Home(Vec<u8>),
    /// This shard has just lost its owner: the next one.
    Served(ShardId),
    /// The cluster does this, and lays its answer into the session.
    Admin(Box<AdminRequest>),
}

impl Away {
    /// Where the `keys` of the command go, if they go somewhere.
    pub fn ways(&self, keys: &[&[u8]]) -> Ways {
        match self {
            Self::Send(target) | Self::Exec(target) => {
                keys.iter().map(|key| (hash_of(key), *target)).collect()
            }
            Self::Split(split) => split.ways(),
            Self::Wait(_) => Ways::new(),
        }
    }

    /// Whether some of it is sent to this target.
    pub fn goes_to(&self, this: CallTarget) -> bool {
        match self {
            Self::Send(target) | Self::Exec(target) => *target == this,
            Self::Split(split) => split.parts.iter().any(|part| part.target == this),
            Self::Wait(_) => false,
        }
    }
}

impl From<Away> for Place {
    fn from(away: Away) -> Self {
        Self::Away(away)
    }
}

/// The reply by which the sender of a call routes it again.
pub(crate) fn moved_text(coordinator: &dyn Coordinator) -> String {
    format!("{MOVED} {}", coordinator.revision().0)
}

fn refused(text: impl Into<Cow<'static, str>>) -> Place {
    Place::Refused(text.into())
}

/// Where a command is executed.
pub(crate) fn place(
    cluster: &Cluster,
    spec: &CommandSpec,
    args: &Command<'_>,
    session: &Session,
) -> Place {
    if session.caller == Caller::Instance && !session.has_moved {
        return Place::Here(false);
    }
    let Some(coordinator) = cluster.coordinator() else {
        let needs_none = spec.keys == Keys::None && !fan_out::is_for_all(spec.name);
        return if needs_none { Place::Here(false) } else { refused(STARTING) };
    };
    let placing = Placing { cluster, coordinator: &**coordinator, session };
    if session.caller == Caller::Instance {
        return placing.moved();
    }
    if spec.keys == Keys::None {
        return match spec.name {
            "exec" => placing.exec(),
            name if fan_out::is_for_all(name) => placing.for_all(spec, args),
            _ => Place::Here(false),
        };
    }
    if spec.keys == Keys::FirstTwice || changes_database(spec, args, session) {
        return refused(match spec.name {
            "copy" => "ERR Copying to another database is not allowed in cluster mode",
            _ => "ERR MOVE is not allowed in cluster mode",
        });
    }
    if spec.keys.of(args).any(|key| session.is_behind(key)) {
        return refused(HELD);
    }
    let writes = spec.flags.has(Flags::WRITE);
    let mut keys = spec.keys.of(args);
    match (keys.next(), keys.next()) {
        (None, _) => Place::Here(false),
        _ if spec.name == "watch" => placing.watch(spec.keys.of(args).collect()),
        (Some(key), None) => placing.by_route(placing.route(key), key, writes),
        (Some(_), Some(_)) => placing.several(spec, args, writes),
    }
}

/// Whether a key is to be copied to another database.
fn changes_database(spec: &CommandSpec, args: &Command<'_>, session: &Session) -> bool {
    spec.keys.may_be_elsewhere()
        && spec.keys.located(args, session.db).any(|(db, _)| db != session.db)
}

/// What places are found with.
struct Placing<'a> {
    cluster: &'a Cluster,
    coordinator: &'a dyn Coordinator,
    session: &'a Session,
}

impl Placing<'_> {
    fn route(&self, key: &[u8]) -> Route {
        match self.session.has_moved {
            // Nothing is executed behind something that was not.
            true => Route::Owner(self.coordinator.me()),
            false => self.coordinator.route(self.session.db, key),
        }
    }

    /// Where what all goes this way is executed; `key` is one of its keys.
    fn by_route(&self, route: Route, key: &[u8], writes: bool) -> Place {
        match route {
            Route::Local => Place::Here(true),
            Route::Held if !writes => Place::Here(true),
            Route::Held => self.wait_for_key(Await::Release(key.to_vec())),
            Route::Instance(call) => Away::Send(CallTarget::Instance(call)).into(),
            Route::Owner(node) => self.to_owner(node, key),
            Route::Changing(shard) => self.wait_for_owner(shard),
            Route::Unserved(why) => refused(format!("CLUSTERDOWN {why}")),
        }
    }

    /// Of the calls of another node only some wait here; the others are routed again by that one until it sees itself that
    /// the shard has no owner: then they wait there.
    fn wait_for_owner(&self, shard: ShardId) -> Place {
        let is_of_another = self.session.caller == Caller::Owner;
        match is_of_another && !self.cluster.may_wait(self.session.call_bytes) {
            true => self.moved(),
            false => Away::Wait(Await::Served(shard)).into(),
        }
    }

    /// As [`Self::wait_for_owner`], for a key. The call of several clients does not wait in any case: then those of its
    /// requests that need the key come again alone.
    fn wait_for_key(&self, until: Await) -> Place {
        let is_of_another = self.session.caller == Caller::Owner && self.session.is_patient;
        match is_of_another && !self.cluster.may_wait(self.session.call_bytes) {
            true => self.moved(),
            false => Away::Wait(until).into(),
        }
    }

    fn to_owner(&self, node: NodeId, key: &[u8]) -> Place {
        match self.session.caller {
            Caller::Owner => self.moved(),
            Caller::Client if self.cluster.redirects() => {
                self.redirect(node, key).unwrap_or(Away::Send(CallTarget::Owner(node)).into())
            }
            _ => Away::Send(CallTarget::Owner(node)).into(),
        }
    }

    /// Tells another node that this one is not the owner, or has not the key.
    fn moved(&self) -> Place {
        refused(moved_text(self.coordinator))
    }

    /// Tells a client where to go; `None` with ranges, which clients know nothing of.
    fn redirect(&self, node: NodeId, key: &[u8]) -> Option<Place> {
        let topology = self.coordinator.topology()?;
        let there = topology.nodes.get(&node)?;
        (topology.placement == Placement::Slots)
            .then(|| refused(format!("MOVED {} {}", slot_of(key), there.told_address())))
    }

    fn several(&self, spec: &CommandSpec, args: &Command<'_>, writes: bool) -> Place {
        let keys: Vec<&[u8]> = spec.keys.of(args).collect();
        let splits = split::splits(spec.name);
        if !splits && !self.are_together(&keys) {
            return refused(CROSS_SLOT);
        }
        if spec.name == "mset" && args.count().is_multiple_of(2) {
            // A key without a value, which the command refuses.
            return Place::Here(false);
        }
        let routes: Vec<Route> = keys.iter().map(|key| self.route(key)).collect();
        match self.one_place(&keys, &routes, writes) {
            Some(place) => place,
            None if splits => split::by_target(self, spec.name, args, &keys, &routes).into(),
            None => self.gather(&keys, &routes),
        }
    }

    /// Whether keys are in one slot, or shard.
    fn are_together(&self, keys: &[&[u8]]) -> bool {
        let mut units = keys.iter().map(|key| unit_of(self.coordinator, key));
        let first = units.next();
        units.all(|unit| Some(unit) == first)
    }

    /// Where all keys go if they go one way, or if one of them goes nowhere now.
    fn one_place(&self, keys: &[&[u8]], routes: &[Route], writes: bool) -> Option<Place> {
        let is_here = |route: &Route| matches!(route, Route::Local | Route::Held);
        for (key, route) in keys.iter().zip(routes) {
            let stops = match route {
                Route::Unserved(_) | Route::Changing(_) => true,
                Route::Held => writes,
                Route::Owner(_) => self.session.caller == Caller::Owner,
                _ => false,
            };
            if stops {
                return Some(self.by_route(route.clone(), key, writes));
            }
        }
        let (first, key) = (routes.first()?, keys.first()?);
        let are_alike =
            routes.iter().all(|route| route == first || is_here(route) && is_here(first));
        are_alike.then(|| self.by_route(first.clone(), key, writes))
    }

    /// For a command that needs all keys in one place: exceptions are brought home one by one.
    fn gather(&self, keys: &[&[u8]], routes: &[Route]) -> Place {
        let mut both = keys.iter().zip(routes);
        let away = both.find_map(|(key, route)| self.is_exception(key, route).then_some(*key));
        match away {
            Some(key) => self.wait_for_key(Await::Home(key.to_vec())),
            None => refused(TRY_AGAIN),
        }
    }

    /// Whether a key that goes this way is not where its shard is: it may be in the store of this node
    /// while the shard is in another one's.
    fn is_exception(&self, key: &[u8], route: &Route) -> bool {
        let store = match route {
            Route::Instance(call) => call.instance,
            Route::Local => self.coordinator.me(),
            _ => return false,
        };
        let Some(topology) = self.coordinator.topology() else { return false };
        let shard = topology.shards.get(&topology.shard_of(key));
        shard.is_some_and(|shard| shard.instance != store)
    }

    /// Keys can be watched only in the store of this node.
    fn watch(&self, keys: Vec<&[u8]>) -> Place {
        if !self.are_together(&keys) {
            return refused(CROSS_SLOT);
        }
        let routes: Vec<Route> = keys.iter().map(|key| self.route(key)).collect();
        if routes.iter().all(|route| matches!(route, Route::Local | Route::Held)) {
            return Place::Here(true);
        }
        for (key, route) in keys.iter().zip(&routes) {
            match route {
                Route::Instance(_) if self.is_exception(key, route) => {
                    return self.wait_for_key(Await::Home(key.to_vec()));
                }
                Route::Owner(node) => {
                    if let Some(place) = self.redirect(*node, key) {
                        return place;
                    }
                }
                Route::Changing(shard) => return self.wait_for_owner(*shard),
                Route::Unserved(why) => return refused(format!("CLUSTERDOWN {why}")),
                _ => {}
            }
        }
        refused(
            "ERR WATCH is only possible at the node that owns the keys and has them in its store",
        )
    }
}
