//! Orders for keys that are in a move, and what becomes of those who wait when a shard is given up: each is answered.

use crate::harness::{TestCluster, wait_for};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace::{Db, Options, SystemClock};
use terrace_cluster::{DbKey, Direction, Epoch, MoveCall, MoveId, PlanSpec, Route, ShardId};
use terrace_metadata::{Embedded, Metadata};
use terrace_node::rpc::MoveMessage;
use terrace_node::{InstanceStore, Node};
use tokio::task::JoinHandle;

struct Setting {
    cluster: TestCluster,
    keys: Vec<String>,
    _dir: tempfile::TempDir,
}

/// Two nodes, and keys of the first shard that are at home.
async fn start(name: &str, keys: usize) -> Setting {
    start_nodes(name, 2, keys).await
}

async fn start_nodes(name: &str, nodes: usize, keys: usize) -> Setting {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let metadata = Embedded::open(&db, Arc::new(SystemClock::default())).unwrap();
    let metadata: Arc<dyn Metadata> = Arc::new(metadata);
    let cluster = TestCluster::start(metadata, nodes, name).await;
    let keys = cluster.keys_of(0, keys);
    for key in &keys {
        cluster.nodes[0].front.run(&format!("SET {key} 1")).await.unwrap();
    }
    Setting { cluster, keys, _dir: dir }
}

/// A step that waits would keep the runtime of a test that fails.
impl Drop for Setting {
    fn drop(&mut self) {
        self.cluster.nodes.iter().for_each(|node| node.store.resume());
    }
}

type Moved = JoinHandle<Result<(), String>>;

impl Setting {
    fn node(&self, at: usize) -> &Node {
        self.cluster.nodes[at].node()
    }

    /// Orders a move by way of the last node.
    fn order(&self, key: &str, to: Option<u32>) -> Moved {
        let node = self.cluster.nodes.last().unwrap().node.clone().unwrap();
        let (key, to) = (DbKey::new(0, key), to.map(ShardId));
        tokio::spawn(async move { node.move_key(key, to).await.map_err(|why| why.to_string()) })
    }

    async fn moved(&self, key: &str, to: Option<u32>) {
        self.order(key, to).await.unwrap().unwrap();
    }

    /// Waits until a step has come to the store of a node for the `count`th time.
    async fn step(&self, at: usize, step: &str, count: usize) {
        let store = &self.cluster.nodes[at].store;
        wait_for(step, async || (store.steps(step) >= count).then_some(())).await;
    }

