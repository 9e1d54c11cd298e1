//! What clients see at one named step of a move (`terrace_keyspace::move_point`), and of keys that go out and come home.

use super::harness::NodeCluster;
use crate::client::{Client, array, bulk, hears_nothing, int, ok, until};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_base::{Rng, SplitMix64};
use terrace_cluster::{
    CallTarget, DbKey, Direction, Epoch, MoveId, OutgoingCall, Placement, Refusal, ReplyProtocol,
    ShardId,
};
use terrace_keyspace::Mode;
use terrace_resp::Reply;

type AtPoint = (&'static str, Box<dyn FnOnce()>);

thread_local! {
    static AT_POINT: RefCell<Option<AtPoint>> = const { RefCell::new(None) };
}

/// While it is not 0, threads pause at steps of moves, by numbers that are drawn from it.
static PAUSES: AtomicU64 = AtomicU64::new(0);

fn watch() {
    static WATCHED: std::sync::Once = std::sync::Once::new();
    WATCHED.call_once(|| assert!(terrace_keyspace::watch_move_points(pass), "watched already"));
}

fn pass(point: &str) {
    let then = AT_POINT.with_borrow_mut(|at| at.take_if(|(of, _)| *of == point));
    if let Some((_, then)) = then {
        then();
    }
    let state = PAUSES.load(Ordering::SeqCst);
    if state != 0 {
        let drawn = SplitMix64::new(state).next_u64();
        PAUSES.store(drawn | 1, Ordering::SeqCst);
        if drawn.is_multiple_of(4) {
            std::thread::sleep(Duration::from_millis(drawn / 4 % 4));
        }
    }
}

/// Does `then` when the calling thread comes to this step.
fn at_point(point: &'static str, then: impl FnOnce() + 'static) {
    watch();
    AT_POINT.set(Some((point, Box::new(then))));
}

/// Pauses at a quarter of the steps of all moves, of up to 3 ms, until it is dropped.
pub struct Pauses;

impl Pauses {
    pub fn start(seed: u64) -> Self {
        watch();
        PAUSES.store(seed | 1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        PAUSES.store(0, Ordering::SeqCst);
    }
}

/// The commit of a move out has deleted the key, and the store's word on where it is follows a moment later: a read
/// of that moment waits, and finds the key where it is.
#[test]
fn a_read_beside_the_commit_of_a_move_finds_the_key() {
    let cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    cluster.wait_until_swept();
    let key = cluster.key_of(0, "leaving");
    assert_eq!(cluster.client(0).say(&format!("SET {key} value")), ok());
    let space = cluster.one(0).server().space.clone();
    let (keys, there) = ([DbKey::new(0, key.as_str())], ShardId(2));
    // Later than what the owner begins.
    let id = |number| MoveId { epoch: Epoch(1 << 40), number };
    let begun = space.begin_move(ShardId(1), id(1), Direction::Out, there, &keys).unwrap();
    assert_eq!(begun, [Ok(())]);
    let values = space.export_home(id(1), &keys, 1 << 20).unwrap().unwrap();
    // In the loop's batch, in a transaction, and by a call of another node.
    let mut readers: Vec<Client> = [0, 0, 0, 1].map(|at| cluster.client(at)).into();
    let words = [
        vec![format!("GET {key}")],
        vec![format!("MGET {key}")],
        vec!["MULTI".into(), format!("STRLEN {key}"), "EXEC".into()],
        vec![format!("EXISTS {key}")],
    ];
    let wanted = [
        vec![bulk("value")],
        vec![array([bulk("value")])],
        vec![ok(), Reply::Simple(b"QUEUED"[..].into()), array([int(5)])],
        vec![int(1)],
    ];
    let (back, paused) = std::sync::mpsc::channel();
    let sent = words.clone();
    at_point("instance:records:visible", move || {
        for (reader, words) in readers.iter_mut().zip(&sent) {
            reader.send_words(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        // Some time for replies that must not come.
        let is_quiet = hears_nothing(&readers[0]) & hears_nothing(&readers[3]);
        back.send((readers, is_quiet)).unwrap();
    });
    space.commit_move(id(1), &keys, &[]).unwrap().unwrap();
    let (mut readers, is_quiet) = paused.try_recv().expect("the step was passed");
    assert!(is_quiet, "a read did not wait for the end of the commit");
    assert_eq!(cluster.places_of(&key), Vec::<usize>::new(), "it is out");
    // They are routed again until it is there.
    space.forget_move(id(1), &keys).unwrap();
    let begun = space.begin_move(ShardId(1), id(2), Direction::Home, there, &keys).unwrap();
    assert_eq!(begun, [Ok(())]);
    space.commit_move(id(2), &keys, &values).unwrap().unwrap();
    for ((reader, words), wanted) in readers.iter_mut().zip(&words).zip(wanted) {
        let replies: Vec<_> = words.iter().map(|_| reader.reply()).collect();
        assert_eq!(replies, wanted, "{words:?}");
    }
}

/// Sets a key of the first node, and brings it to the second one by a move that is not committed, of which only their stores
/// know. Gives the key, and the move.
fn bring(cluster: &NodeCluster) -> (String, [DbKey; 1], MoveId) {
    cluster.wait_until_swept();
    let key = cluster.key_of(0, "leaving");
    assert_eq!(cluster.client(0).say(&format!("SET {key} value")), ok());
    let (home, there) = (&cluster.one(0).server().space, &cluster.one(1).server().space);
    // Later than what the owner begins.
    let (keys, id) = ([DbKey::new(0, key.as_str())], MoveId { epoch: Epoch(1 << 40), number: 1 });
    let begun = home.begin_move(ShardId(1), id, Direction::Out, ShardId(2), &keys).unwrap();
    assert_eq!(begun, [Ok(())]);
    let values = home.export_home(id, &keys, 1 << 20).unwrap().unwrap();
    there.import_keys(id, &keys, &values).unwrap().unwrap();
    (key, keys, id)
}

/// A `WATCH` that comes when its key has just left, which the routes do not know yet, waits until it is home, or is refused: it
/// never says `OK` without watching for its client.
#[test]
fn a_watch_beside_the_commit_of_a_move_watches_or_is_refused() {
    let cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    let (key, keys, id) = bring(&cluster);
    let mut client = cluster.client(0);
    let home = &cluster.one(0).server().space;
    home.commit_move(id, &keys, &[]).unwrap().unwrap();
    // Nobody has told the owner of this move: it may take the key for one that is home.
    let reply = client.say(&format!("WATCH {key}"));
    if !matches!(&reply, Reply::Error(why) if why.starts_with(b"TRYAGAIN")) {
        assert_eq!(reply, ok());
        assert_eq!(cluster.client(1).say(&format!("SET {key} of-another")), ok());
        let replies = client.pipeline(&["MULTI", &format!("SET {key} lost"), "EXEC"]);
        assert_eq!(replies[2], Reply::Null);
    }
}

/// A key that is watched, also one that does not exist, and was away meanwhile counts as changed: nobody at home
/// knows what happened to it.
#[test]
fn a_watched_key_that_was_away_counts_as_changed() {
    let cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    let [there, absent, unmoved] =
        ["there", "absent", "unmoved"].map(|name| cluster.key_of(0, name));
    let mut other = cluster.client(1);
    assert_eq!(other.say(&format!("SET {there} 1")), ok());
    for key in [&there, &absent, &unmoved] {
        let mut client = cluster.client(0);
        assert_eq!(client.say(&format!("WATCH {key}")), ok());
        if *key != unmoved {
            cluster.move_key(0, key, Some(1));
            assert_eq!(other.say(&format!("SET {key} x")), ok());
            assert_eq!(other.say(&format!("DEL {key}")), int(1));
            cluster.move_key(0, key, None);
        }
        let replies = client.pipeline(&["MULTI", &format!("SET {key} y"), "EXEC"]);
        let wanted = if *key == unmoved { array([ok()]) } else { Reply::Null };
        assert_eq!(replies[2], wanted, "{key}");
    }
}

/// What a move has brought that is not committed, or was undone, is in no reply to `KEYS`, also if that looks for one key only.
#[test]
fn a_pattern_that_is_one_key_does_not_show_what_is_not_known_to_have_come() {
    let cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    let (key, keys, id) = bring(&cluster);
    let mut client = cluster.client(0);
    let (home, there) = (&cluster.one(0).server().space, &cluster.one(1).server().space);
    let patterns = [key.clone(), format!("{key}*")];
    for pattern in &patterns {
        assert_eq!(client.say(&format!("KEYS {pattern}")), array([bulk(&key)]), "{pattern}");
    }
    home.undo_move(ShardId(1), id, &keys).unwrap().unwrap();
    assert_eq!(client.say(&format!("DEL {key}")), int(1));
    for pattern in &patterns {
        assert_eq!(client.say(&format!("KEYS {pattern}")), array([]), "{pattern}");
    }
    there.drop_copies(id, &keys).unwrap();
    home.forget_move(id, &keys).unwrap();
}

/// A flush beside the move of a key: what was there before does not come back by a move that is not committed, and what
/// is written afterwards stays.
#[test]
fn a_flush_ends_a_move_that_is_not_committed() {
    let cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    cluster.wait_until_swept();
    let key = cluster.key_of(0, "leaving");
    let (mut client, mut other) = (cluster.client(0), cluster.client(1));
    assert_eq!(client.say(&format!("SET {key} before")), ok());
    let (home, there) = (&cluster.one(0).server().space, &cluster.one(1).server().space);
    let (keys, id) = ([DbKey::new(0, key.as_str())], MoveId { epoch: Epoch(1 << 40), number: 1 });
    let begun = home.begin_move(ShardId(1), id, Direction::Out, ShardId(2), &keys).unwrap();
    assert_eq!(begun, [Ok(())]);
    let values = home.export_home(id, &keys, 1 << 20).unwrap().unwrap();
    there.import_keys(id, &keys, &values).unwrap().unwrap();
    assert_eq!(other.say("FLUSHALL"), ok());
    // Its last step comes late.
    assert!(home.commit_move(id, &keys, &[]).unwrap().is_err(), "the move goes on");
    assert_eq!(client.say(&format!("GET {key}")), Reply::Null);
    assert_eq!(client.say(&format!("SET {key} after")), ok());
    there.drop_copies(id, &keys).unwrap();
    home.forget_move(id, &keys).unwrap();
    assert_eq!(other.say(&format!("GET {key}")), bulk("after"));
    assert_eq!(cluster.places_of(&key), [0]);
}

/// A round of a flush, as a node sends it to another one for a shard.
fn round_at(cluster: &NodeCluster, at: usize, words: &str) -> String {
    let coordinator = cluster.coordinator(at);
    let mut requests = Vec::new();
    let words = format!("ONSHARD {} FLUSHALL {words}", at + 1);
    let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
    terrace_resp::write_request(&mut requests, &words);
    let (requests, protocol) = (Arc::new(requests), ReplyProtocol::Resp2);
    let (answered, answer) = std::sync::mpsc::channel();
    let done = Box::new(move |reply| answered.send(reply).unwrap());
    let target = CallTarget::Owner(coordinator.me());
    coordinator.call(target, OutgoingCall { db: 0, protocol, requests }, done);
    String::from_utf8(answer.recv().unwrap().unwrap()).unwrap()
}

/// All steps of a move of a key of the first node to the second, or home, by hand.
fn carry(
    cluster: &NodeCluster,
    key: &str,
    number: u64,
    direction: Direction,
) -> Result<(), Refusal> {
    let (home, there) = (&cluster.one(0).server().space, &cluster.one(1).server().space);
    let (keys, id) = ([DbKey::new(0, key)], MoveId { epoch: Epoch(1 << 40), number });
    home.begin_move(ShardId(1), id, direction, ShardId(2), &keys).unwrap().remove(0)?;
    let carried = match direction {
        Direction::Out => home.export_home(id, &keys, 1 << 20).unwrap().and_then(|values| {
            there.import_keys(id, &keys, &values).unwrap()?;
            home.commit_move(id, &keys, &[]).unwrap()?;
            there.finish_import(id, &keys).unwrap();
            Ok(())
        }),
        Direction::Home => there.export_copies(id, &keys, 1 << 20).unwrap().and_then(|values| {
            home.commit_move(id, &keys, &values).unwrap()?;
            there.drop_copies(id, &keys).unwrap();
            Ok(())
        }),
    };
    if carried.is_err() {
        home.undo_move(ShardId(1), id, &keys).unwrap().unwrap();
        match direction {
            Direction::Out => there.drop_copies(id, &keys).unwrap(),
            Direction::Home => there.release_copies(id, &keys).unwrap(),
        }
    }
    home.forget_move(id, &keys).unwrap();
    carried
}

/// The store that would get the key is flushed already, and the one that has it is not.
#[test]
fn no_key_comes_into_a_store_that_is_flushed_from_one_that_is_not() {
    let cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    cluster.wait_until_swept();
    let mut client = cluster.client(1);
    // Out, with the second store flushed first; then home, with the first one flushed first.
    for (number, first, direction) in [(1, 1, Direction::Out), (4, 0, Direction::Home)] {
        let key = cluster.key_of(0, &format!("{direction:?}"));
        assert_eq!(client.say(&format!("SET {key} before")), ok());
        if direction == Direction::Home {
            carry(&cluster, &key, number, Direction::Out).unwrap();
        }
        for at in 0..2 {
            assert_eq!(round_at(&cluster, at, &format!("ANNOUNCE {number}")), "+OK\r\n");
        }
        assert_eq!(round_at(&cluster, first, &format!("EXECUTE {number}")), "+OK\r\n");
        let moved = carry(&cluster, &key, number + 1, direction);
        assert_eq!(moved, Err(Refusal::Flushing), "{direction:?}");
        let again = round_at(&cluster, first, &format!("EXECUTE {number}"));
        assert!(again.starts_with("-TRYAGAIN"), "once only: {again}");
        assert_eq!(round_at(&cluster, 1 - first, &format!("EXECUTE {number}")), "+OK\r\n");
        assert_eq!(cluster.places_of(&key), Vec::<usize>::new(), "{direction:?}");
        carry(&cluster, &key, number + 2, direction).unwrap();
    }
}

/// `FLUSHALL` goes on only when no store takes part in moves any more.
#[test]
fn a_flush_waits_until_all_stores_know_of_it() {
    let cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    cluster.wait_until_swept();
    let [key, probe] = ["kept", "probe"].map(|name| cluster.key_of(0, name));
    let (mut client, mut flusher) = (cluster.client(0), cluster.client(0));
    assert_eq!(client.say(&format!("SET {key} before")), ok());
    let (home, there) = (&cluster.one(0).server().space, &cluster.one(1).server().space);
    let mut locked = there.command_batch(Mode::Device);
    locked.lock(0, [b"locked".as_slice()].into_iter()).unwrap();
    flusher.send_words(&["FLUSHALL"]);
    let (keys, mut number) = ([DbKey::new(0, probe)], 0);
    until("the first store does not hear of the flush", || {
        number += 1;
        let id = MoveId { epoch: Epoch(1 << 40), number };
        let begun = home.begin_move(ShardId(1), id, Direction::Out, ShardId(2), &keys).unwrap();
        home.undo_move(ShardId(1), id, &keys).unwrap().unwrap();
        home.forget_move(id, &keys).unwrap();
        begun == [Err(Refusal::Flushing)] || cluster.places_of(&key).is_empty()
    });
    assert_eq!(cluster.places_of(&key), [0], "it is flushed before the other one knows");
    locked.abandon();
    assert_eq!(flusher.reply(), ok());
    assert_eq!(cluster.places_of(&key), Vec::<usize>::new());
    home.begin_move(
        ShardId(1),
        MoveId { epoch: Epoch(1 << 41), number: 1 },
        Direction::Out,
        ShardId(2),
        &keys,
    )
    .unwrap()
    .remove(0)
    .unwrap();
}

/// A node sends what is for a whole shard again until no copy of a key that came home may still be read.
#[test]
fn a_flush_waits_for_a_copy_that_is_still_to_be_dropped() {
    let cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    cluster.wait_until_swept();
    let key = cluster.key_of(0, "home-again");
    assert_eq!(cluster.client(0).say(&format!("SET {key} before")), ok());
    carry(&cluster, &key, 1, Direction::Out).unwrap();
    let (home, there) = (&cluster.one(0).server().space, &cluster.one(1).server().space);
    let (keys, id) = ([DbKey::new(0, key.as_str())], MoveId { epoch: Epoch(1 << 40), number: 2 });
    home.begin_move(ShardId(1), id, Direction::Home, ShardId(2), &keys).unwrap().remove(0).unwrap();
    let values = there.export_copies(id, &keys, 1 << 20).unwrap().unwrap();
    home.commit_move(id, &keys, &values).unwrap().unwrap();
    let answer = round_at(&cluster, 0, "ANNOUNCE 1");
    assert!(answer.starts_with("-TERRACEMOVED"), "{answer}");
    let mut flusher = cluster.client(1);
    flusher.send_words(&["FLUSHALL"]);
    let sent_again = || cluster.one(1).server().stats.rerouted.get();
    until("it is not sent again", || sent_again() > 2 || cluster.places_of(&key).is_empty());
    assert_eq!(cluster.places_of(&key), [0, 1]);
    there.drop_copies(id, &keys).unwrap();
    home.forget_move(id, &keys).unwrap();
    assert_eq!(flusher.reply(), ok());
    assert_eq!(cluster.places_of(&key), Vec::<usize>::new());
}

/// A write that the store refuses, since its key is being moved, is routed again and again: not for a client that is gone.
#[test]
fn a_write_that_is_routed_again_ends_with_its_client() {
    let cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    cluster.wait_until_swept();
    let key = cluster.key_of(0, "leaving");
    let (mut victim, mut killer) = (cluster.client(0), cluster.client(0));
    assert_eq!(killer.say(&format!("SET {key} before")), ok());
    let Reply::Integer(number) = victim.say("CLIENT ID") else { panic!("no number") };
    let home = &cluster.one(0).server().space;
    // Later than what the owner begins, who does not know of it.
    let (keys, id) = ([DbKey::new(0, key.as_str())], MoveId { epoch: Epoch(1 << 40), number: 1 });
    let begun = home.begin_move(ShardId(1), id, Direction::Out, ShardId(2), &keys).unwrap();
    assert_eq!(begun, [Ok(())]);
    home.export_home(id, &keys, 1 << 20).unwrap().unwrap();
    let rerouted = || cluster.one(0).server().stats.rerouted.get();
    let set = format!("SET {key} after");
    victim.send_words(&[&set]);
    until("it is not routed again", || rerouted() > 2);
    assert_eq!(killer.say(&format!("CLIENT KILL ID {number}")), int(1));
    // The turn of the loop in which it was ended is over.
    assert_eq!(killer.say("PING"), Reply::Simple(b"PONG"[..].into()));
    home.undo_move(ShardId(1), id, &keys).unwrap().unwrap();
    home.forget_move(id, &keys).unwrap();
    for _ in 0..1000 {
        assert_eq!(killer.say(&format!("GET {key}")), bulk("before"));
    }
    // Of others nothing is lost.
    assert_eq!(killer.say(&set), ok());
    assert_eq!(killer.say(&format!("GET {key}")), bulk("after"));
}

/// A key that is away is flushed where it is, stays away, and what is written afterwards stays.
#[test]
fn a_flush_empties_keys_that_are_away() {
    let cluster = NodeCluster::start(Placement::Slots, 2, &[]);
    let key = cluster.key_of(0, "away");
    let (mut client, mut other) = (cluster.client(0), cluster.client(1));
    for flush in ["FLUSHALL", "FLUSHDB"] {
        assert_eq!(client.say(&format!("SET {key} before")), ok());
        cluster.move_key(1, &key, Some(1));
        assert_eq!(client.say(flush), ok());
        assert_eq!(other.say(&format!("GET {key}")), Reply::Null, "{flush}");
        assert_eq!(client.say("DBSIZE"), int(0));
        assert_eq!(client.say(&format!("SET {key} after")), ok());
        assert_eq!(cluster.places_of(&key), [1]);
        cluster.move_key(0, &key, None);
        assert_eq!(other.say(&format!("GET {key}")), bulk("after"), "{flush}");
    }
}
