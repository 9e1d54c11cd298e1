//! MULTI, EXEC, DISCARD, WATCH.

use crate::client::{Client, array, bulk, error, int, ok, until};
use crate::served::Served;
use std::io::Read;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_keyspace::{Mode, PutOptions};
use terrace_resp::Reply;

fn queued() -> Reply<'static> {
    Reply::Simple(b"QUEUED"[..].into())
}

#[test]
fn what_is_queued_is_executed_as_a_whole() {
    let served = Served::with(&[]);
    let (mut a, mut b) = (served.client(), served.client());
    assert_eq!(a.say("MULTI"), ok());
    assert_eq!(a.say("SET x 1"), queued());
    assert_eq!(a.say("INCR x"), queued());
    assert_eq!(b.say("GET x"), Reply::Null);
    assert_eq!(a.say("GET x"), queued());
    assert_eq!(a.say("EXEC"), array([ok(), int(2), bulk("2")]));
    assert_eq!(b.say("GET x"), bulk("2"));
    assert!(error(&a.say("EXEC")).contains("without MULTI"));
    assert!(error(&a.say("DISCARD")).contains("without MULTI"));
}

/// Two transactions of which each reads what the other writes happen one after the other.
#[test]
fn a_transaction_that_writes_waits_for_writers_of_what_it_reads() {
    let served = Served::with(&[("server-threads", "1")]);
    let (mut a, mut b) = (served.client(), served.client());
    // As another loop that has executed one and not committed it.
    let mut other = served.server().space.command_batch(Mode::Memory);
    other.lock(0, [&b"y"[..]].into_iter()).unwrap();
    other.put(0, b"y", b"1", &PutOptions::default()).unwrap();
    a.pipeline(&["MULTI", "GET y", "SET x 1"]);
    a.send_words(&["EXEC"]);
    // What only reads waits for nobody; the loop has come to the other transaction before.
    b.pipeline(&["MULTI", "GET y"]);
    assert_eq!(b.say("EXEC"), array([Reply::Null]));
    assert_eq!(b.say("GET x"), Reply::Null);
    other.commit().unwrap();
    assert_eq!(a.reply(), array([bulk("1"), ok()]));
}

