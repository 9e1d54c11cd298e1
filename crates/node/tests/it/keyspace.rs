//! The keyspace of a server as the store of a node: who it belongs to, and whole moves between two.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use terrace::{HotTableMode, Options};
use terrace_cluster::{
    DbKey, Direction, Epoch, Intent, IntentState, MoveAnswer, MoveCall, MoveId, NodeId, Placement,
    Refusal, ShardId,
};
use terrace_keyspace::{Keyspace, Mode, PutOptions};
use terrace_node::rpc::MoveMessage;
use terrace_node::{Identity, InstanceStore, KeyspaceStore, join_store};

fn open(path: &Path) -> (Arc<Keyspace>, KeyspaceStore) {
    let options = Options::default();
    let placement = Some(Placement::Slots);
    let space = Keyspace::open_without_active_expire(path, options, placement).unwrap();
    (space.clone(), KeyspaceStore::new(space))
}

fn key() -> DbKey {
    DbKey::new(0, "key")
}

fn value(space: &Arc<Keyspace>) -> Option<Vec<u8>> {
    let mut batch = space.command_batch(Mode::Device);
    batch.get(0, b"key").unwrap().map(|value| value.to_vec())
}

fn step(
    store: &KeyspaceStore,
    direction: Direction,
    call: MoveCall<Vec<u8>>,
) -> MoveAnswer<Vec<u8>> {
    let number = if direction == Direction::Out { 1 } else { 2 };
    let id = MoveId { epoch: Epoch(7), number };
    let (shard, other, keys) = (ShardId(1), ShardId(2), vec![key()]);
    store.apply_move(&MoveMessage { shard, id, direction, other, keys, call }).unwrap()
}

#[test]
fn a_store_remembers_its_node_and_its_epochs() {
    let dir = tempfile::tempdir().unwrap();
    let id = {
        let (space, store) = open(dir.path());
        assert_eq!(store.identity().unwrap(), None);
        let id = join_store(&store, "one").unwrap();
        assert_eq!(store.epoch(ShardId(1)).unwrap(), Epoch(0));
        store.set_epoch(ShardId(1), Epoch(9)).unwrap();
        assert!(store.set_epoch(ShardId(1), Epoch(8)).is_err());
        assert_eq!(store.part().unwrap(), None);
        assert!(store.is_empty().unwrap(), "that is no key");
        store.set_part(&"slots 2:00100-00199".parse().unwrap()).unwrap();
        space.close().unwrap();
        id
    };
    let (_, store) = open(dir.path());
    let identity = Identity { cluster: "one".into(), node: id };
    assert_eq!(store.identity().unwrap(), Some(identity));
    assert_eq!(store.epoch(ShardId(1)).unwrap(), Epoch(9));
    assert_eq!(store.part().unwrap().unwrap().to_string(), "slots 2:00100-00199");
    assert!(join_store(&store, "two").is_err());
    assert_ne!(id, NodeId([0; 20]));
}

