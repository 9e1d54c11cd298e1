//! Commits that wait: only clients with a write in the batch wait for it, and no write is acknowledged
//! before its commit.

use crate::client::{bulk, error, hears_nothing, int, ok};
use crate::gate::{Gated, GatedVfs};
use crate::served::Served;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use terrace::vfs::{Fault, FaultKind, OpClass};
use terrace_base::ManualClock;
use terrace_resp::Reply;

const SYNCS: &[(&str, &str)] = &[("appendfsync", "always"), ("server-threads", "1")];

fn served(vfs: &GatedVfs, flags: &[(&str, &str)]) -> Served {
    again(Arc::new(tempfile::tempdir().unwrap()), vfs, flags)
}

fn again(dir: Arc<TempDir>, vfs: &GatedVfs, flags: &[(&str, &str)]) -> Served {
    Served::start(dir, None, flags, &|options| options.advanced.vfs = Arc::new(vfs.clone()))
}

#[test]
fn a_slow_sync_is_waited_for_by_those_who_wrote_and_nobody_else() {
    let vfs = GatedVfs::new(Gated::LogSync);
    let served = served(&vfs, SYNCS);
    let mut reader = served.client();
    assert_eq!(reader.say("MSET there 1 count 7"), ok());
    let [mut first, mut second, mut third, mut seer] = [(); 4].map(|()| served.client());
    let closed = vfs.close();
    first.send(&["SET", "new", "x"]);
    vfs.wait_for_somebody();
    // On the same key, on others, and a client that reads what was not committed.
    second.send_words(&["INCR count", "INCR new", "GET there"]);
    third.send_words(&["SET other y", "GET other"]);
    assert!(hears_nothing(&third));
    seer.send_words(&["GET other"]);
    assert!(hears_nothing(&first) && hears_nothing(&second) && hears_nothing(&seer));
    for _ in 0..20 {
        assert_eq!(reader.say("GET there"), bulk("1"));
        assert_eq!(reader.say("PING"), Reply::Simple(b"PONG"[..].into()));
        assert_eq!(reader.say("GET new"), Reply::Null, "it is not committed");
    }
    let passed = vfs.passed();
    drop(closed);
    assert_eq!(first.reply(), ok());
    assert_eq!(second.reply(), int(8));
    assert!(error(&second.reply()).contains("not an integer"));
    assert_eq!(second.reply(), bulk("1"));
    assert_eq!((third.reply(), third.reply(), seer.reply()), (ok(), bulk("y"), bulk("y")));
    assert!(vfs.passed() - passed <= 4, "writers share a sync");
    assert_eq!(reader.say("GET new"), bulk("x"));
}

/// A commit, and one that is waited for in turn, take longer than a client may be idle.
#[test]
fn who_waits_for_a_commit_is_not_idle() {
    let vfs = GatedVfs::new(Gated::LogSync);
    let clock = ManualClock::at(1_700_000_000_000);
    let flags = [SYNCS, &[("timeout", "1")]].concat();
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let served = Served::start(dir, None, &flags, &|options| {
        options.advanced.vfs = Arc::new(vfs.clone());
        options.advanced.clock = Arc::new(clock.clone());
    });
    let [mut writer, mut silent, mut of_key, mut next, mut idle, mut busy] =
        [(); 6].map(|()| served.client());
    assert_eq!(idle.say("PING"), busy.say("PING"));
    let closed = vfs.close();
    silent.send_words(&["CLIENT REPLY OFF", "SET silent x"]);
    vfs.wait_for_somebody();
    // In the batch behind that one, and one whose key that one writes.
    writer.send_words(&["SET key x"]);
    of_key.send_words(&["APPEND silent y"]);
    next.send_words(&["SET other x"]);
    assert!(hears_nothing(&writer) && hears_nothing(&of_key) && hears_nothing(&next));
    for _ in 0..2 {
        clock.advance(600);
        assert_eq!(busy.say("PING"), Reply::Simple(b"PONG"[..].into()));
    }
    // The loop has looked at all of them.
    idle.expect_end();
    drop(closed);
    assert_eq!((writer.reply(), of_key.reply(), next.reply()), (ok(), int(2), ok()));
    silent.send_words(&["CLIENT REPLY ON"]);
    assert_eq!(silent.reply(), ok());
    assert_eq!(served.server().stats.timed_out.get(), 1);
}

#[test]
fn many_writers_of_one_key_share_syncs_and_lose_nothing() {
    const CLIENTS: i64 = 20;
    const TIMES: i64 = 50;
    let vfs = GatedVfs::new(Gated::LogSync);
    for threads in ["1", "2"] {
        let flags = [("appendfsync", "always"), ("server-threads", threads)];
        let served = served(&vfs, &flags);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let mut client = served.client();
                    let mut last = 0;
                    for _ in 0..TIMES {
                        let replies = client.pipeline(&["INCR count", "GET absent", "GET count"]);
                        let Reply::Integer(count) = replies[0] else { panic!("{replies:?}") };
                        assert!(count > last, "{count} after {last}");
                        assert_eq!(replies[1], Reply::Null);
                        last = count;
                    }
                });
            }
        });
        assert_eq!(served.client().say("GET count"), bulk(&(CLIENTS * TIMES).to_string()));
        served.client().say("FLUSHALL");
    }
}

