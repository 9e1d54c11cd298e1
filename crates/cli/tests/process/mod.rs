//! A server as a process of its own, for both programs of tests: starts it on a free port, keeps what
//! it says, waits for it, and kills it in the end.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_resp::test_client::{HANG_GUARD, free_port};

/// A server, killed when it is dropped.
pub struct Server {
    pub child: Child,
    pub port: u16,
    /// What it has written to standard error.
    log: Arc<Mutex<String>>,
    /// Reads that.
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// `terrace serve` by a command that names the program and where it runs.
    pub fn terrace(command: Command, flags: &[&str]) -> Self {
        Self::terrace_to(Stdio::null(), command, flags)
    }

    /// The same with this standard output.
    pub fn terrace_to(output: Stdio, mut command: Command, flags: &[&str]) -> Self {
        let port = free_port();
        command.args(["serve", "--http-port", "0", "--bind", "127.0.0.1"]);
        command.args(["--port", &port.to_string()]).args(flags);
        Self::start(output, command, port)
    }

    /// A command that serves `port`; returns when it does.
    pub fn start(output: Stdio, mut command: Command, port: u16) -> Self {
        command.stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, kept) = (BufReader::new(child.stderr.take().unwrap()).lines(), log.clone());
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut kept = kept.lock().unwrap();
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        let mut server = Self { child, port, log, reader: Some(reader) };
        let end = Instant::now() + HANG_GUARD;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            server.wait_a_little("it does not listen", end);
        }
        server
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// For those who wait for something: the server must not have ended, and it must not be `end`.
    pub fn wait_a_little(&mut self, why: &str, end: Instant) {
        let status = self.child.try_wait().unwrap();
        assert_eq!(status, None, "{why}: {}", self.log());
        assert!(Instant::now() < end, "{why}: {}", self.log());
        std::thread::sleep(Duration::from_millis(10));
    }

    /// Waits for the end, which must be a good one; then everything that it has said is in the log.
    pub fn end_well(&mut self) {
        let end = Instant::now() + HANG_GUARD;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.read_to_the_end();
                assert!(status.success(), "{status}: {}", self.log());
                return;
            }
            assert!(Instant::now() < end, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Reads what is left of what a process has said that has ended.
    fn read_to_the_end(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // One that is ending has not said yet why.
            for _ in 0..200 {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.read_to_the_end();
        if std::thread::panicking() {
            eprintln!("the server on port {} said:\n{}", self.port, self.log());
        }
    }
}