#[test]
fn a_key_goes_out_and_comes_home() {
    let (here_dir, there_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ((home, here), (away, there)) = (open(here_dir.path()), open(there_dir.path()));
    let mut batch = home.command_batch(Mode::Device);
    batch.lock_everything();
    batch.put(0, b"key", b"value", &PutOptions::default()).unwrap();
    batch.commit().unwrap();
    let are_empty = || [&here, &there].map(|store| store.is_empty().unwrap());
    assert_eq!(are_empty(), [false, true]);

    let out = |store, call| step(store, Direction::Out, call);
    assert_eq!(out(&here, MoveCall::Begin), MoveAnswer::Begun(vec![Ok(())]));
    let MoveAnswer::Exported(values) = out(&here, MoveCall::Export) else { panic!() };
    let mut damaged = values.clone();
    damaged[0][3] ^= 1;
    let (shard, other, keys) = (ShardId(1), ShardId(2), vec![key()]);
    let (id, direction) = (MoveId { epoch: Epoch(7), number: 1 }, Direction::Out);
    let call = MoveCall::Import(damaged);
    let refused = there.apply_move(&MoveMessage { shard, id, direction, other, keys, call });
    assert!(refused.unwrap_err().to_string().contains("damaged"));
    assert_eq!(out(&there, MoveCall::Import(values)), MoveAnswer::Done);
    let records = here.records().unwrap();
    let intent = Intent { id, direction, other, state: IntentState::Open };
    assert_eq!((records.exceptions.len(), &records.intents[..]), (0, &[(key(), intent)][..]));
    assert_eq!(out(&here, MoveCall::Commit(Vec::new())), MoveAnswer::Done);
    assert_eq!(out(&there, MoveCall::Finish), MoveAnswer::Done);
    assert_eq!(out(&here, MoveCall::Forget), MoveAnswer::Done);
    assert_eq!((value(&home), value(&away)), (None, Some(b"value".to_vec())));
    assert_eq!(are_empty(), [false, false], "what is away has its home");
    let records = here.records().unwrap();
    assert_eq!((records.exceptions.len(), records.intents.len()), (1, 0));
    assert_eq!(records.exceptions[0].1.at, ShardId(2));

    let back = |store, call| step(store, Direction::Home, call);
    assert_eq!(back(&here, MoveCall::Begin), MoveAnswer::Begun(vec![Ok(())]));
    let MoveAnswer::Exported(values) = back(&there, MoveCall::Export) else { panic!() };
    assert_eq!(back(&here, MoveCall::Commit(values)), MoveAnswer::Done);
    assert_eq!(back(&there, MoveCall::Drop), MoveAnswer::Done);
    assert_eq!(back(&here, MoveCall::Forget), MoveAnswer::Done);
    assert_eq!((value(&home), value(&away)), (Some(b"value".to_vec()), None));
    assert_eq!(are_empty(), [false, true]);
    assert_eq!(here.records().unwrap(), Default::default());
    // A late message of a move that is over.
    assert_eq!(out(&here, MoveCall::Export), MoveAnswer::Refused(Refusal::Late));
}

/// A question for counts is answered with all writes since the last one, every time and at once: little is written, or
/// it stays in the log for long since it is of hot keys, which stay hot.
#[test]
fn what_was_written_since_the_last_question_is_counted() {
    for hot_table in [HotTableMode::Off, HotTableMode::Auto] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.advanced.hot_table = hot_table;
        options.advanced.memtable_bytes = 64 << 10;
        options.advanced.write_tracking.keys = 100;
        options.advanced.write_tracking.halved_every = Duration::from_secs(86_400);
        let space = Keyspace::open_without_active_expire(dir.path(), options, None).unwrap();
        let store = KeyspaceStore::new(space.clone());
        let write = |name: &str| {
            for number in 0..50 {
                let mut batch = space.command_batch(Mode::Device);
                batch.lock_everything();
                batch.put(0, name.as_bytes(), &[number; 200], &PutOptions::default()).unwrap();
                batch.commit().unwrap();
            }
        };
        let count_of = |name: &str| {
            let counts = store.top_counts(10).unwrap();
            counts.keys.iter().find(|top| top.key == DbKey::new(0, name)).map_or(0, |top| top.count)
        };
        let has_hot_keys = || space.db().metrics().hot_keys > 0;
        let mut rounds = 0;
        while rounds < 20 || hot_table == HotTableMode::Auto && !has_hot_keys() {
            ["first", "second"].into_iter().for_each(&write);
            rounds += 1;
            assert!(rounds < 10_000, "nothing becomes hot");
        }
        for further in 1..=3 {
            for (name, other) in [("first", rounds + further - 1), ("second", rounds + further)] {
                write(name);
                let counts = (count_of(name), count_of("first") + count_of("second"));
                assert_eq!(counts, (50 * (rounds + further), 50 * (rounds + further + other)));
            }
        }
        assert_eq!(has_hot_keys(), hot_table == HotTableMode::Auto);
    }
}
