//! What is under way of a client that is ended, or for which other rules hold: who asked for it gets the reply when it
//! is over, and nothing of before happens behind that.

use crate::client::{Client, bulk, error, hears_nothing, int, ok, until};
use crate::gate::{Gated, GatedVfs};
use crate::served::Served;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_resp::Reply;

fn served(vfs: &GatedVfs, threads: &str) -> Served {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let flags = [("appendfsync", "always"), ("server-threads", threads)];
    Served::start(dir, None, &flags, &|options| options.advanced.vfs = Arc::new(vfs.clone()))
}

fn id_of(client: &mut Client) -> i64 {
    match client.say("CLIENT ID") {
        Reply::Integer(id) => id,
        other => panic!("{other:?}"),
    }
}

fn pong() -> Reply<'static> {
    Reply::Simple(b"PONG"[..].into())
}

/// A client that is the user `u`.
fn as_user(served: &Served, admin: &mut Client) -> Client {
    assert_eq!(admin.say("ACL SETUSER u reset on >pw ~* +@all"), ok());
    let mut client = served.client();
    assert_eq!(client.say("AUTH u pw"), ok());
    client
}

/// Two clients, so that with two loops one of each.
#[test]
fn a_kill_is_answered_when_the_writes_of_its_victims_are_committed() {
    for threads in ["1", "2"] {
        let vfs = GatedVfs::new(Gated::LogSync);
        let served = served(&vfs, threads);
        let [mut one, mut two, mut killer, mut other] = [(); 4].map(|()| served.client());
        let id = id_of(&mut one);
        let own = id_of(&mut killer);
        assert_eq!(two.say("PING"), pong());
        let closed = vfs.close();
        one.send_words(&["RPUSH list a"]);
        vfs.wait_for_somebody();
        two.send_words(&["RPUSH list2 a"]);
        let kill = format!("CLIENT KILL ID {id}");
        killer.send_words(&[&kill, "LLEN list", "PING"]);
        let clients = &served.server().clients;
        until("it is not killed", || clients.count() == 3);
        assert!(hears_nothing(&killer), "{threads} loops: a write is under way");
        for _ in 0..20 {
            assert_eq!(other.say("PING"), pong());
        }
        drop(closed);
        assert_eq!((killer.reply(), killer.reply(), killer.reply()), (int(1), int(1), pong()));
        one.expect_end();
        assert_eq!(two.reply(), int(1));
        // All of them, and the killer.
        let closed = vfs.close();
        two.send_words(&["RPUSH list2 b"]);
        vfs.wait_for_somebody();
        killer.send_words(&["CLIENT KILL TYPE normal SKIPME no"]);
        until("the others are not killed", || clients.count() == 1);
        assert!(hears_nothing(&killer), "{threads} loops: a write of one of them is under way");
        drop(closed);
        assert_eq!(killer.reply(), int(3), "{own} is one of them");
        [two, other, killer].iter_mut().for_each(Client::expect_end);
        assert_eq!(served.client().say("LLEN list2"), int(2));
    }
}

#[test]
fn a_victim_that_waits_holds_nobody_up_and_executes_nothing_more() {
    for threads in ["1", "2"] {
        let vfs = GatedVfs::new(Gated::LogSync);
        let served = served(&vfs, threads);
        let [mut holder, mut victim, mut killer] = [(); 3].map(|()| served.client());
        let id = id_of(&mut victim);
        assert_eq!(victim.pipeline(&["WATCH w", "MULTI", "APPEND k x", "APPEND k y"]).len(), 4);
        let closed = vfs.close();
        holder.send_words(&["SET k v"]);
        vfs.wait_for_somebody();
        victim.send_words(&["EXEC", "APPEND k z"]);
        let waiting = || served.server().stats.waiting.load(Ordering::Relaxed);
        until("it does not wait", || waiting() == 1);
        assert_eq!(killer.say(&format!("CLIENT KILL ID {id}")), int(1));
        victim.expect_end();
        drop(closed);
        assert_eq!(holder.reply(), ok());
        until("it waits for ever", || waiting() == 0);
        assert_eq!(killer.say("GET k"), bulk("v"), "{threads} loops");
    }
}

#[test]
fn rules_that_are_answered_hold_for_what_waits() {
    for (change, ends) in
        [("ACL SETUSER u -append", false), ("ACL SETUSER u off", true), ("ACL DELUSER u", true)]
    {
        let vfs = GatedVfs::new(Gated::LogSync);
        let served = served(&vfs, "2");
        let [mut holder, mut admin] = [(); 2].map(|()| served.client());
        let mut client = as_user(&served, &mut admin);
        assert_eq!(client.pipeline(&["WATCH w", "MULTI", "APPEND k x"]).len(), 3);
        let closed = vfs.close();
        holder.send_words(&["SET k v"]);
        vfs.wait_for_somebody();
        client.send_words(&["EXEC"]);
        let waiting = || served.server().stats.waiting.load(Ordering::Relaxed);
        until("it does not wait", || waiting() == 1);
        assert!(!matches!(admin.say(change), Reply::Error(_)), "{change}");
        drop(closed);
        assert_eq!(holder.reply(), ok());
        match ends {
            true => client.expect_end(),
            false => {
                let Reply::Array(replies) = client.reply() else { panic!("no transaction") };
                assert!(error(&replies[0]).starts_with("NOPERM"), "{replies:?}");
            }
        }
        until("it waits for ever", || waiting() == 0);
        assert_eq!(admin.say("GET k"), bulk("v"), "{change}");
    }
}

