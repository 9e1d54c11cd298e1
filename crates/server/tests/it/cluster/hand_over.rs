//! Commands on a shard that has just lost its owner wait for the next one. What other nodes let wait is bounded, also for keys.

use super::answer;
use super::fake::FakeCluster;
use crate::client::{HANG_GUARD, bulk, error, int, ok, text, until};
use std::sync::mpsc;
use terrace_cluster::{CallMode, IncomingCall, Placement, ReplyProtocol, ShardId};
use terrace_resp::{Reply, write_request};

const SHARD: ShardId = ShardId(1);

/// How many short calls of other nodes a node lets wait.
const MAX_WAITING: usize = 1024;

/// How many it lets wait that have one MiB.
const MAX_WAITING_OF_A_MIB: usize = 15;

#[test]
fn commands_wait_for_the_next_owner_of_their_shard_and_others_go_on() {
    let cluster = FakeCluster::new(Placement::Slots, 3, &[]);
    let (key, other) = (cluster.key_of(1, "k"), cluster.key_of(2, "k"));
    let shared = &cluster.shared;
    assert_eq!(cluster.client(0).say(&format!("SET {key} before")), ok());
    shared.give_up(SHARD);
    // By the nodes that are no owners, the one that was, and in each form in which commands are placed.
    let mut waiting: Vec<_> = (0..3).map(|at| cluster.client(at)).collect();
    for client in &mut waiting {
        client.send(&["APPEND", &*key, "+"]);
    }
    let requests = [vec!["MGET", &*key, &*other], vec!["DBSIZE"], vec!["KEYS", "*"]];
    for request in &requests {
        let mut client = cluster.client(0);
        client.send(request);
        waiting.push(client);
    }
    let mut transaction = cluster.client(2);
    let queued = format!("STRLEN {key}");
    transaction.pipeline(&["MULTI", &*queued]);
    transaction.send(&["EXEC"]);
    until("not all of them wait", || shared.waiting_for_owner(SHARD) == waiting.len() + 1);
    let info = text(&cluster.client(0).say("CLUSTER INFO"));
    assert!(info.contains("cluster_state:fail"), "{info}");
    assert_eq!(cluster.client(0).say(&format!("SET {other} 1")), ok(), "another shard");
    shared.hand_over(SHARD, cluster.node(0));
    shared.end_change(SHARD);
    let mut lengths: Vec<String> =
        waiting[..3].iter_mut().map(|client| format!("{:?}", client.reply())).collect();
    lengths.sort();
    assert_eq!(lengths, [7, 8, 9].map(|length| format!("{:?}", int(length))));
    for client in &mut waiting[3..] {
        let reply = client.reply();
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    }
    let executed = transaction.reply();
    assert!(matches!(executed, Reply::Array(_)), "{executed:?}");
    assert_eq!(cluster.client(1).say(&format!("GET {key}")), bulk("before+++"));
    cluster.settle();
}

#[test]
fn commands_are_refused_when_no_owner_has_come() {
    let cluster = FakeCluster::new(Placement::Slots, 2, &[]);
    let key = cluster.key_of(1, "k");
    let shared = &cluster.shared;
    shared.give_up(SHARD);
    let mut client = cluster.client(0);
    client.send(&["SET", &*key, "v"]);
    until("it waits", || shared.waiting_for_owner(SHARD) == 1);
    // Its owner's claim is gone, and this node knows of no other.
    shared.hand_over_unseen(SHARD, cluster.node(1));
    shared.end_change(SHARD);
    let refused = error(&client.reply());
    assert!(refused.starts_with("CLUSTERDOWN"), "{refused}");
}

/// Each that waits takes room on its connection, also from calls on shards that are served.
#[test]
fn only_some_calls_of_other_nodes_wait_for_an_owner_and_the_others_are_routed_again_there() {
    let cluster = FakeCluster::new(Placement::Slots, 2, &[]);
    let key = cluster.key_of(1, "k");
    let shared = &cluster.shared;
    let executor = cluster.served[1].running().call_executor();
    let (replied, replies) = mpsc::channel();
    let patient = format!("PATIENT\r\nINCR {key}\r\n");
    let begin = || {
        let (mode, protocol) = (CallMode::Owner, ReplyProtocol::Resp2);
        let requests = patient.clone().into_bytes();
        let replied = replied.clone();
        let done = Box::new(move |reply| replied.send(reply).unwrap());
        executor.execute(IncomingCall { mode, db: 0, protocol, requests }, done);
    };
    // What has waited makes room for others.
    for _ in 0..2 {
        shared.give_up(SHARD);
        (0..MAX_WAITING).for_each(|_| begin());
        until("not all of them wait", || shared.waiting_for_owner(SHARD) == MAX_WAITING);
        for requests in [patient.clone(), format!("INCR {key}\r\n")] {
            let moved = answer(&cluster, 1, CallMode::Owner, requests.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(moved).unwrap(), "-TERRACEMOVED 1\r\n");
        }
        let mut client = cluster.client(1);
        client.send(&["STRLEN", &*key]);
        until("the client does not", || shared.waiting_for_owner(SHARD) == MAX_WAITING + 1);
        shared.end_change(SHARD);
        for _ in 0..MAX_WAITING {
            let reply = replies.recv_timeout(HANG_GUARD).unwrap().unwrap();
            assert!(reply.starts_with(b":"), "{}", reply.escape_ascii());
        }
        let reply = client.reply();
        assert!(matches!(reply, Reply::Integer(_)), "{reply:?}");
    }
    let count = (2 * MAX_WAITING).to_string();
    assert_eq!(cluster.client(0).say(&format!("GET {key}")), bulk(&count));
    cluster.settle();
}

