//! `terrace cluster create` and `terrace cluster up --etcd` with real etcd.

use crate::etcd::EtcdCluster;
use crate::process::Server;
use crate::servers::{Process, run};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use terrace_resp::test_client::{Client, bulk, error, free_port, free_ports, int, ok, until};

fn terrace(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.arg("cluster").args(words);
    command
}

/// What a command said that had to fail.
fn refusal(words: &[&str]) -> String {
    let output = terrace(words).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn is_served(at: &str) -> bool {
    terrace(&["status", "--at", at]).output().unwrap().status.success()
}

/// A node that waits for its cluster, or goes on with it.
fn node(etcd: &EtcdCluster, dir: &Path, name: &str, placement: &str) -> Process {
    let (url, port) = (etcd.url(0), free_port().to_string());
    let flags = [
        ["--cluster-enabled", "yes"],
        ["--cluster-name", name],
        ["--cluster-placement", placement],
        ["--cluster-etcd", &url],
        ["--cluster-port", &port],
        ["--maxmemory", "32mb"],
    ];
    Process::terrace_in(dir, flags.as_flattened())
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

#[test]
#[ignore = "needs etcd; run by cargo xtask test"]
fn nodes_that_wait_are_made_a_cluster() {
    let etcd = EtcdCluster::start(1);
    let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut nodes: Vec<Process> =
        dirs.iter().map(|dir| node(&etcd, dir.path(), "created", "range")).collect();
    let waiting = error(&nodes[0].connect().say("GET key"));
    assert!(waiting.starts_with("CLUSTERDOWN"), "{waiting}");
    let at: Vec<String> = nodes.iter().map(|node| address(node.port)).collect();
    let words = ["create", &at[0], &at[1], &at[2], "--range", "g", "p"];
    let page = run(&mut terrace(&words));
    assert!(page.starts_with("cluster created: range, every shard is served"), "{page}");
    for boundary in ["..\"g\"", "\"g\"..\"p\"", "\"p\".."] {
        assert!(page.contains(boundary), "{boundary}: {page}");
    }
    let again = refusal(&words);
    assert!(again.contains("exists already"), "{again}");
    for (node, key) in nodes.iter().zip(["apple", "mango", "zebra"]) {
        assert_eq!(node.connect().say(&format!("SET {key} v")), ok());
    }
    assert_eq!(
        run(&mut terrace(&["move", "zebra", "1", "--at", &at[1]])),
        "moved \"zebra\" to 1\n"
    );
    // The cluster is in etcd, and goes on when a node is started again.
    nodes[0].stop();
    nodes[0] = node(&etcd, dirs[0].path(), "created", "range");
    let first = address(nodes[0].port);
    until("not every shard is served", || is_served(&first));
    assert_eq!(nodes[0].connect().say("DBSIZE"), int(3));
    assert_eq!(nodes[2].connect().say("GET zebra"), bulk("v"));
}

/// `cluster up` in a folder, with etcd; all shards are served.
fn up(etcd: &EtcdCluster, dir: &Path, instances: &str) -> Server {
    let (url, port) = (etcd.url(0), free_ports(3));
    let mut command = terrace(&["up", "--etcd", &url, "--http-port", "0", "--dir"]);
    command.arg(dir).args(["--port", &port.to_string(), "--instances", instances]);
    command.args(["--set", "maxmemory=64mb", "--set", "cluster-lease=2000"]);
    let server = Server::start(Stdio::null(), command, port);
    until("not every shard is served", || is_served(&address(port)));
    server
}

fn end(mut server: Server) {
    let id = server.child.id().to_string();
    run(Command::new("kill").args(["-s", "TERM", &id]));
    server.end_well();
}

#[test]
#[ignore = "needs etcd; run by cargo xtask test"]
fn a_cluster_in_one_process_is_kept_in_etcd() {
    let etcd = EtcdCluster::start(1);
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let connect = |server: &Server| Client::connect(([127, 0, 0, 1], server.port).into());
    let mut server = up(&etcd, dir.path(), "3");
    let mut client = connect(&server);
    for number in 0..100 {
        assert_eq!(client.say(&format!("SET key:{number} v")), ok());
    }
    drop(client);
    end(server);
    // Its metadata is nowhere else.
    assert!(!dir.path().join("metadata").exists());
    server = up(&etcd, dir.path(), "3");
    assert_eq!(connect(&server).say("DBSIZE"), int(100));
    // Who has the same name and the same etcd, and another store, is of the same cluster, and owns nothing of it.
    let joined = node(&etcd, other.path(), "terrace", "slots");
    until("it does not join", || is_served(&address(joined.port)));
    assert_eq!(joined.connect().say("DBSIZE"), int(100));
    let again = refusal(&["create", &address(server.port)]);
    assert!(again.contains("exists already"), "{again}");
    drop(joined);
    end(server);
}
