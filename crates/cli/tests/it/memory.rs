//! Peak memory of a process under a small budget: at most the budget and 64 MiB, whatever is written.

use crate::process::Server;
use crate::program::Program;
use std::io::{Read, Write};
use std::net::TcpStream;
use terrace_resp::test_client::HANG_GUARD;

/// What a process may have in memory besides the budget of its store.
const PROCESS_BYTES: u64 = 64 << 20;
const CONNECTIONS: u64 = 16;
/// Requests that a connection sends before it reads the answers.
const PIPELINE: u64 = 16;

fn effort() -> u64 {
    std::env::var("TERRACE_TEST_EFFORT").ok().and_then(|e| e.parse().ok()).unwrap_or(1)
}

/// Writes `count` keys in all from all connections: the first of `words`, the key, the other words, a value
/// of `value_bytes`. Each is answered with `answer`.
fn write(port: u16, count: u64, value_bytes: usize, words: &[&str], answer: &str) {
    // One half of it compresses well.
    let value: Vec<u8> = (0..value_bytes as u64)
        .map(
            |n| if n % 2 == 0 { b'x' } else { (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 },
        )
        .collect();
    std::thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let value = &value;
            scope.spawn(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
                for batch in 0..count / CONNECTIONS / PIPELINE {
                    let mut requests = Vec::new();
                    for n in 0..PIPELINE {
                        let key = (batch * PIPELINE + n) * CONNECTIONS + connection;
                        let key = format!("{:016x}", key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                        write!(requests, "*{}\r\n", words.len() + 2).unwrap();
                        let (command, others) = words.split_first().unwrap();
                        let first = [command.as_bytes(), key.as_bytes()].into_iter();
                        let last = others.iter().map(|word| word.as_bytes()).chain([&value[..]]);
                        for word in first.chain(last) {
                            write!(requests, "${}\r\n", word.len()).unwrap();
                            requests.extend_from_slice(word);
                            requests.extend_from_slice(b"\r\n");
                        }
                    }
                    stream.write_all(&requests).unwrap();
                    let mut answers = vec![0; answer.len() * PIPELINE as usize];
                    stream.read_exact(&mut answers).unwrap();
                    let text = String::from_utf8(answers).unwrap();
                    assert_eq!(text, answer.repeat(PIPELINE as usize));
                }
            });
        }
    });
}

/// Most that the process ever had in memory.
fn peak_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_server_keeps_to_its_budget_under_writes_of_many_connections() {
    // 3 GB with 64 MiB at effort 16.
    let (effort, budget_mib) = (effort(), if effort() >= 16 { 64 } else { 8 });
    for (count, value_bytes, words, answer) in [
        (200_000, 900, &["SET"][..], "+OK\r\n"),
        (100_000, 900, &["HSET", "field"], ":1\r\n"),
        (30_000, 4096, &["SET"], "+OK\r\n"),
    ] {
        let program = Program::new();
        let budget = format!("{budget_mib}mb");
        let server = Server::terrace(program.command(&[]), &["--maxmemory", &budget]);
        write(server.port, count * effort, value_bytes, words, answer);
        let peak = peak_bytes(&server);
        println!("{words:?} of {value_bytes} bytes: {} MiB at most", peak >> 20);
        assert!(peak <= (budget_mib << 20) + PROCESS_BYTES, "{words:?}: {peak} bytes");
    }
}
