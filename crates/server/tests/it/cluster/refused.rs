//! What a cluster refuses since it would be about keys, or of clients, that another node does not know.

use super::three;
use crate::client::{array, bulk, error, int, ok};
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
