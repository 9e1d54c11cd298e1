//! Jedis, as `cargo xtask test` installs it.

use crate::servers::{Process, run, tools};
use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "needs Java and Jedis: run `cargo xtask test`"]
fn jedis_finds_everything_as_it_expects_it() {
    let server = Process::terrace(&[]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/java");
    let mut command = Command::new("java");
    command.arg("-cp").arg(tools().join("jedis").join("*"));
    command.arg(folder.join("Jedis.java")).arg(server.port.to_string());
    let told = run(&mut command);
    assert!(told.contains("all checks passed"), "{told}");
}
