//! `CLUSTER` and what goes with it: the cluster as clients of Redis Cluster see it.
//!
//! Every node is a master without replicas. A slot is shown with its owner; with placement `range` there are
//! none, and clients that know slots cannot be used.

use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome, cluster_admin};
use std::fmt::Write;
use std::sync::Arc;
use terrace_cluster::{Coordinator, KeyRange, Node, NodeId, Route, Shard, Slot, Topology, slot_of};
use terrace_resp::Aggregate;

/// Keys that GETKEYSINSLOT shows at most.
const MAX_KEYS: u64 = 1 << 20;

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    group: Group,
    (arguments, summary): (&'static str, &'static str),
    run: fn(&mut Call<'_>) -> Outcome,
) -> CommandSpec {
    let (keys, complexity, since) = (Keys::None, "O(1)", "3.0.0");
    CommandSpec { name, arity, flags, keys, group, arguments, summary, complexity, since, run }
}

const CONNECTION: Group = Group::Connection;
const ACCEPTED: (&str, &str) =
    ("", "Accepted in a cluster, where every node answers for its own keys; refused without one.");

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    row("readonly", 1, Flags::FAST, CONNECTION, ACCEPTED, accepted),
    row("readwrite", 1, Flags::FAST, CONNECTION, ACCEPTED, accepted),
    row("asking", 1, Flags::FAST, CONNECTION, ACCEPTED, accepted),
    CommandSpec {
        complexity: "O(nodes and ranges); O(keys of the slot) for those in a slot",
        ..row(
            "cluster",
            -2,
            Flags::SUBCOMMANDS,
            Group::Server,
            (
                "INFO | NODES | SLOTS | SHARDS | MYID | LINKS | KEYSLOT key | COUNTKEYSINSLOT slot | \
                 GETKEYSINSLOT slot count | CREATE SLOTS node [node ...] | \
                 CREATE RANGE node [node ...] BOUNDARIES key [key ...] | STATUS | \
                 MOVEKEY key shard | MOVEKEY key HOME | REPARTITION plan [KEYS count] | \
                 DRAIN node [OVER]",
                "Tells about the cluster, and changes it; refused without one.",
            ),
            cluster,
        )
    },
];

fn coordinator(call: &Call<'_>) -> Result<Arc<dyn Coordinator>, Failure> {
    let cluster = call.server.cluster.as_ref();
    let cluster = cluster.ok_or(Failure::line("ERR This instance has cluster support disabled"))?;
    let joined = cluster.coordinator().cloned();
    joined.ok_or(Failure::line("CLUSTERDOWN this node has not joined its cluster yet"))
}

fn accepted(call: &mut Call<'_>) -> Outcome {
    coordinator(call)?;
    call.reply.ok();
    Ok(())
}

fn cluster(call: &mut Call<'_>) -> Outcome {
    let coordinator = coordinator(call)?;
    let me = coordinator.me();
    let topology = || {
        let topology = coordinator.topology();
        topology.ok_or(cluster_admin::NO_TOPOLOGY)
    };
    let name = call.arg(1).to_ascii_lowercase();
    if cluster_admin::is_one(&name) {
        return cluster_admin::run(call, &name, &*coordinator);
    }
    match &name[..] {
        b"myid" => call.reply.bulk(me.to_string()),
        b"keyslot" => call.reply.integer(i64::from(slot_of(call.arg(2)).number())),
        b"info" => {
            let page = info(&*coordinator);
            call.reply.verbatim(*b"txt", page);
        }
        b"nodes" => {
            let page = nodes(&*topology()?, me);
            call.reply.verbatim(*b"txt", page);
        }
        b"slots" => slots(call, &*topology()?),
        b"shards" => shards(call, &*topology()?),
        b"links" => links(call, &*topology()?, me),
        b"countkeysinslot" => {
            let slot = slot_argument(call)?;
            let mut count = 0;
            in_slot(call, slot, |_| {
                count += 1;
                true
            })?;
            call.reply.integer(count);
        }
        b"getkeysinslot" => {
            let slot = slot_argument(call)?;
            let wanted = u64::try_from(call.integer(3)?);
            let most = wanted.map_err(|_| Failure::line("ERR Invalid number of keys"))?;
            let mut keys = Vec::new();
            let most = most.min(MAX_KEYS) as usize;
            in_slot(call, slot, |key| {
                keys.extend((keys.len() < most).then(|| key.to_vec()));
                keys.len() < most
            })?;
            call.reply.array(keys.len());
            keys.iter().for_each(|key| call.reply.bulk(key));
        }
        _ => return Err(Failure::err("slots and nodes are changed with `terrace cluster`")),
    }
    Ok(())
}

