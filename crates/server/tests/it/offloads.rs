//! Commands that read the device: who is alone is answered by the thread that waits, nobody else
//! waits for that, and no reply is lost or comes in another order.

use crate::client::{Client, array, bulk, error, field, hears_nothing, int, ok, until};
use crate::gate::{Gated, GatedVfs};
use crate::served::Served;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_keyspace::Mode;
use terrace_resp::Reply;

const KEYS: usize = 3000;

/// No memtable is ever full: nothing that a test has written is flushed behind its back, and then read from the device.
const ALL_IN_MEMORY: (&str, &str) = ("maxmemory", "256mb");

/// A server whose keys are on the device, and not in memory.
pub fn served(vfs: &GatedVfs, flags: &[(&str, &str)]) -> Served {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let change =
        |options: &mut terrace::Options| options.advanced.vfs = Arc::new(vfs.clone()) as Arc<_>;
    let served = Served::start(dir.clone(), None, flags, &change);
    let mut client = served.client();
    for first in (0..KEYS).step_by(100) {
        let requests: Vec<String> =
            (first..first + 100).map(|n| format!("SET key:{n:05} {}", value(n))).collect();
        let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
        assert!(client.pipeline(&requests).iter().all(|reply| *reply == ok()));
    }
    let db = served.server().space.db();
    db.flush().unwrap();
    db.wait_idle().unwrap();
    drop(client);
    served.end();
    Served::start(dir, None, flags, &change)
}

pub fn value(n: usize) -> String {
    format!("{n:05}").repeat(180)
}

fn pong() -> Reply<'static> {
    Reply::Simple(b"PONG"[..].into())
}

fn offloads(served: &Served) -> u64 {
    served.server().stats.offloads.get()
}

#[test]
fn a_read_of_the_device_stalls_nobody_else() {
    let vfs = GatedVfs::new(Gated::SstRead);
    let served = served(&vfs, &[("server-threads", "1")]);
    let mut alone = served.client();
    assert_eq!(alone.say("GET key:00001"), bulk(&value(1)));
    for round in 0..20 {
        let closed = vfs.close();
        let n = 100 + round * 50;
        alone.send_words(&[&format!("GET key:{n:05}")]);
        vfs.wait_for_somebody();
        // One who comes now, one who has to wait as well, and what the first one says meanwhile.
        let mut other = served.client();
        let mut waits = served.client();
        waits.send_words(&[&format!("GET key:{:05}", n + 25)]);
        for _ in 0..5 {
            assert_eq!(other.say("PING"), pong());
            assert_eq!(other.say("SET new x"), ok());
            assert_eq!(other.say("GET new"), bulk("x"));
        }
        if round % 2 == 0 {
            alone.send_words(&["PING", "GET new"]);
            assert_eq!(other.say("PING"), pong());
        }
        assert!(hears_nothing(&alone) && hears_nothing(&waits));
        drop(closed);
        assert_eq!(alone.reply(), bulk(&value(n)));
        if round % 2 == 0 {
            assert_eq!((alone.reply(), alone.reply()), (pong(), bulk("x")));
        }
        assert_eq!(waits.reply(), bulk(&value(n + 25)));
    }
    assert!(offloads(&served) >= 20);
}

