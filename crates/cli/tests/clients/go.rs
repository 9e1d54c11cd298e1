//! go-redis, as `cargo xtask test` installs it.

use crate::servers::{Process, run};
use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "needs Go and go-redis: run `cargo xtask test`"]
fn go_redis_finds_everything_as_it_expects_it() {
    let server = Process::terrace(&[]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/go");
    let mut command = Command::new("go");
    command.args(["run", ".", &server.port.to_string()]).current_dir(folder);
    let told = run(&mut command);
    assert!(told.contains("all checks passed"), "{told}");
}
