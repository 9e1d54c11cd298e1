//! The subcommands of `CLUSTER` that Redis does not have, for administrators: arguments and replies. What
//! is done, and where the client waits for it, is said in `cluster/admin.rs`.

use super::{Call, Failure, Outcome};
use crate::cluster::{AdminReply, AdminRequest, ClusterSpec, Repartitioned};
use terrace_cluster::{
    Coordinator, DbKey, MAX_MOVED_KEY_BYTES, MAX_PLAN_KEYS, NodeId, Placement, PlanSpec, ShardId,
};
use terrace_resp::{Aggregate, parse_integer};

/// How many keys each instance is asked for, if it is not said.
const DEFAULT_PLAN_KEYS: usize = 10_000;

/// Which of the two it is, a node that has just begun does not know.
pub(super) const NO_TOPOLOGY: Failure =
    Failure::line("CLUSTERDOWN the cluster was not created yet, or its metadata was not read yet");

/// Whether a subcommand, in lower case, is one of these.
pub(super) fn is_one(name: &[u8]) -> bool {
    matches!(name, b"create" | b"status" | b"movekey" | b"repartition" | b"drain")
}

/// Executes one: the first time it becomes a request, and the client waits; the second time the answer is
/// there.
pub(super) fn run(call: &mut Call<'_>, name: &[u8], coordinator: &dyn Coordinator) -> Outcome {
    if let Some(answer) = call.session.admin.take().and_then(|slot| slot.take()) {
        let reply = answer.map_err(Failure::err)?;
        show(call, reply);
        return Ok(());
    }
    let request = match name {
        b"create" => create(call, coordinator)?,
        b"movekey" => move_key(call, coordinator)?,
        b"repartition" => repartition(call)?,
        b"drain" => drain(call, coordinator)?,
        _ => AdminRequest::Status,
    };
    let cluster = call.server.cluster.as_ref();
    if cluster.and_then(|cluster| cluster.admin()).is_none() {
        return Err(Failure::line(
            "ERR the cluster of this server is not administered by commands",
        ));
    }
    Err(Failure::Admin(Box::new(request)))
}

fn show(call: &mut Call<'_>, reply: AdminReply) {
    match reply {
        AdminReply::Done => call.reply.ok(),
        // Numbers and texts: it can be written.
        AdminReply::Status(status) => {
            call.reply.bulk(serde_json::to_string(&*status).unwrap_or_default());
        }
        AdminReply::Repartition(Repartitioned { plan_keys, moves, failed }) => {
            call.reply.aggregate(Aggregate::Map, 3);
            call.reply.bulk("plan-keys");
            call.reply.integer(i64::try_from(plan_keys).unwrap_or(i64::MAX));
            call.reply.bulk("moves");
            call.reply.integer(i64::try_from(moves).unwrap_or(i64::MAX));
            call.reply.bulk("failed");
            call.reply.array(failed.len());
            failed.iter().for_each(|(node, why)| call.reply.bulk(format!("{node}: {why}")));
        }
    }
}

/// As much of an argument as an error shows.
fn shown(argument: &[u8]) -> String {
    const SHOWN: usize = 64;
    argument[..argument.len().min(SHOWN)].escape_ascii().to_string()
}

/// `CREATE SLOTS | RANGE node [node ...] [BOUNDARIES key ...]`.
fn create(call: &Call<'_>, coordinator: &dyn Coordinator) -> Result<AdminRequest, Failure> {
    if coordinator.topology().is_some() {
        return Err(Failure::line("ERR the cluster exists already"));
    }
    let placement = match &call.arg(2).to_ascii_lowercase()[..] {
        b"slots" => Placement::Slots,
        b"range" => Placement::Range,
        _ => {
            let text = shown(call.arg(2));
            return Err(Failure::err(format_args!(
                "no placement is called '{text}': it is SLOTS or RANGE"
            )));
        }
    };
    let words: Vec<&[u8]> = call.args_from(3).collect();
    let is_word = |word: &&[u8]| word.eq_ignore_ascii_case(b"boundaries");
    let (nodes, boundaries) = match words.iter().position(is_word) {
        Some(at) => (&words[..at], &words[at + 1..]),
        None => (&words[..], &[][..]),
    };
    let nodes = nodes.iter().map(|word| node_id(word)).collect::<Result<Vec<_>, _>>()?;
    let new = ClusterSpec::of(placement, &nodes, boundaries).map_err(Failure::err)?;
    Ok(AdminRequest::Create(new))
}

fn node_id(word: &[u8]) -> Result<NodeId, Failure> {
    let id = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    id.ok_or_else(|| {
        Failure::err(format_args!("'{}' is no node id: it has 40 hexadecimal digits", shown(word)))
    })
}

/// `MOVEKEY key shard | HOME`.
fn move_key(call: &Call<'_>, coordinator: &dyn Coordinator) -> Result<AdminRequest, Failure> {
    let (key, word) = (call.arg(2), call.arg(3));
    if key.len() > MAX_MOVED_KEY_BYTES {
        return Err(Failure::err(format_args!(
            "the key has {} bytes, at most {MAX_MOVED_KEY_BYTES} can be moved",
            key.len()
        )));
    }
    let topology = coordinator.topology();
    let topology = topology.ok_or(NO_TOPOLOGY)?;
    let to = if word.eq_ignore_ascii_case(b"home") {
        None
    } else {
        let id = parse_integer(word).and_then(|id| u32::try_from(id).ok()).map(ShardId);
        let known = id.filter(|id| topology.shards.contains_key(id));
        Some(known.ok_or_else(|| {
            Failure::err(format_args!("the cluster has no shard '{}'", shown(word)))
        })?)
    };
    Ok(AdminRequest::MoveKey { key: DbKey::new(call.db(), key), to })
}

/// `REPARTITION plan [KEYS count]`.
fn repartition(call: &Call<'_>) -> Result<AdminRequest, Failure> {
    let plan = String::from_utf8_lossy(call.arg(2));
    let plan: PlanSpec = plan.parse().map_err(Failure::err)?;
    let keys = match call.count() {
        3 => DEFAULT_PLAN_KEYS,
        5 if call.arg(3).eq_ignore_ascii_case(b"keys") => {
            let keys = usize::try_from(call.integer(4)?).ok();
            keys.filter(|keys| (1..=MAX_PLAN_KEYS).contains(keys)).ok_or_else(|| {
                Failure::err(format_args!("KEYS must be between 1 and {MAX_PLAN_KEYS}"))
            })?
        }
        _ => return Err(Failure::SYNTAX),
    };
    Ok(AdminRequest::Repartition { plan, keys })
}

/// `DRAIN node [OVER]`.
fn drain(call: &Call<'_>, coordinator: &dyn Coordinator) -> Result<AdminRequest, Failure> {
    let is_over = match call.count() {
        3 => false,
        4 if call.arg(3).eq_ignore_ascii_case(b"over") => true,
        _ => return Err(Failure::SYNTAX),
    };
    let node = node_id(call.arg(2))?;
    let topology = coordinator.topology();
    let topology = topology.ok_or(NO_TOPOLOGY)?;
    match topology.nodes.contains_key(&node) {
        true => Ok(AdminRequest::Drain { node, is_over }),
        false => Err(Failure::err(format_args!("the cluster has no node {node}"))),
    }
}
