//! Commands without keys in a transaction of keys of another node: the node that was asked executes them, and their
//! replies stand at their places.

use super::fake::FakeCluster;
use super::three;
use crate::client::{Client, array, bulk, error, int, ok};
use std::io::Read;
use terrace_resp::Reply;

/// The elements of the reply to a transaction.
fn executed(client: &mut Client, commands: &[&str]) -> Vec<Reply<'static>> {
    let requests = [&["MULTI"], commands, &["EXEC"]].concat();
    let mut replies = client.pipeline(&requests);
    let queued = Reply::Simple(b"QUEUED"[..].into());
    assert!(replies[1..=commands.len()].iter().all(|reply| *reply == queued), "{replies:?}");
    match replies.pop() {
        Some(Reply::Array(elements)) => elements,
        other => panic!("{commands:?}: {other:?}"),
    }
}

#[test]
fn a_transaction_of_another_node_answers_as_one_of_this_node() {
    let cluster = three();
    let mut client = cluster.client(0);
    for command in [
        "WAIT 0 0",
        "UNWATCH",
        "READONLY",
        "READWRITE",
        "ASKING",
        "INFO server",
        "CLIENT ID",
        "CLIENT SETNAME name",
        "CLIENT GETNAME",
        "CLIENT REPLY ON",
        "CLIENT NO-EVICT OFF",
        "CLIENT TRACKING OFF",
        "CONFIG GET timeout",
        "SELECT 0",
        "ROLE",
        "COMMAND COUNT",
        "ACL WHOAMI",
        "SLOWLOG LEN",
        "LATENCY LATEST",
        "LASTSAVE",
        "LOLWUT",
        "SCRIPT EXISTS x",
        "CLUSTER MYID",
        "MEMORY DOCTOR",
        "PING",
        "ECHO word",
    ] {
        let mut of_node = |at| {
            let key = cluster.key_of(at, "k");
            let (set, get) = (format!("SET {key} v"), format!("GET {key}"));
            let mut elements = executed(&mut client, &[&set, command, &get]);
            assert_eq!(elements.len(), 3, "{command}");
            assert_eq!(elements[0], ok(), "{command}");
            assert_eq!(elements[2], bulk("v"), "{command}");
            elements.swap_remove(1)
        };
        let (own, other) = (of_node(0), of_node(1));
        let kind = std::mem::discriminant::<Reply<'_>>;
        assert_eq!(kind(&own), kind(&other), "{command}: {own:?} and {other:?}");
        let of_the_moment = ["INFO", "MEMORY", "SLOWLOG", "LOLWUT"];
        let is_of_the_moment = of_the_moment.iter().any(|name| command.starts_with(name));
        assert!(own == other || is_of_the_moment, "{command}: {own:?} and {other:?}");
        assert!(!matches!(own, Reply::Error(_)), "{command}: {own:?}");
    }
    cluster.settle();
}

#[test]
fn what_is_executed_aside_is_of_the_node_that_was_asked() {
    let cluster = three();
    let key = cluster.key_of(1, "k");
    let (mut client, mut victim) = (cluster.client(0), cluster.client(0));
    let id = match victim.say("CLIENT ID") {
        Reply::Integer(id) => id,
        other => panic!("{other:?}"),
    };
    let kill = format!("CLIENT KILL ID {id}");
    let incr = format!("INCR {key}");
    let commands: [&str; 6] =
        [&kill, "CONFIG SET timeout 77", &incr, "ECHO a", &incr, "CLIENT KILL ADDR none"];
    let elements = executed(&mut client, &commands);
    let wanted = [int(1), ok(), int(1), bulk("a"), int(2), int(0)];
    assert_eq!(elements, wanted);
    victim.expect_end();
    assert_eq!(
        (client.option("timeout"), cluster.client(1).option("timeout")),
        ("77".into(), "0".into())
    );
    // An error of one of them is its reply, and one of the other node's ends nothing of them.
    let lpush = format!("LPUSH {key} x");
    let elements =
        executed(&mut client, &["CONFIG SET timeout x", &lpush, "CLIENT GETNAME", &incr]);
    assert!(error(&elements[0]).starts_with("ERR"), "{elements:?}");
    assert!(error(&elements[1]).starts_with("WRONGTYPE"), "{elements:?}");
    assert_eq!(&elements[2..], [Reply::Null, int(3)]);
    // One without any of them, and one after which they are queued again.
    assert_eq!(executed(&mut client, &[&incr]), [int(4)]);
    assert_eq!(executed(&mut client, &["UNWATCH", &incr, "UNWATCH"]), [ok(), int(5), ok()]);
    cluster.shared.state().cut_off.insert(cluster.node(1));
    let replies = client.pipeline(&["MULTI", &incr, "CLIENT ID", "EXEC", "EXEC"]);
    assert!(error(&replies[3]).starts_with("CLUSTERDOWN"), "{replies:?}");
    assert_eq!(error(&replies[4]), "ERR EXEC without MULTI");
    cluster.shared.state().cut_off.clear();
    let replies = client.pipeline(&["PING", "MULTI", "CLIENT GETNAME", &incr, "EXEC", &incr]);
    let Reply::Array(last) = &replies[4] else { panic!("{replies:?}") };
    let Reply::Integer(count) = last[1] else { panic!("{last:?}") };
    assert_eq!((&last[0], &replies[5]), (&Reply::Null, &int(count + 1)), "in their order");
    cluster.settle();
}

