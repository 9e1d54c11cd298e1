//! What one client may take: before it has authenticated, of memory for its replies, of
//! connections, of time.

use crate::client::{Client, HANG_GUARD, array, bulk, error, int, ok, until};
use crate::served::Served;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use terrace_resp::{Reply, write_request};

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_request(&mut bytes, words);
    bytes
}

#[test]
fn before_authentication_requests_are_small() {
    let served = Served::with(&[("requirepass", "pw")]);
    let long = "x".repeat(16 << 10);
    let over = "x".repeat((16 << 10) + 1);
    for (bytes, why) in [
        (b"*11\r\n".to_vec(), "unauthenticated multibulk length"),
        (b"*1048576\r\n".to_vec(), "unauthenticated multibulk length"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n".to_vec(), "unauthenticated bulk length"),
        (b"*2\r\n$4\r\nAUTH\r\n$536870912\r\n".to_vec(), "unauthenticated bulk length"),
        (request(&["AUTH", &over]), "unauthenticated bulk length"),
        (format!("AUTH {over}").into_bytes(), "too big inline request"),
        (request(&["AUTH", &long, &long]), "Protocol error"),
        (request(&["AUTH", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]), "multibulk"),
    ] {
        let mut guest = served.client();
        // Who has seen enough closes while there is more to come.
        let _refused = guest.stream.write_all(&bytes);
        if let Some(reply) = guest.try_reply() {
            let refused = error(&reply);
            assert!(
                refused.starts_with("ERR Protocol error") && refused.contains(why),
                "{refused}"
            );
        } else {
            assert!(bytes.len() > 10_000, "no word about {}", bytes.escape_ascii());
        }
        guest.expect_end();
    }
    // As much as is allowed.
    let mut guest = served.client();
    let refused = error(&guest.call(&["AUTH", &long]));
    assert!(refused.starts_with("WRONGPASS"), "{refused}");
    let refused = error(&guest.say("MGET 2 3 4 5 6 7 8 9 10"));
    assert!(refused.starts_with("NOAUTH"), "{refused}");
    // From the login on, also for what is in the same packet.
    let value = "x".repeat(100_000);
    let mut both = request(&["AUTH", "pw"]);
    both.extend(request(&["SET", "k", &value]));
    both.extend(request(&["DEL", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"]));
    guest.send_raw(&both);
    assert_eq!((guest.reply(), guest.reply(), guest.reply()), (ok(), ok(), int(0)));
    assert_eq!(guest.say("GET k"), bulk(&value));
}

/// What it may send hangs on who it is, and not on who it was.
#[test]
fn who_has_to_log_in_once_more_sends_small_requests_again() {
    let served = Served::with(&[("requirepass", "pw")]);
    let value = "x".repeat(100_000);
    let mut client = served.client();
    for _ in 0..2 {
        assert_eq!(client.say("AUTH pw"), ok());
        assert_eq!(client.call(&["SET", "k", &value]), ok());
        assert_eq!(client.say("RESET"), Reply::Simple(b"RESET"[..].into()));
    }
    // Who closes while there is more to come may have been sent something nonetheless.
    let _refused = client.stream.write_all(&request(&["SET", "k", &value]));
    let refused = error(&client.reply());
    assert!(refused.contains("unauthenticated bulk length"), "{refused}");
    client.expect_end();
    // Nobody has to log in.
    let mut admin = served.client();
    assert_eq!(admin.say("AUTH pw"), ok());
    assert_eq!(admin.call(&["CONFIG", "SET", "requirepass", ""]), ok());
    assert_eq!(admin.say("RESET"), Reply::Simple(b"RESET"[..].into()));
    assert_eq!(admin.call(&["SET", "k", &value]), ok());
}

/// The server holds names for as long as clients are connected, and some for longer.
#[test]
fn names_of_clients_have_a_bound() {
    let served = Served::with(&[("slowlog-log-slower-than", "0")]);
    let mut client = served.client();
    let (most, over) = ("n".repeat(4096), "n".repeat(4097));
    for request in [
        &["CLIENT", "SETNAME", &over][..],
        &["HELLO", "3", "SETNAME", &over],
        &["CLIENT", "SETINFO", "LIB-NAME", &over],
        &["CLIENT", "SETINFO", "lib-ver", &over],
    ] {
        let refused = error(&client.call(request));
        assert!(refused.ends_with("cannot be longer than 4096 bytes."), "{refused}");
    }
    assert_eq!(client.say("CLIENT GETNAME"), Reply::Null);
    assert_eq!(client.call(&["CLIENT", "SETNAME", &most]), ok());
    assert_eq!(client.say("CLIENT GETNAME"), bulk(&most));
    let Reply::Array(entries) = client.say("SLOWLOG GET 1") else { panic!("no array") };
    let Reply::Array(entry) = &entries[0] else { panic!("no entry") };
    assert_eq!(entry[5], bulk(&most[..128]));
}

#[test]
fn arguments_and_requests_have_the_configured_bounds() {
    let served = Served::with(&[]);
    let mut admin = served.client();
    assert_eq!(admin.say("CONFIG SET proto-max-bulk-len 1mb client-query-buffer-limit 2mb"), ok());
    let refused = |bytes: &[u8]| {
        let mut client = served.client();
        client.send_raw(bytes);
        let refused = error(&client.reply());
        client.expect_end();
        refused
    };
    assert!(refused(b"*2\r\n$3\r\nGET\r\n$1048577\r\n").contains("invalid bulk length"));
    let mebibyte = "x".repeat(1 << 20);
    let mut most = served.client();
    assert_eq!(most.call(&["SET", "k", &mebibyte]), ok());
    let mut three = b"*4\r\n$4\r\nMSET\r\n".to_vec();
    for _ in 0..2 {
        three.extend(format!("${}\r\n", (1 << 20) - 10).bytes().chain(mebibyte.bytes().skip(10)));
        three.extend(b"\r\n");
    }
    three.extend(b"$1048576\r\n");
    let why = refused(&three);
    assert!(why.starts_with("ERR Protocol error"), "{why}");
    // More than sockets hold: the server closes long before all of it is sent.
    let mut endless = b"*2\r\n$3\r\nGET\r\n$1048577\r\n".to_vec();
    endless.resize(64 << 20, b'x');
    let why = refused(&endless);
    assert!(why.contains("invalid bulk length"), "{why}");
    assert_eq!(most.say("STRLEN k"), int(1 << 20));
}

/// Options that bound requests hold for who is connected already, and for what commands make of strings.
#[test]
fn changed_bounds_hold_for_open_connections_and_growing_strings() {
    let served = Served::with(&[]);
    let (mut admin, mut open, mut other) = (served.client(), served.client(), served.client());
    let over = "x".repeat((1 << 20) + 1);
    assert_eq!(open.call(&["SET", "k", &over]), ok());
    assert_eq!(admin.say("CONFIG SET proto-max-bulk-len 1mb"), ok());
    open.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n");
    assert!(error(&open.reply()).contains("invalid bulk length"));
    open.expect_end();
    let too_long = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    for request in ["APPEND k x", "SETRANGE n 1048576 x"] {
        assert_eq!(error(&other.say(request)), too_long, "{request}");
    }
    assert_eq!(other.say("SETRANGE n 1048575 x"), int(1 << 20));
    // And the other way round.
    assert_eq!(admin.say("CONFIG SET proto-max-bulk-len 2mb"), ok());
    assert_eq!(other.call(&["SET", "k", &over]), ok());
    assert_eq!(other.say("APPEND n x"), int((1 << 20) + 1));
}

/// A client that asks for `value` `times` times and reads nothing.
fn greedy(served: &Served, times: usize) -> TcpStream {
    let mut stream = TcpStream::connect(served.address()).unwrap();
    stream.write_all(&request(&["GET", "value"]).repeat(times)).unwrap();
    stream
}

/// All that there is to read until the server ends the connection; panics if it does not.
fn rest(stream: &mut TcpStream) -> usize {
    stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
    let mut piece = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return bytes,
            Ok(n) => bytes += n,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return bytes,
            Err(error) => panic!("not ended after {bytes} bytes: {error}"),
        }
    }
}

const GONE: &str = "client_output_buffer_limit_disconnections";

#[test]
fn who_asks_for_more_than_the_hard_limit_is_ended_and_nobody_else() {
    let served = Served::with(&[("client-output-buffer-limit", "normal 512kb 0 0")]);
    let mut other = served.client();
    let value = "x".repeat(64 << 10);
    assert_eq!(other.call(&["SET", "value", &value]), ok());
    assert_eq!(other.say("GET value"), bulk(&value));
    assert_eq!(other.info(GONE), 0);
    let mut greedy = greedy(&served, 500);
    until("it is not ended", || other.info(GONE) == 1);
    assert!(rest(&mut greedy) < 500 * value.len());
    assert_eq!(other.say("GET value"), bulk(&value));
    assert_eq!(served.server().clients.count(), 1);
    // Live: the same request is answered under a higher limit.
    let set = ["CONFIG", "SET", "client-output-buffer-limit", "normal 100mb 0 0"];
    assert_eq!(other.call(&set), ok());
    let mut asked = served.client();
    asked.send_raw(&request(&["GET", "value"]).repeat(100));
    for _ in 0..100 {
        assert_eq!(asked.reply(), bulk(&value));
    }
    assert_eq!(other.info(GONE), 1);
}

/// What comes back from the pool is a reply like any other.
#[test]
fn the_hard_limit_holds_for_replies_that_other_threads_made() {
    let served = Served::with(&[("client-output-buffer-limit", "normal 4mb 0 0")]);
    let mut other = served.client();
    assert_eq!(other.call(&["SET", "value", &"x".repeat(1 << 20)]), ok());
    let mut greedy = TcpStream::connect(served.address()).unwrap();
    let mut transaction = Vec::new();
    // Transactions of clients that watch something are executed by the pool.
    write_request(&mut transaction, &["WATCH", "value"]);
    write_request(&mut transaction, &["MULTI"]);
    (0..30).for_each(|_| write_request(&mut transaction, &["GET", "value"]));
    write_request(&mut transaction, &["EXEC"]);
    greedy.write_all(&transaction).unwrap();
    until("it is not ended", || other.info(GONE) == 1);
    assert!(rest(&mut greedy) < 30 << 20);
    assert_eq!(other.say("STRLEN value"), int(1 << 20));
}

#[test]
fn who_stays_over_the_soft_limit_is_ended_and_who_reads_is_not() {
    let (served, clock) = Served::with_clock(&[("client-output-buffer-limit", "normal 0 256kb 1")]);
    let mut other = served.client();
    let value = "x".repeat(64 << 10);
    assert_eq!(other.call(&["SET", "value", &value]), ok());
    // More than the kernel holds for it.
    let times = 500;
    let mut greedy = greedy(&served, times);
    let mut reader = served.client();
    // It is behind for more than a second in all, and over the limit for no second at a time.
    let mut read = || {
        reader.send_raw(&request(&["GET", "value"]).repeat(20));
        for _ in 0..20 {
            assert_eq!(reader.reply(), bulk(&value));
        }
    };
    for _ in 0..10 {
        read();
        assert_eq!(other.info(GONE), 0);
        clock.advance(100);
    }
    until("it is not ended", || {
        read();
        clock.advance(100);
        other.info(GONE) == 1
    });
    for _ in 0..30 {
        read();
        clock.advance(100);
    }
    assert!(rest(&mut greedy) < times * value.len());
    assert_eq!(reader.say("GET value"), bulk(&value));
    assert_eq!(other.info(GONE), 1);
}

/// A reader with a limit that is over its backlog stays, however long it takes.
#[test]
fn a_slow_reader_gets_everything_if_it_stays_below_the_limits() {
    let served = Served::with(&[("client-output-buffer-limit", "normal 64mb 32mb 1")]);
    let value = "x".repeat(64 << 10);
    assert_eq!(served.client().call(&["SET", "value", &value]), ok());
    let times = 300;
    let mut slow = greedy(&served, times);
    slow.shutdown(Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    // It has said that it sends nothing more, and gets all that it has asked for nonetheless.
    assert_eq!(rest(&mut slow), times * (value.len() + "$65536\r\n\r\n".len()));
}

#[test]
fn the_number_of_connections_changes_while_the_server_runs() {
    let served = Served::with(&[]);
    let mut first = served.client();
    assert_eq!(first.say("CONFIG SET maxclients 2"), ok());
    let mut second = served.client();
    assert_eq!(second.say("PING"), first.say("PING"));
    let mut third = served.client();
    assert_eq!(error(&third.reply()), "ERR max number of clients reached");
    third.expect_end();
    assert_eq!(first.info("rejected_connections"), 1);
    assert_eq!(first.info("connected_clients"), 2);
    assert_eq!(first.say("CONFIG SET maxclients 3"), ok());
    assert_eq!(served.client().say("PING"), first.say("PING"));
    // Who is in stays in when there are too many.
    assert_eq!(first.say("CONFIG SET maxclients 1"), ok());
    assert_eq!(second.say("PING"), first.say("PING"));
    assert!(error(&served.client().reply()).contains("max number"));
}

#[test]
fn guests_and_idle_clients_are_ended_after_the_timeout_and_busy_ones_are_not() {
    let (served, clock) = Served::with_clock(&[("requirepass", "pw")]);
    let mut busy = served.client();
    assert_eq!(busy.say("AUTH pw"), ok());
    let mut guest = served.client();
    let mut idle = served.client();
    assert_eq!(idle.say("AUTH pw"), ok());
    // Half a request, of which nothing more comes.
    guest.send_raw(b"*2\r\n$4\r\nAU");
    assert_eq!(busy.say("CONFIG SET timeout 1"), ok());
    for _ in 0..2 {
        clock.advance(600);
        busy.say("PING");
    }
    guest.expect_end();
    idle.expect_end();
    assert_eq!(served.server().stats.timed_out.get(), 2);
    assert_eq!(busy.say("CONFIG SET timeout 0"), ok());
    clock.advance(10_000);
    // The loop looks at its clients once a second.
    std::thread::sleep(Duration::from_millis(2200));
    assert_eq!(busy.say("ECHO here"), bulk("here"));
}

/// Whatever a client sends, it is not idle: also what is only queued, or refused.
#[test]
fn who_only_queues_or_is_only_refused_is_busy() {
    let (served, clock) = Served::with_clock(&[("timeout", "1")]);
    let mut queues = served.client();
    let mut errs = served.client();
    assert_eq!(queues.say("MULTI"), ok());
    assert_eq!(served.server().stats.timed_out.get(), 0);
    for _ in 0..3 {
        clock.advance(600);
        assert_eq!(queues.say("INCR n"), Reply::Simple(b"QUEUED"[..].into()));
        error(&errs.say("NONSENSE"));
        error(&errs.say("GET"));
        // The loop looks at its clients once a second.
        std::thread::sleep(Duration::from_millis(1100));
    }
    assert_eq!(queues.say("EXEC"), array([int(1), int(2), int(3)]));
    assert!(error(&errs.say("GET")).contains("wrong number"));
    assert_eq!(served.server().stats.timed_out.get(), 0);
}

/// A command that comes slowly, and a reply that is read slowly, take longer than a client may be idle.
#[test]
fn who_sends_or_reads_slowly_is_busy() {
    /// Read at a time: so much room makes the sockets take more of the reply, and they hold far less than the rest of it.
    const PART: usize = 4 << 20;
    const LARGE: usize = 16 * PART;
    let (served, clock) = Served::with_clock(&[("timeout", "1")]);
    let stats = &served.server().stats;
    let (mut sends, mut reads) = (served.client(), served.client());
    let last = (LARGE - 1).to_string();
    assert_eq!(sends.call(&["SETRANGE", "large", &last, "x"]), int(LARGE as i64));
    sends.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n");
    reads.send_raw(b"GET large\r\n");
    let (mut piece, mut read) = (vec![0; PART], 0);
    for _ in 0..4 {
        // The server has got a byte more, and the socket has taken more of the reply, at a time that then passes.
        let (received, sent) = (stats.received_bytes.get(), stats.sent_bytes.get());
        sends.send_raw(b"v");
        reads.stream.read_exact(&mut piece).unwrap();
        read += PART;
        until("nothing goes on", || {
            stats.received_bytes.get() > received && stats.sent_bytes.get() > sent
        });
        clock.advance(600);
        // The loop looks at its clients once a second.
        std::thread::sleep(Duration::from_millis(1100));
    }
    sends.send_raw(b"\r\n");
    assert_eq!(sends.reply(), ok());
    let header = format!("${LARGE}\r\n").len();
    while read < header + LARGE + 2 {
        let more = reads.stream.read(&mut piece).unwrap();
        assert!(more > 0, "ended after {read} bytes");
        read += more;
    }
    assert_eq!(stats.timed_out.get(), 0);
}

/// A client that goes while the server reads its last words leaves nothing behind.
#[test]
fn who_goes_in_the_middle_of_a_request_is_forgotten() {
    let served = Served::with(&[("server-threads", "2")]);
    let mut other = served.client();
    for at in 0..300 {
        let mut client = TcpStream::connect(served.address()).unwrap();
        let words: &[u8] = match at % 4 {
            0 => b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nva",
            1 => b"CLIENT REPLY OFF\r\n",
            2 => b"SET k v\r\nGET k\r\nGE",
            _ => b"*1\r\n",
        };
        client.write_all(words).unwrap();
    }
    let clients = &served.server().clients;
    until("they are not welcomed", || clients.total() == 301);
    until("connections are left", || clients.count() == 1);
    assert_eq!(other.say("GET absent"), Reply::Null);
}

/// As with `printf … | nc`: what was asked for is answered, then the connection ends.
#[test]
fn who_stops_sending_is_answered_first() {
    let served = Served::with(&[]);
    for times in [1, 100, 3000] {
        let mut client: Client = served.client();
        let requests: Vec<u8> =
            (0..times).flat_map(|n| request(&["ECHO", &n.to_string()])).collect();
        client.send_raw(&requests);
        client.stream.shutdown(Shutdown::Write).unwrap();
        for n in 0..times {
            assert_eq!(client.try_reply(), Some(bulk(&n.to_string())), "{n} of {times}");
        }
        client.expect_end();
    }
    until("connections are left", || served.server().clients.count() == 0);
    let mut client = served.client();
    assert_eq!(client.say("GET x"), Reply::Null);
}

/// One reply, not many: it is cut while it is made, whatever command makes it, and what the command wrote stays.
#[test]
fn a_single_reply_is_held_to_the_limit_as_well() {
    let served = Served::with(&[("client-output-buffer-limit", "normal 1mb 0 0")]);
    let mut other = served.client();
    let value = "x".repeat(50_000);
    for at in 0..100 {
        assert_eq!(other.call(&["HSET", "hash", &format!("field{at}"), &value]), int(1));
        assert_eq!(other.call(&["RPUSH", "list", &value]), int(at + 1));
    }
    assert_eq!(other.call(&["SET", "value", &value]), ok());
    let many_keys: Vec<&str> = std::iter::once("MGET").chain(["value"; 1000]).collect();
    let exec = [
        request(&["MULTI"]),
        request(&["INCR", "count"]),
        request(&["GET", "value"]).repeat(1000),
        request(&["INCR", "count"]),
        request(&["EXEC"]),
    ];
    let requests = [
        request(&many_keys),
        request(&["HGETALL", "hash"]),
        request(&["LRANGE", "list", "0", "-1"]),
        request(&["HRANDFIELD", "hash", "-100000", "WITHVALUES"]),
        request(&["SORT", "list", "ALPHA"]),
        exec.concat(),
    ];
    for (at, bytes) in requests.iter().enumerate() {
        let mut greedy = TcpStream::connect(served.address()).unwrap();
        greedy.write_all(bytes).unwrap();
        until("it is not ended", || other.info(GONE) == at as u64 + 1);
        assert!(rest(&mut greedy) < 1 << 20, "request {at}");
    }
    assert_eq!(other.say("GET count"), bulk("2"));
    // What is before it is answered, and what is within the limit.
    let mut client = served.client();
    client.send_raw(&[request(&["PING"]), request(&many_keys), request(&["PING"])].concat());
    assert_eq!(client.reply(), Reply::Simple(b"PONG"[..].into()));
    client.expect_end();
    let few: Vec<&str> = many_keys[..20].to_vec();
    assert_eq!(served.client().call(&few), array(std::iter::repeat_n(bulk(&value), 19)));
}

/// What it writes is held in memory until it is committed.
#[test]
fn a_transaction_that_writes_too_much_writes_nothing() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.say("MULTI");
    client.say("SELECT 1");
    for at in 0..14 {
        client.say(&format!("SETRANGE k{at} 100000000 x"));
    }
    let refused = error(&client.say("EXEC"));
    assert!(refused.starts_with("EXECABORT") && refused.contains("1 GiB"), "{refused}");
    assert_eq!(client.say("SETRANGE k 9 x"), int(10));
    assert_eq!(client.say("DBSIZE"), int(1), "the client is in the database that it was in");
    client.say("SELECT 1");
    assert_eq!(client.say("DBSIZE"), int(0));
}

/// Else a short command gathers gigabytes.
#[test]
fn sort_looks_up_no_more_than_it_may_show_or_store() {
    let served = Served::with(&[("client-output-buffer-limit", "normal 1mb 0 0")]);
    let mut client = served.client();
    assert_eq!(client.call(&["SET", "value", &"x".repeat(100_000)]), ok());
    let push: Vec<&str> = ["RPUSH", "list"].into_iter().chain(["e"; 100]).collect();
    assert_eq!(client.call(&push), int(100));
    let lookups = || served.server().space.db().metrics().gets;
    let mut sort = vec!["SORT", "list", "BY", "nosort"];
    sort.extend(["GET", "valu*"].repeat(500));
    // The element stands in the place of the star.
    for (store, most_lookups) in [(&[][..], 1_000), (&["STORE", "sorted"], 20_000)] {
        let before = lookups();
        let mut asked = served.client();
        asked.send(&[&sort[..], store].concat());
        match store {
            [] => asked.expect_end(),
            _ => assert!(error(&asked.reply()).contains("over the limit")),
        }
        let looked_up = lookups() - before;
        assert!(looked_up < most_lookups, "{looked_up} lookups for 50,000 values");
    }
    assert_eq!(client.say("EXISTS sorted"), int(0));
}

/// Hashes have no seed: a client can make fields with equal ones, which one page has to show.
#[test]
fn a_page_of_fields_of_one_hash_is_held_to_the_limit() {
    // Where XXH3 takes both halves of sixteen bytes for zero.
    const ZERO: [u64; 2] = [0x6782_737b_ea42_39b9, 0xaf56_bc3b_0996_523a];
    let served = Served::with(&[("client-output-buffer-limit", "normal 1mb 0 0")]);
    let mut client = served.client();
    let value = vec![b'x'; 600_000];
    for [first, second] in [[0, 0x0123_4567_89ab_cdef], [0xefcd_ab89_6745_2301_u64, 0]] {
        let field = [(first ^ ZERO[0]).to_le_bytes(), (second ^ ZERO[1]).to_le_bytes()].concat();
        assert_eq!(client.call(&[&b"HSET"[..], b"hash", &field[..], &value[..]]), int(1));
    }
    let mut scan =
        |count: &str| client.call(&["HSCAN", "hash", "0", "COUNT", count, "MATCH", "nothing"]);
    let refused = error(&scan("1"));
    assert!(refused.contains("hashes are equal"), "{refused}");
    assert_eq!(scan("2"), array([bulk("0"), array([])]));
}

/// What is made of a reply that is too long anyway is little more than fits.
#[test]
fn who_asks_for_too_much_does_not_make_the_server_read_all_of_it() {
    const COUNT: u64 = 1000;
    let served = Served::with(&[("client-output-buffer-limit", "normal 1mb 0 0")]);
    let mut client = served.client();
    let value = "x".repeat(10_000);
    let fields: Vec<String> = (0..COUNT).map(|at| format!("f{at}")).collect();
    for (at, field) in fields.iter().enumerate() {
        assert_eq!(client.call(&["HSET", "hash", field, &value]), int(1));
        assert_eq!(client.call(&["RPUSH", "list", &value]), int(at as i64 + 1));
        assert_eq!(client.call(&["SADD", "set", &format!("{field}{}", &value[..1000])]), int(1));
        assert_eq!(client.call(&["SET", field, &value]), ok());
    }
    let space = &served.server().space;
    space.db().flush().unwrap();
    let mut hmget = vec!["HMGET", "hash"];
    hmget.extend(fields.iter().map(String::as_str));
    for words in [
        "LRANGE list 0 -1",
        "HGETALL hash",
        "HVALS hash",
        &hmget.join(" "),
        "HRANDFIELD hash -1000 WITHVALUES",
        "HRANDFIELD hash 1000 WITHVALUES",
        "HRANDFIELD hash 200 WITHVALUES",
        "TSCAN - + LIMIT 1000000",
        "SRANDMEMBER set -1000000",
        "LPOP list 1000",
    ] {
        let done = || {
            let metrics = space.db().metrics();
            metrics.value_reads + metrics.value_cache_hits + metrics.seeks
        };
        let before = done();
        let mut greedy = served.client();
        greedy.send_words(&[words]);
        greedy.expect_end();
        // 100 values fit, or 1,000 members; some more are read ahead, and a random one is looked for among neighbours.
        let most = if words.contains("RAND") { 3000 } else { 500 };
        assert!(done() - before < most, "{}: {}", &words[..10], done() - before);
    }
    // What was to be popped is gone nonetheless.
    assert_eq!(client.say("EXISTS list"), int(0));
}
