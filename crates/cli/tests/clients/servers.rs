//! The servers of these tests: Terrace and Redis, and programs that are run against them.

use crate::process::Server;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use terrace_resp::test_client::{Client, free_port};

/// A server that is killed when it is dropped.
pub struct Process {
    server: Server,
    pub port: u16,
    /// Where its data is.
    pub dir: PathBuf,
    _own_dir: Option<TempDir>,
}

/// Where the tools of these tests lie: `cargo xtask test` makes the folder.
pub fn tools() -> PathBuf {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
    };
    target.join("client-tools")
}

impl Process {
    /// `terrace serve` with these flags, in a new directory.
    pub fn terrace(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut process = Self::terrace_in(dir.path(), flags);
        process._own_dir = Some(dir);
        process
    }

    /// `terrace serve` in a directory that may have been served before.
    pub fn terrace_in(dir: &Path, flags: &[&str]) -> Self {
        Self::terrace_with(dir, flags, &[])
    }

    /// As [`Self::terrace_in`], with these variables in its environment.
    pub fn terrace_with(dir: &Path, flags: &[&str], variables: &[(&str, PathBuf)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command.current_dir(dir).envs(variables.iter().map(|(name, value)| (name, value)));
        let store = dir.join("store").to_string_lossy().into_owned();
        let flags = [&["--dir", &*store][..], flags].concat();
        Self::of(Server::terrace(command, &flags), dir)
    }

    /// Redis itself.
    pub fn redis() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        command.args(["--bind", "127.0.0.1"]).current_dir(dir.path());
        let mut process = Self::of(Server::start(Stdio::null(), command, port), dir.path());
        process._own_dir = Some(dir);
        process
    }

    fn of(server: Server, dir: &Path) -> Self {
        Self { port: server.port, server, dir: dir.to_path_buf(), _own_dir: None }
    }

    pub fn connect(&self) -> Client {
        Client::connect(([127, 0, 0, 1], self.port).into())
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.server.child.id()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.server.child.kill().unwrap();
        self.server.child.wait().unwrap();
    }

    /// Waits until it is dead by a signal that nobody of the test sent it; gives the signal.
    pub fn died_of(&mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        self.server.child.wait().unwrap().signal()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.server.child.try_wait().unwrap().is_some()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        self.server.log()
    }

    /// SHUTDOWN; must end well.
    pub fn stop(&mut self) {
        let mut connection = self.connect();
        connection.send(&["SHUTDOWN"]);
        assert_eq!(connection.try_reply(), None);
        self.server.end_well();
    }
}

/// Runs a program to its end; it must succeed. Gives what it printed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out
}