    /// A command needs a key of the first shard at home; whether it was told to go on.
    fn recall(&self, key: &str) -> impl Fn() -> Option<()> + use<> {
        let called = Arc::new(AtomicBool::new(false));
        let by = called.clone();
        let done = Box::new(move || by.store(true, Ordering::SeqCst));
        self.node(0).coordinator().recall(0, key.as_bytes(), done);
        move || called.load(Ordering::SeqCst).then_some(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_comes_while_the_key_goes_out_is_done_after_that() {
    let it = start("back", 1).await;
    let (key, store) = (&it.keys[0], &it.cluster.nodes[1].store);
    store.pause("import");
    let out = it.order(key, Some(2));
    it.step(1, "import", 1).await;
    // The key is at home and shall be there: there is nothing to do for this order before the move is over.
    let home = it.order(key, None);
    let told = out.await.unwrap().unwrap_err();
    assert!(told.contains("a later order"), "{told}");
    store.resume();
    home.await.unwrap().unwrap();
    assert!(it.cluster.nodes[0].store.has(key));
    assert_eq!(it.cluster.places_of(key), 1);
}

/// What was wrong with the first instance says nothing of the second one.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_comes_while_the_key_goes_out_is_done_also_if_that_fails() {
    let it = start_nodes("overtaken", 3, 1).await;
    let (key, store) = (&it.keys[0], &it.cluster.nodes[1].store);
    store.pause("import");
    let first = it.order(key, Some(2));
    it.step(1, "import", 1).await;
    let second = it.order(key, Some(3));
    let told = first.await.unwrap().unwrap_err();
    assert!(told.contains("a later order"), "{told}");
    store.fill(true);
    store.resume();
    second.await.unwrap().unwrap();
    assert!(it.cluster.nodes[2].store.has(key));
    assert_eq!((it.cluster.places_of(key), store.has(key)), (1, false));
}

/// Its store has gone back to an older backup. Whatever else brings keys home leaves it, since the store may be put right.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_its_store_has_lost_comes_home_without_a_value_if_that_is_ordered() {
    let it = start("lost", 2).await;
    let [key, other] = [&it.keys[0], &it.keys[1]];
    for key in [key, other] {
        it.moved(key, Some(2)).await;
        it.cluster.nodes[1].store.lose(key);
    }
    let is_called = it.recall(key);
    wait_for("the command to go on", async || is_called()).await;
    let coordinator = it.node(0).coordinator();
    let is_away = |key: &String| matches!(coordinator.route(0, key.as_bytes()), Route::Instance(_));
    assert!(is_away(key) && is_away(other));
    it.moved(key, None).await;
    assert!(!is_away(key) && is_away(other));
    let front = &it.cluster.nodes[0].front;
    assert_eq!(front.run(&format!("GET {key}")).await.unwrap(), b"nil");
    front.run(&format!("SET {key} 2")).await.unwrap();
    it.moved(key, Some(2)).await;
    assert_eq!((it.cluster.places_of(key), it.cluster.nodes[1].store.has(key)), (1, true));
}

/// Of keys that come home together one is lost: the others are not kept away by that.
#[tokio::test(flavor = "multi_thread")]
async fn keys_come_home_that_are_in_a_move_with_a_lost_one() {
    let it = start("lost-beside", 4).await;
    let (moved, other) = it.keys.split_at(3);
    for key in moved {
        it.moved(key, Some(2)).await;
    }
    it.cluster.nodes[1].store.lose(&moved[1]);
    // No move begins before this one has, and those behind it go together.
    let home = &it.cluster.nodes[0].store;
    let begun = home.steps("begin");
    home.pause("begin");
    let out = it.order(&other[0], Some(2));
    it.step(0, "begin", begun + 1).await;
    let orders: Vec<Moved> = moved.iter().map(|key| it.order(key, None)).collect();
    wait_for("the orders to wait", async || {
        let status = it.node(0).status().await;
        status.shards.first().filter(|shard| shard.waiting_moves == 3).map(|_| ())
    })
    .await;
    home.resume();
    for order in orders {
        order.await.unwrap().unwrap();
    }
    out.await.unwrap().unwrap();
    let there: Vec<bool> = moved.iter().map(|key| home.has(key)).collect();
    assert_eq!(there, [true, false, true], "the lost one is at home without a value");
}

/// Nothing of a move is left behind by that.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_finds_a_full_disk_fails_at_once() {
    let it = start("full", 2).await;
    let [here, there] = [&it.keys[0], &it.keys[1]];
    it.moved(there, Some(2)).await;
    let home = &it.cluster.nodes[0].store;
    let orders = [(0, here, Some(2)), (1, here, Some(2)), (0, there, None), (1, there, None)];
    for (at, key, to) in orders {
        it.cluster.nodes[at].store.fill(true);
        let told = it.order(key, to).await.unwrap().unwrap_err();
        assert!(told.contains("full") && told.contains("the key stays"), "{told}");
        assert_eq!(it.cluster.places_of(key), 1);
        it.cluster.nodes[at].store.fill(false);
    }
    assert_eq!(home.steps("commit"), 1, "none came that far");
    // Commands that need the key at home do not try again and again.
    home.fill(true);
    let begun = home.steps("begin");
    for _ in 0..100 {
        let is_called = it.recall(there);
        wait_for("the command to go on", async || is_called()).await;
    }
    assert!(home.steps("begin") - begun < 30);
    home.fill(false);
    it.moved(here, Some(2)).await;
    it.moved(there, None).await;
    assert!(home.has(there) && it.cluster.nodes[1].store.has(here));
    assert!(home.records().unwrap().intents.is_empty());
}