/// What they take on their connection is bounded, and not only how many they are.
#[test]
fn few_long_calls_of_other_nodes_wait_for_an_owner() {
    let cluster = FakeCluster::new(Placement::Slots, 2, &[]);
    let key = cluster.key_of(1, "k");
    let shared = &cluster.shared;
    let executor = cluster.served[1].running().call_executor();
    let (replied, replies) = mpsc::channel();
    let patient = |bytes: usize| {
        let mut requests = Vec::new();
        write_request(&mut requests, &["PATIENT"]);
        write_request(&mut requests, &["SET", &*key, &*"v".repeat(bytes)]);
        requests
    };
    let begin = |requests: Vec<u8>| {
        let (mode, protocol) = (CallMode::Owner, ReplyProtocol::Resp2);
        let replied = replied.clone();
        let done = Box::new(move |reply| replied.send(reply).unwrap());
        executor.execute(IncomingCall { mode, db: 0, protocol, requests }, done);
    };
    // One may always wait; then there is no room for another one.
    for (bytes, most) in [(1 << 20, MAX_WAITING_OF_A_MIB), (20 << 20, 1)] {
        shared.give_up(SHARD);
        (0..most).for_each(|_| begin(patient(bytes)));
        until("not all of them wait", || shared.waiting_for_owner(SHARD) == most);
        let moved = answer(&cluster, 1, CallMode::Owner, &patient(bytes)).unwrap();
        assert_eq!(String::from_utf8(moved).unwrap(), "-TERRACEMOVED 1\r\n");
        shared.end_change(SHARD);
        for _ in 0..most {
            assert_eq!(replies.recv_timeout(HANG_GUARD).unwrap().unwrap(), b"+OK\r\n");
        }
    }
    assert_eq!(cluster.client(0).say(&format!("STRLEN {key}")), int(20 << 20));
    cluster.settle();
}

/// Those that wait for a key that is being moved take as much room.
#[test]
fn only_some_calls_of_other_nodes_wait_for_a_key_and_the_others_are_routed_again_there() {
    let cluster = FakeCluster::new(Placement::Slots, 2, &[]);
    let key = cluster.key_of(1, "k");
    let shared = &cluster.shared;
    let executor = cluster.served[1].running().call_executor();
    let (replied, replies) = mpsc::channel();
    let incr = format!("INCR {key}\r\n");
    let patient = format!("PATIENT\r\n{incr}");
    let begin = || {
        let (mode, protocol) = (CallMode::Owner, ReplyProtocol::Resp2);
        let requests = patient.clone().into_bytes();
        let replied = replied.clone();
        let done = Box::new(move |reply| replied.send(reply).unwrap());
        executor.execute(IncomingCall { mode, db: 0, protocol, requests }, done);
    };
    for _ in 0..2 {
        shared.hold(&key);
        (0..MAX_WAITING).for_each(|_| begin());
        until("not all of them wait", || shared.waiting() == MAX_WAITING);
        // With others in its call it does not wait, and they are executed.
        let both = format!("{incr}PING\r\n");
        let refused = [(&patient, "-TERRACEMOVED 1\r\n"), (&both, "-TERRACEHELD\r\n+PONG\r\n")];
        for (requests, wanted) in refused {
            let reply = answer(&cluster, 1, CallMode::Owner, requests.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(reply).unwrap(), wanted);
        }
        // A client of this node waits, and one of the other node has its turn when there is room.
        let (mut own, mut other) = (cluster.client(1), cluster.client(0));
        own.send(&["APPEND", &*key, ""]);
        until("the client does not", || shared.waiting() == MAX_WAITING + 1);
        let rerouted = || cluster.served[0].server().stats.rerouted.get();
        let before = rerouted();
        other.send(&["APPEND", &*key, ""]);
        until("it is not routed again", || rerouted() > before + 2);
        shared.release(&key);
        for _ in 0..MAX_WAITING {
            let reply = replies.recv_timeout(HANG_GUARD).unwrap().unwrap();
            assert!(reply.starts_with(b":"), "{}", reply.escape_ascii());
        }
        for client in [&mut own, &mut other] {
            let reply = client.reply();
            assert!(matches!(reply, Reply::Integer(_)), "{reply:?}");
        }
    }
    let count = (2 * MAX_WAITING).to_string();
    assert_eq!(cluster.client(0).say(&format!("GET {key}")), bulk(&count));
    cluster.settle();
}
