//! What INFO, SLOWLOG and LASTSAVE count, as Redis counts it, and the top keys of the dashboard.

use crate::client::{Client, bulk, error, int, ok, text, until};
use crate::served::Served;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use terrace_resp::Reply;

/// The line of a section of INFO with this name.
fn line(client: &mut Client, section: &str, name: &str) -> String {
    let page = text(&client.say(&format!("INFO {section}")));
    let found = page.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    found.unwrap_or_default().to_string()
}

/// The answer to a request for this path.
fn http(served: &Served, path: &str) -> String {
    let mut stream = TcpStream::connect(served.running().http_addresses()[0]).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn commands_of_a_transaction_are_counted_like_others() {
    let served = Served::with(&[("slowlog-log-slower-than", "0"), ("slowlog-max-len", "1000")]);
    let mut client = served.client();
    assert_eq!(client.say("CONFIG RESETSTAT"), ok());
    for watches in [false, true] {
        // Transactions of clients that watch something are executed beside the loop.
        if watches {
            assert_eq!(client.say("WATCH other"), ok());
        }
        let mut words = vec!["MULTI"];
        words.extend(["SET k v"; 50]);
        words.extend(["INCR k", "SELECT 1", "GET absent", "EXEC"]);
        let Some(Reply::Array(replies)) = client.pipeline(&words).pop() else { panic!("no array") };
        assert_eq!(replies.len(), 53);
        assert_eq!(client.say("SELECT 0"), ok());
    }
    let calls = |client: &mut Client, name: &str| {
        let row = line(client, "commandstats", &format!("cmdstat_{name}"));
        row.split(',').filter(|part| !part.starts_with("usec")).collect::<Vec<_>>().join(",")
    };
    assert_eq!(calls(&mut client, "set"), "calls=100,rejected_calls=0,failed_calls=0");
    assert_eq!(calls(&mut client, "incr"), "calls=2,rejected_calls=0,failed_calls=2");
    assert_eq!(calls(&mut client, "exec"), "calls=2,rejected_calls=0,failed_calls=0");
    assert_eq!(client.info("keyspace_misses"), 2);
    let Reply::Array(slow) = client.say("SLOWLOG GET 1000") else { panic!("no array") };
    let is_set = |entry: &&Reply<'static>| match entry {
        Reply::Array(fields) => matches!(&fields[3], Reply::Array(args) if args[0] == bulk("SET")),
        _ => false,
    };
    assert_eq!(slow.iter().filter(is_set).count(), 100);
    // One that was not executed counts nothing.
    client.pipeline(&["WATCH k", "MULTI", "SET k v"]);
    assert_eq!(served.client().say("SET k other"), ok());
    assert_eq!(client.say("EXEC"), Reply::Null);
    assert_eq!(calls(&mut client, "set"), "calls=101,rejected_calls=0,failed_calls=0");
}

#[test]
fn commands_that_exec_refuses_count_as_rejected() {
    let served = Served::with(&[]);
    let mut admin = served.client();
    assert_eq!(admin.say("ACL SETUSER u on >pw ~* +@all"), ok());
    let mut user = served.client();
    assert_eq!(user.say("AUTH u pw"), ok());
    user.pipeline(&["MULTI", "SET k v"]);
    assert_eq!(admin.say("ACL SETUSER u -set"), ok());
    user.say("EXEC");
    let row = line(&mut admin, "commandstats", "cmdstat_set");
    assert!(row.starts_with("calls=0,") && row.contains("rejected_calls=1"), "{row}");
}

#[test]
fn all_errors_are_counted() {
    let served = Served::with(&[("requirepass", "pw")]);
    let mut client = served.client();
    let mut guest = served.client();
    assert_eq!(client.say("AUTH pw"), ok());
    assert_eq!(client.say("SET k v"), ok());
    assert_eq!(client.say("ACL SETUSER u on nopass ~* +auth +ping"), ok());
    assert_eq!(client.say("CONFIG RESETSTAT"), ok());
    let mut total = 0;
    let mut counts = |client: &mut Client, why: &str, errors: u64| {
        total += errors;
        assert_eq!(client.info("total_error_replies"), total, "{why}");
    };
    error(&client.say("NONSENSE"));
    counts(&mut client, "unknown", 1);
    error(&client.say("GET"));
    counts(&mut client, "arity", 1);
    error(&client.say("INCR k"));
    counts(&mut client, "failed", 1);
    error(&guest.say("GET k"));
    counts(&mut client, "NOAUTH", 1);
    assert_eq!(guest.say("AUTH u x"), ok());
    error(&guest.say("GET k"));
    counts(&mut client, "NOPERM", 1);
    client.pipeline(&["MULTI", "INCR k", "LPUSH k v", "EXEC"]);
    counts(&mut client, "in EXEC", 2);
    client.pipeline(&["MULTI", "NONSENSE", "EXEC"]);
    counts(&mut client, "EXECABORT", 2);
    let mut broken = served.client();
    broken.send_raw(b"*1\r\n!\r\n");
    error(&broken.reply());
    counts(&mut client, "a protocol error", 1);
    assert_eq!(client.say("CONFIG RESETSTAT"), ok());
    assert_eq!(client.info("total_error_replies"), 0);
}

