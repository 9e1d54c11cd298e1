//! Bytes that no client sends, against a live server: each on a connection of its own, while others
//! are served as if there were none.

use crate::client::{Client, HANG_GUARD, bulk, int, ok, until};
use crate::served::Served;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use terrace_resp::{Limits, Reply, ReplyParser, ReplyStep, RequestParser, Step, write_request};

/// Who sends it, the bytes, the error: see the head of the file.
const MALFORMED: &str = include_str!("../../../resp/tests/malformed.txt");

/// The bytes of the corpus of the protocol's own tests.
fn corpus() -> Vec<Vec<u8>> {
    let lines = MALFORMED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let inputs: Vec<Vec<u8>> = lines
        .map(|line| {
            let mut line = format!("{line}\n").into_bytes();
            let mut parser = RequestParser::new(Limits::default());
            match parser.next(&mut line).unwrap() {
                Step::Command(command) => command.get(1).unwrap().to_vec(),
                _ => panic!("no line of the corpus"),
            }
        })
        .collect();
    assert!(inputs.len() > 80);
    inputs
}

fn pipeline(requests: &[&[&str]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    requests.iter().for_each(|words| write_request(&mut bytes, words));
    bytes
}

/// What the corpus does not have: sound pipelines with something wrong at every place, and
/// requests that are sound and mean no good.
fn by_hand() -> Vec<Vec<u8>> {
    let long = "x".repeat(70_000);
    let nul = "\0\r\n\u{ff}".repeat(20);
    let mut inputs = vec![
        Vec::new(),
        b"\r\n\r\n\n\n \r\n".to_vec(),
        b"*0\r\n*-1\r\nPING\r\n".to_vec(),
        vec![0; 5000],
        vec![0xff; 5000],
        b"*1\r\n".repeat(5000),
        b"$5\r\nhello\r\n+OK\r\n-ERR\r\n:1\r\n%1\r\n~1\r\n".to_vec(),
        b"*1048576\r\n".to_vec(),
        b"*2147483647\r\n".to_vec(),
        b"*1048576\r\n$0\r\n\r\n".to_vec(),
        b"*3\r\n$3\r\nSET\r\n$1\r\nh\r\n$536870912\r\nfirst".to_vec(),
        b"*2\r\n$3\r\nGET\r\n$1\r\nkk\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_vec(),
        b"SET \"unbalanced\r\nPING\r\n".to_vec(),
        [&b"GET "[..], long.as_bytes()].concat(),
        pipeline(&[&[&long, &long], &["GET", &long], &["SET", &long, "1"]]),
        pipeline(&[&[&nul, &nul], &["GET", &nul], &["CLIENT", "SETNAME", &nul], &["ECHO", &nul]]),
        pipeline(&[&["SCAN", "18446744073709551615", "COUNT", "9223372036854775807"]]),
        pipeline(&[&["SADD", "h:s", "a"], &["SRANDMEMBER", "h:s", "-9223372036854775808"]]),
        pipeline(&[&["SRANDMEMBER", "h:s", "9223372036854775807"], &["SPOP", "h:s", "-1"]]),
        pipeline(&[
            &["SET", "h:n", "9223372036854775807"],
            &["INCR", "h:n"],
            &["DECRBY", "h:n", "-9223372036854775808"],
        ]),
        pipeline(&[&["GETRANGE", "h:n", "-9223372036854775808", "9223372036854775807"]]),
        pipeline(&[&["SETRANGE", "h:n", "536870912", "x"], &["SETBIT", "h:n", "4294967295", "1"]]),
        pipeline(&[&["LRANGE", "h:l", "-9223372036854775808", "9223372036854775807"]]),
        pipeline(&[&["EXPIRE", "h:n", "9223372036854775807"], &["PEXPIREAT", "h:n", "-1"]]),
        pipeline(&[&["MULTI"], &["MULTI"], &["EXEC"], &["EXEC"], &["DISCARD"], &["WATCH"]]),
        pipeline(&[&["MULTI"], &["CLIENT", "REPLY", "OFF"], &["GET", "h:n"], &["EXEC"]]),
        pipeline(&[&["CLIENT", "REPLY", "SKIP"], &["NONSENSE"], &["PING"]]),
        pipeline(&[&["HELLO", "9"], &["HELLO", "3", "AUTH"], &["HELLO", "3"], &["HGETALL", "h:h"]]),
        pipeline(&[&["CONFIG", "SET", "maxclients", "0"], &["CONFIG", "GET", "*"]]),
        pipeline(&[&["DEBUG", "SLEEP", "1000000"], &["DEBUG", "SEGFAULT"], &["SHUTDOWN", "ABORT"]]),
        pipeline(&[&["KEYS", &"*a".repeat(10_000)], &["KEYS", &"[".repeat(1000)]]),
        pipeline(&[&["SELECT", "-1"], &["SELECT", "256"], &["SELECT", "99999999999999999999"]]),
        pipeline(&[&["COMMAND", "GETKEYS"], &["COMMAND", "INFO", &nul], &["OBJECT"], &["ACL"]]),
        pipeline(&[
            &["ZADD", "h:z", "nan", "a", "inf", "b"],
            &["ZRANGE", "h:z", "(", "[", "BYLEX"],
        ]),
        pipeline(&[&["QUIT"], &["SET", "healthy", "wrong"]]),
    ];
    let sound = pipeline(&[&["SET", "h:k", "value"], &["GET", "h:k"], &["HSET", "h:h", "f", "v"]]);
    for at in 0..sound.len() {
        inputs.push(sound[..at].to_vec());
        for byte in [b'\r', b'9', 0, 0xff] {
            let mut changed = sound.clone();
            changed[at] = byte;
            inputs.push(changed);
        }
    }
    inputs
}

/// Sends the bytes and no more, and reads until the server ends the connection. Whatever is said
/// must be replies, a protocol error the last.
fn throw(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
    stream.set_nodelay(true).unwrap();
    // It may have been ended before all is sent.
    let sent = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{}: {error}", bytes.escape_ascii()),
    }
    let mut parser = ReplyParser::new(Limits::default());
    let (mut at, mut is_over) = (0, false);
    while at < answer.len() {
        let step = parser.next(&answer[at..]);
        let Ok(ReplyStep::Frame(frame)) = step else {
            // A reset may cut a reply off.
            assert!(sent.is_err(), "{}: {}", bytes.escape_ascii(), answer.escape_ascii());
            return;
        };
        assert!(!is_over, "{}: {}", bytes.escape_ascii(), answer.escape_ascii());
        at += frame.bytes().len();
        is_over = frame.bytes().starts_with(b"-ERR Protocol error");
    }
}