#[test]
fn what_cannot_be_queued_spoils_the_transaction_and_what_fails_in_it_does_not() {
    let served = Served::with(&[]);
    let mut a = served.client();
    a.say("MULTI");
    a.say("SET x 1");
    assert!(error(&a.say("NONSENSE")).contains("unknown command"));
    assert!(error(&a.say("EXEC")).starts_with("EXECABORT"));
    assert_eq!(a.say("GET x"), Reply::Null);
    a.say("MULTI");
    a.say("SET x text");
    a.say("INCR x");
    a.say("SET y 2");
    match a.say("EXEC") {
        Reply::Array(replies) => {
            assert_eq!((&replies[0], &replies[2]), (&ok(), &ok()));
            assert!(error(&replies[1]).contains("not an integer"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(a.say("GET y"), bulk("2"));
    a.say("MULTI");
    assert!(error(&a.say("MULTI")).contains("nested"));
    assert!(error(&a.say("WATCH x")).contains("WATCH inside MULTI"));
    a.say("SET y 3");
    assert_eq!(a.say("EXEC"), Reply::Array(vec![ok()]));
}

#[test]
fn a_database_that_there_is_not_leaves_the_transaction_where_it_was() {
    let served = Served::with(&[]);
    let mut a = served.client();
    a.say("MULTI");
    a.say("SELECT 99");
    a.say("SET x 1");
    match a.say("EXEC") {
        Reply::Array(replies) => {
            assert!(error(&replies[0]).contains("out of range"));
            assert_eq!(replies[1], ok());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(a.say("GET x"), bulk("1"));
}

/// The keys behind it are written in the database that the client was in, and under their locks there.
#[test]
fn a_select_that_the_user_may_not_do_leaves_the_transaction_where_it_was() {
    let served = Served::with(&[]);
    let mut admin = served.client();
    let set_user = |admin: &mut Client, rule: &str| {
        assert_eq!(admin.call(&["ACL", "SETUSER", "bob", "on", ">pw", "~*", "+@all", rule]), ok());
    };
    let selects_in_vain = |reply: Reply<'static>, at: usize| {
        let Reply::Array(replies) = reply else { panic!("{reply:?}") };
        assert!(error(&replies[at]).starts_with("NOPERM"), "{replies:?}");
        assert_eq!(replies[at + 1], int(1));
    };
    // It becomes a user who may not.
    set_user(&mut admin, "-select");
    let mut client = served.client();
    client.pipeline(&["MULTI", "AUTH bob pw", "SELECT 1", "SADD s x"]);
    selects_in_vain(client.say("EXEC"), 1);
    // It may no longer.
    set_user(&mut admin, "+select");
    assert_eq!(client.say("AUTH bob pw"), ok());
    client.pipeline(&["MULTI", "SELECT 1", "SADD s y"]);
    set_user(&mut admin, "-select");
    selects_in_vain(client.say("EXEC"), 0);
    // It takes the right from itself.
    assert_eq!(admin.say("ACL SETUSER eve on >pw ~* &* +@all"), ok());
    assert!(served.server().acl.user(b"eve").unwrap().may_do_everything());
    let mut client = served.client();
    assert_eq!(client.say("AUTH eve pw"), ok());
    client.pipeline(&["MULTI", "ACL SETUSER eve -select", "SELECT 1", "SADD s z"]);
    selects_in_vain(client.say("EXEC"), 1);
    assert_eq!(admin.say("SCARD s"), int(3));
    assert_eq!((admin.say("SELECT 1"), admin.say("EXISTS s")), (ok(), int(0)));
}

#[test]
fn who_wants_no_replies_gets_none_while_queueing() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.send_words(&["CLIENT REPLY OFF", "MULTI", "SET x 1", "INCR x", "EXEC"]);
    client.send_words(&["CLIENT REPLY ON", "GET x"]);
    client.stream.shutdown(Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    client.stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), "+OK\r\n$1\r\n2\r\n");
}

#[test]
fn replies_that_are_skipped_one_after_the_other_leave_the_next_one() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.send_words(&["CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "PING", "ECHO a"]);
    client.send_words(&["CLIENT REPLY SKIP", "PING", "ECHO b"]);
    client.send_words(&["CLIENT REPLY OFF", "CLIENT REPLY SKIP", "PING", "PING"]);
    client.stream.shutdown(Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    client.stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), "$1\r\na\r\n$1\r\nb\r\n");
}

#[test]
fn the_reply_to_reset_is_skipped_as_any_other() {
    let served = Served::with(&[]);
    let mut client = served.client();
    client.send_words(&["CLIENT REPLY SKIP", "RESET", "ECHO a"]);
    client.send_words(&["CLIENT REPLY OFF", "RESET", "ECHO b"]);
    client.stream.shutdown(Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    client.stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), "$1\r\na\r\n+RESET\r\n$1\r\nb\r\n");
}

/// Others are served meanwhile.
#[test]
fn a_long_transaction_is_executed_beside_the_loop() {
    let served = Served::with(&[("server-threads", "1")]);
    let mut client = served.client();
    let mut offloads_of = |count: usize| {
        let before = served.server().stats.offloads.get();
        let mut words = vec!["MULTI"];
        words.extend(vec!["INCR n"; count]);
        words.push("EXEC");
        let Some(Reply::Array(replies)) = client.pipeline(&words).pop() else { panic!() };
        assert_eq!(replies.len(), count);
        served.server().stats.offloads.get() - before
    };
    assert_eq!(offloads_of(100), 0);
    assert_eq!(offloads_of(1000), 1);
    assert_eq!(client.say("GET n"), bulk("1100"));
}

#[test]
fn a_key_is_watched_from_its_own_watch_on() {
    let served = Served::with(&[]);
    let mut a = served.client();
    // Written between the two: only the one that was watched before counts.
    for (written, outcome) in [("late", Reply::Array(vec![ok()])), ("early", Reply::Null)] {
        a.say("WATCH early");
        a.say(&format!("SET {written} 1"));
        a.say("WATCH late");
        a.say("MULTI");
        a.say("SET x 1");
        assert_eq!(a.say("EXEC"), outcome, "{written} was written");
    }
}

#[test]
fn a_watched_key_that_was_written_ends_the_transaction() {
    let served = Served::with(&[("server-threads", "2")]);
    let (mut a, mut b) = (served.client(), served.client());
    a.say("SET k 1");
    for (change, is_change) in [
        ("SET k 2", true),
        ("SET other 2", false),
        ("GET k", false),
        ("DEL k", true),
        ("DEL k", false),
        ("HSET k f v", true),
        ("HSET k f w", true),
        ("HGET k f", false),
        ("EXPIRE k 1000", true),
        ("FLUSHDB", true),
    ] {
        assert_eq!(a.say("WATCH k"), ok(), "{change}");
        b.say(change);
        a.say("MULTI");
        a.say("SET seen 1");
        let done = a.say("EXEC");
        let expected = if is_change { Reply::Null } else { array([ok()]) };
        assert_eq!(done, expected, "{change}");
    }
    // Own writes before WATCH, in the same pipeline, are no change.
    let replies = a.pipeline(&["SET k 5", "WATCH k", "MULTI", "INCR k", "EXEC"]);
    assert_eq!(replies[4], array([int(6)]));
    // Own writes after WATCH are.
    let replies = a.pipeline(&["WATCH k", "SET k 5", "MULTI", "INCR k", "EXEC"]);
    assert_eq!(replies[4], Reply::Null);
    let replies = a.pipeline(&["WATCH k", "SET k 5", "UNWATCH", "MULTI", "INCR k", "EXEC"]);
    assert_eq!(replies[5], array([int(6)]));
}

/// As in Redis: one that was there and has expired, whether it is removed by then or not.
#[test]
fn a_watched_key_that_has_expired_ends_the_transaction() {
    let (served, clock) = Served::with_clock(&[]);
    let mut client = served.client();
    let executed = |client: &mut Client| {
        client.pipeline(&["MULTI", "SET seen 1"]);
        client.say("EXEC")
    };
    for make in ["SET k v", "HSET k f v", "RPUSH k v"] {
        assert_eq!(client.say("DEL k other"), int(0), "{make}");
        client.pipeline(&[make, "PEXPIRE k 1000", "SET other v", "WATCH k other"]);
        clock.advance(999);
        assert_eq!(executed(&mut client), array([ok()]), "{make}");
        assert_eq!(client.say("WATCH other k absent"), ok());
        clock.advance(1);
        assert_eq!(executed(&mut client), Reply::Null, "{make}");
        // It is gone when it is watched: what happens to it then is no change.
        assert_eq!(client.say("WATCH k"), ok());
        clock.advance(1000);
        assert_eq!(executed(&mut client), array([ok()]), "{make}");
        // What is not watched any more may expire.
        client.pipeline(&[make, "PEXPIRE k 1000", "WATCH k", "UNWATCH", "WATCH other"]);
        clock.advance(1000);
        assert_eq!(executed(&mut client), array([ok()]), "{make}");
        assert_eq!(client.say("DEL other"), int(1), "{make}");
    }
}

#[test]
fn optimistic_counters_lose_nothing() {
    const CLIENTS: usize = 4;
    const TIMES: usize = 200;
    let served = Served::with(&[("server-threads", "2")]);
    served.client().say("SET n 0");
    let threads: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = served.client();
            std::thread::spawn(move || {
                let mut done = 0;
                while done < TIMES {
                    client.say("WATCH n");
                    let n: u64 = crate::client::text(&client.say("GET n")).parse().unwrap();
                    client.say("MULTI");
                    client.say(&format!("SET n {}", n + 1));
                    done += usize::from(client.say("EXEC") == array([ok()]));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(served.client().say("GET n"), bulk(&(CLIENTS * TIMES).to_string()));
}

/// Also where a transaction is executed by a thread beside the loop, and where values are read from the device.
#[test]
fn a_transaction_reads_everything_as_it_was_at_one_moment() {
    const ROUNDS: usize = 300;
    for (threads, watches) in [("1", true), ("2", false)] {
        let served = Served::with(&[("server-threads", threads)]);
        served.client().say("MSET a 0 b 0");
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = served.client();
                for count in 0.. {
                    writer.say(&format!("MSET a {count} b {count}"));
                    if is_done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let mut reader = served.client();
            let mut words = vec!["MULTI"];
            words.extend(["GET a"; 200]);
            words.extend(["GET b", "EXEC"]);
            let mut read = Vec::new();
            for _ in 0..ROUNDS {
                if watches {
                    reader.say("WATCH other");
                }
                read.extend(reader.pipeline(&words).pop());
            }
            is_done.store(true, Ordering::Relaxed);
            for reply in read {
                let Reply::Array(values) = reply else { panic!("{reply:?}") };
                assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
            }
        });
    }
}

/// What has been overwritten or deleted since need not be kept for as long as it is connected.
#[test]
fn a_client_that_forgets_what_it_watches_holds_nothing_on() {
    let (served, clock) = Served::with_clock(&[]);
    let (mut client, mut other) = (served.client(), served.client());
    let snapshots = || served.server().space.db().metrics().snapshots;
    client.say("WATCH k");
    assert_eq!(other.say("SET k 1"), ok());
    until("nobody watches", || snapshots() == 1);
    clock.advance(60_000);
    until("it is held on to", || snapshots() == 0);
    client.pipeline(&["MULTI", "SET seen 1"]);
    assert_eq!(client.say("EXEC"), Reply::Null);
    // One whose key was not written does not see that time has passed.
    client.say("WATCH k");
    clock.advance(60_000);
    client.pipeline(&["MULTI", "SET seen 1"]);
    assert_eq!(client.say("EXEC"), array([ok()]));
}

#[test]
fn what_is_watched_and_queued_has_one_bound() {
    let served = Served::with(&[]);
    let mut client = served.client();
    let keys: Vec<String> = (0..600).map(|at| format!("{at:03}{}", "x".repeat(30_000))).collect();
    let watch: Vec<&str> =
        std::iter::once("WATCH").chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(client.call(&watch), ok());
    // Twice as much does not fit.
    let more: Vec<String> = watch[1..].iter().map(|key| format!("more{key}")).collect();
    let more: Vec<&str> = std::iter::once("WATCH").chain(more.iter().map(String::as_str)).collect();
    assert!(error(&client.call(&more)).contains("64 MiB"));
    assert_eq!(client.say("MULTI"), ok());
    let value = "x".repeat(20 << 20);
    assert!(error(&client.call(&["SET", "k", &value])).contains("does not fit"));
    assert!(error(&client.say("EXEC")).starts_with("EXECABORT"));
    assert_eq!(client.say("MULTI"), ok());
    assert_eq!(client.call(&["SET", "k", &value]), queued());
    assert_eq!(client.say("EXEC"), array([ok()]));
}

#[test]
fn a_transaction_does_not_outlast_the_server() {
    let served = Served::with(&[("enable-debug-command", "yes")]);
    let mut client = served.client();
    assert_eq!(client.say("SET k before"), ok());
    client.pipeline(&["MULTI", "SET k within", "DEBUG SLEEP 1000", "SET k behind"]);
    client.send_words(&["EXEC", "SET k after"]);
    let stats = &served.server().stats;
    until("it is not executed", || stats.waiting.load(Ordering::Relaxed) == 1);
    served.server().stop.request();
    let aborted = error(&client.reply());
    assert!(aborted.starts_with("EXECABORT") && aborted.contains("stopping"), "{aborted}");
    assert_eq!(client.try_reply(), None, "what was sent behind it is executed");
    let served = Served::again(served.end(), &[]);
    assert_eq!(served.client().say("GET k"), bulk("before"));
}