#[test]
fn every_read_of_a_key_is_a_hit_or_a_miss() {
    let served = Served::with(&[]);
    let mut client = served.client();
    let fill = ["SET t v", "HSET h f v", "RPUSH l a b", "SADD s a", "ZADD z 1 a"];
    client.pipeline(&fill);
    for (request, hits, misses) in [
        ("GET t", 1, 0),
        ("GET x", 0, 1),
        ("GET h", 1, 0),
        ("MGET t x t", 2, 1),
        ("STRLEN t", 1, 0),
        ("STRLEN x", 0, 1),
        ("GETRANGE t 0 1", 1, 0),
        ("EXISTS t h x x", 2, 2),
        ("TYPE z", 1, 0),
        ("TTL x", 0, 1),
        // The key is there.
        ("HGET h absent", 1, 0),
        ("HGET x f", 0, 1),
        ("HGETALL h", 1, 0),
        ("LRANGE l 0 -1", 1, 0),
        ("LLEN x", 0, 1),
        ("SMEMBERS s", 1, 0),
        ("SINTER s s x", 2, 1),
        ("ZSCORE z absent", 1, 0),
        ("ZUNION 3 z s x", 2, 1),
        ("SORT_RO l ALPHA", 1, 0),
        ("BITCOUNT t", 1, 0),
        ("SET t w", 0, 0),
        ("APPEND x w", 0, 0),
        ("DEL x", 0, 0),
        ("KEYS *", 0, 0),
        ("SCAN 0", 0, 0),
    ] {
        let before = (client.info("keyspace_hits"), client.info("keyspace_misses"));
        client.say(request);
        let after = (client.info("keyspace_hits"), client.info("keyspace_misses"));
        assert_eq!((after.0 - before.0, after.1 - before.1), (hits, misses), "{request}");
    }
}

#[test]
fn connections_are_counted_from_the_last_reset_on_and_lastsave_is_the_start() {
    let served = Served::with(&[]);
    let mut client = served.client();
    drop(served.client());
    // One that is welcomed after the reset would count.
    until("they are not welcomed", || client.info("total_connections_received") == 2);
    assert_eq!(client.say("CONFIG RESETSTAT"), ok());
    assert_eq!(client.info("total_connections_received"), 0);
    assert_eq!(served.client().say("ECHO x"), bulk("x"));
    assert_eq!(client.info("total_connections_received"), 1);
    let started_s = served.server().started_ms / 1000;
    assert_eq!(client.say("LASTSAVE"), int(started_s as i64));
    assert_eq!(client.info("rdb_last_save_time"), started_s);
}

#[test]
fn a_top_key_of_which_only_the_beginning_is_kept_is_not_shown_as_a_whole_one() {
    let served = Served::with(&[("http-port", "free")]);
    let top_keys = || http(&served, "/api/v1/hotkeys");
    let mut client = served.client();
    let read = format!("GET {}", "k".repeat(1000));
    // One command of sixteen is counted, after gaps that are drawn.
    for _ in 0..1000 {
        client.pipeline(&[&read[..]; 64]);
        let told = top_keys();
        if !told.contains("\"read\":[]") {
            assert!(told.contains("\"len\":1000"), "{told}");
            return;
        }
    }
    panic!("no key was counted");
}

#[test]
fn files_that_compactions_leave_out_are_shown() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let write = |served: &Served| {
        let mut client = served.client();
        for n in 0..500 {
            assert_eq!(client.say(&format!("SET k{n:03} {}", "v".repeat(100))), ok());
        }
        served.server().space.db().flush().unwrap();
    };
    let first = Served::again(dir.clone(), &[]);
    write(&first);
    drop(first);
    let store = std::fs::read_dir(dir.path().join("store")).unwrap().map(|file| file.unwrap());
    let files =
        store.map(|file| file.path()).filter(|path| path.extension() == Some("sst".as_ref()));
    let largest = files.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    let within_data = bytes.len() / 3;
    bytes[within_data] ^= 1;
    std::fs::write(&largest, bytes).unwrap();
    let served = Served::again(dir, &[("http-port", "free")]);
    let mut client = served.client();
    assert_eq!(line(&mut client, "terrace", "quarantined_files"), "0");
    // The same keys, so that the two files are merged.
    write(&served);
    served.server().space.db().compact_range::<&[u8]>(..).unwrap_err();
    assert_eq!(line(&mut client, "terrace", "quarantined_files"), "1");
    let number: u64 = largest.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let place = line(&mut client, "terrace", &format!("quarantined_{number:06}"));
    assert!(place.starts_with("family=default,level="), "{place}");
    let told = http(&served, "/api/v1/shape");
    assert!(told.contains(&format!("\"quarantined\":[{{\"number\":{number},")), "{told}");
}
