//! Servers as nodes of a cluster, whose coordinators are fakes: where commands go, and what clients see of
//! it.

mod admin;
mod aside;
mod fake;
mod hand_over;
mod large_replies;
mod model;
mod order;
mod page;
mod refused;

use crate::client::{HANG_GUARD, array, bulk, error, hears_nothing, int, ok, shown, text, until};
use fake::FakeCluster;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use terrace_cluster::{
    CallMode, CommandExecutor, Epoch, IncomingCall, Placement, Reply as CallReply, ReplyProtocol,
    Revision, ShardCall, ShardId, Unserved,
};
use terrace_resp::{Reply, write_request};

fn three() -> FakeCluster {
    FakeCluster::new(Placement::Slots, 3, &[])
}

#[test]
fn any_node_serves_every_key_and_replies_keep_their_order() {
    let cluster = three();
    let keys: Vec<String> = (0..300).map(|n| format!("key:{n}")).collect();
    for (at, from) in [(0, 1), (1, 2), (2, 0)] {
        let (mut writer, mut reader) = (cluster.client(at), cluster.client(from));
        let sets: Vec<String> = keys.iter().map(|key| format!("SET {key} {at}-{key}")).collect();
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        assert!(writer.pipeline(&sets).iter().all(|reply| *reply == ok()));
        let gets: Vec<String> =
            keys.iter().flat_map(|key| [format!("GET {key}"), format!("ECHO {key}")]).collect();
        let gets: Vec<&str> = gets.iter().map(String::as_str).collect();
        let replies = reader.pipeline(&gets);
        for (pair, key) in replies.chunks_exact(2).zip(&keys) {
            assert_eq!(pair, [bulk(&format!("{at}-{key}")), bulk(key)]);
        }
    }
    cluster.settle();
    let calls = cluster.shared.state().calls;
    let sizes: Vec<u64> =
        cluster.served.iter().map(|one| one.server().key_count_estimate()).collect();
    assert!(sizes.iter().all(|size| *size > 50), "not spread: {sizes:?}");
    // 2,700 commands, of which two thirds are for other nodes: 1,800 calls if each went alone. How many go
    // together depends on the time of a turn.
    assert!(calls < 450, "{calls} calls: requests of a pipeline did not go together");
}

#[test]
fn commands_with_keys_of_several_nodes_are_split() {
    let cluster = three();
    let keys: Vec<String> = (0..3).map(|at| cluster.key_of(at, "k")).collect();
    let (a, b, c) = (&keys[0], &keys[1], &keys[2]);
    let mut client = cluster.client(0);
    assert_eq!(client.say(&format!("MSET {a} 1 {b} 2 {c} 3")), ok());
    for at in 0..3 {
        let mut client = cluster.client(at);
        let reply = client.say(&format!("MGET {c} none {a} {b} {c}"));
        assert_eq!(reply, array([bulk("3"), Reply::Null, bulk("1"), bulk("2"), bulk("3")]));
        assert_eq!(client.say(&format!("EXISTS {a} {b} none {c} {a}")), int(4));
        assert_eq!(client.say("DBSIZE"), int(3));
        let Reply::Array(mut found) = client.say("KEYS k*") else { panic!() };
        found.sort_by_key(text);
        let mut wanted: Vec<_> = keys.iter().map(|key| bulk(key)).collect();
        wanted.sort_by_key(text);
        assert_eq!(found, wanted);
        assert!(keys.contains(&text(&client.say("RANDOMKEY"))));
        assert_eq!(client.say("HELLO 3").kind(), "map");
        let reply = client.say(&format!("MGET {c} none"));
        assert_eq!(reply, array([bulk("3"), Reply::Null]));
    }
    let refused = error(&client.say(&format!("RENAME {a} {b}")));
    assert!(refused.starts_with("CROSSSLOT"), "{refused}");
    assert_eq!(client.say(&format!("DEL {a} {b} none {c}")), int(3));
    assert_eq!(client.say("DBSIZE"), int(0));
    assert_eq!(client.say("RANDOMKEY"), Reply::Null);
    assert!(error(&client.say("MSET a 1 b")).contains("wrong number"));
    assert!(error(&client.say("SELECT 1")).contains("not allowed in cluster mode"));
    assert_eq!(client.say("SELECT 0"), ok());
    client.pipeline(&["SET x 1", "SET y 2", "SET z 3"]);
    assert_eq!(cluster.client(1).say("FLUSHALL"), ok());
    assert_eq!(client.say("DBSIZE"), int(0));
}