/// The replies before it and behind it would be those of two users, or in two protocols.
#[test]
fn a_login_is_refused_in_a_transaction_at_every_node() {
    let cluster = three();
    let mut client = cluster.client(0);
    for at in 0..2 {
        let set = format!("SET {} 1", cluster.key_of(at, "k"));
        for login in ["HELLO 3", "AUTH default x"] {
            let replies = client.pipeline(&["MULTI", &set, login, "EXEC"]);
            let name = login.split(' ').next().unwrap().to_lowercase();
            let text = format!("ERR {name} is not possible inside MULTI in cluster mode");
            assert_eq!(error(&replies[2]), text);
            assert!(error(&replies[3]).starts_with("EXECABORT"), "{replies:?}");
        }
    }
    let acl = client.pipeline(&["MULTI", "ACL SETUSER u on", "EXEC"]);
    assert_eq!(error(&acl[1]), "ERR acl|setuser is not possible inside MULTI in cluster mode");
    assert_eq!(client.pipeline(&["MULTI", "PING", "EXEC"])[2], array([pong()]));
}

fn pong() -> Reply<'static> {
    Reply::Simple(b"PONG"[..].into())
}

/// The replies behind it would be taken for those that are missing in it. Also if it wants no reply to the next command.
#[test]
fn who_executes_aside_more_than_the_hard_limit_of_replies_is_ended_as_at_the_owner() {
    let cluster = three();
    let docs = vec!["COMMAND DOCS"; 30];
    for (at, skip) in
        [(0, None), (0, Some("CLIENT REPLY SKIP")), (1, None), (1, Some("CLIENT REPLY SKIP"))]
    {
        let (mut client, mut other) = (cluster.client(0), cluster.client(0));
        let set = ["CONFIG", "SET", "client-output-buffer-limit", "normal 512kb 0 0"];
        assert_eq!(other.call(&set), ok());
        let incr = format!("INCR {}", cluster.key_of(at, "k"));
        let skip: Vec<&str> = skip.into_iter().collect();
        for command in [&["MULTI", &incr], &docs[..], &skip[..]].concat() {
            client.say(command);
        }
        client.send_raw(b"EXEC\r\nECHO behind\r\nECHO more\r\n");
        client.expect_end();
        let set = ["CONFIG", "SET", "client-output-buffer-limit", "normal 100mb 0 0"];
        assert_eq!(other.call(&set), ok());
        let mut commands = docs.clone();
        commands.push(&incr);
        assert_eq!(executed(&mut cluster.client(0), &commands).len(), docs.len() + 1);
    }
    cluster.settle();
}

/// One that answers nothing has no place in the array, as at the owner; and the next command gets no reply.
#[test]
fn replies_are_those_of_their_commands_where_one_of_them_has_none() {
    let cluster = three();
    for at in 0..2 {
        let mut client = cluster.client(0);
        let Reply::Integer(id) = client.say("CLIENT ID") else { panic!("no id") };
        let key = cluster.key_of(at, "k");
        assert_eq!(client.say(&format!("SET {key} v")), ok());
        let get = format!("GET {key}");
        client.pipeline(&["MULTI", "CLIENT REPLY SKIP", &get, "CLIENT ID"]);
        client.send_words(&["EXEC", "ECHO skipped", "ECHO behind"]);
        let wanted = format!("*3\r\n$1\r\nv\r\n:{id}\r\n$6\r\nbehind\r\n");
        let mut bytes = vec![0; wanted.len()];
        client.stream.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes.escape_ascii().to_string(), wanted.as_bytes().escape_ascii().to_string());
    }
    cluster.settle();
}

/// Its pause is one of the node that was asked, where `EXEC` is looked at once more.
#[test]
fn a_pause_that_a_transaction_begins_does_not_hold_it() {
    let cluster = three();
    for at in 0..2 {
        let incr = format!("INCR {}", cluster.key_of(at, "k"));
        let elements = executed(&mut cluster.client(0), &["CLIENT PAUSE 100000000 WRITE", &incr]);
        assert_eq!(elements, [ok(), int(1)], "node {at}");
        assert_eq!(cluster.client(0).say("CLIENT UNPAUSE"), ok());
    }
    cluster.settle();
}

