//! Requests and replies, connections that come and go.

use crate::client::{Client, HANG_GUARD, bulk, error, int, ok, until};
use crate::served::Served;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Weak};
use std::time::{Duration, Instant};
use terrace_resp::Reply;
use terrace_server::Server;
use terrace_server::command_observer::{CommandObserver, ObservedCommand};

#[test]
fn strings_come_back_after_a_restart() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert_eq!(client.say("PING"), Reply::Simple(b"PONG"[..].into()));
    assert_eq!(client.say("SET k v"), ok());
    assert_eq!(client.say("GET k"), bulk("v"));
    assert_eq!(client.say("GET absent"), Reply::Null);
    assert_eq!(served.server().hits_and_misses(), (1, 1));
    assert!(error(&client.say("GET")).starts_with("ERR wrong number of arguments for 'get'"));
    assert!(error(&client.say("NONSENSE a b")).starts_with("ERR unknown command 'NONSENSE'"));
    drop(client);
    let dir = served.end();
    let served = Served::again(dir, &[]);
    assert_eq!(served.client().say("GET k"), bulk("v"));
}

#[test]
fn pipelines_are_answered_in_order_with_every_split() {
    let served = Served::with(&[]);
    let mut client = served.client();
    let replies = client.pipeline(&["SET n 1", "INCR n", "GET n", "DEL n", "GET n", "INCR n"]);
    assert_eq!(replies, [ok(), int(2), bulk("2"), int(1), Reply::Null, int(1)]);
    let request = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    for split in 1..request.len() {
        client.send_raw(&request[..split]);
        std::thread::sleep(Duration::from_micros(200));
        client.send_raw(&request[split..]);
        assert_eq!((client.reply(), client.reply()), (ok(), bulk("value")), "{split}");
    }
}

#[test]
fn inline_requests_work_too() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.send_raw(b"SET 'a key' \"a \\x41 value\"\r\n\r\nGET 'a key'\n");
    assert_eq!((client.reply(), client.reply()), (ok(), bulk("a A value")));
}

#[test]
fn nonsense_ends_the_connection_with_a_word() {
    let served = Served::with(&[]);
    for nonsense in [&b"*1\r\n:3\r\n"[..], b"*x\r\n", b"*1\r\n$-7\r\n"] {
        let mut client = served.client();
        assert_eq!(client.say("SET k v"), ok());
        client.send_raw(nonsense);
        match client.try_reply() {
            // Nothing to read, and nothing to say: an empty request.
            None => {}
            Some(reply) => {
                assert!(error(&reply).contains("Protocol error"), "{reply:?}");
                assert_eq!(client.try_reply(), None);
            }
        }
    }
    assert_eq!(served.client().say("GET k"), bulk("v"));
}