trait Kind {
    fn kind(&self) -> &'static str;
}

impl Kind for Reply<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Reply::Map(_) => "map",
            Reply::Array(_) => "array",
            _ => "other",
        }
    }
}

#[test]
fn a_scan_goes_through_all_stores() {
    let cluster = three();
    let mut client = cluster.client(0);
    let keys: Vec<String> = (0..200).map(|n| format!("key:{n:03}")).collect();
    let sets: Vec<String> = keys.iter().map(|key| format!("SET {key} v")).collect();
    client.pipeline(&sets.iter().map(String::as_str).collect::<Vec<_>>());
    for at in 0..3 {
        let mut client = cluster.client(at);
        let (mut cursor, mut found, mut pages) = ("0".to_string(), Vec::new(), 0);
        loop {
            let Reply::Array(page) = client.say(&format!("SCAN {cursor} COUNT 7")) else {
                panic!("no page")
            };
            cursor = text(&page[0]);
            let Reply::Array(keys) = &page[1] else { panic!("no keys") };
            found.extend(keys.iter().map(text));
            pages += 1;
            if cursor == "0" {
                break;
            }
        }
        found.sort();
        assert_eq!(found, keys);
        assert!(pages > 20);
    }
    assert!(error(&client.say("SCAN x")).contains("invalid cursor"));
    assert!(error(&client.say("SCAN 1023")).contains("invalid cursor"));
}

#[test]
fn a_range_is_read_in_order_over_all_stores() {
    let cluster = FakeCluster::new(Placement::Range, 3, &[]);
    let mut client = cluster.client(1);
    for key in ["zebra", "apple", "mango", "nut", "bean", "quince", "yam"] {
        assert_eq!(client.call(&["SET", key, key]), ok());
    }
    for at in 0..3 {
        let mut client = cluster.client(at);
        let keys = |names: &[&str]| array(names.iter().map(|name| bulk(name)));
        assert_eq!(
            client.say("TSCAN - + KEYS"),
            keys(&["apple", "bean", "mango", "nut", "quince", "yam", "zebra"])
        );
        let both = keys(&["bean", "bean", "mango", "mango", "nut", "nut"]);
        assert_eq!(client.say("TSCAN b + LIMIT 3"), both);
        assert!(error(&client.say("MSETNX apple 1 zebra 2")).starts_with("CROSSSLOT"));
        assert!(error(&client.say("TSCAN b + LIMIT x")).starts_with("ERR"));
    }
}

#[test]
fn pages_of_keys_in_order_lead_through_all_of_them() {
    let wanted: Vec<String> = ('a'..='z').map(String::from).collect();
    for placement in [Placement::Slots, Placement::Range] {
        let cluster = FakeCluster::new(placement, 3, &[]);
        let mut client = cluster.client(1);
        wanted.iter().for_each(|key| assert_eq!(client.call(&["SET", key.as_str(), "v"]), ok()));
        let (mut found, mut start) = (Vec::new(), "-".to_string());
        loop {
            let page = client.call(&["TSCAN", start.as_str(), "+", "LIMIT", "4", "KEYS"]);
            let Reply::Array(page) = page else { panic!("no page") };
            let Some(last) = page.last() else { break };
            start = format!("{}\0", text(last));
            found.extend(page.iter().map(text));
        }
        assert_eq!(found, wanted, "{placement}");
    }
}

