//! Clients that write everything before they read, and requests that are large.

use crate::client::{HANG_GUARD, bulk, error, int, ok, until};
use crate::served::Served;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use terrace_base::ManualClock;
use terrace_resp::{Reply, write_request};
use terrace_server::command_observer::{CommandObserver, ObservedCommand};

/// Limits of requests that are reached soon.
const SMALL: [(&str, &str); 2] =
    [("client-query-buffer-limit", "1mb"), ("proto-max-bulk-len", "1mb")];

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_request(&mut bytes, words);
    bytes
}

fn open(served: &Served) -> TcpStream {
    let stream = TcpStream::connect(served.address()).unwrap();
    stream.set_write_timeout(Some(HANG_GUARD)).unwrap();
    stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
    stream
}

/// More requests and more replies than the sockets hold, in one thread.
#[test]
fn who_writes_everything_before_it_reads_is_answered() {
    let times = 300;
    let value = "x".repeat(100_000);
    let requests = [request(&["SET", "k", &value]), request(&["GET", "k"])].concat().repeat(times);
    for flags in [&[][..], &[("appendfsync", "always")], &[("server-threads", "2")]] {
        let served = Served::with(flags);
        let mut stream = open(&served);
        stream.write_all(&requests).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut replies = Vec::new();
        stream.read_to_end(&mut replies).unwrap();
        let expected = format!("+OK\r\n$100000\r\n{value}\r\n").repeat(times);
        assert!(replies == expected.as_bytes(), "{} bytes", replies.len());
    }
}

/// What waits to be executed until its client reads is no more than `client-query-buffer-limit`.
#[test]
fn who_only_writes_is_ended_at_the_limit_of_its_requests() {
    let served = Served::with(&SMALL);
    let mut other = served.client();
    assert_eq!(other.call(&["SET", "value", &"x".repeat(64 << 10)]), ok());
    let gone = "client_query_buffer_limit_disconnections";
    assert_eq!(other.info(gone), 0);
    let mut greedy = open(&served);
    let requests = request(&["GET", "value"]).repeat(1000);
    // Far more than the sockets hold.
    let outcome = (0..4000).try_for_each(|_| greedy.write_all(&requests));
    assert!(outcome.is_err(), "{} bytes were taken", 4000 * requests.len());
    until("it is not ended", || other.info(gone) == 1);
    assert_eq!(other.say("STRLEN value"), int(64 << 10));
    // A client that reads after as many requests as that is answered.
    let mut reader = served.client();
    reader.send_raw(&request(&["GET", "value"]).repeat(2000));
    for _ in 0..2000 {
        assert!(matches!(reader.reply(), Reply::Bulk(text) if text.len() == 64 << 10));
    }
    assert_eq!(other.info(gone), 1);
}

/// Who has yet to log in is not read ahead.
#[test]
fn requests_of_guests_do_not_wait_in_memory() {
    let served = Served::with(&[SMALL[0], SMALL[1], ("requirepass", "pw")]);
    let mut greedy = open(&served);
    greedy.set_write_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
    let requests = request(&["GET", "x"]).repeat(10_000);
    let outcome = (0..1000).try_for_each(|_| greedy.write_all(&requests));
    assert!(outcome.is_err(), "{} bytes were taken", 1000 * requests.len());
    let mut other = served.client();
    assert_eq!(other.say("AUTH pw"), ok());
    assert_eq!(other.info("client_query_buffer_limit_disconnections"), 0);
}

/// A loop neither makes a long string nor commits one, nor looks at all of its bytes: the other clients would wait.
#[test]
fn a_string_that_becomes_long_is_made_by_another_thread() {
    let served = Served::with(&[]);
    let mut client = served.client();
    let offloads = || served.server().stats.offloads.get();
    let long = "x".repeat(2 << 20);
    let half = "x".repeat(700 << 10);
    assert_eq!(client.call(&["SET", "grows", &half]), ok());
    assert_eq!(client.say("SETBIT small 80000 1"), int(0));
    assert_eq!(offloads(), 0);
    for (at, (words, reply)) in [
        (&["SETBIT", "a", "17000000", "1"][..], int(0)),
        (&["SETRANGE", "b", "2000000", "x"], int(2_000_001)),
        (&["APPEND", "grows", &half], int(1_433_600)),
        (&["BITOP", "NOT", "c", "a"], int(2_125_001)),
        (&["SET", "d", &long], ok()),
        (&["HSET", "e", "field", &long], int(1)),
        (&["LPUSH", "f", &long], int(1)),
        (&["MSET", "g", &half, "h", &half], ok()),
        (&["COPY", "d", "i"], int(1)),
        (&["SETBIT", "a", "0", "1"], int(0)),
        (&["BITCOUNT", "a"], int(2)),
        (&["BITPOS", "a", "1"], int(0)),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(client.call(words), reply);
        assert_eq!(offloads(), at as u64 + 1, "{} {}", words[0], words[1]);
    }
    let before = offloads();
    let field = client.say("BITFIELD j SET u8 17000000 1");
    assert_eq!(field, crate::client::array([int(0)]));
    assert_eq!(offloads(), before + 1);
    client.say("MULTI");
    client.call(&["SET", "k", &half]);
    client.call(&["SET", "l", &half]);
    assert_eq!(client.say("EXEC"), crate::client::array([ok(), ok()]));
    assert_eq!(offloads(), before + 2);
    client.say("MULTI");
    client.say("SETRANGE m 2000000 x");
    client.say("STRLEN d");
    assert_eq!(client.say("EXEC"), crate::client::array([int(2_000_001), int(2 << 20)]));
    assert_eq!(offloads(), before + 3);
    assert_eq!(client.say("STRLEN b"), int(2_000_001));
    assert_eq!(client.say("GETBIT c 17000000"), int(0));
    assert_eq!(client.say("GETBIT c 3"), int(1));
}