/// A client that asks all the time and gets what it should, some times at least.
fn healthy(address: SocketAddr, stop: &AtomicBool) {
    let mut client = Client::connect(address);
    let mut rounds = 0_i64;
    assert_eq!(client.say("DEL counter"), int(0));
    while rounds <= 10 || !stop.load(Ordering::Relaxed) {
        rounds += 1;
        let value = rounds.to_string();
        let replies = client.pipeline(&[
            &format!("SET healthy {value}"),
            "GET healthy",
            "INCR counter",
            "HSET own f v",
            "NONSENSE",
        ]);
        assert_eq!(replies[..3], [ok(), bulk(&value), int(rounds)]);
        assert!(matches!(replies[4], Reply::Error(_)));
    }
}

#[test]
fn malformed_input_harms_nobody_else() {
    let served = Served::with(&[("server-threads", "2"), ("databases", "16")]);
    let address = served.address();
    let stop = Arc::new(AtomicBool::new(false));
    let well = {
        let stop = stop.clone();
        std::thread::spawn(move || healthy(address, &stop))
    };
    let inputs: Vec<Vec<u8>> = corpus().into_iter().chain(by_hand()).collect();
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(input) = inputs.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    throw(address, input);
                }
            });
        }
    });
    stop.store(true, Ordering::Relaxed);
    well.join().unwrap();
    assert!(served.server().stats.protocol_errors.get() > 80);
    assert!(!served.server().stop.is_requested());
    assert_eq!(served.client().say("SET k v"), ok());
}

/// The same, from those who have yet to log in: no request of theirs is executed.
#[test]
fn malformed_input_of_guests_changes_nothing() {
    let served = Served::with(&[("requirepass", "pw")]);
    let mut client = served.client();
    assert_eq!(client.say("AUTH pw"), ok());
    for input in corpus().into_iter().chain(by_hand()) {
        throw(served.address(), &input);
        assert_eq!(client.say("ECHO here"), bulk("here"));
    }
    assert_eq!(client.say("DBSIZE"), int(0));
}

/// Connections that announce much and send little stay, and others are served meanwhile.
#[test]
fn who_announces_much_and_sends_little_is_waited_for() {
    let served = Served::with(&[]);
    let mut open: Vec<TcpStream> = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(served.address()).unwrap();
        stream.write_all(b"*2147483647\r\n$536870912\r\nabc").unwrap();
        open.push(stream);
    }
    let mut client = served.client();
    assert_eq!(client.say("SET k v"), ok());
    until("all are there", || served.server().clients.count() == 101);
    open[0].set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let waited = open[0].read(&mut [0]).unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::WouldBlock);
    assert_eq!(client.say("GET k"), bulk("v"));
}