#[test]
fn who_ends_its_own_connection_in_a_transaction_gets_the_reply_and_executes_nothing_more() {
    let cluster = three();
    for at in 0..2 {
        let mut client = cluster.client(0);
        let id = match client.say("CLIENT ID") {
            Reply::Integer(id) => id,
            other => panic!("{other:?}"),
        };
        let (key, behind) = (cluster.key_of(at, "k"), cluster.key_of(at, "behind"));
        let kill = format!("CLIENT KILL ID {id} SKIPME no");
        let (incr, incr_behind) = (format!("INCR {key}"), format!("INCR {behind}"));
        let commands = ["MULTI", &kill, &incr, "EXEC", &incr_behind, "ECHO behind"];
        client.send_words(&commands);
        assert_eq!(client.reply(), ok());
        (0..2).for_each(|_| assert_eq!(client.reply(), Reply::Simple(b"QUEUED"[..].into())));
        assert_eq!(client.reply(), array([int(1), int(1)]), "node {at}");
        client.expect_end();
        let mut other = cluster.client(0);
        assert_eq!(other.say(&format!("GET {key}")), bulk("1"), "node {at}");
        assert_eq!(other.say(&format!("GET {behind}")), Reply::Null, "node {at}");
    }
    cluster.settle();
}

/// Bytes of the longest reply to `CLIENT GETNAME`, which the node that was asked executes, and how many of them make
/// as many bytes as a large value.
const NAME: usize = 4096;
const NAMES: usize = 75;
const HALF: usize = NAME * NAMES;

/// A key of node `at` with a large value, and that.
fn large(cluster: &FakeCluster, at: usize) -> (String, String) {
    let (key, value) = (cluster.key_of(at, "k"), "x".repeat(HALF));
    assert_eq!(cluster.client(0).call(&["SET", &key, &value]), ok());
    (key, value)
}

/// Each of them is below it.
#[test]
fn who_is_given_more_than_the_hard_limit_by_two_nodes_together_is_ended_as_at_the_owner() {
    let cluster = three();
    let mut other = cluster.client(0);
    let mut limit = |bytes: &str| {
        let bytes = format!("normal {bytes} 0 0");
        assert_eq!(other.call(&["CONFIG", "SET", "client-output-buffer-limit", &bytes]), ok());
    };
    let name = "n".repeat(NAME);
    let set_name = format!("CLIENT SETNAME {name}");
    for at in 0..2 {
        let (key, value) = large(&cluster, at);
        let (get, exists) = (format!("GET {key}"), format!("EXISTS {key}"));
        let names = vec!["CLIENT GETNAME"; NAMES];
        for (bytes, is_ended) in [("512kb", true), ("1mb", false)] {
            limit(bytes);
            let mut client = cluster.client(0);
            assert_eq!(client.say(&set_name), ok());
            // Each half alone.
            assert_eq!(executed(&mut client, &["CLIENT ID", &get])[1], bulk(&value), "node {at}");
            let elements = executed(&mut client, &[&[&exists[..]], &names[..]].concat());
            assert!(elements[0] == int(1) && elements.len() == NAMES + 1, "node {at}");
            assert!(elements[1..].iter().all(|one| *one == bulk(&name)), "node {at}");
            let queued = [&["MULTI", &get], &names[..]].concat();
            client.pipeline(&queued);
            client.send_words(&["EXEC"]);
            match is_ended {
                true => client.expect_end(),
                false => {
                    let Reply::Array(both) = client.reply() else { panic!("no array") };
                    assert!(both[0] == bulk(&value) && both.len() == NAMES + 1, "node {at}");
                }
            }
        }
    }
    cluster.settle();
}

#[test]
fn replies_that_nobody_wants_do_not_count_against_the_limit() {
    let cluster = three();
    let mut other = cluster.client(0);
    let set = ["CONFIG", "SET", "client-output-buffer-limit", "normal 512kb 0 0"];
    assert_eq!(other.call(&set), ok());
    for at in 0..2 {
        let (key, _) = large(&cluster, at);
        let get = format!("GET {key}");
        let mut client = cluster.client(0);
        assert_eq!(client.say(&format!("CLIENT SETNAME {}", "n".repeat(NAME))), ok());
        client.send_words(&["CLIENT REPLY OFF", &get, &get, &get, "MULTI", &get]);
        client.send_words(&["CLIENT GETNAME"; NAMES]);
        client.send_words(&["EXEC", "CLIENT REPLY ON", "ECHO there"]);
        assert_eq!((client.reply(), client.reply()), (ok(), bulk("there")), "node {at}");
    }
    cluster.settle();
}
