//! `terrace cluster create`: nodes that wait become a cluster, with one shard each.

use super::show;
use crate::cluster_client::{ClusterClient, Login};
use crate::outcome::Outcome;
use crate::standard_output;
use anyhow::{Result, bail};
use std::io::Write;
use std::time::{Duration, Instant};
use terrace_server::cluster::ClusterStatus;

/// How long nodes may take to join, and a new cluster until it serves.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `cluster create`.
#[derive(Debug, clap::Args)]
pub struct CreateArgs {
    /// The nodes, as clients reach them; the order is that of the shards
    #[arg(required = true, value_name = "HOST:PORT")]
    nodes: Vec<String>,
    /// By ranges of keys instead of slots: the first key of the second shard, of the third, ...
    #[arg(long, value_name = "KEY", num_args = 0.., allow_negative_numbers = true)]
    range: Option<Vec<String>>,
}

/// Makes the cluster, and waits until it serves.
pub fn run(args: &CreateArgs, login: &Login) -> Result<Outcome> {
    let mut clients = Vec::new();
    for address in &args.nodes {
        clients.push(ClusterClient::connect(address, login)?);
    }
    let mut status = None;
    make(&mut clients, args.range.as_deref(), |seen| status = Some(seen))?;
    if let Some(status) = status {
        write!(standard_output::until_unread(), "{}", show::page(&status))?;
    }
    Ok(Outcome::Done)
}

/// Makes a cluster of these nodes through the first one, with placement `range` if there are boundaries. Calls
/// `served` once every shard is served.
pub fn make(
    nodes: &mut [ClusterClient],
    boundaries: Option<&[String]>,
    served: impl FnOnce(ClusterStatus),
) -> Result<()> {
    let placement = if boundaries.is_some() { "RANGE" } else { "SLOTS" };
    let mut request = vec!["CLUSTER".to_string(), "CREATE".into(), placement.into()];
    for node in nodes.iter_mut() {
        request.push(patiently(&["CLUSTERDOWN"], || node.text(&["CLUSTER", "MYID"]))?);
    }
    if let Some(boundaries @ [_, ..]) = boundaries {
        request.push("BOUNDARIES".into());
        request.extend(boundaries.iter().cloned());
    }
    let Some(first) = nodes.first_mut() else { bail!("a cluster needs at least one node") };
    // The first one may not have seen the others yet, and on a busy machine one may have lost its first lease.
    patiently(&[" has not joined", " is not alive"], || first.call(&request))?;
    served(wait_until_served(first)?);
    Ok(())
}

/// Waits until every shard of the cluster is served.
pub fn wait_until_served(node: &mut ClusterClient) -> Result<ClusterStatus> {
    let end = Instant::now() + PATIENCE;
    loop {
        let status = node.status()?;
        if status.is_served {
            return Ok(status);
        }
        if Instant::now() > end {
            bail!(
                "after {} s not every shard is served; see `terrace cluster status`",
                PATIENCE.as_secs()
            );
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Tries again while the error is one of those that pass, for a while.
fn patiently<T>(passing: &[&str], mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + PATIENCE;
    let passes = |error: &anyhow::Error| {
        let text = format!("{error:#}");
        passing.iter().any(|part| text.contains(part))
    };
    loop {
        match attempt() {
            Err(error) if passes(&error) && Instant::now() < end => {
                std::thread::sleep(LOOK_INTERVAL);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passes_is_tried_again() {
        let mut tries = 0;
        let mut attempt = |fails: usize, why: &'static str| {
            tries = 0;
            patiently(&["passes", "ends"], || {
                tries += 1;
                if tries <= fails { bail!(why) } else { Ok(tries) }
            })
        };
        assert_eq!(attempt(2, "it passes").unwrap(), 3);
        assert_eq!(attempt(1, "it ends").unwrap(), 2);
        assert_eq!(attempt(1, "it stays").unwrap_err().to_string(), "it stays");
    }
}
