//! `terrace cluster`: makes a cluster, and changes it while it runs. But for `up`, which starts nodes, all of it
//! are commands of the Redis protocol to any node.

mod create;
mod show;
mod up;

use crate::cluster_client::{ClusterClient, Login};
use crate::outcome::Outcome;
use crate::standard_output;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use terrace_resp::Reply;
use terrace_server::cluster::ClusterStatus;

/// Arguments of `cluster`.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    login: Login,
}

/// Which node is asked.
#[derive(Debug, clap::Args)]
struct At {
    /// Any node of the cluster
    #[arg(long = "at", value_name = "HOST:PORT", default_value = "127.0.0.1:7000")]
    address: String,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Start several nodes in this process, and make a cluster of them
    Up(up::UpArgs),
    /// Make a cluster of nodes that were started with `terrace serve` and wait
    Create(create::CreateArgs),
    /// Show nodes and shards
    Status {
        #[command(flatten)]
        at: At,
        /// As CLUSTER STATUS gives it
        #[arg(long)]
        json: bool,
    },
    /// Move a key to the instance of a shard, or home
    Move {
        /// The key
        #[arg(allow_negative_numbers = true)]
        key: OsString,
        /// Number of the shard, or `home`
        to: String,
        #[command(flatten)]
        at: At,
    },
    /// Count which keys are written most, and move them by a plan
    Repartition {
        /// top-n-to-one:KEYS, top-n-to-one:KEYS:SHARD, top-n-tiered:KEYS,KEYS,..., or absorb
        plan: String,
        /// How many keys each instance is asked for [default: 10000]
        #[arg(long, value_name = "COUNT")]
        keys: Option<u64>,
        #[command(flatten)]
        at: At,
    },
    /// Take all shards away from a node that has too much to do; others use its store as long as it runs
    Drain {
        /// Its id, the beginning of its id, or HOST:PORT as clients reach it
        node: String,
        /// Let it own shards again
        #[arg(long)]
        over: bool,
        #[command(flatten)]
        at: At,
    },
}

impl ClusterArgs {
    /// Whether it runs servers.
    pub fn is_server(&self) -> bool {
        matches!(self.action, Action::Up(_))
    }
}

/// Does what was asked for, and tells what it was.
pub fn run(args: &ClusterArgs, verbose: u8) -> Result<Outcome> {
    let connect = |at: &At| ClusterClient::connect(&at.address, &args.login);
    match &args.action {
        Action::Up(up) => up::run(up, &args.login, verbose),
        Action::Create(create) => create::run(create, &args.login),
        Action::Status { at, json } => {
            let mut node = connect(at)?;
            let mut out = standard_output::read_or_not();
            let (text, status) = node.status_with_text()?;
            match json {
                true => writeln!(out, "{text}")?,
                false => write!(out, "{}", show::page(&status))?,
            }
            Ok(if status.is_served { Outcome::Done } else { Outcome::Negative })
        }
        Action::Move { key, to, at } => {
            let key = key.as_bytes();
            connect(at)?.call(&[b"CLUSTER", b"MOVEKEY", key, to.as_bytes()])?;
            writeln!(standard_output::until_unread(), "moved \"{}\" to {to}", key.escape_ascii())?;
            Ok(Outcome::Done)
        }
        Action::Repartition { plan, keys, at } => repartition(&mut connect(at)?, plan, *keys),
        Action::Drain { node, over, at } => drain(&mut connect(at)?, node, *over),
    }
}

fn repartition(node: &mut ClusterClient, plan: &str, keys: Option<u64>) -> Result<Outcome> {
    let mut request = vec!["CLUSTER".to_string(), "REPARTITION".into(), plan.into()];
    if let Some(keys) = keys {
        request.extend(["KEYS".into(), keys.to_string()]);
    }
    let reply = node.call(&request)?;
    let Reply::Array(fields) = &reply else { bail!("unexpected reply {reply:?}") };
    let field = |wanted: &str| {
        let pairs = fields.chunks_exact(2);
        let mut found = pairs.filter_map(|pair| match pair {
            [Reply::Bulk(name), value] if **name == *wanted.as_bytes() => Some(value),
            _ => None,
        });
        found.next()
    };
    let number = |name: &str| match field(name) {
        Some(Reply::Integer(number)) => *number,
        _ => 0,
    };
    let mut out = standard_output::read_or_not();
    writeln!(
        out,
        "the plan has {} keys away from home; {} are being moved",
        number("plan-keys"),
        number("moves")
    )?;
    if number("plan-keys") == 0 && number("moves") == 0 {
        writeln!(
            out,
            "too little was written, or too evenly: after more writes there may be something to plan with"
        )?;
    }
    let failed = match field("failed") {
        Some(Reply::Array(failed)) => &failed[..],
        _ => &[],
    };
    for one in failed {
        if let Reply::Bulk(text) = one {
            writeln!(out, "not taken by node {}", String::from_utf8_lossy(text))?;
        }
    }
    Ok(if failed.is_empty() { Outcome::Done } else { Outcome::Partial })
}

fn drain(node: &mut ClusterClient, wanted: &str, is_over: bool) -> Result<Outcome> {
    let id = node_id(&node.status()?, wanted)?;
    let mut request = vec!["CLUSTER", "DRAIN", &id];
    request.extend(is_over.then_some("OVER"));
    node.call(&request)?;
    let what = if is_over { "may own shards again" } else { "owns no shard any more" };
    writeln!(standard_output::until_unread(), "node {id} {what}")?;
    Ok(Outcome::Done)
}

/// The id of the one node that is meant.
fn node_id(status: &ClusterStatus, wanted: &str) -> Result<String> {
    let is_meant = |node: &&terrace_server::cluster::NodeStatus| {
        node.redis_address == wanted || !wanted.is_empty() && node.id.starts_with(wanted)
    };
    let meant: Vec<_> = status.nodes.iter().filter(is_meant).collect();
    match meant[..] {
        [node] => Ok(node.id.clone()),
        [] => bail!("the cluster has no node {wanted}"),
        _ => bail!("{} nodes are called {wanted}", meant.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_server::cluster::NodeStatus;

    #[test]
    fn a_node_is_named_by_its_id_or_its_address() {
        let node = |id: &str, address: &str| NodeStatus {
            id: id.into(),
            redis_address: address.into(),
            ..NodeStatus::default()
        };
        let nodes = vec![node("ab12", "10.0.0.1:7000"), node("ab34", "10.0.0.2:7000")];
        let status = ClusterStatus { nodes, ..ClusterStatus::default() };
        assert_eq!(node_id(&status, "10.0.0.2:7000").unwrap(), "ab34");
        assert_eq!(node_id(&status, "ab1").unwrap(), "ab12");
        for (wanted, why) in [("ab", "2 nodes"), ("cd", "no node cd"), ("", "no node")] {
            assert!(node_id(&status, wanted).unwrap_err().to_string().contains(why), "{wanted}");
        }
    }
}