/// Large requests in one pipeline with small ones are answered in order.
#[test]
fn large_requests_keep_their_places_in_a_pipeline() {
    let served = Served::with(&[]);
    let mut client = served.client();
    let long = "x".repeat(3 << 20);
    let mut requests = Vec::new();
    for at in 0..6 {
        requests.extend(request(&["SET", "k", &at.to_string()]));
        requests.extend(request(&["APPEND", "k", &long]));
        requests.extend(request(&["STRLEN", "k"]));
        requests.extend(request(&["SET", &format!("long{at}"), &long]));
        requests.extend(request(&["GETRANGE", "k", "0", "0"]));
    }
    client.send_raw(&requests);
    for at in 0..6 {
        assert_eq!(client.reply(), ok());
        assert_eq!(client.reply(), int((3 << 20) + 1));
        assert_eq!(client.reply(), int((3 << 20) + 1));
        assert_eq!(client.reply(), ok());
        assert_eq!(client.reply(), crate::client::bulk(&at.to_string()));
    }
}

/// As many as Redis takes, if there is memory for what has come.
#[test]
fn a_command_may_have_millions_of_arguments() {
    let served = Served::with(&[]);
    let mut client = served.client();
    let mut words = vec!["x"; 1_500_000];
    words[0] = "DEL";
    assert_eq!(client.call(&words), int(0));
    client.send_raw(b"*2147483648\r\n");
    assert_eq!(error(&client.reply()), "ERR Protocol error: invalid multibulk length");
    client.expect_end();
}

/// The longest string and its header, behind what may wait before it.
#[test]
fn the_longest_string_is_within_the_output_limit() {
    let served = Served::with(&[]);
    let most = 512 << 20;
    assert!(served.server().output_limit().hard_bytes > most + (1 << 20) + 64);
}

/// What needs no rights when it is executed needs none when it is asked about.
#[test]
fn a_dry_run_of_a_login_is_allowed() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert_eq!(client.say("ACL SETUSER u on >pw"), ok());
    for command in ["AUTH x", "HELLO", "QUIT"] {
        assert_eq!(client.say(&format!("ACL DRYRUN u {command}")), ok(), "{command}");
    }
    assert!(!matches!(client.say("ACL DRYRUN u GET x"), reply if reply == ok()));
}

/// Behind every `ECHO`, time passes: on the machine a little, on the wall clock much.
struct SlowEcho(ManualClock);

const ECHO_MS: u64 = 5_000;

impl CommandObserver for SlowEcho {
    fn observe(&self, command: &ObservedCommand) {
        if command.name == "echo" {
            std::thread::sleep(Duration::from_millis(3));
            self.0.advance(ECHO_MS);
        }
    }
}

/// A lock that lives for a second would be over when it is acknowledged.
#[test]
fn a_time_to_live_is_counted_from_its_command_also_late_in_a_turn() {
    let (served, clock) = Served::with_clock(&[("trace-sample-every", "1")]);
    served.server().observe_commands(Arc::new(SlowEcho(clock.clone())));
    let began_ms = clock.now_ms();
    let mut client = served.client();
    // Behind the PING it is seen how long the ECHO took.
    let replies =
        client.pipeline(&["ECHO x", "PING", "SET lock me NX PX 1000", "PEXPIRETIME lock"]);
    assert_eq!(replies[2..], [ok(), int((began_ms + ECHO_MS + 1000) as i64)]);
    assert_eq!(client.say("GET lock"), bulk("me"));
}

/// Its last byte is the first one behind the limit of a line, and its words are unquoted in their places.
#[test]
fn the_longest_line_is_parsed_once_also_if_it_is_executed_elsewhere() {
    const MEMBERS: usize = 5_000;
    const LINE_BYTES: usize = 65_537;
    let served = Served::with(&[]);
    let mut client = served.client();
    let mut add: Vec<String> = vec!["SADD".into(), "s".into()];
    add.extend((0..MEMBERS).map(|member| member.to_string()));
    assert_eq!(client.call(&add), int(MEMBERS as i64));
    // As many members as these are walked by a thread that may take its time.
    let before = served.server().stats.offloads.get();
    let mut line = b"SMEMBERS \"s\"".to_vec();
    line.resize(LINE_BYTES - 1, b' ');
    line.push(b'\n');
    client.send_raw(&line);
    let reply = client.reply();
    let Reply::Array(members) = &reply else { panic!("{reply:?}") };
    assert_eq!(members.len(), MEMBERS);
    assert!(served.server().stats.offloads.get() > before);
}
