//! Replies of other nodes that are more than one call or one client may hold.

use super::fake::FakeCluster;
use super::three;
use crate::client::{array, bulk, int, ok, text};
use terrace_cluster::Placement;
use terrace_resp::Reply;

/// Clients of three nodes whose replies may have 24 MiB while they wait.
fn narrow() -> FakeCluster {
    let limit = ("client-output-buffer-limit", "normal 24mb 0 0");
    FakeCluster::new(Placement::Slots, 3, &[limit])
}

#[test]
fn large_replies_come_in_pieces_and_whole() {
    let cluster = three();
    let key = cluster.key_of(1, "big");
    let mut client = cluster.client(0);
    let value = "v".repeat(300 << 10);
    assert_eq!(client.call(&["SET", &key, &value]), ok());
    let get = format!("GET {key}");
    let words: Vec<&str> = (0..150).flat_map(|_| [&get[..], "PING"]).collect();
    for pair in client.pipeline(&words).chunks_exact(2) {
        assert_eq!(pair[0], bulk(&value));
        assert_eq!(text(&pair[1]), "PONG");
    }
    assert!(cluster.served[0].server().stats.rerouted.get() > 10, "all of it went at once");
}

/// All of them are more than may wait for a client.
#[test]
fn a_pipeline_for_large_values_of_another_node_holds_few_of_them() {
    let cluster = narrow();
    let tag = cluster.key_of(1, "t");
    let (big, counter) = (format!("{{{tag}}}big"), format!("{{{tag}}}counter"));
    let mut client = cluster.client(0);
    let value = "v".repeat(3 << 20);
    assert_eq!(client.call(&["SET", &big, &value]), ok());
    let (get, incr) = (format!("GET {big}"), format!("INCR {counter}"));
    let here = format!("INCR {}", cluster.key_of(0, "h"));
    let words: Vec<&str> = (0..40).flat_map(|_| [&get[..], &incr, &here, "PING"]).collect();
    for (at, replies) in client.pipeline(&words).chunks_exact(4).enumerate() {
        assert!(replies[0] == bulk(&value), "{at}");
        assert_eq!(replies[1], int(at as i64 + 1), "each is executed once");
        assert_eq!(replies[2], int(at as i64 + 1), "each is executed once");
        assert_eq!(text(&replies[3]), "PONG");
    }
    // Only for that one: then a call is cut short, and sent again by its client.
    let words: Vec<&str> = (0..40).flat_map(|_| [&get[..], &incr]).collect();
    for (at, replies) in client.pipeline(&words).chunks_exact(2).enumerate() {
        assert!(replies[0] == bulk(&value), "{at}");
        assert_eq!(replies[1], int(at as i64 + 41), "each is executed once");
    }
    assert_eq!(cluster.served[0].server().stats.output_limit_closed.get(), 0);
}

/// The requests of each node wait by themselves.
#[test]
fn a_pipeline_for_large_values_of_two_other_nodes_holds_few_of_them() {
    let cluster = narrow();
    let mut client = cluster.client(0);
    let keys = [(1, 2 << 20), (2, 700 << 10)].map(|(at, len)| {
        let tag = cluster.key_of(at, "t");
        let (key, value) = (format!("{{{tag}}}big"), at.to_string().repeat(len));
        assert_eq!(client.call(&["SET", &key, &value]), ok());
        (key, format!("{{{tag}}}counter"), value)
    });
    let words: Vec<String> = (0..40)
        .flat_map(|_| {
            keys.iter().flat_map(|(key, n, _)| [format!("GET {key}"), format!("INCR {n}")])
        })
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for (at, replies) in client.pipeline(&words).chunks_exact(4).enumerate() {
        for ((_, _, value), pair) in keys.iter().zip(replies.chunks_exact(2)) {
            assert!(pair[0] == bulk(value), "{at}");
            assert_eq!(pair[1], int(at as i64 + 1), "each is executed once");
        }
    }
    assert_eq!(cluster.served[0].server().stats.output_limit_closed.get(), 0);
}

/// What another node answers while it queues a transaction is more than a reply holds.
#[test]
fn a_transaction_whose_replies_fill_a_call_is_executed_by_another_node() {
    const COUNT: usize = 120_000;
    let cluster = three();
    let tag = cluster.key_of(1, "t");
    let mut client = cluster.client(0);
    let sets = (0..COUNT).map(|n| format!("SET {{{tag}}}{n} v"));
    let words: Vec<String> =
        [String::from("MULTI")].into_iter().chain(sets).chain([String::from("EXEC")]).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut replies = client.pipeline(&words);
    assert_eq!(replies.pop(), Some(array(vec![ok(); COUNT])));
    assert_eq!(client.say(&format!("GET {{{tag}}}{}", COUNT - 1)), bulk("v"));

    // Other replies of the same call have taken nearly all of it before.
    let big = format!("{{{tag}}}big");
    assert_eq!(client.call(&["SET", &big, &"v".repeat((1 << 20) - 20)]), ok());
    let (get, set) = (format!("GET {big}"), format!("SET {{{tag}}}a w"));
    let words = [&get[..], "MULTI", &set, &set, &set, &set, &set, "EXEC", "PING"];
    for _ in 0..20 {
        let replies = client.pipeline(&words);
        assert!(matches!(&replies[0], Reply::Bulk(value) if value.len() == (1 << 20) - 20));
        assert_eq!(replies[7], array(vec![ok(); 5]));
        assert_eq!(text(&replies[8]), "PONG");
    }
}
