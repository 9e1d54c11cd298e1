//! Commands of one client are executed in their order on each key, whatever way they go.

use super::fake::FakeCluster;
use super::three;
use crate::client::{array, bulk, hears_nothing, int, ok, until};
use terrace_cluster::Placement;
use terrace_resp::Reply;

#[test]
fn a_client_sees_what_it_sent_before_whatever_way_that_went() {
    for flags in [&[][..], &[("appendfsync", "always")]] {
        sees_what_it_sent(&FakeCluster::new(Placement::Slots, 3, flags));
    }
}

fn sees_what_it_sent(cluster: &FakeCluster) {
    for at in 0..3 {
        let mut client = cluster.client(at);
        let (own, other) = (cluster.key_of(at, "a"), cluster.key_of((at + 1) % 3, "b"));
        let (del, set) = (format!("DEL {own} {other}"), format!("SET {own} 1"));
        let (get, both) = (format!("GET {own}"), format!("MGET {other} {own}"));
        let (mset, incr) = (format!("MSET {own} 5 {other} 6"), format!("INCR {own}"));
        for _ in 0..20 {
            let replies = client.pipeline(&[
                &del,
                &set,
                &get,
                &both,
                "DBSIZE",
                &mset,
                &incr,
                "DBSIZE",
                "MULTI",
                &incr,
                "EXEC",
                "FLUSHALL",
                &get,
                &set,
                "DBSIZE",
                &both,
                "RANDOMKEY",
                &del,
            ]);
            assert_eq!(replies[1..3], [ok(), bulk("1")]);
            assert_eq!(replies[3..5], [array([Reply::Null, bulk("1")]), int(1)]);
            assert_eq!(replies[5..8], [ok(), int(6), int(2)]);
            assert_eq!(replies[10..13], [array([int(7)]), ok(), Reply::Null]);
            assert_eq!(replies[13..15], [ok(), int(1)]);
            assert_eq!(replies[15..], [array([Reply::Null, bulk("1")]), bulk(&own), int(1)]);
        }
    }
    cluster.settle();
}

#[test]
fn what_waits_for_a_key_lets_others_go_on_but_nothing_on_that_key_overtakes_it() {
    let cluster = three();
    let (key, free) = (cluster.key_of(1, "held"), cluster.key_of(1, "free"));
    let mut client = cluster.client(0);
    client.pipeline(&[&format!("SET {key} 1"), &format!("SET {free} 1")]);
    cluster.shared.hold(&key);
    let (incr, get) = (format!("INCR {key}"), format!("GET {key}"));
    let multi = format!("MGET {key} {free}");
    client.send_words(&[
        &incr,
        &format!("INCR {free}"),
        &get,
        "MULTI",
        &incr,
        &get,
        "EXEC",
        &multi,
    ]);
    until("nobody waits", || cluster.shared.waiting() > 0);
    // It came in one call with the command that waits.
    let mut other = cluster.client(2);
    until("others wait too", || other.say(&format!("GET {free}")) == bulk("2"));
    assert_eq!(other.say(&get), bulk("1"));
    assert!(hears_nothing(&client));
    cluster.shared.release(&key);
    let replies: Vec<_> = (0..8).map(|_| client.reply()).collect();
    assert_eq!(replies[..3], [int(2), int(2), bulk("2")]);
    assert_eq!(replies[6], array([int(3), bulk("3")]));
    assert_eq!(replies[7], array([bulk("3"), bulk("2")]));
    cluster.settle();
}

#[test]
fn nothing_on_any_key_of_a_command_that_waits_overtakes_it() {
    let cluster = three();
    let (held, free) = (cluster.key_of(1, "held"), cluster.key_of(1, "free"));
    let other = cluster.key_of(1, "other");
    let mut client = cluster.client(0);
    client.pipeline(&[&format!("MSET {held} 1 {free} 1 {other} 1")]);
    cluster.shared.hold(&held);
    // The second waits for the first only, the third for the second.
    client.send_words(&[
        &format!("MSET {held} 2 {free} 2"),
        &format!("MSET {free} 3 {other} 3"),
        &format!("GET {other}"),
        &format!("MGET {free} {held}"),
    ]);
    until("nobody waits", || cluster.shared.waiting() > 0);
    assert!(hears_nothing(&client));
    cluster.shared.release(&held);
    let replies: Vec<_> = (0..4).map(|_| client.reply()).collect();
    assert_eq!(replies, [ok(), ok(), bulk("3"), array([bulk("3"), bulk("2")])]);
    assert_eq!(client.say(&format!("GET {free}")), bulk("3"), "the first was executed first");
    cluster.settle();
}

#[test]
fn a_command_does_not_overtake_one_on_its_key_that_went_another_way() {
    let cluster = three();
    let key = cluster.key_of(0, "k");
    let (set, get) = (format!("SET {key} new"), format!("GET {key}"));
    for words in [[&set[..], &get], [&get, &set]] {
        let mut client = cluster.client(0);
        client.say(&format!("SET {key} old"));
        {
            // The first command goes to where the key was, and comes back; the second finds it here.
            let mut state = cluster.shared.state();
            state.exceptions.insert(key.clone().into(), cluster.node(1));
            state.late = Some((key.clone().into(), 1));
        }
        let wanted = if words[0] == set { [ok(), bulk("new")] } else { [bulk("old"), ok()] };
        assert_eq!(client.pipeline(&words), wanted);
        cluster.shared.state().late = None;
        assert_eq!(client.say(&get), bulk("new"));
    }
    cluster.settle();
}
