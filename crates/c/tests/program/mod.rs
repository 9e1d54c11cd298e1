//! Runs the compilers and programs of the tests of both C interfaces: this crate's and that of `terrace-leveldb`.

use std::process::Command;

/// Runs `command`; what it printed and said, if it ends well.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    format!("{out}{err}")
}