/// Each try is a synced write.
#[tokio::test(flavor = "multi_thread")]
async fn commands_do_not_try_again_and_again_to_bring_a_key_home_that_is_about_to_be_flushed() {
    let it = start("flushing", 1).await;
    let (key, home) = (&it.keys[0], &it.cluster.nodes[0].store);
    it.moved(key, Some(2)).await;
    home.announce_flush(true);
    let begun = home.steps("begin");
    for _ in 0..100 {
        let is_called = it.recall(key);
        wait_for("the command to go on", async || is_called()).await;
    }
    assert!((1..30).contains(&(home.steps("begin") - begun)));
    home.announce_flush(false);
    // An order does not wait for that.
    it.moved(key, None).await;
    assert!(home.has(key));
}

/// A move that cannot be committed and has no answer to that holds its keys until it can. Those of a later one have a time of
/// their own.
#[tokio::test(flavor = "multi_thread")]
async fn commands_wait_for_a_key_that_is_held_for_a_bounded_time_only() {
    let mut it = start("held", 2).await;
    let node = &mut it.cluster.nodes[0];
    node.node().leave().await;
    node.kill();
    node.start(|config| config.hold_limit = Duration::from_millis(50)).await;
    it.cluster.wait_until_served().await;
    let store = &it.cluster.nodes[0].store;
    let coordinator = it.node(0).coordinator();
    let wait = |key: &str| {
        let called = Arc::new(AtomicBool::new(false));
        let by = called.clone();
        let done = Box::new(move || by.store(true, Ordering::SeqCst));
        coordinator.when_released(0, key.as_bytes(), done);
        move || called.load(Ordering::SeqCst).then_some(())
    };
    for (number, key) in (1..).zip(&it.keys) {
        store.pause("commit");
        // By the node itself: it knows where it is.
        let (node, moved) = (it.cluster.nodes[0].node.clone(), DbKey::new(0, key.as_str()));
        let node = node.unwrap();
        // It is undone if what was under way is not drained in that time either.
        let out = tokio::spawn(async move {
            while node.move_key(moved.clone(), Some(ShardId(2))).await.is_err() {}
        });
        it.step(0, "commit", number).await;
        let is_called = wait(key);
        wait_for("the command to be let go", async || is_called()).await;
        // One that comes later does not wait at all.
        assert!(wait(key)().is_some());
        assert_eq!(coordinator.route(0, key.as_bytes()), Route::Held, "nothing was released");
        store.resume();
        out.await.unwrap();
        assert_eq!(it.cluster.places_of(key), 1);
    }
}

