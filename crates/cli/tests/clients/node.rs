//! ioredis, as `cargo xtask test` installs it.

use crate::servers::{Process, run};
use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "needs Node and ioredis: run `cargo xtask test`"]
fn ioredis_finds_everything_as_it_expects_it() {
    let server = Process::terrace(&[]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/node");
    let mut command = Command::new("node");
    command.arg(folder.join("ioredis.js")).arg(server.port.to_string());
    let told = run(&mut command);
    assert!(told.contains("all checks passed"), "{told}");
}
