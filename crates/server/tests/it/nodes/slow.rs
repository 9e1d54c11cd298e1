//! Commands that take long, beside moves of keys and changes of owners.

use super::harness::NodeCluster;
use crate::client::{hears_nothing, ok, until};
use std::sync::Arc;
use terrace_cluster::{
    CallTarget, Cancellation, OutgoingCall, Placement, ReplyProtocol, ShardCall, ShardId,
};
use terrace_resp::Reply;

/// Whatever takes long without a key, alone or in a transaction, neither keeps a key from being moved nor a shard from
/// getting another owner.
#[test]
fn a_command_without_keys_that_takes_long_holds_nothing_up() {
    let cluster = NodeCluster::start(Placement::Slots, 2, &[("enable-debug-command", "yes")]);
    let [moved, other] = ["moved", "other"].map(|name| cluster.key_of(1, name));
    let mut client = cluster.client(1);
    assert_eq!(client.say(&format!("SET {moved} 1")), ok());
    let (mut sleeper, mut in_transaction) = (cluster.client(1), cluster.client(1));
    let offloads = || cluster.one(1).server().stats.offloads.get();
    let before = offloads();
    sleeper.send_words(&["DEBUG SLEEP 1000000"]);
    in_transaction.send_words(&["MULTI", "DEBUG SLEEP 1000000", "EXEC"]);
    assert_eq!(in_transaction.reply(), ok());
    assert_eq!(in_transaction.reply(), Reply::Simple(b"QUEUED"[..].into()));
    until("they have not begun", || offloads() >= before + 2);
    // Each is executed by a thread of its own, and begins before those that are sent later.
    (0..10).for_each(|_| assert!(client.info("connected_clients") > 2));
    assert_eq!(client.say(&format!("CLUSTER MOVEKEY {moved} 1")), ok());
    assert_eq!(cluster.places_of(&moved), [0]);
    let mut asked = cluster.client(0);
    assert_eq!(asked.say(&format!("CLUSTER DRAIN {}", cluster.membership(1).id())), ok());
    let set = format!("SET {other} 1");
    until("the shard has no other owner", || {
        let owner = cluster.coordinator(0).topology().unwrap().shards[&ShardId(2)].owner;
        let is_there = owner.is_some_and(|owner| owner.node == cluster.membership(0).id());
        is_there && asked.say(&set) == ok()
    });
    assert!(hears_nothing(&sleeper) && hears_nothing(&in_transaction), "they are over");
    let killed = client.say("CLIENT KILL TYPE normal");
    assert!(matches!(killed, Reply::Integer(2..)), "{killed:?}");
}

/// As the walk through a shard's keys for an owner elsewhere.
#[test]
fn a_command_without_keys_of_another_owner_holds_no_move_up() {
    let cluster = NodeCluster::start(Placement::Slots, 2, &[("enable-debug-command", "yes")]);
    let moved = cluster.key_of(1, "moved");
    let mut client = cluster.client(1);
    assert_eq!(client.say(&format!("SET {moved} 1")), ok());
    let owner = cluster.coordinator(0);
    let (shard, instance) = (ShardId(1), cluster.membership(1).id());
    let epoch = owner.topology().unwrap().shards[&shard].owner.unwrap().epoch;
    let target = CallTarget::Instance(ShardCall { instance, shard, epoch });
    let call = |request: &[u8], cancellation: Cancellation| {
        let (requests, protocol) = (Arc::new(request.to_vec()), ReplyProtocol::Resp2);
        let (answered, answer) = std::sync::mpsc::channel();
        let done = Box::new(move |reply| answered.send(reply).unwrap());
        let call = OutgoingCall { db: 0, protocol, requests };
        owner.call_until(target, call, cancellation, done);
        answer
    };
    until("the store does not know the owner", || {
        call(b"PING\r\n", Cancellation::default()).recv().unwrap().is_ok()
    });
    let offloads = || cluster.one(1).server().stats.offloads.get();
    let before = offloads();
    let cancellation = Cancellation::of_call();
    let slept = call(b"DEBUG SLEEP 1000000\r\n", cancellation.clone());
    until("it has not begun", || offloads() > before);
    assert_eq!(client.say(&format!("CLUSTER MOVEKEY {moved} 1")), ok());
    assert!(slept.try_recv().is_err(), "it is over");
    cancellation.cancel();
    let _ended = slept.recv().unwrap();
}