/// A command may take any time. The keys are not held for as long, and can be moved when it is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_waits_too_long_for_what_is_under_way_is_undone() {
    let mut it = start("undrained", 1).await;
    let node = &mut it.cluster.nodes[0];
    node.node().leave().await;
    node.kill();
    node.start(|config| config.hold_limit = Duration::from_millis(50)).await;
    it.cluster.wait_until_served().await;
    let (key, store) = (&it.keys[0], &it.cluster.nodes[0].store);
    let coordinator = it.node(0).coordinator();
    let order = || {
        let (node, key) = (it.cluster.nodes[0].node.clone(), DbKey::new(0, key.as_str()));
        tokio::spawn(async move { node.unwrap().move_key(key, Some(ShardId(2))).await })
    };
    let under_way = coordinator.guard();
    let out = order();
    wait_for("the answer", async || out.is_finished().then_some(())).await;
    let told = out.await.unwrap().unwrap_err().to_string();
    assert!(told.contains("undone; the key stays at home"), "{told}");
    assert_eq!((store.steps("export"), store.steps("undo")), (0, 1));
    assert_eq!(coordinator.route(0, key.as_bytes()), Route::Local, "it is held no longer");
    drop(under_way);
    wait_for("the move", async || order().await.unwrap().ok()).await;
    assert_eq!((it.cluster.places_of(key), store.has(key)), (1, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_needed_at_home_in_the_last_step_out_comes_home() {
    let it = start("recall", 1).await;
    let (key, store) = (&it.keys[0], &it.cluster.nodes[1].store);
    store.pause("finish");
    let out = it.order(key, Some(2));
    it.step(1, "finish", 1).await;
    let is_called = it.recall(key);
    store.resume();
    wait_for("the command to go on", async || is_called()).await;
    assert!(it.cluster.nodes[0].store.has(key));
    let told = out.await.unwrap().unwrap_err();
    assert!(told.contains("needs the key at home"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_does_not_keep_a_key_that_is_needed_at_home() {
    let it = start("plan", 2).await;
    let [key, other] = [&it.keys[0], &it.keys[1]];
    it.moved(key, Some(2)).await;
    let begun = it.cluster.nodes[0].store.steps("begin");
    // No second move begins before the first has.
    it.cluster.nodes[0].store.pause("begin");
    let out = it.order(other, Some(2));
    it.step(0, "begin", begun + 1).await;
    let is_called = it.recall(key);
    // What was written is planned to be where the key is already.
    let spec: PlanSpec = "top-n-to-one:10:2".parse().unwrap();
    let planned = it.node(1).repartition(&spec, 100).await.unwrap();
    assert_eq!((planned.plan_keys, &planned.failed[..]), (2, &[][..]));
    assert!(is_called().is_none(), "the move home has not begun");
    it.cluster.nodes[0].store.resume();
    wait_for("the command to go on", async || is_called()).await;
    assert!(it.cluster.nodes[0].store.has(key));
    out.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_in_a_move_stay_in_the_plan_when_another_is_ordered() {
    let it = start("stay", 3).await;
    let [first, second, third] = [&it.keys[0], &it.keys[1], &it.keys[2]];
    let store = &it.cluster.nodes[1].store;
    store.pause("import");
    let out = it.order(first, Some(2));
    it.step(1, "import", 1).await;
    // Looks at what is missing of the plan while the first key is on its way.
    let also = it.order(second, Some(2));
    it.step(1, "import", 2).await;
    store.resume();
    out.await.unwrap().unwrap();
    also.await.unwrap().unwrap();
    it.moved(third, Some(2)).await;
    it.moved(third, None).await;
    let status = it.node(0).status().await;
    assert_eq!(status.shards[0].exceptions, 2, "the others stay where they were ordered to");
    assert!(store.has(first) && store.has(second));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_given_up_answers_all_who_wait() {
    let it = start("given-up", 4).await;
    let [busy, queued, away, held] = [0, 1, 2, 3].map(|at| &it.keys[at]);
    it.moved(away, Some(2)).await;
    // A key that is held: its move does not end before the shard is given up.
    it.cluster.nodes[1].store.pause("import");
    let out = it.order(held, Some(2));
    it.step(1, "import", 2).await;
    let coordinator = it.node(0).coordinator();
    assert_eq!(coordinator.route(0, held.as_bytes()), Route::Held);
    let released = Arc::new(AtomicBool::new(false));
    let by = released.clone();
    let done = Box::new(move || by.store(true, Ordering::SeqCst));
    coordinator.when_released(0, held.as_bytes(), done);
    // And one that has not begun, behind which others wait.
    let begun = it.cluster.nodes[0].store.steps("begin");
    it.cluster.nodes[0].store.pause("begin");
    let beginning = it.order(busy, Some(2));
    it.step(0, "begin", begun + 1).await;
    let waiting = it.order(queued, Some(2));
    let status = async || {
        let status = it.node(0).status().await;
        status.shards.first().filter(|shard| shard.waiting_moves == 1).map(|_| ())
    };
    wait_for("the order to wait", status).await;
    let is_called = it.recall(away);
    let drained = it.cluster.nodes[0].id();
    let node = it.cluster.nodes[1].node.clone().unwrap();
    let draining = tokio::spawn(async move { node.drain(drained, false).await });
    let told = waiting.await.unwrap().unwrap_err();
    assert!(told.contains("being given up"), "{told}");
    wait_for("the command to go on", async || is_called()).await;
    // The moves under way cannot be ended in time, and the shard is given up without them.
    draining.await.unwrap().unwrap();
    for moved in [out, beginning] {
        let told = moved.await.unwrap().unwrap_err();
        assert!(told.contains("not served any more"), "{told}");
    }
    wait_for("the writer to go on", async || released.load(Ordering::SeqCst).then_some(())).await;
    it.cluster.nodes.iter().for_each(|node| node.store.resume());
}

/// Who asks whether a shard is swept may look for copies in the stores afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_is_over_when_the_copies_that_it_found_are_dropped() {
    let it = start("sweep", 2).await;
    let [moved, late] = [&it.keys[0], &it.keys[1]];
    let is_sweeping = async || {
        let status = it.node(0).status().await;
        status.shards.iter().find(|shard| shard.shard == 1).unwrap().is_sweeping
    };
    let swept = async || wait_for("the sweep", async || (!is_sweeping().await).then_some(())).await;
    swept().await;
    let store = &it.cluster.nodes[1].store;
    let (keys, call) = (vec![DbKey::new(0, late.clone())], MoveCall::Import(vec![vec![1, b'x']]));
    let (id, direction) = (MoveId { epoch: Epoch(0), number: 1 }, Direction::Out);
    let (shard, other) = (ShardId(1), ShardId(2));
    store.apply_move(&MoveMessage { shard, id, direction, other, keys, call }).unwrap();
    store.pause("drop");
    it.moved(moved, Some(2)).await;
    it.step(1, "drop", 1).await;
    assert!(is_sweeping().await, "a copy is still there");
    store.resume();
    swept().await;
    let copies: Vec<DbKey> = store.records().unwrap().copies.into_iter().map(|it| it.0).collect();
    assert_eq!(copies, [DbKey::new(0, moved.clone())]);
}

/// A shard that is served in place of its instance's node moves no keys; the plan for the other shards of the same
/// owner is executed, and the reply has both.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_takes_no_plan_does_not_stop_the_other_shards_of_its_owner() {
    let it = start("parts", 1).await;
    let theirs = it.cluster.keys_of(1, 3);
    it.node(1).drain(it.cluster.nodes[0].id(), false).await.unwrap();
    it.cluster.wait_until_served_by(0, 1).await;
    for key in &theirs {
        it.cluster.nodes[1].front.run(&format!("SET {key} 1")).await.unwrap();
    }
    let spec: PlanSpec = "top-n-to-one:100:1".parse().unwrap();
    let planned = it.node(1).repartition(&spec, 100).await.unwrap();
    assert_eq!(planned.moves, 3, "{planned:?}");
    let [(owner, why)] = &planned.failed[..] else { panic!("{planned:?}") };
    assert_eq!(*owner, it.cluster.nodes[1].id());
    assert!(why.contains("shard 1") && why.contains("in place of"), "{why}");
    let there = async || theirs.iter().all(|key| it.cluster.nodes[0].store.has(key)).then_some(());
    wait_for("the moves", there).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_an_instance_cannot_be_asked_for_is_refused_in_words_for_people() {
    let mut it = start("unasked", 1).await;
    let away = it.cluster.nodes[1].id();
    it.cluster.nodes[1].kill();
    let spec: PlanSpec = "top-n-to-one:100:1".parse().unwrap();
    let why = it.node(0).repartition(&spec, 100).await.unwrap_err().to_string();
    assert!(why.starts_with(&format!("instance {away}: ")) && !why.contains("code: "), "{why}");
}

/// Keys that are too large together go in smaller moves, and one that is too large alone stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_key_stays_and_those_beside_it_are_moved() {
    let it = start("large", 10).await;
    let (front, large) = (&it.cluster.nodes[0].front, &it.keys[3]);
    front.run(&format!("SET {large} {}", "x".repeat(20))).await.unwrap();
    it.cluster.nodes[0].store.limit_exports(4);
    let spec: PlanSpec = "top-n-to-one:100:2".parse().unwrap();
    let planned = it.node(1).repartition(&spec, 100).await.unwrap();
    assert_eq!((planned.moves, &planned.failed[..]), (10, &[][..]));
    wait_for("the others to be moved", async || {
        let status = it.node(0).status().await;
        let shard = &status.shards[0];
        (shard.exceptions == 9 && shard.moves.is_empty() && shard.waiting_moves == 0).then_some(())
    })
    .await;
    for key in &it.keys {
        assert_eq!(it.cluster.nodes[0].store.has(key), key == large, "{key}");
    }
    let told = it.order(large, Some(2)).await.unwrap().unwrap_err();
    assert!(told.contains("too large"), "{told}");
}

/// It has grown while it was away.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_too_large_to_come_home_is_not_read_for_every_command_that_needs_it() {
    let it = start("grown", 2).await;
    let [large, other] = [&it.keys[0], &it.keys[1]];
    it.moved(large, Some(2)).await;
    let front = &it.cluster.nodes[0].front;
    front.run(&format!("SET {large} {}", "x".repeat(20))).await.unwrap();
    let store = &it.cluster.nodes[1].store;
    store.limit_exports(4);
    let before = store.steps("export");
    for _ in 0..100 {
        let is_called = it.recall(large);
        wait_for("the command to go on", async || is_called()).await;
    }
    // Each looks at what is missing of all orders.
    for to in [Some(2), None, Some(2), None] {
        it.moved(other, to).await;
    }
    let exports = store.steps("export") - before;
    // Two are of the other key, and the large one is read again after some seconds.
    assert!((3..30).contains(&exports), "{exports}");
    let told = it.order(large, None).await.unwrap().unwrap_err();
    assert!(told.contains("too large"), "{told}");
    assert!(store.has(large));
    let value = front.run(&format!("GET {large}")).await.unwrap();
    assert_eq!(value.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_is_away_stops_no_moves_of_others_and_no_command_for_ever() {
    let mut it = start_nodes("away", 3, 8).await;
    let (there, onward) = (it.keys[0].clone(), it.keys[7].clone());
    it.moved(&there, Some(2)).await;
    it.cluster.nodes[1].kill();
    let undone = it.cluster.nodes[0].store.steps("undo");
    // As many moves as there may be at a time, which cannot end, and then some.
    let mut out = Vec::new();
    for (count, key) in it.keys[1..5].iter().enumerate() {
        out.push(it.order(key, Some(2)));
        it.step(0, "undo", undone + count + 1).await;
    }
    out.extend(it.keys[5..7].iter().map(|key| it.order(key, Some(2))));
    it.moved(&onward, Some(3)).await;
    assert!(it.cluster.nodes[2].store.has(&onward));
    // What a command needs does not come, and those that ask again do not wait again.
    let is_called = it.recall(&there);
    wait_for("the command to go on", async || is_called()).await;
    for _ in 0..300 {
        let is_called = it.recall(&there);
        wait_for("the next command to go on", async || is_called()).await;
    }
    it.moved(&onward, None).await;
    // What was undone is known before that instance is back.
    for moved in out.drain(..4) {
        let told = moved.await.unwrap().unwrap_err();
        assert!(told.contains("does not answer; the key stays at home"), "{told}");
    }
    it.cluster.nodes[1].start(|_| {}).await;
    for moved in out {
        // Undone, or moved after its return.
        let _answered = moved.await.unwrap();
    }
    let home = async || it.cluster.nodes[0].store.has(&there).then_some(());
    wait_for("the key that was needed at home", home).await;
}
