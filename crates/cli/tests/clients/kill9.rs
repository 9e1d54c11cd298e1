//! SIGKILL under load: everything that was acknowledged is there afterwards.

use crate::servers::Process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_resp::Reply;
use terrace_resp::test_client::{Client, until};

const CLIENTS: u64 = 6;

/// How often in CI; `TERRACE_TEST_EFFORT` times as often otherwise.
const KILLS: u64 = 6;

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let effort: u64 =
        std::env::var("TERRACE_TEST_EFFORT").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut rng = SplitMix64::new(7);
    let dir = tempfile::tempdir().unwrap();
    // Per client: the counter that it has seen acknowledged last.
    let mut known = vec![0_u64; CLIENTS as usize];
    for kill in 0..KILLS * effort {
        let fsync = ["always", "everysec", "no"][(kill % 3) as usize];
        let threads = (1 + kill % 2).to_string();
        let flags = ["--appendfsync", fsync, "--server-threads", &threads, "--maxmemory", "8mb"];
        let mut server = Process::terrace_in(dir.path(), &flags);
        known = check(&mut server.connect(), &known);
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged: Vec<_> = known.iter().map(|n| Arc::new(AtomicU64::new(*n))).collect();
        let started = Arc::new(Barrier::new(CLIENTS as usize + 1));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let mut connection = server.connect();
                let acknowledged = acknowledged[client as usize].clone();
                let (stop, started) = (stop.clone(), started.clone());
                std::thread::spawn(move || {
                    started.wait();
                    write_until_gone(&mut connection, client, &acknowledged, &stop)
                })
            })
            .collect();
        started.wait();
        // A device may be slow: the kill comes when all have written, and some time after that.
        let has_written =
            |(now, before): (&Arc<AtomicU64>, &u64)| now.load(Ordering::SeqCst) > *before;
        until("all clients have written", || acknowledged.iter().zip(&known).all(has_written));
        std::thread::sleep(Duration::from_millis(100 + rng.below(400)));
        server.kill();
        stop.store(true, Ordering::Relaxed);
        for (client, thread) in clients.into_iter().enumerate() {
            thread.join().unwrap();
            known[client] = acknowledged[client].load(Ordering::SeqCst);
        }
    }
    let mut server = Process::terrace_in(dir.path(), &[]);
    check(&mut server.connect(), &known);
    server.stop();
    println!("{} kills; acknowledged writes by client: {known:?}", KILLS * effort);
}

/// Writes its number upwards, into a string, a hash and a list at once; `acknowledged` is the last one that was.
fn write_until_gone(
    connection: &mut Client,
    client: u64,
    acknowledged: &AtomicU64,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed) {
        let last = acknowledged.load(Ordering::SeqCst);
        let n = (last + 1).to_string();
        let big = n.repeat(if last.is_multiple_of(50) { 1000 } else { 1 });
        let words =
            |words: &[&str]| words.iter().map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>();
        let requests = [
            words(&["MULTI"]),
            words(&["SET", &format!("n:{client}"), &n]),
            words(&["HSET", &format!("h:{client}"), &format!("f{n}"), &big]),
            words(&["RPUSH", &format!("l:{client}"), &n]),
            words(&["EXEC"]),
        ];
        if requests.iter().any(|request| !connection.try_send(request)) {
            break;
        }
        let replies: Option<Vec<Reply<'_>>> =
            requests.iter().map(|_| connection.try_reply()).collect();
        match replies.as_deref() {
            Some([.., Reply::Array(done)]) => {
                assert!(!done.iter().any(|reply| matches!(reply, Reply::Error(_))), "{done:?}");
                acknowledged.store(last + 1, Ordering::SeqCst);
            }
            Some(other) => panic!("{other:?}"),
            None => break,
        }
    }
}

/// What is there: everything acknowledged, and string, hash and list agree: they were written together.
fn check(connection: &mut Client, known: &[u64]) -> Vec<u64> {
    let mut there = Vec::new();
    for (client, acknowledged) in known.iter().enumerate() {
        let stored = match connection.say(&format!("GET n:{client}")) {
            Reply::Null => 0,
            Reply::Bulk(text) => String::from_utf8_lossy(&text).parse().unwrap(),
            other => panic!("{other:?}"),
        };
        // One more may have been written and not acknowledged.
        assert!(
            stored == *acknowledged || stored == acknowledged + 1,
            "client {client}: {acknowledged} acknowledged, {stored} there"
        );
        let count = Reply::Integer(stored as i64);
        assert_eq!(connection.say(&format!("LLEN l:{client}")), count, "client {client}");
        assert_eq!(connection.say(&format!("HLEN h:{client}")), count, "client {client}");
        there.push(stored);
    }
    there
}
