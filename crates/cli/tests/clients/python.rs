//! redis-py and rq, as `cargo xtask test` installs it.

use crate::servers::{Process, run, tools};
use std::path::Path;
use std::process::Command;

/// Runs a script of this folder against a server.
pub fn script(server: &Process, name: &str, arguments: &[&str]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name);
    let mut command = Command::new(tools().join("venv/bin/python"));
    command.arg(path).arg(server.port.to_string()).args(arguments);
    run(&mut command)
}

#[test]
#[ignore = "needs redis-py: run `cargo xtask test`"]
fn redis_py_finds_everything_as_it_expects_it() {
    let server = Process::terrace(&[]);
    let told = script(&server, "redis_py.py", &[]);
    assert!(told.contains("all checks passed"), "{told}");
}

#[test]
#[ignore = "needs rq: run `cargo xtask test`"]
fn the_worker_of_rq_does_all_jobs_in_burst_mode() {
    let server = Process::terrace(&[]);
    let told = script(&server, "rq_worker.py", &[]);
    assert!(told.contains("all jobs done"), "{told}");
}
