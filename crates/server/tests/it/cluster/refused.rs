//! What a cluster refuses since it would be about keys, or of clients, that another node does not know.

use super::fake::FakeCluster;
use super::three;
use crate::client::{array, bulk, error, hears_nothing, int, ok, until};
use crate::gate::{Gated, GatedVfs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_cluster::Placement;
use terrace_keyspace::Mode;
use terrace_resp::Reply;

/// Keys that patterns make may be another node's, whose values would be missing.
#[test]
fn sort_looks_at_no_other_keys() {
    let cluster = three();
    let key = cluster.key_of(1, "list");
    for at in 0..3 {
        let mut client = cluster.client(at);
        client.say(&format!("DEL {key}"));
        assert_eq!(client.say(&format!("RPUSH {key} 3 1 2")), int(3));
        for (words, option) in [("BY w_*", "BY"), ("GET w_*", "GET"), ("GET #", "GET")] {
            let refused = error(&client.say(&format!("SORT {key} {words}")));
            assert_eq!(refused, format!("ERR {option} option of SORT denied in cluster mode."));
        }
        let sorted = array(["1", "2", "3"].map(bulk));
        assert_eq!(client.say(&format!("SORT {key}")), sorted);
        assert_eq!(client.say(&format!("SORT {key} BY nosort LIMIT 0 1")), array([bulk("3")]));
    }
}

#[test]
fn a_right_that_was_taken_since_ends_the_transaction_of_another_nodes_key() {
    let cluster = three();
    let key = cluster.key_of(1, "a");
    let (mut admin, mut client) = (cluster.client(0), cluster.client(0));
    assert_eq!(admin.say("ACL SETUSER u on >pw ~* +@all"), ok());
    assert_eq!(client.say("AUTH u pw"), ok());
    client.pipeline(&["MULTI", &format!("SET {key} 1"), "PING"]);
    assert_eq!(admin.say("ACL SETUSER u -set"), ok());
    let refused = error(&client.say("EXEC"));
    assert!(refused.starts_with("EXECABORT") && refused.contains("NOPERM"), "{refused}");
    assert_eq!(admin.say(&format!("GET {key}")), Reply::Null);
    let replies = client.pipeline(&["MULTI", &format!("GET {key}"), "EXEC"]);
    assert_eq!(replies[2], array([Reply::Null]));
}

/// The part of a command for the store of the node that is asked is a call of this node to itself.
#[test]
fn a_change_of_rules_is_answered_when_the_parts_that_are_executed_here_are_committed() {
    let vfs = GatedVfs::new(Gated::LogSync);
    let cluster =
        FakeCluster::with(Placement::Slots, 2, &[("appendfsync", "always")], &|options| {
            options.advanced.vfs = Arc::new(vfs.clone());
        });
    let (here, there) = (cluster.key_of(0, "k"), cluster.key_of(1, "k"));
    let (mut admin, mut client) = (cluster.client(0), cluster.client(0));
    assert_eq!(admin.say("ACL SETUSER u on >pw ~* +@all"), ok());
    assert_eq!(client.say("AUTH u pw"), ok());
    assert_eq!(client.say(&format!("SET {here} v")), ok());
    let closed = vfs.close();
    // There is nothing to be removed from the other one.
    let remove = format!("DEL {here} {there}");
    client.send_words(&[&remove]);
    vfs.wait_for_somebody();
    admin.send_words(&["ACL SETUSER u -del"]);
    assert!(hears_nothing(&admin), "a part is under way");
    drop(closed);
    assert_eq!((admin.reply(), client.reply()), (ok(), int(1)));
    assert!(error(&client.say(&remove)).starts_with("NOPERM"));
    cluster.settle();
}

#[test]
fn a_transaction_selects_no_other_database() {
    let cluster = three();
    for at in 0..2 {
        let key = cluster.key_of(at, "k");
        let mut client = cluster.client(0);
        let replies =
            client.pipeline(&["MULTI", "SELECT 1", &format!("INCR {key}"), "EXEC", "SELECT 0"]);
        assert_eq!(error(&replies[1]), "ERR SELECT is not allowed in cluster mode");
        assert!(error(&replies[3]).starts_with("EXECABORT"), "{replies:?}");
        assert_eq!((&replies[4], client.say(&format!("EXISTS {key}"))), (&ok(), int(0)));
        let here = cluster.key_of(0, "k");
        let replies = client.pipeline(&["MULTI", "SELECT 0", &format!("INCR {here}"), "EXEC"]);
        assert_eq!(replies[3], array([ok(), int(at as i64 + 1)]));
    }
}

/// A command that is to be sent again ends nothing: what was watched before is watched, and what is queued stays.
#[test]
fn a_watch_that_is_to_be_tried_again_forgets_nothing() {
    let cluster = three();
    let slot = cluster.key_of(0, "slot");
    let [watched, away] = ["watched", "away"].map(|name| format!("{{{slot}}}{name}"));
    let (mut client, mut other) = (cluster.client(0), cluster.client(0));
    client.pipeline(&[&format!("SET {watched} 1"), &format!("SET {away} 1")]);
    cluster.move_key(&away, 1);
    cluster.shared.state().cut_off.insert(cluster.node(1));
    assert_eq!(client.say(&format!("WATCH {watched}")), ok());
    assert!(error(&client.say(&format!("WATCH {away}"))).starts_with("TRYAGAIN"));
    assert_eq!(other.say(&format!("SET {watched} of-another")), ok());
    let replies = client.pipeline(&["MULTI", &format!("SET {watched} lost"), "EXEC"]);
    assert_eq!(replies[2], Reply::Null);
    // Inside MULTI it is refused wherever its keys are.
    let there = cluster.key_of(1, "there");
    for key in [&away, &there] {
        let watch = format!("WATCH {key}");
        let words = ["MULTI", &format!("SET {watched} own"), &watch, "EXEC"];
        let replies = client.pipeline(&words);
        assert_eq!(error(&replies[2]), "ERR WATCH inside MULTI is not allowed");
        assert_eq!(replies[3], array([ok()]), "{key}");
    }
    // A transaction that cannot be executed is over.
    let gather = format!("MGET {watched} {away}");
    let replies = client.pipeline(&["MULTI", &gather, "EXEC", "EXEC"]);
    assert!(error(&replies[2]).starts_with("TRYAGAIN"), "{replies:?}");
    assert_eq!(error(&replies[3]), "ERR EXEC without MULTI");
    cluster.shared.state().cut_off.clear();
    assert_eq!(client.say(&format!("WATCH {away}")), ok());
    cluster.settle();
}

/// The store has committed that the key leaves, and its owner has not said so to the routes: the key is still held, and a
/// `WATCH` waits for the end of that.
#[test]
fn a_watch_waits_while_its_key_leaves() {
    let cluster = three();
    let key = cluster.key_of(0, "leaving");
    let (mut client, mut other) = (cluster.client(0), cluster.client(2));
    assert_eq!(client.say(&format!("SET {key} 1")), ok());
    cluster.shared.hold(&key);
    let told = cluster.begin_to_leave(&key, 1);
    client.send_words(&[&format!("WATCH {key}")]);
    until("it does not wait", || cluster.shared.waiting() == 1);
    assert!(hears_nothing(&client));
    told();
    cluster.shared.release(&key);
    assert_eq!(client.reply(), ok());
    assert_eq!(other.say(&format!("SET {key} of-another")), ok());
    let replies = client.pipeline(&["MULTI", &format!("SET {key} lost"), "EXEC"]);
    assert_eq!(replies[2], Reply::Null);
    cluster.settle();
}

/// As long as a move home cannot be committed, the store that has the key refuses writes of it, and the owner knows no other
/// place for them. Nothing happens each time.
#[test]
fn a_write_that_no_store_takes_is_to_be_tried_again() {
    let cluster = three();
    let key = cluster.key_of(0, "k");
    let mut client = cluster.client(0);
    assert_eq!(client.say(&format!("SET {key} before")), ok());
    {
        let mut state = cluster.shared.state();
        state.exceptions.insert(key.clone().into(), cluster.node(1));
        state.late = Some((key.clone().into(), u32::MAX));
    }
    let refused = error(&client.say(&format!("SET {key} after")));
    assert!(
        refused.starts_with("TRYAGAIN") && refused.contains("nothing was executed"),
        "{refused}"
    );
    // Of a command in parts the other one was.
    let there = cluster.key_of(2, "t");
    let refused = error(&client.say(&format!("MSET {key} after {there} after")));
    assert!(
        refused.starts_with("TRYAGAIN") && refused.ends_with("may have been executed"),
        "{refused}"
    );
    assert_eq!(client.say(&format!("GET {there}")), bulk("after"));
    {
        let mut state = cluster.shared.state();
        state.exceptions.remove(key.as_bytes());
        state.late = None;
    }
    assert_eq!(client.say(&format!("GET {key}")), bulk("before"));
    cluster.settle();
}

/// It is executed by a call of this node to itself, which waits for the key in a thread.
#[test]
fn a_write_that_is_routed_again_and_waits_for_its_key_ends_with_its_client() {
    let cluster = three();
    let key = cluster.key_of(0, "k");
    let (mut victim, mut killer) = (cluster.client(0), cluster.client(0));
    assert_eq!(killer.say(&format!("SET {key} before")), ok());
    let Reply::Integer(number) = victim.say("CLIENT ID") else { panic!("no number") };
    let server = cluster.served[0].server();
    let mut holder = server.space.command_batch(Mode::Device);
    holder.lock(0, [key.as_bytes()].into_iter()).unwrap();
    {
        let mut state = cluster.shared.state();
        state.exceptions.insert(key.clone().into(), cluster.node(1));
        state.late = Some((key.clone().into(), u32::MAX));
    }
    victim.send_words(&[&format!("SET {key} after")]);
    until("it is not routed again", || server.stats.rerouted.get() > 0);
    {
        let mut state = cluster.shared.state();
        state.exceptions.remove(key.as_bytes());
        state.late = None;
    }
    let waiting = || server.stats.waiting.load(Ordering::Relaxed);
    until("it does not wait", || waiting() == 1);
    assert_eq!(killer.say(&format!("CLIENT KILL ID {number}")), int(1));
    holder.abandon();
    until("it waits for ever", || waiting() == 0);
    assert_eq!(killer.say(&format!("GET {key}")), bulk("before"));
    cluster.settle();
}

/// What of it has not begun there is not executed.
#[test]
fn a_write_that_waits_at_another_node_ends_with_its_client() {
    let cluster = FakeCluster::new(Placement::Slots, 3, &[("server-threads", "1")]);
    let key = cluster.key_of(1, "k");
    let (mut victim, mut killer) = (cluster.client(0), cluster.client(0));
    assert_eq!(killer.say(&format!("SET {key} before")), ok());
    let Reply::Integer(number) = victim.say("CLIENT ID") else { panic!("no number") };
    let there = cluster.served[1].server();
    let mut holder = there.space.command_batch(Mode::Device);
    holder.lock(0, [key.as_bytes()].into_iter()).unwrap();
    let calls = there.stats.calls.get();
    victim.send_words(&[&format!("SET {key} after")]);
    until("it does not come there", || there.stats.calls.get() > calls);
    assert_eq!(killer.say(&format!("CLIENT KILL ID {number}")), int(1));
    // The loop there answers this after all that it was told before.
    let turn = || drop(cluster.client(1).say("PING"));
    turn();
    holder.abandon();
    turn();
    assert_eq!(killer.say(&format!("GET {key}")), bulk("before"));
    assert_eq!(killer.say(&format!("SET {key} later")), ok());
    assert_eq!(cluster.client(1).say(&format!("GET {key}")), bulk("later"));
    cluster.settle();
}
