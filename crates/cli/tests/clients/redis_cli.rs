//! `redis-cli`.

use crate::servers::{Process, run};
use std::process::Command;

fn cli(server: &Process, arguments: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port.to_string()]).args(arguments);
    run(&mut command)
}

#[test]
#[ignore = "needs redis-cli: run `cargo xtask test`"]
fn redis_cli_sets_gets_scans_and_pipes() {
    let server = Process::terrace(&[]);
    assert_eq!(cli(&server, &["SET", "hello", "world"]).trim(), "OK");
    assert_eq!(cli(&server, &["GET", "hello"]).trim(), "world");
    assert_eq!(cli(&server, &["-3", "HSET", "h", "f", "1"]).trim(), "1");
    assert!(cli(&server, &["-3", "HGETALL", "h"]).contains('f'));
    let info = cli(&server, &["INFO"]);
    for part in
        ["# Server", "redis_version:", "# Memory", "used_memory:", "# Keyspace", "db0:keys="]
    {
        assert!(info.contains(part), "{part} is not in\n{info}");
    }
    assert_eq!(cli(&server, &["--scan", "--pattern", "hel*"]).trim(), "hello");
    // The bulk loader checks a reply to every command and an echo at the end.
    let mut requests = Vec::new();
    for n in 0..10_000 {
        terrace_resp::write_request(&mut requests, &["SET", &format!("bulk:{n}"), "v"]);
    }
    let file = server.dir.join("requests");
    std::fs::write(&file, requests).unwrap();
    let mut pipe = Command::new("redis-cli");
    pipe.args(["-p", &server.port.to_string(), "--pipe"]);
    pipe.stdin(std::fs::File::open(&file).unwrap());
    let told = run(&mut pipe);
    assert!(told.contains("errors: 0, replies: 10000"), "{told}");
    let count = cli(&server, &["--scan", "--pattern", "bulk:*"]).lines().count();
    assert_eq!(count, 10_000);
    assert!(cli(&server, &["--latency", "-i", "1", "--raw"]).split_whitespace().count() >= 3);
}