#[test]
fn a_transaction_is_executed_where_its_keys_are() {
    let cluster = three();
    let (here, there) = (cluster.key_of(0, "a"), cluster.key_of(1, "b"));
    let mut client = cluster.client(0);
    for key in [&here, &there] {
        let words = [
            "MULTI",
            &format!("SET {key} 1"),
            "PING",
            &format!("INCR {key}"),
            &format!("LPUSH {key} x"),
            "EXEC",
            &format!("GET {key}"),
        ]
        .map(str::to_string);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let replies = client.pipeline(&words);
        let Reply::Array(inner) = &replies[5] else { panic!("{replies:?}") };
        assert_eq!((&inner[0], &inner[2]), (&ok(), &int(2)));
        assert!(error(&inner[3]).starts_with("WRONGTYPE"));
        assert_eq!(replies[6], bulk("2"));
    }
    let replies = client.pipeline(&[
        "MULTI",
        &format!("SET {here} 9"),
        &format!("SET {there} 9"),
        "EXEC",
        &format!("GET {here}"),
    ]);
    assert!(error(&replies[2]).starts_with("CROSSSLOT"));
    assert!(error(&replies[3]).starts_with("EXECABORT"));
    assert_eq!(replies[4], bulk("2"));
    assert!(error(&client.say("WATCH a{1} a{2}")).starts_with("CROSSSLOT"));
    // WATCH of another node's key is answered with that node.
    let moved = error(&client.say(&format!("WATCH {there}")));
    assert!(
        moved.starts_with("MOVED ") && moved.ends_with(&cluster.served[1].address().to_string())
    );
    let mut other = cluster.client(2);
    assert_eq!(client.say(&format!("WATCH {here}")), ok());
    assert_eq!(other.say(&format!("SET {here} 5")), ok());
    let replies = client.pipeline(&["MULTI", &format!("SET {here} 6"), "EXEC"]);
    assert_eq!(replies[2], Reply::Null);
    assert_eq!(other.say(&format!("GET {here}")), bulk("5"));
}

#[test]
fn writes_of_a_held_key_wait_and_reads_go_on() {
    let cluster = three();
    let (key, free) = (cluster.key_of(1, "held"), cluster.key_of(1, "free"));
    cluster.client(0).say(&format!("SET {key} 1"));
    cluster.shared.hold(&key);
    for at in 0..3 {
        let (mut writer, mut reader) = (cluster.client(at), cluster.client(at));
        writer.send_words(&[&format!("SET {free} x"), &format!("INCR {key}"), "PING"]);
        until("nobody waits", || cluster.shared.waiting() == 1);
        assert_eq!(reader.say(&format!("GET {key}")), bulk(&(at + 1).to_string()));
        assert_eq!(reader.say(&format!("GET {free}")), bulk("x"));
        reader.send_words(&[&format!("MSET {key} {} {free} y", at + 1)]);
        until("the other does not wait", || cluster.shared.waiting() == 2);
        assert!(hears_nothing(&reader));
        cluster.shared.release(&key);
        assert_eq!((writer.reply(), writer.reply()), (ok(), int(at as i64 + 2)));
        assert_eq!(text(&writer.reply()), "PONG");
        assert_eq!(reader.reply(), ok());
        cluster.client(at).say(&format!("SET {key} {}", at + 2));
        cluster.shared.hold(&key);
    }
    cluster.shared.release(&key);
    cluster.settle();
}

/// A node sends its rounds with a shard. Without one they would empty the store that they happen to reach.
#[test]
fn a_round_of_a_flush_that_names_no_shard_is_refused() {
    let cluster = three();
    let key = cluster.key_of(0, "kept");
    assert_eq!(cluster.served[0].client().say(&format!("SET {key} 1")), ok());
    let of = |request: &str| {
        let replies = answer(&cluster, 0, CallMode::Owner, format!("{request}\r\n").as_bytes());
        String::from_utf8(replies.unwrap()).unwrap()
    };
    for flush in ["FLUSHALL", "FLUSHDB"] {
        for round in ["ANNOUNCE 7", "EXECUTE 7"] {
            let refused = of(&format!("{flush} {round}"));
            assert_eq!(
                refused, "-ERR a round of a flush must name its shard\r\n",
                "{flush} {round}"
            );
        }
    }
    assert_eq!(cluster.served[0].client().say(&format!("EXISTS {key}")), int(1));
    for round in ["ANNOUNCE 7", "EXECUTE 7"] {
        assert_eq!(of(&format!("ONSHARD 0 FLUSHALL {round}")), "+OK\r\n", "{round}");
    }
    assert_eq!(cluster.served[0].client().say(&format!("EXISTS {key}")), int(0));
    cluster.settle();
}

/// What a node answers to a call of another one.
fn answer(cluster: &FakeCluster, at: usize, mode: CallMode, requests: &[u8]) -> CallReply {
    let (answer, answered) = std::sync::mpsc::channel();
    let (protocol, requests) = (ReplyProtocol::Resp2, requests.to_vec());
    let call = IncomingCall { mode, db: 0, protocol, requests };
    let done = Box::new(move |reply| answer.send(reply).unwrap());
    cluster.served[at].running().call_executor().execute(call, done);
    answered.recv_timeout(HANG_GUARD).expect("a call has no answer")
}