#[test]
fn every_reply_comes_and_in_order() {
    let vfs = GatedVfs::new(Gated::SstRead);
    for (threads, clients) in [("1", 1), ("1", 2), ("2", 5)] {
        let served = served(&vfs, &[("server-threads", threads)]);
        std::thread::scope(|scope| {
            for client_number in 0..clients {
                let served = &served;
                scope.spawn(move || {
                    let mut client = served.client();
                    // Neighbours share blocks: far from each other, mostly.
                    for i in (client_number..KEYS).step_by(clients) {
                        let n = i * 7 % KEYS;
                        let get = format!("GET key:{n:05}");
                        match i % 3 {
                            0 => assert_eq!(client.say(&get), bulk(&value(n))),
                            1 => {
                                let replies = client.pipeline(&["PING", &get, "ECHO e", &get]);
                                let found = bulk(&value(n));
                                assert_eq!(replies, [pong(), found.clone(), bulk("e"), found]);
                            }
                            _ => {
                                client.send_words(&[&get]);
                                client.send_words(&["ECHO e"]);
                                let replies = (client.reply(), client.reply());
                                assert_eq!(replies, (bulk(&value(n)), bulk("e")));
                            }
                        }
                    }
                });
            }
        });
        let offloads = offloads(&served);
        assert!(offloads > 100, "only {offloads} of {KEYS} reads waited");
        assert_eq!(served.server().stats.waiting.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn clients_may_end_while_they_wait() {
    let vfs = GatedVfs::new(Gated::SstRead);
    let served = served(&vfs, &[("server-threads", "1")]);
    let mut other = served.client();
    for round in 0..10 {
        let mut alone = served.client();
        let Reply::Integer(id) = alone.say("CLIENT ID") else { panic!("no id") };
        let closed = vfs.close();
        alone.send_words(&[&format!("GET key:{:05}", 200 + round * 50)]);
        vfs.wait_for_somebody();
        match round % 2 {
            0 => {
                assert_eq!(other.say(&format!("CLIENT KILL ID {id}")), Reply::Integer(1));
                alone.expect_end();
            }
            _ => drop(alone),
        }
        assert_eq!(other.say("PING"), pong());
        drop(closed);
        assert_eq!(other.say("GET absent"), Reply::Null);
    }
    until("clients that have gone are still counted", || served.server().clients.count() == 1);
    assert!(error(&other.say("GET")).contains("wrong number"));
}

#[test]
fn a_server_that_ends_answers_who_waits() {
    let vfs = GatedVfs::new(Gated::SstRead);
    let served = served(&vfs, &[("server-threads", "1")]);
    let mut alone = served.client();
    assert_eq!(alone.say("GET key:00001"), bulk(&value(1)));
    let closed = vfs.close();
    alone.send_words(&["GET key:02000"]);
    vfs.wait_for_somebody();
    std::thread::scope(|scope| {
        scope.spawn(|| served.end());
        assert!(hears_nothing(&alone));
        drop(closed);
        assert_eq!(alone.reply(), bulk(&value(2000)));
        alone.expect_end();
    });
}

#[test]
fn a_transaction_that_begins_again_elsewhere_begins_as_the_user_it_began_as() {
    let vfs = GatedVfs::new(Gated::SstRead);
    let served = served(&vfs, &[("server-threads", "1")]);
    let mut client = served.client();
    assert_eq!(client.say("ACL SETUSER reader on >pw ~* +get"), ok());
    let before = offloads(&served);
    // The read of the device comes after the user, the protocol and the database have changed.
    client.pipeline(&["MULTI", "SET written 1", "HELLO 3 AUTH reader pw", "GET key:00001"]);
    let Reply::Array(replies) = client.say("EXEC") else { panic!("no array") };
    assert_eq!((&replies[0], &replies[2]), (&ok(), &bulk(&value(1))));
    assert!(offloads(&served) > before, "nothing was read from the device");
    assert!(error(&client.say("SET written 2")).starts_with("NOPERM"));
    assert_eq!(served.client().say("GET written"), bulk("1"));
}

#[test]
fn what_is_refused_in_a_transaction_that_begins_again_elsewhere_is_logged_once() {
    let vfs = GatedVfs::new(Gated::SstRead);
    let served = served(&vfs, &[("server-threads", "1")]);
    let (mut admin, mut client) = (served.client(), served.client());
    let newest_count = |admin: &mut Client| {
        let Reply::Array(entries) = admin.say("ACL LOG") else { panic!("no array") };
        field(&entries[0], "count").clone()
    };
    assert_eq!(admin.say("ACL SETUSER limited on >pw ~* +@all"), ok());
    client.pipeline(&["MULTI", "AUTH limited wrong", "GET key:00001"]);
    let Reply::Array(replies) = client.say("EXEC") else { panic!("no array") };
    assert!(error(&replies[0]).starts_with("WRONGPASS"), "{replies:?}");
    assert_eq!(replies[1], bulk(&value(1)));
    assert_eq!((newest_count(&mut admin), admin.info("acl_access_denied_auth")), (int(1), 1));
    // A command that was allowed when it was queued.
    assert_eq!(client.say("AUTH limited pw"), ok());
    client.pipeline(&["MULTI", "SET k v", "GET key:02000"]);
    assert_eq!(admin.say("ACL SETUSER limited -set"), ok());
    let Reply::Array(replies) = client.say("EXEC") else { panic!("no array") };
    assert!(error(&replies[0]).starts_with("NOPERM"), "{replies:?}");
    assert_eq!((&replies[1], newest_count(&mut admin)), (&bulk(&value(2000)), int(1)));
}

/// What is behind the change would not be executed, and what is before it be durable.
#[test]
fn a_change_of_rights_by_another_client_splits_no_transaction_that_has_begun() {
    let vfs = GatedVfs::new(Gated::SstRead);
    let served = served(&vfs, &[("server-threads", "1")]);
    let mut admin = served.client();
    for (n, change) in [(1000, "ACL SETUSER u -set"), (2000, "ACL DELUSER u")] {
        assert_eq!(admin.say("ACL SETUSER u reset on >pw ~* +@all"), ok());
        let mut client = served.client();
        assert_eq!(client.say("AUTH u pw"), ok());
        let (first, get) = (format!("SET first {n}"), format!("GET key:{n:05}"));
        client.pipeline(&["MULTI", &first, &get, &format!("SET last {n}")]);
        let closed = vfs.close();
        client.send_words(&["EXEC"]);
        vfs.wait_for_somebody();
        let before = served.server().acl.generation();
        admin.send_words(&[change, "GET first", "GET last"]);
        until("the rules do not change", || served.server().acl.generation() > before);
        drop(closed);
        assert!(!matches!(admin.reply(), Reply::Error(_)), "{change}");
        let written = bulk(&n.to_string());
        assert_eq!((admin.reply(), admin.reply()), (written.clone(), written), "{change}");
        if change == "ACL SETUSER u -set" {
            assert_eq!(client.reply(), array([ok(), bulk(&value(n)), ok()]));
            assert!(error(&client.say("SET first x")).starts_with("NOPERM"), "{change}");
        }
    }
}

/// What an intersection or a difference costs is the members of one set times the sets, not those of one set alone.
#[test]
fn looking_members_up_in_many_sets_is_left_to_the_executor() {
    let served = Served::with(&[("server-threads", "1"), ALL_IN_MEMORY]);
    let mut client = served.client();
    for (kind, add) in [("z", "ZADD"), ("s", "SADD")] {
        for set in ["a", "b", "c"] {
            let mut words = vec![add.to_string(), format!("{kind}{set}")];
            for n in 0..2000 {
                words.extend((kind == "z").then(|| n.to_string()));
                words.push(format!("m{n}"));
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(client.call(&words), int(2000));
        }
    }
    let mut is_offloaded = |request: &str| {
        let before = offloads(&served);
        client.say(request);
        offloads(&served) > before
    };
    for request in [
        "ZINTERCARD 3 za zb zc",
        "ZINTER 3 za zb zc",
        "ZINTERSTORE zi 3 za zb zc",
        "SINTERCARD 3 sa sb sc",
        "ZDIFF 4 za zb zc sa",
        "ZDIFFSTORE zd 4 za zb zc sa",
    ] {
        assert!(is_offloaded(request), "{request} is executed by the loop");
    }
    for request in ["ZINTERCARD 2 za zb", "SINTERCARD 2 sa sb", "ZDIFF 2 za zb"] {
        assert!(!is_offloaded(request), "{request} need not wait");
    }
}

/// Matching may take a step for each byte of the pattern and each of the text.
#[test]
fn long_patterns_are_matched_by_the_executor() {
    let served = Served::with(&[("server-threads", "1")]);
    let mut client = served.client();
    let member = "a".repeat(1000);
    client.pipeline(&[
        &format!("HSET h {member} v"),
        &format!("SADD s {member}"),
        &format!("ZADD z 1 {member}"),
    ]);
    let mut is_offloaded = |request: &str| {
        let before = offloads(&served);
        client.say(request);
        offloads(&served) > before
    };
    let long = format!("*{}b", "a".repeat(2000));
    for scan in ["HSCAN h 0 MATCH", "SSCAN s 0 MATCH", "ZSCAN z 0 MATCH"] {
        assert!(!is_offloaded(&format!("{scan} *aaab")), "{scan} need not wait");
        assert!(is_offloaded(&format!("{scan} {long}")), "{scan} is executed by the loop");
    }
    assert!(!is_offloaded("COMMAND LIST FILTERBY PATTERN c*t"));
    assert!(is_offloaded(&format!("COMMAND LIST FILTERBY PATTERN {long}")));
}

/// A short request names a key again and again.
#[test]
fn long_replies_are_made_by_the_executor() {
    let served = Served::with(&[("server-threads", "1"), ("value-separation-threshold", "off")]);
    let mut client = served.client();
    let value = "x".repeat(100_000);
    assert_eq!(client.call(&["SET", "k", &value]), ok());
    assert_eq!(client.call(&["HSET", "h", "f", &value]), int(1));
    for (command, name) in [(&["MGET"][..], "k"), (&["HMGET", "h"], "f")] {
        for (times, is_long) in [(40, false), (50, true)] {
            let before = offloads(&served);
            let words: Vec<&str> =
                command.iter().copied().chain(std::iter::repeat_n(name, times)).collect();
            let Reply::Array(values) = client.call(&words) else { panic!("no array") };
            assert!(values.len() == times && values.iter().all(|one| *one == bulk(&value)));
            assert_eq!(offloads(&served) > before, is_long, "{command:?}, {times} times");
        }
    }
    let (before, long) = (offloads(&served), "x".repeat(2 << 20));
    assert_eq!(client.call(&["ECHO", long.as_str()]), bulk(&long));
    assert_eq!(client.call(&["PING", long.as_str()]), bulk(&long));
    assert_eq!(offloads(&served), before + 2);
    for (times, is_long) in [(40, false), (50, true)] {
        client.pipeline(&["SET counter 0", "MULTI", "INCR counter"]);
        (0..times).for_each(|_| drop(client.say("GET k")));
        let before = offloads(&served);
        let Reply::Array(replies) = client.say("EXEC") else { panic!("no array") };
        assert!(replies.len() == times + 1 && replies[times] == bulk(&value));
        assert_eq!(offloads(&served) > before, is_long, "EXEC of {times}");
        assert_eq!(client.say("GET counter"), bulk("1"), "it was executed once");
    }
}

/// The log may have a million entries of 5 KB.
#[test]
fn many_slow_commands_are_shown_by_the_executor() {
    let served = Served::with(&[("slowlog-log-slower-than", "0"), ("slowlog-max-len", "1000")]);
    let mut client = served.client();
    client.pipeline(&["PING"; 300]);
    for (count, is_many) in [("10", false), ("-1", true)] {
        let before = offloads(&served);
        let Reply::Array(entries) = client.say(&format!("SLOWLOG GET {count}")) else {
            panic!("no array")
        };
        assert_eq!(entries.len(), if is_many { 301 } else { 10 });
        assert_eq!(offloads(&served) > before, is_many, "{count}");
    }
}

/// Each of many clients may be compared with each of many conditions.
#[test]
fn many_clients_are_looked_at_by_the_executor() {
    let served = Served::with(&[("server-threads", "1")]);
    let mut clients = [(); 3].map(|()| served.client());
    // All of them are known by then.
    clients.iter_mut().for_each(|client| assert_eq!(client.say("PING"), pong()));
    for (conditions, is_many) in [(1000, false), (2000, true)] {
        let client = &mut clients[0];
        assert!(matches!(client.say("CLIENT LIST"), Reply::Bulk(_)));
        let before = offloads(&served);
        let words: Vec<&str> =
            ["CLIENT", "KILL"].into_iter().chain(["ID", "1000000"].repeat(conditions)).collect();
        assert_eq!(client.call(&words), int(0));
        assert_eq!(offloads(&served) > before, is_many, "{conditions} conditions");
    }
    clients.iter_mut().for_each(|client| assert_eq!(client.say("PING"), pong()));
}

/// A walk over very many keys would keep the server from ending.
#[test]
fn a_walk_over_the_keys_ends_with_the_server() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert_eq!(client.pipeline(&["MSET k1 v k2 v", "HSET h f v"]), [ok(), int(1)]);
    assert_eq!(client.say("KEYS k*"), array([bulk("k1"), bulk("k2")]));
    let mut others = [(); 4].map(|()| served.client());
    others.iter_mut().for_each(|other| assert_eq!(other.say("PING"), pong()));
    served.server().stop.request();
    let walks = ["KEYS k*", "SCAN 0 MATCH k*", "TSCAN - + LIMIT 1", "HSCAN h 0 MATCH *"];
    for (other, walk) in others.iter_mut().zip(walks) {
        other.send_words(&[walk, "SET behind 1"]);
        assert_eq!(error(&other.reply()), "ERR the server is stopping", "{walk}");
        assert_eq!(other.try_reply(), None, "the connection goes on");
    }
    assert_eq!(client.pipeline(&["EXISTS behind", "KEYS k1"]), [int(0), array([bulk("k1")])]);
}

/// A list may have one element again and again, and a pattern leads from it to one value.
#[test]
fn many_long_values_are_sorted_and_combined_by_the_executor() {
    let served = Served::with(&[ALL_IN_MEMORY, ("value-separation-threshold", "off")]);
    let mut client = served.client();
    let value = "x".repeat(100_000);
    for key in (0..20).map(|number| format!("b{number}")).chain(["w_e".into()]) {
        assert_eq!(client.call(&["SET", &key, &value]), ok());
    }
    for (list, times) in [("many", 20), ("few", 5)] {
        let push: Vec<&str> =
            ["RPUSH", list].into_iter().chain(std::iter::repeat_n("e", times)).collect();
        assert_eq!(client.call(&push), int(times as i64));
    }
    let mut is_offloaded = |request: &str| {
        let before = offloads(&served);
        client.say(request);
        offloads(&served) > before
    };
    for sort in ["BY nosort GET w_*", "BY w_* ALPHA", "BY nosort GET w_* STORE sorted"] {
        assert!(!is_offloaded(&format!("SORT few {sort}")), "{sort} need not wait");
        assert!(is_offloaded(&format!("SORT many {sort}")), "{sort} is executed by the loop");
    }
    assert!(!is_offloaded("BITOP OR combined b0 b1 b2 b3 b4"));
    let all: Vec<String> = (0..20).map(|number| format!("b{number}")).collect();
    assert!(is_offloaded(&format!("BITOP OR combined {}", all.join(" "))));
}

/// However many, and however often others are faster.
#[test]
fn those_who_wait_for_a_key_leave_threads_to_others() {
    const WRITERS: usize = 6;
    let served = Served::with(&[("server-threads", "1"), ("reader-threads", "2")]);
    let space = &served.server().space;
    let key = |key: &'static str| [key.as_bytes()].into_iter();
    let mut holder = space.command_batch(Mode::Device);
    holder.lock(0, key("k")).unwrap();
    let mut writers: Vec<Client> = (0..WRITERS).map(|_| served.client()).collect();
    for (number, writer) in writers.iter_mut().enumerate() {
        // A transaction of who watches is executed by a thread that may wait.
        let watch = format!("WATCH w{number}");
        assert_eq!(writer.pipeline(&[&watch, "MULTI", "APPEND k x"])[1], ok());
        writer.send_words(&["EXEC", "PING"]);
    }
    let waiting = || served.server().stats.waiting.load(Ordering::Relaxed);
    until("all wait", || waiting() == WRITERS as u64);
    let mut other = served.client();
    assert_eq!(other.say("SET other v"), ok());
    for _ in 0..20 {
        assert_eq!(other.say("KEYS o*"), array([bulk("other")]));
        // Another key becomes free, so that all are tried again.
        let mut brief = space.command_batch(Mode::Device);
        brief.lock(0, key("j")).unwrap();
        assert!(space.command_batch(Mode::Memory).lock(0, key("j")).is_err());
        brief.abandon();
    }
    assert_eq!(waiting(), WRITERS as u64);
    holder.abandon();
    let replies = writers.iter_mut().map(|writer| match (writer.reply(), writer.reply()) {
        (Reply::Array(lengths), pong) if pong == self::pong() => lengths[0].clone(),
        other => panic!("{other:?}"),
    });
    let mut lengths: Vec<i64> = replies
        .map(|length| match length {
            Reply::Integer(length) => length,
            other => panic!("{other:?}"),
        })
        .collect();
    lengths.sort_unstable();
    assert_eq!(lengths, (1..=WRITERS as i64).collect::<Vec<_>>());
    assert_eq!(other.say("GET k"), bulk(&"x".repeat(WRITERS)));
}

/// However many.
#[test]
fn those_who_wait_for_all_keys_leave_threads_to_others() {
    const FLUSHES: usize = 6;
    let served = Served::with(&[("server-threads", "1"), ("reader-threads", "2")]);
    let space = &served.server().space;
    let mut other = served.client();
    assert_eq!(other.say("SET other v"), ok());
    let mut holder = space.command_batch(Mode::Device);
    holder.lock(0, [&b"k"[..]].into_iter()).unwrap();
    let mut flushes: Vec<Client> = (0..FLUSHES).map(|_| served.client()).collect();
    for (number, client) in flushes.iter_mut().enumerate() {
        match number % 2 {
            0 => client.send_words(&["FLUSHALL"]),
            _ => {
                assert_eq!(client.pipeline(&["MULTI", "FLUSHDB"])[0], ok());
                client.send_words(&["EXEC"]);
            }
        }
    }
    let waiting = || served.server().stats.waiting.load(Ordering::Relaxed);
    until("all wait", || waiting() == FLUSHES as u64);
    for _ in 0..20 {
        assert_eq!(other.say("KEYS o*"), array([bulk("other")]));
    }
    assert_eq!(waiting(), FLUSHES as u64);
    holder.abandon();
    for (number, client) in flushes.iter_mut().enumerate() {
        let expected = if number % 2 == 0 { ok() } else { array([ok()]) };
        assert_eq!(client.reply(), expected);
    }
    assert_eq!(other.say("KEYS *"), array([]));
}

/// Also those that only read, and those of a transaction together.
#[test]
fn commands_of_many_arguments_are_left_to_the_executor() {
    let served = Served::with(&[("server-threads", "1")]);
    let mut client = served.client();
    client.pipeline(&["SET k v", "HSET h f v", "SADD s m", "ZADD z 1 m"]);
    let few: Vec<String> = (0..4000).map(|at| format!("a{at}")).collect();
    let many: Vec<String> = (0..5000).map(|at| format!("a{at}")).collect();
    let mut is_offloaded = |command: &str, arguments: &[String]| {
        let before = offloads(&served);
        let words = command.split(' ').chain(arguments.iter().map(String::as_str));
        client.call(&words.collect::<Vec<_>>());
        offloads(&served) > before
    };
    for command in ["EXISTS", "MGET", "HMGET h", "SMISMEMBER s", "ZMSCORE z", "DEL", "MSET"] {
        assert!(!is_offloaded(command, &few), "{command} need not wait");
        assert!(is_offloaded(command, &many), "{command} is executed by the loop");
    }
    // Long ones, too.
    let long = vec!["x".repeat(40_000); 30];
    assert!(is_offloaded("EXISTS", &long));
    let exists: Vec<&str> =
        std::iter::once("EXISTS").chain(many[..1000].iter().map(String::as_str)).collect();
    for (count, is_long) in [(3, false), (5, true)] {
        let mut client = served.client();
        assert_eq!(client.say("MULTI"), ok());
        (0..count).for_each(|_| drop(client.call(&exists)));
        let before = offloads(&served);
        assert!(matches!(client.say("EXEC"), Reply::Array(_)));
        assert_eq!(offloads(&served) > before, is_long, "{count} commands");
    }
}

/// Each key is compared with each pattern of the user.
#[test]
fn the_rights_to_many_keys_are_looked_up_by_the_executor() {
    let served = Served::with(&[("server-threads", "1")]);
    let (mut admin, mut client) = (served.client(), served.client());
    assert_eq!(admin.say("ACL SETUSER limited on >pw +@all ~k*:own"), ok());
    assert_eq!(client.say("AUTH limited pw"), ok());
    for (count, is_many) in [(4000, false), (5000, true)] {
        let before = offloads(&served);
        let keys = std::iter::repeat_n("k:own", count).chain(["k:other"]);
        let words: Vec<&str> = std::iter::once("EXISTS").chain(keys).collect();
        assert!(error(&client.call(&words)).starts_with("NOPERM"));
        assert_eq!(offloads(&served) > before, is_many, "{count} keys");
    }
    // Or by each of many bytes.
    let (before, long) = (offloads(&served), "k".repeat(2 << 20));
    assert!(error(&client.call(&["EXISTS", long.as_str()])).starts_with("NOPERM"));
    assert!(offloads(&served) > before, "a long key is compared by the loop");
    assert_eq!(client.say("MULTI"), ok());
    let keys: Vec<&str> =
        std::iter::once("EXISTS").chain(std::iter::repeat_n("k:own", 5000)).collect();
    assert_eq!(client.call(&keys), Reply::Simple(b"QUEUED"[..].into()));
    assert_eq!(client.say("EXEC"), array([int(0)]));
    // In a pause it waits at its loop, and is not tried by the executor again and again.
    assert_eq!(admin.say("CLIENT PAUSE 1000000 WRITE"), ok());
    let before = offloads(&served);
    let del: Vec<&str> = std::iter::once("DEL").chain(keys[1..].iter().copied()).collect();
    client.send(&del);
    assert!(hears_nothing(&client));
    assert_eq!(offloads(&served), before);
    assert_eq!(admin.say("CLIENT UNPAUSE"), ok());
    assert_eq!(client.reply(), int(0));
}

#[test]
fn long_passwords_are_hashed_by_the_executor() {
    let served = Served::with(&[("server-threads", "1")]);
    let mut client = served.client();
    let long = "x".repeat(2 << 20);
    assert_eq!(client.call(&["ACL", "SETUSER", "u", "on", &format!(">{long}")]), ok());
    for (password, is_long) in [("x", false), (&long[1..], true)] {
        let before = offloads(&served);
        assert!(error(&client.call(&["AUTH", "u", password])).starts_with("WRONGPASS"));
        assert_eq!(offloads(&served) > before, is_long, "{} bytes", password.len());
    }
    for words in [&["AUTH", "u", &long][..], &["HELLO", "2", "AUTH", "u", &long]] {
        let before = offloads(&served);
        assert!(!matches!(client.call(words), Reply::Error(_)));
        assert!(offloads(&served) > before, "{} is executed by the loop", words[0]);
    }
}

/// What a transaction does outside of the store cannot be taken back when it has to begin again.
#[test]
fn what_a_transaction_does_to_the_server_it_does_once() {
    let vfs = GatedVfs::new(Gated::SstRead);
    let served = served(&vfs, &[("server-threads", "1"), ("slowlog-log-slower-than", "0")]);
    let mut client = served.client();
    client.pipeline(&["SLOWLOG RESET", "PING", "PING"]);
    client.pipeline(&["MULTI", "SLOWLOG LEN", "SLOWLOG RESET", "GET key:00001"]);
    let Reply::Array(replies) = client.say("EXEC") else { panic!("no array") };
    assert_eq!(replies[2], bulk(&value(1)));
    let Reply::Integer(logged) = replies[0] else { panic!("{replies:?}") };
    assert!(logged >= 2, "{replies:?}");
}

#[test]
fn a_set_that_is_named_twice_is_combined_with_itself() {
    let served = Served::with(&[]);
    let mut client = served.client();
    assert_eq!(client.say("ZADD z 1 a 2 b"), int(2));
    assert_eq!(client.say("ZINTER 3 z z z WEIGHTS 1 2 3 WITHSCORES"), {
        Reply::Array(["a", "6", "b", "12"].map(bulk).to_vec())
    });
    assert_eq!(client.say("ZDIFF 2 z z"), Reply::Array(Vec::new()));
    assert_eq!(client.say("ZINTERCARD 2 z z"), int(2));
}
