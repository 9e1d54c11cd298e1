//! What cannot be a node of a cluster is refused when it starts, with what is to be done about it.

use super::harness::NodeCluster;
use crate::client::{Client, bulk, error, free_port, ok};
use crate::served::Served;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use terrace_cluster::Placement;
use terrace_server::Running;
use terrace_server::config::Config;

/// A node in this directory, on ports that were free a moment ago.
fn config(dir: &Path, flags: &[(&str, &str)]) -> Result<Config, String> {
    let (port, bus_port) = (free_port().to_string(), free_port().to_string());
    let store = dir.join("store").to_string_lossy().into_owned();
    let defaults = [
        ("dir", &*store),
        ("bind", "127.0.0.1"),
        ("port", &*port),
        ("http-port", "0"),
        ("maxmemory", "32mb"),
        ("cluster-enabled", "yes"),
        ("cluster-port", &*bus_port),
    ];
    let all =
        defaults.iter().chain(flags).map(|(name, value)| (name.to_string(), value.to_string()));
    Config::load(None, [], all.collect::<Vec<_>>()).map_err(|error| error.to_string())
}

fn refusal(dir: &Path, flags: &[(&str, &str)]) -> String {
    match config(dir, flags).map(Running::start) {
        Err(why) => why,
        Ok(Err(why)) => why.to_string(),
        Ok(Ok(running)) => {
            running.end().unwrap();
            panic!("it starts with {flags:?}");
        }
    }
}

#[test]
fn options_that_cannot_work_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = [("cluster-bind", "0.0.0.0"), ("cluster-announce-ip", "10.0.0.1")];
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let all: [(&[(&str, &str)], String); 8] = [
        (&open, "need a cluster-secret that they share".into()),
        (&[open[0], ("cluster-secret", "x")], "cluster-announce-ip".into()),
        (&[("cluster-lease", "999")], "a whole number from 1000".into()),
        (&[("cluster-bind", "here")], "cluster-bind".into()),
        (&[("cluster-plan", "all-of-them")], "cluster-plan".into()),
        (&[("cluster-name", "a b")], "no name".into()),
        (&[("cluster-port", &port)], "cannot listen on".into()),
        (&[("requirepass", "pw")], "everybody who reaches cluster-port".into()),
    ];
    for (flags, why) in &all {
        let refused = refusal(dir.path(), flags);
        assert!(refused.contains(why.as_str()), "{flags:?}: {refused}");
    }
    drop(taken);
    // Nothing of these attempts holds the store.
    let running = Running::start(config(dir.path(), &[]).unwrap()).unwrap();
    running.end().unwrap();
}

#[test]
fn a_store_of_another_cluster_or_placement_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let one = [("cluster-name", "one")];
    Running::start(config(dir.path(), &one).unwrap()).unwrap().end().unwrap();
    let foreign = refusal(dir.path(), &[("cluster-name", "two")]);
    assert!(foreign.contains("belongs to the cluster \"one\""), "{foreign}");
    // It was served without a cluster before.
    let served = Served::with(&[]);
    assert_eq!(served.client().say("SET key value"), ok());
    let dir = served.end();
    let unconverted = refusal(dir.path(), &[]);
    let names = "`terrace convert DIR TARGET --placement slots`";
    assert!(unconverted.contains(names), "{unconverted}");
    Running::start(config(dir.path(), &[("cluster-placement", "range")]).unwrap())
        .unwrap()
        .end()
        .unwrap();
}

/// What is written to it would not be where the cluster looks for it.
#[test]
fn a_store_of_a_cluster_of_several_is_not_served_without_it() {
    let alone = [("cluster-enabled", "no")];
    let mut cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    let dir = cluster.end_node(1);
    let why = refusal(dir.path(), &alone);
    let says = "has slots 8192-16383 as shard 2 of the cluster \"terrace\"";
    assert!(why.contains(says) && why.contains("cluster-enabled"), "{why}");
    // The attempt does not hold the store.
    cluster.start_node(1, dir);
    cluster.wait_until_home();
    // That of a cluster of one server has all keys.
    let mut cluster = NodeCluster::start(Placement::Slots, 1, &[]);
    assert_eq!(cluster.client(0).say("SET key value"), ok());
    let dir = cluster.end_node(0);
    let served = Served::again(dir, &alone);
    assert_eq!(served.client().say("GET key"), bulk("value"));
}

/// In a cluster there is database 0 only.
#[test]
fn a_store_with_keys_in_other_databases_is_refused() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert_eq!(client.say("SELECT 3"), ok());
    assert_eq!(client.say("SET key value"), ok());
    drop(client);
    let dir = served.end();
    let why = refusal(dir.path(), &[("cluster-placement", "range")]);
    assert!(why.contains("such as \"key\" in database 3"), "{why}");
}

#[test]
fn a_server_whose_store_has_another_placement_than_the_cluster_ends() {
    let cluster = NodeCluster::start(Placement::Slots, 1, &[]);
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), &[("cluster-placement", "range")]).unwrap();
    let metadata = cluster.membership(0).metadata().clone();
    let running = Running::start_node(config, Some(metadata), |_| {}).unwrap();
    let why = running.wait().unwrap_err().to_string();
    assert!(why.contains("has placement slots, and the store range"), "{why}");
}

#[test]
fn without_etcd_a_node_waits_and_serves_no_key() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let url = format!("http://127.0.0.1:{}", free_port());
    let running = Running::start(config(dir.path(), &[("cluster-etcd", &url)]).unwrap()).unwrap();
    let mut client = Client::connect(running.addresses()[0]);
    let refused = error(&client.say("GET key"));
    assert!(refused.starts_with("CLUSTERDOWN"), "{refused}");
    assert_eq!(crate::client::text(&client.say("PING")), "PONG");
    running.end().unwrap();
}