#[test]
fn calls_of_other_nodes_are_answered_whatever_they_are() {
    let cluster = three();
    let of = |requests: &[u8]| {
        let replies = answer(&cluster, 0, CallMode::Owner, requests).unwrap();
        String::from_utf8(replies).unwrap()
    };
    for _ in 0..3 {
        assert_eq!(of(b""), "");
        assert_eq!(of(b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPI"), "+PONG\r\n");
        assert!(of(b"*x\r\n").starts_with("-ERR Protocol error"));
        assert!(of(b"POST / HTTP/1.1\r\nPING\r\n").is_empty());
        assert_eq!(of(b"QUIT\r\nPING\r\n"), "+OK\r\n");
        assert!(of(b"ONSHARD x PING\r\n").starts_with("-ERR unknown command"));
        assert_eq!(of(b"MULTI\r\nPING\r\n"), "+OK\r\n+QUEUED\r\n");
        assert_eq!(of(b"PING\r\nCLIENT REPLY OFF\r\n"), "+PONG\r\n");
        assert_eq!(of(b"PING\r\n"), "+PONG\r\n", "what a call left behind");
    }
    let other = cluster.key_of(1, "b");
    let moved = of(format!("SET {other} 1\r\nPING\r\n").as_bytes());
    assert_eq!(moved, "-TERRACEMOVED 1\r\n+PONG\r\n", "it owns no such key");
    // In the name of the shard, if its owner says so.
    let set = format!("SET {other} 1\r\n");
    let call_at = |at: usize, epoch| {
        let shard =
            ShardCall { instance: cluster.node(at), shard: ShardId(1), epoch: Epoch(epoch) };
        answer(&cluster, at, CallMode::Instance(shard), set.as_bytes())
    };
    let call = |epoch| call_at(1, epoch);
    cluster.shared.hand_over(ShardId(1), cluster.node(2));
    assert_eq!(call(1), Err(Unserved::Moved(Revision(2))), "an earlier owner");
    assert_eq!(call(2).as_deref(), Ok(&b"+OK\r\n"[..]));
    let nowhere = call_at(0, 2);
    assert_eq!(nowhere.as_deref(), Ok(&b"-TERRACEMOVED 2\r\n"[..]), "it was not brought there");
    cluster.settle();
}

#[test]
fn a_short_call_is_executed_at_once_if_nothing_waits() {
    let cluster = three();
    let (key, other) = (cluster.key_of(0, "k"), cluster.key_of(1, "k"));
    let call = |words: &[&str]| {
        let mut requests = Vec::new();
        write_request(&mut requests, words);
        answer(&cluster, 0, CallMode::Owner, &requests)
    };
    let replies = |words: &[&str]| String::from_utf8(call(words).unwrap()).unwrap();
    assert_eq!(replies(&["SET", &key, "1"]), "+OK\r\n");
    assert_eq!(calls_at_once(&cluster), 1);
    assert_eq!(cluster.client(1).say(&format!("GET {key}")), bulk("1"), "it is committed");
    assert_eq!(calls_at_once(&cluster), 2);
    assert_eq!(replies(&["MGET", &key, &key]), "*2\r\n$1\r\n1\r\n$1\r\n1\r\n");
    assert_eq!(replies(&["PING"]), "+PONG\r\n");
    assert_eq!(calls_at_once(&cluster), 2, "these are for a loop");
    assert_eq!(replies(&["INCR", &other]), "-TERRACEMOVED 1\r\n");
    assert_eq!(replies(&["LPUSH", &key, "x"]).get(..10), Some("-WRONGTYPE"));
    cluster.shared.hold(&key);
    assert_eq!(replies(&["INCR", &key]).get(..12), Some("-TERRACEHELD"));
    assert_eq!(replies(&["GET", &key]), "$1\r\n1\r\n", "reads go on");
    cluster.shared.release(&key);
    assert_eq!(calls_at_once(&cluster), 6);
    // The lease ends between the command and its reply.
    let is_sure = &cluster.coordinators[0].is_sure;
    is_sure.store(false, Ordering::SeqCst);
    assert_eq!(call(&["INCR", &key]), Err(Unserved::Unreachable(cluster.node(0))));
    is_sure.store(true, Ordering::SeqCst);
    assert_eq!(replies(&["GET", &key]), "$1\r\n2\r\n", "it was executed");
    cluster.settle();
}

#[test]
fn no_call_is_executed_at_once_whose_commit_would_wait_for_a_sync() {
    let cluster = FakeCluster::new(Placement::Slots, 3, &[("appendfsync", "always")]);
    let key = cluster.key_of(0, "k");
    for at in 1..3 {
        assert_eq!(cluster.client(at).say(&format!("INCR {key}")), int(at as i64));
    }
    assert_eq!(calls_at_once(&cluster), 0);
    cluster.settle();
}

/// How many calls the first node has executed without a loop.
fn calls_at_once(cluster: &FakeCluster) -> u64 {
    let info = text(&cluster.client(0).say("INFO cluster"));
    let line = info.lines().find_map(|line| line.strip_prefix("cluster_calls_at_once:"));
    line.expect("INFO does not say it").parse().unwrap()
}

#[test]
fn a_server_that_ends_answers_calls_that_wait() {
    let mut cluster = three();
    let key = cluster.key_of(0, "a");
    cluster.shared.hold(&key);
    let (answer, answered) = std::sync::mpsc::channel();
    let requests = format!("PATIENT\r\nSET {key} 1\r\n").into_bytes();
    let (mode, protocol) = (CallMode::Owner, ReplyProtocol::Resp2);
    let executor = cluster.served[0].running().call_executor();
    let done = |answer: std::sync::mpsc::Sender<CallReply>| {
        Box::new(move |reply| answer.send(reply).unwrap())
    };
    let call = IncomingCall { mode, db: 0, protocol, requests };
    executor.execute(call.clone(), done(answer.clone()));
    until("it does not wait", || cluster.shared.waiting() == 1);
    cluster.served.remove(0).end();
    let unreachable = Err(Unserved::Unreachable(cluster.node(0)));
    assert_eq!(answered.recv_timeout(HANG_GUARD), Ok(unreachable.clone()));
    executor.execute(call, done(answer));
    assert_eq!(answered.recv_timeout(HANG_GUARD), Ok(unreachable));
    cluster.shared.release(&key);
}

#[test]
fn exceptions_are_served_where_they_are_and_brought_home_beside_others() {
    let cluster = three();
    let mut client = cluster.client(0);
    client.pipeline(&["MSET {t}a 1 {t}b 2 {t}c 3"]);
    let home = cluster.shared.state().topology.shard_of(b"{t}").0 as usize;
    let (far, farther) = ((home + 1) % 3, (home + 2) % 3);
    cluster.move_key("{t}a", far);
    cluster.move_key("{t}b", farther);
    for at in 0..3 {
        let mut client = cluster.client(at);
        assert_eq!(client.say("GET {t}a"), bulk("1"));
        let all = client.say("MGET {t}a {t}b {t}c");
        assert_eq!(all, array([bulk("1"), bulk("2"), bulk("3")]));
        assert_eq!(client.say("DBSIZE"), int(3));
    }
    assert_eq!(cluster.shared.state().exceptions.len(), 2);
    assert_eq!(client.say("RENAME {t}a {t}c"), ok());
    assert_eq!(cluster.shared.state().exceptions.len(), 1, "only what is needed");
    let replies =
        client.pipeline(&["MULTI", "APPEND {t}b x", "APPEND {t}c x", "EXEC", "MGET {t}b {t}c"]);
    assert_eq!(replies[4], array([bulk("2x"), bulk("1x")]));
    assert!(cluster.shared.state().exceptions.is_empty());
    // All at one other place: nothing has to come home.
    for key in ["{t}b", "{t}c"] {
        cluster.move_key(key, far);
    }
    assert_eq!(client.say("RENAME {t}b {t}c"), ok());
    assert_eq!(cluster.shared.state().exceptions.len(), 2);
    assert_eq!(client.say("GET {t}c"), bulk("2x"));
    cluster.settle();
}

#[test]
fn a_command_at_the_wrong_owner_is_routed_again() {
    let cluster = three();
    let key = cluster.key_of(1, "k");
    let mut client = cluster.client(0);
    assert_eq!(client.say(&format!("SET {key} 1")), ok());
    // The whole call, then single commands of it.
    cluster.shared.state().misrouted = 3;
    assert_eq!(client.say(&format!("INCR {key}")), int(2));
    for round in 0..20 {
        let to = cluster.node(round % 3);
        let incr = format!("INCR {key}");
        client.send_words(&[&incr, "PING", &incr]);
        cluster.shared.hand_over(ShardId(1), to);
        let first = 3 + 2 * round as i64;
        assert_eq!(client.reply(), int(first));
        assert_eq!(text(&client.reply()), "PONG");
        assert_eq!(client.reply(), int(first + 1));
    }
    assert_eq!(client.say("DBSIZE"), int(1));
    cluster.settle();
}

#[test]
fn who_cannot_be_reached_makes_an_error_and_only_that() {
    let cluster = three();
    let keys: Vec<String> = (0..3).map(|at| cluster.key_of(at, "k")).collect();
    let mut client = cluster.client(0);
    cluster.shared.state().cut_off.insert(cluster.node(1));
    let sets: Vec<String> = keys.iter().map(|key| format!("SET {key} 1")).collect();
    let replies = client.pipeline(&sets.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((&replies[0], &replies[2]), (&ok(), &ok()));
    assert!(error(&replies[1]).starts_with("CLUSTERDOWN"));
    let all = client.say(&format!("MGET {}", keys.join(" ")));
    assert!(error(&all).starts_with("CLUSTERDOWN"));
    assert!(error(&client.say("DBSIZE")).starts_with("CLUSTERDOWN"));
    cluster.shared.state().cut_off.clear();
    assert_eq!(client.say("DBSIZE"), int(2));
}

#[test]
fn nothing_is_shown_when_the_lease_is_over() {
    let cluster = three();
    let (own, other) = (cluster.key_of(0, "a"), cluster.key_of(1, "b"));
    let away = cluster.key_of(0, "away");
    let mut client = cluster.client(0);
    client.pipeline(&[
        &format!("SET {own} 1"),
        &format!("SET {other} 1"),
        &format!("SET {away} 1"),
    ]);
    cluster.move_key(&away, 1);
    cluster.coordinators[0].is_sure.store(false, Ordering::SeqCst);
    assert_eq!(text(&client.say("PING")), "PONG");
    assert_eq!(client.say(&format!("GET {other}")), bulk("1"));
    for words in [format!("GET {own}"), format!("INCR {own}"), "DBSIZE".into()] {
        let mut client = cluster.client(0);
        client.send_words(&[&words]);
        match client.try_reply() {
            None => {}
            // By way of another: the part that is here is an error.
            Some(reply) => assert!(error(&reply).starts_with("CLUSTERDOWN"), "{reply:?}"),
        }
        let reply = cluster.client(1).say(&words);
        assert!(error(&reply).starts_with("CLUSTERDOWN"), "{reply:?}");
    }
    // What an instance elsewhere replied comes too late, and so does what was made of it.
    for words in [format!("GET {away}"), format!("MGET {other} {away}"), format!("INCR {away}")] {
        for at in 0..2 {
            let reply = error(&cluster.client(at).say(&words));
            assert!(reply.starts_with("CLUSTERDOWN") && reply.contains("may have"), "{reply}");
        }
    }
    cluster.coordinators[0].is_sure.store(true, Ordering::SeqCst);
    assert_eq!(cluster.client(0).say(&format!("GET {other}")), bulk("1"));
    cluster.settle();
}

#[test]
fn what_may_have_been_executed_is_not_sent_again() {
    let cluster = three();
    let key = cluster.key_of(1, "n");
    let mut client = cluster.client(0);
    client.say(&format!("SET {key} 0"));
    let (incr, lcs) = (format!("INCR {key}"), format!("LCS {key} {key}"));
    let (is_sure, asks) = (&cluster.coordinators[1].is_sure, &cluster.coordinators[1].asks);
    is_sure.store(false, Ordering::SeqCst);
    let alone = client.say(&incr);
    is_sure.store(true, Ordering::SeqCst);
    // By a thread that may wait for the device: the lease ends meanwhile, and there is another one soon.
    asks.store(1, Ordering::SeqCst);
    let together = client.pipeline(&["MULTI", &incr, &lcs, "EXEC"]);
    for reply in [alone, together[3].clone()] {
        assert!(error(&reply).contains("may have happened"), "{reply:?}");
    }
    // Nor what a node does not reply to in words that can be read.
    let garbler = Arc::new(Garbler::default());
    let before = cluster.shared.replace_executor(cluster.node(1), garbler.clone());
    let replies = client.pipeline(&[&incr, &incr]);
    assert_eq!(replies[0], int(7));
    assert!(error(&replies[1]).contains("may have happened"), "{:?}", replies[1]);
    assert_eq!(garbler.0.load(Ordering::SeqCst), 1);
    cluster.shared.replace_executor(cluster.node(1), before);
    is_sure.store(true, Ordering::SeqCst);
    assert_eq!(client.say(&format!("GET {key}")), bulk("2"));
    cluster.settle();
}

/// Replies to its first request, and then with what is no reply; how many calls it got.
#[derive(Default)]
struct Garbler(AtomicU32);

impl CommandExecutor for Garbler {
    fn execute(&self, _: IncomingCall, done: Box<dyn FnOnce(CallReply) + Send>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        done(Ok(b":7\r\n?\r\n".to_vec()));
    }
}

#[test]
fn the_state_is_ok_where_every_shard_is_answered_for() {
    let cluster = FakeCluster::new(Placement::Slots, 3, &[]);
    let get = format!("GET {}", cluster.key_of(1, "k"));
    // The owner serves its shard a moment before anybody sees its claim.
    cluster.shared.hand_over_unseen(ShardId(1), cluster.node(1));
    for at in 0..3 {
        let mut client = cluster.client(at);
        let is_served = client.say(&get) == Reply::Null;
        let page = text(&client.say("CLUSTER INFO"));
        let says =
            ["cluster_state:ok\r\n", "cluster_slots_ok:16384\r\n"].map(|it| page.contains(it));
        assert_eq!((is_served, says), (at == 1, [at == 1; 2]), "{page}");
    }
}

#[test]
fn clients_that_know_slots_are_told_what_they_need() {
    let cluster = FakeCluster::new(Placement::Slots, 3, &[("cluster-redirect", "moved")]);
    let (own, other) = (cluster.key_of(0, "a"), cluster.key_of(1, "b"));
    let mut client = cluster.client(0);
    let there = cluster.served[1].address();
    assert_eq!(client.say(&format!("SET {own} 1")), ok());
    let moved = error(&client.say(&format!("SET {other} 1")));
    let slot = terrace_cluster::slot_of(other.as_bytes());
    assert_eq!(moved, format!("MOVED {slot} {there}"));
    assert_eq!(client.say(&format!("CLUSTER KEYSLOT {other}")), int(slot.number().into()));
    let replies = client.pipeline(&["MULTI", &format!("SET {other} 1"), "EXEC"]);
    assert!(error(&replies[1]).starts_with("MOVED") && error(&replies[2]).starts_with("EXECABORT"));
    let Reply::Array(rows) = client.say("CLUSTER SLOTS") else { panic!("no rows") };
    assert_eq!(rows.len(), 3);
    let Reply::Array(row) = &rows[0] else { panic!("no row") };
    assert_eq!(row[..2], [int(0), int(5460)]);
    let Reply::Array(node) = &row[2] else { panic!("no node") };
    let port = i64::from(cluster.served[0].address().port());
    assert_eq!(node[..2], [bulk("127.0.0.1"), int(port)]);
    let page = text(&client.say("CLUSTER NODES"));
    assert_eq!(page.lines().count(), 3);
    assert!(page.contains("myself,master - 0 0 1 connected 0-5460\n"), "{page}");
    assert!(text(&client.say("CLUSTER INFO")).contains("cluster_state:ok\r\n"));
    assert!(shown(&client.say("CLUSTER SHARDS")).contains("online"));
    assert_eq!(text(&client.say("CLUSTER MYID")), cluster.node(0).to_string());
    let own_slot = terrace_cluster::slot_of(own.as_bytes());
    assert_eq!(client.say(&format!("CLUSTER COUNTKEYSINSLOT {own_slot}")), int(1));
    assert_eq!(client.say(&format!("CLUSTER GETKEYSINSLOT {own_slot} 9")), array([bulk(&own)]));
    assert!(error(&client.say("CLUSTER COUNTKEYSINSLOT 16384")).contains("Invalid slot"));
    for word in ["READONLY", "READWRITE", "ASKING"] {
        assert_eq!(client.say(word), ok());
    }
    assert!(text(&client.say("INFO cluster")).contains("cluster_enabled:1"));
    assert!(shown(&client.say("HELLO")).contains("cluster"));
    assert!(error(&client.say("CLUSTER ADDSLOTS 1")).contains("terrace cluster"));
}
