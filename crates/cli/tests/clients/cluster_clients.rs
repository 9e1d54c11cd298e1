//! The cluster clients of redis-py, go-redis, Jedis and the `redis` crate against `terrace cluster up`, whose
//! nodes serve every key themselves, or send clients to the owner.

use crate::process::Server;
use crate::servers::{run, tools};
use redis::Commands;
use redis::cluster::ClusterClient;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use terrace_resp::Reply;
use terrace_resp::test_client::{Client, free_ports, until};

/// What nodes answer for keys of others.
const MODES: [&str; 2] = ["proxy", "moved"];

/// Three nodes in one process.
struct Cluster {
    server: Server,
    port: u16,
    _dir: TempDir,
}

impl Cluster {
    fn start(mode: &str) -> Self {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_ports(3));
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command.args(["cluster", "up", "--http-port", "0", "--port", &port.to_string()]);
        command.args(["--set", &format!("cluster-redirect={mode}"), "--set", "maxmemory=64mb"]);
        // No pause of a loaded machine ends a lease.
        command.args(["--set", "cluster-lease=60000"]);
        command.current_dir(dir.path());
        let server = Server::start(Stdio::null(), command, port);
        let cluster = Self { server, port, _dir: dir };
        until("not every shard is served", || {
            matches!(cluster.connect().call(&["CLUSTER", "INFO"]), Reply::Bulk(text)
                if text.windows(16).any(|part| part == b"cluster_state:ok"))
        });
        cluster
    }

    fn connect(&self) -> Client {
        Client::connect(([127, 0, 0, 1], self.port).into())
    }

    /// Ends it as a person does.
    fn stop(mut self) {
        let id = self.server.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
        self.server.end_well();
    }
}

fn here(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// Runs a program for clusters of both modes.
fn try_both(program: impl Fn(u16) -> Command) {
    for mode in MODES {
        let cluster = Cluster::start(mode);
        let told = run(&mut program(cluster.port));
        assert!(told.contains("all checks passed"), "{mode}: {told}");
        cluster.stop();
    }
}

#[test]
#[ignore = "needs redis-py: run `cargo xtask test`"]
fn the_cluster_client_of_redis_py_finds_everything() {
    try_both(|port| {
        let mut command = Command::new(tools().join("venv/bin/python"));
        command.arg(here("redis_py_cluster.py")).arg(port.to_string());
        command
    });
}

#[test]
#[ignore = "needs Go and go-redis: run `cargo xtask test`"]
fn the_cluster_client_of_go_redis_finds_everything() {
    try_both(|port| {
        let mut command = Command::new("go");
        command.args(["run", "./cluster", &port.to_string()]).current_dir(here("go"));
        command
    });
}

#[test]
#[ignore = "needs Java and Jedis: run `cargo xtask test`"]
fn jedis_cluster_finds_everything() {
    try_both(|port| {
        let mut command = Command::new("java");
        command.arg("-cp").arg(tools().join("jedis").join("*"));
        command.arg(here("java").join("Cluster.java")).arg(port.to_string());
        command
    });
}

#[test]
fn the_cluster_client_of_the_redis_crate_finds_everything() {
    for mode in MODES {
        let cluster = Cluster::start(mode);
        let url = format!("redis://127.0.0.1:{}/", cluster.port);
        let mut client = ClusterClient::new(vec![url]).unwrap().get_connection().unwrap();
        for n in 0..300 {
            let _: () = client.set(format!("key:{n}"), n).unwrap();
        }
        let mut pipe = redis::cluster::cluster_pipe();
        (0..300).for_each(|n| _ = pipe.incr(format!("key:{n}"), 1));
        let counts: Vec<i64> = pipe.query(&mut client).unwrap();
        assert_eq!(counts, (1..=300).collect::<Vec<_>>());
        let _: () = client.mset(&[("{t}a", 1), ("{t}b", 2)]).unwrap();
        assert_eq!(client.mget::<_, Vec<i64>>(&["{t}b", "{t}a"]).unwrap(), [2, 1]);
        let _: () = client.set("moved", 0).unwrap();
        let mut admin = cluster.connect();
        for (turn, to) in ["1", "2", "3", "HOME"].repeat(5).iter().enumerate() {
            let count = 2 * turn as i64;
            assert_eq!(client.incr::<_, _, i64>("moved", 1).unwrap(), count + 1);
            let moved = admin.call(&["CLUSTER", "MOVEKEY", "moved", to]);
            assert_eq!(moved, Reply::Simple(b"OK".into()), "{mode}: to {to}");
            assert_eq!(client.incr::<_, _, i64>("moved", 1).unwrap(), count + 2);
        }
        let wrong = client.rpush::<_, _, i64>("moved", "x").unwrap_err();
        assert_eq!(wrong.code(), Some("WRONGTYPE"));
        drop(client);
        cluster.stop();
    }
}
