//! `redis-benchmark`: every test that it has for what Terrace has, without a single error.

use crate::servers::{Process, run};
use std::process::Command;

const TESTS: &str = "ping_inline,ping_mbulk,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,\
     lrange_300,mset";

#[test]
#[ignore = "needs redis-benchmark: run `cargo xtask test`"]
fn redis_benchmark_runs_to_its_end() {
    let server = Process::terrace(&["--server-threads", "2"]);
    for pipeline in ["1", "32"] {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &server.port.to_string(), "-t", TESTS, "-n", "20000", "-r", "10000"]);
        command.args(["-c", "50", "-P", pipeline, "--csv", "-d", "64"]);
        let told = run(&mut command);
        for test in ["SET", "GET", "INCR", "LPUSH", "SADD", "HSET", "ZADD", "MSET (10 keys)"] {
            assert!(told.contains(&format!("\"{test}\"")), "{test} is not in\n{told}");
        }
        assert!(!told.to_lowercase().contains("error"), "{told}");
    }
}