#[test]
fn every_client_with_a_part_in_a_failed_commit_gets_its_error() {
    let vfs = GatedVfs::new(Gated::LogSync);
    let served = served(&vfs, SYNCS);
    let mut reader = served.client();
    assert_eq!(reader.say("SET there 1"), ok());
    let kind = FaultKind::SyncFails;
    let at_op = vfs.sim().op_count() + 1;
    vfs.sim().set_fault(Some(Fault { at_op, kind, forever: true, filter: None::<OpClass> }));
    let mut writer = served.client();
    let replies = writer.pipeline(&["GET there", "SET there 2", "GET there"]);
    assert_eq!(replies.len(), 3);
    assert!(replies.iter().all(|reply| error(reply).starts_with("MISCONF")), "{replies:?}");
    assert_eq!(reader.say("GET there"), bulk("1"));
    let ended = served.try_end().unwrap_err().to_string();
    assert!(ended.contains("sync"), "the close says what may be lost: {ended}");
}

/// The errors say that nothing happened. What did change is the session: its next commands would be executed in
/// another database, be queued, or be answered in another protocol.
#[test]
fn a_client_whose_session_a_failed_commit_has_changed_is_ended() {
    /// Commands of one batch behind a write, and whether the session is another one behind them.
    const CASES: &[(&[&str], bool)] = &[
        (&["SELECT 1"], true),
        (&["HELLO 3"], true),
        (&["MULTI"], true),
        (&["MULTI", "SET there 3"], true),
        (&["AUTH default password"], true),
        (&["RESET"], true),
        (&["SELECT 1", "SELECT 0"], false),
        (&["MULTI", "SET there 3", "EXEC"], false),
        (&["PING", "CLIENT ID", "UNWATCH"], false),
    ];
    for (commands, ends) in CASES {
        let vfs = GatedVfs::new(Gated::LogSync);
        let served = served(&vfs, SYNCS);
        assert_eq!(served.client().say("SET there 1"), ok());
        let kind = FaultKind::SyncFails;
        let at_op = vfs.sim().op_count() + 1;
        vfs.sim().set_fault(Some(Fault { at_op, kind, forever: true, filter: None::<OpClass> }));
        let mut client = served.client();
        let requests = [&["SET there 2"], *commands].concat();
        let replies = client.pipeline(&requests);
        let are_errors = replies.iter().all(|reply| error(reply).starts_with("MISCONF"));
        assert!(are_errors && replies.len() == requests.len(), "{commands:?}: {replies:?}");
        match ends {
            true => client.expect_end(),
            false => assert_eq!(client.say("GET there"), bulk("1"), "{commands:?}"),
        }
        drop(client);
        let _what_may_be_lost = served.try_end();
    }
}

/// As above, of what was begun in an earlier batch: what the client takes for queued, or for watched, is not.
#[test]
fn a_client_that_a_failed_commit_has_left_without_its_transaction_is_ended() {
    /// Commands of an earlier batch, those of the batch that fails, and whether the session is another one then.
    const CASES: &[(&[&str], &[&str], bool)] = &[
        (&["MULTI"], &["DISCARD", "SET there 2"], true),
        (&["WATCH there"], &["MULTI", "DISCARD", "SET there 2"], true),
        (&["WATCH there"], &["UNWATCH", "SET there 2"], true),
        (&["MULTI"], &["EXEC", "SET there 2"], false),
        (&[], &["UNWATCH", "SET there 2"], false),
    ];
    for (before, commands, ends) in CASES {
        let vfs = GatedVfs::new(Gated::LogSync);
        let served = served(&vfs, SYNCS);
        let mut client = served.client();
        assert_eq!(client.say("SET there 1"), ok());
        for command in *before {
            assert_eq!(client.say(command), ok());
        }
        let kind = FaultKind::SyncFails;
        let at_op = vfs.sim().op_count() + 1;
        vfs.sim().set_fault(Some(Fault { at_op, kind, forever: true, filter: None::<OpClass> }));
        let replies = client.pipeline(commands);
        let are_errors = replies.iter().all(|reply| error(reply).starts_with("MISCONF"));
        assert!(are_errors, "{commands:?}: {replies:?}");
        match ends {
            true => client.expect_end(),
            false => assert_eq!(client.say("GET there"), bulk("1"), "{commands:?}"),
        }
        drop(client);
        let _what_may_be_lost = served.try_end();
    }
}