fn slot_argument(call: &Call<'_>) -> Result<Slot, Failure> {
    let number = u16::try_from(call.integer(2)?).ok();
    number.and_then(Slot::new).ok_or(Failure::line("ERR Invalid slot"))
}

/// Shows the keys of a slot that are in this node's store.
fn in_slot(call: &mut Call<'_>, slot: Slot, mut show: impl FnMut(&[u8]) -> bool) -> Outcome {
    if call.batch.mode() == terrace_keyspace::Mode::Memory {
        return Err(Failure::Elsewhere(terrace_keyspace::Wait::Device));
    }
    call.batch.walk_slot(call.session.db, slot, |seen| show(seen.key))?;
    Ok(())
}

/// Slots of a node, with both ends, in order and joined.
fn ranges_of(topology: &Topology, node: NodeId) -> Vec<(u16, u16)> {
    let is_owner = |shard: &&terrace_cluster::Shard| {
        shard.owner.map_or(shard.instance, |owner| owner.node) == node
    };
    let ranges = topology.shards.values().filter(is_owner).flat_map(|shard| &shard.ranges);
    let mut all: Vec<(u16, u16)> = ranges
        .filter_map(|range| match range {
            KeyRange::Slots(first, last) => Some((*first, *last)),
            KeyRange::Keys { .. } => None,
        })
        .collect();
    all.sort_unstable();
    let mut joined: Vec<(u16, u16)> = Vec::new();
    for (first, last) in all {
        match joined.last_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => joined.push((first, last)),
        }
    }
    joined
}

fn host_and_port(address: &str) -> (&str, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    (host.trim_matches(['[', ']']), port.parse().unwrap_or(0))
}

/// How many slots a shard has.
fn slots_of(shard: &Shard) -> u64 {
    let ranges = shard.ranges.iter().map(|range| match range {
        KeyRange::Slots(first, last) => u64::from(last - first) + 1,
        KeyRange::Keys { .. } => 0,
    });
    ranges.sum()
}

/// The page of `CLUSTER INFO`. A shard counts as served if commands on it would be routed now, so the state is `ok` exactly
/// if none would be refused, or wait, for want of an owner.
pub(super) fn info(coordinator: &dyn Coordinator) -> String {
    let (me, topology) = (coordinator.me(), coordinator.topology());
    let mut page = String::new();
    let mut line = |name: &str, value: u64| {
        // Writing to a string does not fail.
        let _ = write!(page, "cluster_{name}:{value}\r\n");
    };
    let shards: Vec<&Shard> =
        topology.iter().flat_map(|topology| topology.shards.values()).collect();
    let is_served = |shard: &&&Shard| {
        let route = coordinator.route_shard(shard.id);
        !matches!(route, Route::Unserved(_) | Route::Changing(_))
    };
    let served: Vec<&&Shard> = shards.iter().filter(is_served).collect();
    let served_slots = served.iter().map(|shard| slots_of(shard)).sum();
    let is_ok = topology.is_some() && served.len() == shards.len();
    let owners: Vec<_> = shards.iter().filter_map(|shard| shard.owner).collect();
    let epoch = |of: Option<NodeId>| {
        let owned = owners.iter().filter(|owner| of.is_none_or(|node| owner.node == node));
        owned.map(|owner| owner.epoch.0).max().unwrap_or(0)
    };
    line("slots_assigned", served_slots);
    line("slots_ok", served_slots);
    line("slots_pfail", 0);
    line("slots_fail", 0);
    line("known_nodes", topology.as_ref().map_or(0, |topology| topology.nodes.len() as u64));
    line("size", shards.len() as u64);
    line("current_epoch", epoch(None));
    line("my_epoch", epoch(Some(me)));
    let state = if is_ok { "ok" } else { "fail" };
    format!("cluster_enabled:1\r\ncluster_state:{state}\r\n{page}")
}

