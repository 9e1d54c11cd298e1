//! Servers as processes of their own.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_resp::test_client::Client;

/// A server may take so long to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is killed when it is dropped.
pub struct Process {
    child: Child,
    pub port: u16,
    /// Where its data is.
    pub dir: PathBuf,
    _own_dir: Option<TempDir>,
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
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
        let port = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        let text = port.to_string();
        command.args(["serve", "--port", &text, "--http-port", "0", "--bind", "127.0.0.1"]);
        command.args(["--dir", &dir.join("store").to_string_lossy()]).args(flags);
        command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null());
        Self::started(command, port, dir.to_path_buf())
    }

    /// Redis itself.
    pub fn redis() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        command.args(["--bind", "127.0.0.1"]);
        command.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = Self::started(command, port, dir.path().to_path_buf());
        process._own_dir = Some(dir);
        process
    }

    fn started(mut command: Command, port: u16, dir: PathBuf) -> Self {
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut process = Self { child, port, dir, _own_dir: None };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = process.child.try_wait().unwrap() {
                panic!("{command:?} has ended: {status}");
            }
            assert!(Instant::now() < until, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        process
    }

    pub fn connect(&self) -> Client {
        Client::connect(([127, 0, 0, 1], self.port).into())
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SHUTDOWN; must end well.
    pub fn stop(&mut self) {
        let mut connection = self.connect();
        connection.send(&["SHUTDOWN"]);
        assert_eq!(connection.try_reply(), None);
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(Instant::now() < until, "the server does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
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
