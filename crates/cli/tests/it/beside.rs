//! `terrace get`, `scan` and `stats` beside a process that writes to the same store: each sees a
//! prefix of what was acknowledged, at least what was before it began, and none fails. A reader that
//! is killed leaves nothing that keeps the writer from removing its files.

use crate::process::Server;
use crate::program::Program;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use terrace::{Db, Options};
use terrace_base::hex::Hex;
use terrace_resp::test_client::{HANG_GUARD, until};

/// Keys that one round of the client writes, in their order.
const ROUND: u64 = 400;

/// How often each command is run.
const RUNS: u64 = 12;

/// The key `n` of the chain, as it begins and as hex shows it.
fn link(n: u64) -> String {
    format!("chain:{n:010}")
}

fn hex(bytes: &[u8]) -> String {
    Hex(bytes).to_string()
}

/// Sets the keys of the chain in their order, and writes so much besides that the store flushes and
/// compacts all the time; `acknowledged` is the newest key that the server has answered for.
fn write_chain(port: u16, acknowledged: &AtomicU64, done: &AtomicBool) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while !done.load(Ordering::SeqCst) {
        let first = acknowledged.load(Ordering::SeqCst) + 1;
        let mut requests = String::new();
        for n in first..first + ROUND {
            requests += &format!("SET {} {n}\r\n", link(n));
            requests += &format!("SET filler:{} {}\r\n", n % 3000, "x".repeat(400));
        }
        stream.write_all(requests.as_bytes()).unwrap();
        for n in first..first + ROUND {
            for _ in 0..2 {
                line.clear();
                answers.read_line(&mut line).unwrap();
                assert_eq!(line, "+OK\r\n");
            }
            acknowledged.store(n, Ordering::SeqCst);
        }
    }
}

/// The keys of the chain that a scan shows, as hex, after a check that there is no hole.
fn chain(program: &Program, server_dir: &str) -> Vec<String> {
    let out = program.ok(&["scan", "--hex", "--keys-only", "--memory", "64M", "--dir", server_dir]);
    let marker = hex(b"chain:");
    let keys: Vec<String> =
        out.lines().filter(|line| line.contains(&marker)).map(str::to_string).collect();
    for (key, n) in keys.iter().zip(1..) {
        assert!(key.contains(&hex(link(n).as_bytes())), "a hole at {n}: {key}");
    }
    keys
}

#[test]
fn commands_that_read_beside_a_server_under_load_see_a_prefix() {
    let program = Program::new();
    let dir = program.path("served").to_str().unwrap().to_string();
    let server = Server::terrace(program.command(&[]), &["--dir", &dir, "--maxmemory", "4mb"]);
    let (acknowledged, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| write_chain(server.port, &acknowledged, &done));
        /// Ends the client, also when a check has failed.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let _ends = Ends(&done);
        // A server that has answered a write has a store.
        let end = Instant::now() + HANG_GUARD;
        while acknowledged.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < end, "the server acknowledges nothing");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let mut before = 0;
        for run in 0..RUNS {
            let floor = acknowledged.load(Ordering::SeqCst).max(before);
            let keys = chain(&program, &dir);
            let newest = keys.len() as u64;
            assert!(newest >= floor, "run {run}: {newest} of {floor}");
            before = newest;
            if let Some(key) = keys.last() {
                let value = program.ok(&["get", "--hex", key, "--memory", "64M", "--dir", &dir]);
                assert!(value.contains(&hex(newest.to_string().as_bytes())), "{value}");
            }
            program.ok(&["stats", "--memory", "64M", "--dir", &dir]);
        }
        assert!(before > 0, "the client has written nothing");
    });
}

/// A `terrace scan` that has begun and waits for somebody to read what it says.
fn stuck_scan(program: &Program, dir: &str) -> Child {
    let mut command = program.command(&["scan", "--dir", dir]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    child
}

#[test]
fn a_killed_reader_keeps_nothing() {
    let program = Program::with_store();
    let dir = program.store();
    let options = Options { memory_budget: 8 << 20, ..Options::default() };
    let db = Db::open(&dir, options).unwrap();
    let mut scan = stuck_scan(&program, dir.to_str().unwrap());
    for n in 0..20_000 {
        db.put(format!("key{n:06}"), b"another").unwrap();
    }
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    // A look that another thread is about to end may keep the files from being given up at once.
    until("the scan does not need the files", || db.metrics().reader_pinned_bytes > 0);
    scan.kill().unwrap();
    scan.wait().unwrap();
    // The next look of the writer, which comes by itself, finds that the lock is free.
    let end = Instant::now() + HANG_GUARD;
    while db.metrics().reader_pinned_files > 0 {
        assert!(Instant::now() < end, "the files of a killed reader stay");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // One that lives reads to its end what there was when it began.
    let mut scan = stuck_scan(&program, dir.to_str().unwrap());
    db.delete_range(b"key", b"kez").unwrap();
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    let mut out = String::new();
    scan.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(scan.wait().unwrap().success());
    assert_eq!(out.lines().count(), 20_000);
}