#[test]
fn a_change_of_rules_is_answered_when_what_began_before_is_committed() {
    for (change, ends) in
        [("ACL SETUSER u -rpush", false), ("ACL SETUSER u off", true), ("ACL DELUSER u", true)]
    {
        for threads in ["1", "2"] {
            let vfs = GatedVfs::new(Gated::LogSync);
            let served = served(&vfs, threads);
            let mut admin = served.client();
            let mut client = as_user(&served, &mut admin);
            let closed = vfs.close();
            client.send_words(&["RPUSH list a"]);
            vfs.wait_for_somebody();
            admin.send_words(&[change, "LLEN list"]);
            assert!(hears_nothing(&admin), "{change}: a write is under way");
            drop(closed);
            assert!(!matches!(admin.reply(), Reply::Error(_)), "{change}");
            assert_eq!(admin.reply(), int(1), "{change}");
            if ends {
                // Perhaps with the reply to what was committed.
                client.try_send(&["RPUSH", "list", "b"]);
                while let Some(reply) = client.try_reply() {
                    assert_eq!(reply, int(1), "{change}");
                }
            } else {
                assert_eq!(client.reply(), int(1));
                assert!(error(&client.say("RPUSH list b")).starts_with("NOPERM"));
            }
            assert_eq!(admin.say("LLEN list"), int(1), "{change}");
        }
    }
}

#[test]
fn nothing_of_a_killed_client_happens_behind_the_reply() {
    const ROUNDS: usize = 40;
    let served = Served::with(&[("server-threads", "2")]);
    let mut killer = served.client();
    for round in 0..ROUNDS {
        let mut victim = served.client();
        let id = id_of(&mut victim);
        let key = format!("list{round}");
        let requests: Vec<Vec<&str>> =
            (0..3000).map(|_| vec!["RPUSH", key.as_str(), "x"]).collect();
        victim.send_all(&requests);
        let length = format!("LLEN {key}");
        let kill = format!("CLIENT KILL ID {id}");
        let replies = killer.pipeline(&[&kill, &length]);
        assert_eq!(replies[0], int(1));
        for _ in 0..20 {
            assert_eq!(killer.say(&length), replies[1], "round {round}");
        }
    }
}

/// What waits for days, and what makes keys for as long in commits of its own.
#[test]
fn a_kill_ends_what_debug_does_for_its_victim() {
    let served = Served::with(&[("enable-debug-command", "yes")]);
    let mut killer = served.client();
    let offloads = || served.server().stats.offloads.get();
    for request in
        ["DEBUG SLEEP 1000000", "DEBUG POPULATE 1000000000000", "MULTI DEBUG SLEEP 1000000"]
    {
        let mut victim = served.client();
        let kill = format!("CLIENT KILL ID {}", id_of(&mut victim));
        let before = offloads();
        match request.strip_prefix("MULTI ") {
            Some(queued) => victim.send_words(&["MULTI", queued, "EXEC"]),
            None => victim.send_words(&[request]),
        }
        until("it has begun", || offloads() > before);
        assert_eq!(killer.say(&kill), int(1), "{request}");
        // There may be replies on their way.
        while victim.try_reply().is_some() {}
        victim.expect_end();
    }
    assert_eq!(killer.say("PING"), pong());
}

/// For some hundred billion steps.
#[test]
fn a_kill_ends_matching_with_a_long_pattern() {
    let served = Served::with(&[]);
    let (mut killer, mut victim) = (served.client(), served.client());
    let kill = format!("CLIENT KILL ID {}", id_of(&mut victim));
    let text = "a".repeat(60_000);
    for number in 0..60 {
        assert_eq!(killer.call(&["HSET", "h", &format!("{text}{number}"), "v"]), int(1));
    }
    let (before, pattern) =
        (served.server().stats.offloads.get(), format!("*{}b", &text[..30_000]));
    victim.send(&["HSCAN", "h", "0", "MATCH", &pattern, "COUNT", "100"]);
    until("it has begun", || served.server().stats.offloads.get() > before);
    assert_eq!(killer.say(&kill), int(1));
    victim.expect_end();
    until("it goes on", || served.server().stats.waiting.load(Ordering::Relaxed) == 0);
}

/// Each of two, at the same time, and inside of transactions: nobody waits for ever.
#[test]
fn clients_may_kill_each_other() {
    let served = Served::with(&[("server-threads", "2")]);
    for round in 0..100 {
        let mut both = [(); 2].map(|()| served.client());
        let ids = both.each_mut().map(id_of);
        for (client, id) in both.iter_mut().zip([ids[1], ids[0]]) {
            let kill = format!("CLIENT KILL ID {id}");
            match round % 2 {
                0 => client.send_words(&[&kill]),
                _ => client.send_words(&["MULTI", "INCR count", &kill, "EXEC"]),
            }
        }
        let mut ended = 0;
        for client in &mut both {
            while client.try_reply().is_some_and(|reply| reply == ok() || !is_last(&reply)) {}
            ended += usize::from(!client.try_send(&["PING"]) || client.try_reply().is_none());
        }
        assert!(ended > 0, "round {round}: who kills first is alive");
        assert_eq!(served.client().say("PING"), pong(), "round {round}");
    }
}

/// Whether it is the reply to a kill, alone or as part of a transaction.
fn is_last(reply: &Reply<'_>) -> bool {
    matches!(reply, Reply::Integer(_) | Reply::Array(_))
}