/// Its replies wait for the commit, and are more than a MiB: nothing more of it is executed. The loop sleeps meanwhile.
#[test]
fn a_client_with_many_replies_in_a_slow_commit_is_not_served_again_and_again() {
    const PINGS: u64 = 100;
    const TIMES: usize = 13;
    let vfs = GatedVfs::new(Gated::LogSync);
    let served = served(&vfs, SYNCS);
    let [mut writer, mut reader, mut other] = [(); 3].map(|()| served.client());
    let closed = vfs.close();
    writer.send(&["SET", "new", "x"]);
    vfs.wait_for_somebody();
    // In the batch behind that one, from which it also reads: more than a MiB.
    let value = "v".repeat(100_000);
    let set = vec!["SET", "large", &value];
    let mut requests = vec![set];
    requests.extend(vec![vec!["GET", "large"]; TIMES]);
    requests.push(vec!["ECHO", "end"]);
    reader.send_all(&requests);
    // Each of them takes a turn of the loop at least, and in each turn everybody is served that waits for it.
    for _ in 0..PINGS {
        assert_eq!(other.say("PING"), Reply::Simple(b"PONG"[..].into()));
    }
    assert!(hears_nothing(&reader));
    let held = served.server().stats.held_turns.get();
    assert!(held <= PINGS / 10, "in {held} turns nothing could be executed");
    drop(closed);
    assert_eq!((writer.reply(), reader.reply()), (ok(), ok()));
    for _ in 0..TIMES {
        assert_eq!(reader.reply(), bulk(&value));
    }
    assert_eq!(reader.reply(), bulk("end"));
}

#[test]
fn writers_that_are_stopped_stop_no_readers() {
    let vfs = GatedVfs::new(Gated::SstCreate);
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let served = Served::start(dir, None, &[("server-threads", "1")], &|options| {
        options.advanced.vfs = Arc::new(vfs.clone());
        options.memory_budget = 4 << 20;
        options.advanced.memtable_bytes = 64 << 10;
    });
    let mut reader = served.client();
    assert_eq!(reader.say("SET there 1"), ok());
    let closed = vfs.close();
    const WRITES: usize = 5_000;
    let value = "v".repeat(1000);
    std::thread::scope(|scope| {
        let (mut writer, value) = (served.client(), &value);
        let writing = scope.spawn(move || {
            for at in 0..WRITES {
                assert_eq!(writer.call(&["SET", &format!("key {at}"), value]), ok(), "{at}");
            }
        });
        let stopped = || served.server().space.db().metrics().stops > 0;
        while !stopped() {
            assert!(!writing.is_finished(), "nothing stopped the writer");
            std::thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..50 {
            assert_eq!(reader.say("GET there"), bulk("1"));
        }
        let told = reader.say("INFO terrace");
        assert!(!writing.is_finished());
        drop(closed);
        let Reply::Bulk(text) = told else { panic!("{told:?}") };
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains("stall_memtables:slowdowns=0,stops=1,us="), "{text}");
        assert!(text.contains("stall_l0_files:slowdowns=0,stops=0,us=0\r\n"), "{text}");
    });
    for at in (0..WRITES).step_by(97) {
        let found = reader.call(&["GET", &format!("key {at}")]);
        assert_eq!(found, Reply::Bulk(value.clone().into_bytes().into()), "{at}");
    }
}

#[test]
fn a_server_that_ends_commits_what_it_was_told_before() {
    let vfs = GatedVfs::new(Gated::LogSync);
    let served = served(&vfs, SYNCS);
    let mut client = served.client();
    let closed = vfs.close();
    client.send(&["SET", "k", "v"]);
    vfs.wait_for_somebody();
    let mut dir = None;
    std::thread::scope(|scope| {
        let ending = scope.spawn(move || served.end());
        std::thread::sleep(Duration::from_millis(100));
        assert!(!ending.is_finished());
        drop(closed);
        assert_eq!(client.reply(), ok());
        assert_eq!(client.try_reply(), None);
        dir = Some(ending.join().unwrap());
    });
    let again = again(dir.unwrap(), &vfs, SYNCS);
    assert_eq!(again.client().say("GET k"), bulk("v"));
}

/// Readers and writers share batches; a store that takes no more writes still answers.
#[test]
fn who_only_reads_is_not_told_of_the_failure_of_others() {
    const READS: usize = 3_000;
    let vfs = GatedVfs::new(Gated::LogSync);
    let served = served(&vfs, SYNCS);
    let mut reader = served.client();
    assert_eq!(reader.say("SET there 1"), ok());
    let (kind, at_op) = (FaultKind::SyncFails, vfs.sim().op_count() + 1);
    vfs.sim().set_fault(Some(Fault { at_op, kind, forever: true, filter: None::<OpClass> }));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = served.client();
            loop {
                // Not what the reader sees: a reader of an uncommitted write has a part in it.
                let reply = writer.say("SET other 2");
                assert!(error(&reply).starts_with("MISCONF"), "{reply:?}");
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let read: Vec<_> = (0..READS).map(|_| reader.say("GET there")).collect();
        is_done.store(true, Ordering::Relaxed);
        assert!(read.iter().all(|value| *value == bulk("1")));
    });
    // Only the first of its writes came into a batch.
    assert_eq!(served.server().stats.failed_batches.get(), 1);
    let _refused = served.try_end();
}