#[test]
fn values_of_many_megabytes_pass() {
    let served = Served::with(&[("maxmemory", "64mb")]);
    let mut client = served.client();
    let value = vec![b'x'; 20 << 20];
    assert_eq!(client.call(&[&b"SET"[..], b"big", &value]), ok());
    match client.say("GET big") {
        Reply::Bulk(bytes) => assert!(bytes[..] == value[..], "other bytes"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_does_not_read_is_not_served_but_harms_nobody() {
    let served = Served::with(&[]);
    let mut other = served.client();
    let value = "x".repeat(10_000);
    assert_eq!(other.call(&["SET", "k", &value]), ok());
    let mut greedy = TcpStream::connect(served.address()).unwrap();
    greedy.set_nonblocking(true).unwrap();
    let requests = b"GET k\r\n".repeat(1000);
    let mut sent = 0;
    for _ in 0..200 {
        match greedy.write(&requests[sent % 7..]) {
            Ok(n) => sent += n,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
        assert_eq!(other.say("PING"), Reply::Simple(b"PONG"[..].into()));
    }
    // Then it reads everything it has asked for.
    greedy.set_nonblocking(false).unwrap();
    greedy.set_read_timeout(Some(HANG_GUARD)).unwrap();
    let whole = sent / 7;
    assert!(whole > 500, "{whole}");
    let expected = whole * (value.len() + "$10000\r\n\r\n".len());
    let mut received = 0;
    let mut piece = vec![0; 1 << 20];
    while received < expected
        && let Ok(n @ 1..) = greedy.read(&mut piece)
    {
        received += n;
    }
    assert_eq!(received, expected);
}

#[test]
fn a_thousand_slow_clients_do_not_slow_others() {
    let served = Served::with(&[("maxclients", "2000")]);
    let mut slow: Vec<TcpStream> =
        (0..1000).map(|_| TcpStream::connect(served.address()).unwrap()).collect();
    let request = b"*3\r\n$3\r\nSET\r\n$4\r\nslow\r\n$4\r\nslow\r\n";
    let mut other = served.client();
    let mut worst = Duration::ZERO;
    for byte in request {
        for client in &mut slow {
            client.write_all(&[*byte]).unwrap();
        }
        let start = Instant::now();
        assert_eq!(other.say("SET k v"), ok());
        worst = worst.max(start.elapsed());
    }
    for client in &mut slow {
        let mut reply = [0; 5];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+OK\r\n");
    }
    println!("longest wait of another client: {worst:?}");
    assert_eq!(served.server().clients.count(), 1001);
}

/// Holds the loop at `TIME`, and counts the clients at `ECHO`.
struct Usher {
    server: Weak<Server>,
    holds: Barrier,
    goes_on: Barrier,
    at_echo: AtomicUsize,
}

impl CommandObserver for Usher {
    fn observe(&self, command: &ObservedCommand) {
        match command.name {
            "time" => {
                self.holds.wait();
                self.goes_on.wait();
            }
            "echo" => {
                let count = self.server.upgrade().map_or(0, |server| server.clients.count());
                self.at_echo.store(count, Ordering::SeqCst);
            }
            _ => {}
        }
    }
}

#[test]
fn many_who_connect_at_once_hold_nobody_up() {
    const MANY: usize = 100;
    let served = Served::with(&[("trace-sample-every", "1")]);
    let [mut holder, mut other] = [(); 2].map(|()| served.client());
    assert_eq!(holder.say("PING"), other.say("PING"));
    let usher = Arc::new(Usher {
        server: Arc::downgrade(served.server()),
        holds: Barrier::new(2),
        goes_on: Barrier::new(2),
        at_echo: AtomicUsize::new(0),
    });
    served.server().observe_commands(usher.clone());
    holder.send_words(&["TIME"]);
    usher.holds.wait();
    let many: Vec<Client> = (0..MANY).map(|_| served.client()).collect();
    other.send_words(&["ECHO here"]);
    usher.goes_on.wait();
    assert_eq!(other.reply(), bulk("here"));
    let count = usher.at_echo.load(Ordering::SeqCst);
    assert!((2..MANY).contains(&count), "{count} clients were there before it was served");
    for mut client in many {
        assert_eq!(client.say("PING"), Reply::Simple(b"PONG"[..].into()));
    }
}

#[test]
fn clients_over_the_limit_are_told_so() {
    let served = Served::with(&[("maxclients", "2")]);
    let (mut first, mut second) = (served.client(), served.client());
    assert_eq!(first.say("PING"), second.say("PING"));
    let mut third = served.client();
    assert!(error(&third.reply()).contains("max number of clients"));
    assert_eq!(third.try_reply(), None);
    drop(second);
    until("no room although a client has gone", || {
        let mut again = served.client();
        again.stream.write_all(b"PING\r\n").unwrap();
        again.try_reply() == Some(Reply::Simple(b"PONG"[..].into()))
    });
}

#[test]
fn idle_clients_are_ended_after_the_timeout() {
    let (served, clock) = Served::with_clock(&[("timeout", "1")]);
    let mut idle = served.client();
    let mut busy = served.client();
    idle.say("PING");
    for _ in 0..2 {
        clock.advance(600);
        busy.say("PING");
    }
    assert_eq!(idle.try_reply(), None);
    assert_eq!(busy.say("ECHO here"), bulk("here"));
}

#[test]
fn several_loops_count_together() {
    const CLIENTS: usize = 8;
    const TIMES: usize = 2000;
    let served = Served::with(&[("server-threads", "3"), ("reader-threads", "4")]);
    let threads: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let mut client = served.client();
            std::thread::spawn(move || {
                let requests = vec!["INCR counter"; 20];
                for _ in 0..TIMES / 20 {
                    client.pipeline(&requests);
                    assert_eq!(
                        client.say(&format!("INCRBY own{n} 2")),
                        client.say(&format!("GET own{n}")).integer()
                    );
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(served.client().say("GET counter"), bulk(&(CLIENTS * TIMES).to_string()));
}

trait AsInteger {
    fn integer(self) -> Reply<'static>;
}

impl AsInteger for Reply<'static> {
    /// The number that a string is.
    fn integer(self) -> Reply<'static> {
        Reply::Integer(crate::client::text(&self).parse().unwrap())
    }
}

#[test]
fn what_was_acknowledged_before_the_end_is_there_after_it() {
    let served = Served::with(&[("server-threads", "2")]);
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let counts: [std::sync::Arc<AtomicU64>; 4] = Default::default();
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (address, stop) = (served.address(), stop.clone());
            let acknowledged = counts[n].clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                for i in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut request = Vec::new();
                    terrace_resp::write_request(&mut request, &["SET", &format!("{n}:{i}"), "v"]);
                    if client.stream.write_all(&request).is_err()
                        || client.try_reply() != Some(ok())
                    {
                        break;
                    }
                    acknowledged.store(i + 1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let counted = || counts.each_ref().map(|count| count.load(Ordering::SeqCst));
    until("a thread has written nothing", || counted().iter().all(|count| *count > 0));
    std::thread::sleep(Duration::from_millis(200));
    let dir = served.end();
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let acknowledged: [u64; 4] = counted();
    let served = Served::again(dir, &[]);
    let mut client = served.client();
    for (n, count) in acknowledged.iter().enumerate() {
        for i in 0..*count {
            assert_eq!(client.say(&format!("GET {n}:{i}")), bulk("v"), "{n}:{i} of {count}");
        }
    }
}
