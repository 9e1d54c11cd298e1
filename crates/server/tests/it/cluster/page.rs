//! The command line of the page of a node: it reads what is in the node's own store, and says where the rest is.

use super::fake::FakeCluster;
use crate::client::ok;
use crate::command_line::line;
use std::sync::atomic::Ordering;
use terrace_cluster::Placement;

#[test]
fn the_page_reads_the_keys_of_its_node_and_names_the_node_of_others() {
    for flags in
        [&[("http-port", "free")][..], &[("http-port", "free"), ("cluster-redirect", "moved")]]
    {
        let cluster = FakeCluster::new(Placement::Slots, 3, flags);
        let (own, other) = (cluster.key_of(0, "k"), cluster.key_of(1, "k"));
        for (at, key) in [(0, &own), (1, &other)] {
            assert_eq!(cluster.client(at).say(&format!("SET {key} value{at}")), ok());
        }
        let ask = |words: &str| line(&cluster.served[0], 0, words, None);
        let (status, body) = ask(&format!("GET {own}"));
        assert!(status == 200 && body.contains("value0"), "{body}");
        let (status, body) = ask(&format!("GET {other}"));
        let there = cluster.served[1].address().to_string();
        assert!(status == 403 && body.contains(&there) && !body.contains("value1"), "{body}");
        for several in [format!("MGET {own} {other}"), "DBSIZE".to_string()] {
            let (status, body) = ask(&several);
            assert!(status == 403 && body.contains("several nodes"), "{several}: {body}");
        }
        let (status, body) = ask("GET");
        assert!(status == 200 && body.contains("wrong number of arguments"), "{body}");
        assert_eq!(cluster.shared.state().calls, 0, "nothing is sent to other nodes");
        cluster.settle();
    }
}

#[test]
fn a_key_that_is_away_is_said_to_be_there() {
    let cluster = FakeCluster::new(Placement::Slots, 2, &[("http-port", "free")]);
    let key = cluster.key_of(0, "k");
    assert_eq!(cluster.client(0).say(&format!("SET {key} value")), ok());
    cluster.move_key(&key, 1);
    let (status, body) = line(&cluster.served[0], 0, &format!("GET {key}"), None);
    let there = cluster.served[1].address().to_string();
    assert!(status == 403 && body.contains("store of") && body.contains(&there), "{body}");
}

#[test]
fn what_was_read_without_a_lease_is_not_shown() {
    let cluster = FakeCluster::new(Placement::Slots, 2, &[("http-port", "free")]);
    let key = cluster.key_of(0, "k");
    assert_eq!(cluster.client(0).say(&format!("SET {key} value")), ok());
    cluster.coordinators[0].is_sure.store(false, Ordering::SeqCst);
    let (status, body) = line(&cluster.served[0], 0, &format!("GET {key}"), None);
    assert!(status == 503 && !body.contains("value"), "{body}");
    cluster.coordinators[0].is_sure.store(true, Ordering::SeqCst);
    let (status, body) = line(&cluster.served[0], 0, &format!("GET {key}"), None);
    assert!(status == 200 && body.contains("value"), "{body}");
}