fn nodes(topology: &Topology, me: NodeId) -> String {
    let mut page = String::new();
    for node in topology.nodes.values() {
        let epoch = topology.shards.values().filter_map(|shard| shard.owner);
        let epoch = epoch.filter(|owner| owner.node == node.id).map(|owner| owner.epoch.0).max();
        let myself = if node.id == me { "myself," } else { "" };
        let (state, link) = match node.is_alive {
            true => ("master", "connected"),
            false => ("master,fail", "disconnected"),
        };
        let (_, bus) = host_and_port(&node.rpc_address);
        let _ = write!(
            page,
            "{} {}@{bus} {myself}{state} - 0 0 {} {link}",
            node.id,
            node.told_address(),
            epoch.unwrap_or(0)
        );
        for (first, last) in ranges_of(topology, node.id) {
            let _ = match first == last {
                true => write!(page, " {first}"),
                false => write!(page, " {first}-{last}"),
            };
        }
        page.push('\n');
    }
    page
}

fn slots(call: &mut Call<'_>, topology: &Topology) {
    let rows: Vec<(&Node, (u16, u16))> = topology
        .nodes
        .values()
        .flat_map(|node| ranges_of(topology, node.id).into_iter().map(move |one| (node, one)))
        .collect();
    call.reply.array(rows.len());
    for (node, (first, last)) in rows {
        let (host, port) = host_and_port(&node.redis_address);
        call.reply.array(3);
        call.reply.integer(i64::from(first));
        call.reply.integer(i64::from(last));
        call.reply.array(4);
        call.reply.bulk(host);
        call.reply.integer(i64::from(port));
        call.reply.bulk(node.id.to_string());
        call.reply.array(0);
    }
}

fn shards(call: &mut Call<'_>, topology: &Topology) {
    let mut rows: Vec<(&Node, Vec<(u16, u16)>)> =
        topology.nodes.values().map(|node| (node, ranges_of(topology, node.id))).collect();
    rows.retain(|(node, ranges)| node.is_alive || !ranges.is_empty());
    call.reply.array(rows.len());
    for (node, ranges) in rows {
        let (host, port) = host_and_port(&node.redis_address);
        let reply = &mut call.reply;
        reply.aggregate(Aggregate::Map, 2);
        reply.bulk("slots");
        reply.array(2 * ranges.len());
        for (first, last) in ranges {
            reply.integer(i64::from(first));
            reply.integer(i64::from(last));
        }
        reply.bulk("nodes");
        reply.array(1);
        reply.aggregate(Aggregate::Map, 7);
        let id = node.id.to_string();
        let health = if node.is_alive { "online" } else { "fail" };
        for (name, value) in [("id", &id[..]), ("ip", host), ("endpoint", host)] {
            reply.bulk(name);
            reply.bulk(value);
        }
        reply.bulk("port");
        reply.integer(i64::from(port));
        for (name, value) in [("role", "master"), ("health", health)] {
            reply.bulk(name);
            reply.bulk(value);
        }
        reply.bulk("replication-offset");
        reply.integer(0);
    }
}

/// One link to each other node that lives.
fn links(call: &mut Call<'_>, topology: &Topology, me: NodeId) {
    let others: Vec<&Node> =
        topology.nodes.values().filter(|node| node.is_alive && node.id != me).collect();
    call.reply.array(others.len());
    for node in others {
        call.reply.aggregate(Aggregate::Map, 2);
        call.reply.bulk("direction");
        call.reply.bulk("to");
        call.reply.bulk("node");
        call.reply.bulk(node.id.to_string());
    }
}
