//! A shard that this node owns: taking it over, and the task that moves its keys.
//!
//! Taking over is: load exceptions and intents of the instance, which is fenced already, go on with the
//! moves that the intents are of, and serve once none of them holds a key.

mod drains;
mod wanted;

use crate::epochs;
use crate::rpc::{MoveMessage, ShardRecords};
use crate::shared::Shared;
use crate::sweep::{self, Sweep};
use crate::view::{AwayKeys, Callback, Held, Order, OwnedShard, OwnerStatus};
use crate::wishes::{Answer, Wishes};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_cluster::{
    Assignment, DbKey, Direction, Effect, Epoch, Exception, KeyCopy, KeyMove, MoveAnswer, MoveCall,
    MoveEvent, MoveId, Mover, NodeId, Outcome, Refusal, ShardId, Site,
};
use terrace_keyspace::move_point;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// How long after the first failed attempt a message is sent again; doubles up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// How long a command waits for a key that it needs at home: the instance that has it may be away for long. Then others
/// do not wait for as long: a command that goes on without it comes again, many times.
const RECALL_LIMIT: Duration = Duration::from_secs(5);

/// For how long a key is not brought home again after a store has refused that for a reason that may be over soon, as during
/// `FLUSHALL`: to find out costs synced writes, and a command that goes on without it comes again at once, many times.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);

/// A shard's task; ends when this is dropped.
pub(crate) struct TakenOver {
    orders: mpsc::UnboundedSender<Order>,
    task: JoinHandle<()>,
}

impl TakenOver {
    pub fn orders(&self) -> &mpsc::UnboundedSender<Order> {
        &self.orders
    }
}

/// Ends the task where it stands: the next owner goes on.
impl Drop for TakenOver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Loads the records, and starts the task that serves when it is allowed to.
pub(crate) async fn take_over(
    shared: Arc<Shared>,
    shard: ShardId,
    instance: NodeId,
    epoch: Epoch,
    generation: u64,
) -> Result<TakenOver, String> {
    let records = shared.records_at(instance, shard, epoch).await.map_err(|e| e.to_string())?;
    let (orders, received) = mpsc::unbounded_channel();
    let ShardRecords { exceptions, intents, copies: _ } = records;
    introduce(&shared, shard, epoch, exceptions.iter().map(|(_, exception)| exception.at));
    let mut keys = AwayKeys::default();
    exceptions.iter().for_each(|(key, exception)| keys.exceptions.insert(key, *exception));
    let keys = RwLock::new(keys);
    let owned = OwnedShard { shard, epoch, instance, generation, keys, orders: orders.clone() };
    let start = Instant::now();
    let size_of = |value: &Vec<u8>| value.len() as u64;
    let mut owner = Owner {
        mover: Mover::new(epoch, shared.config.moves, Duration::ZERO, size_of),
        wishes: Wishes::new(exceptions.into_iter().map(|(key, exception)| (key, exception.at))),
        shared,
        owned: Arc::new(owned),
        start,
        parts: HashMap::new(),
        stopped: Vec::new(),
        draining: BTreeMap::new(),
        recall_count: 0,
        overdue: HashMap::new(),
        next_let_go: None,
        sweep: Sweep::new(),
        may_serve: false,
        is_serving: false,
        is_stopping: false,
    };
    for (id, effects) in owner.mover.resume(intents) {
        owner.note(id);
        owner.run(id, effects);
    }
    let task = tokio::spawn(owner.serve(received));
    Ok(TakenOver { orders, task })
}

/// Makes the epoch known where exceptions are, before the first call comes. One that is away learns it
/// later.
fn introduce(
    shared: &Arc<Shared>,
    shard: ShardId,
    epoch: Epoch,
    at: impl Iterator<Item = ShardId>,
) {
    let Some(topology) = shared.topology() else { return };
    let instances = at.filter_map(|at| topology.shards.get(&at).map(|shard| shard.instance));
    for instance in instances.collect::<BTreeSet<_>>() {
        let shared = shared.clone();
        tokio::spawn(async move { epochs::introduce(&shared, instance, shard, epoch).await });
    }
}

/// What a move is of, kept until it is over.
#[derive(Clone)]
struct MoveParts {
    direction: Direction,
    other: ShardId,
    keys: Vec<DbKey>,
}

struct Owner {
    shared: Arc<Shared>,
    owned: Arc<OwnedShard>,
    mover: Mover<Vec<u8>>,
    start: Instant,
    wishes: Wishes,
    parts: HashMap<MoveId, MoveParts>,
    stopped: Vec<oneshot::Sender<()>>,
    /// Moves that wait until what was under way is drained, and since when.
    draining: BTreeMap<MoveId, Duration>,
    /// Recalls that have waited, for their numbers.
    recall_count: u64,
    /// Keys that a command has waited for in vain, or that cannot come home, and until when others do not wait again.
    overdue: HashMap<DbKey, Duration>,
    /// When to look for keys that have been held for too long; `None` while none is held for which that time is still to come.
    next_let_go: Option<Duration>,
    sweep: Sweep,
    may_serve: bool,
    is_serving: bool,
    is_stopping: bool,
}

/// Nothing is routed by a task that is gone, which may have begun to serve in the moment in which it was ended. Nobody waits
/// for one: writes of held keys are routed again, and the stores refuse them as long as the move that held them is not over.
impl Drop for Owner {
    fn drop(&mut self) {
        let (shard, epoch) = (self.owned.shard, self.owned.epoch);
        // After a fault of the task itself the shard is served still, without moves.
        if !std::thread::panicking() {
            self.shared.forget_shard(shard, |owned| owned == epoch);
        }
        let mut released = Vec::new();
        {
            let mut keys = self.owned.keys.write();
            keys.is_over = true;
            keys.held.values_mut().for_each(|held| released.extend(held.take_waiting()));
        }
        released.into_iter().for_each(Callback::call);
    }
}

impl Owner {
    async fn serve(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        loop {
            self.publish();
            while let Some((id, effects)) = self.mover.poll(self.start.elapsed()) {
                self.note(id);
                self.run(id, effects);
            }
            let undrained = self.undo_undrained();
            self.settle();
            if self.is_stopping && self.mover.is_idle() {
                self.stopped.drain(..).for_each(|stopped| _ = stopped.send(()));
            }
            self.sweep();
            self.let_waiting_go();
            let wait = self.mover.wait(self.start.elapsed());
            let sweep = self.sweep.wait(self.start.elapsed()).filter(|_| self.is_serving);
            let let_go = self.next_let_go.map(|at| at.saturating_sub(self.start.elapsed()));
            let wait = wait.into_iter().chain(sweep).chain(let_go).chain(undrained).min();
            let until = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait.max(Duration::from_millis(1))).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => self.take(order),
                    None => return,
                },
                () = until => {}
            }
        }
    }

    /// Serves the shard once no key of it is held by a move of an earlier owner.
    fn publish(&mut self) {
        let is_held = !self.owned.keys.read().held.is_empty();
        if !self.may_serve || self.is_serving || is_held {
            return;
        }
        self.is_serving = true;
        let owned = &self.owned;
        self.shared.change_view(|view| {
            let known = view.owned.get(&owned.shard).map_or(Epoch(0), |known| known.epoch);
            if owned.epoch > known {
                view.owned.insert(owned.shard, owned.clone());
            }
        });
        tracing::info!("node {} serves shard {}", self.shared.me, self.owned.shard);
    }

    /// Asks the other instances what they keep, when it is time.
    fn sweep(&mut self) {
        let now = self.start.elapsed();
        if self.is_serving && !self.is_stopping && self.sweep.is_due(now) {
            let owned = &self.owned;
            let shard = (owned.shard, owned.epoch, owned.instance);
            match sweep::ask(&self.shared, shard, &owned.orders) {
                Some(asked_count) => self.sweep.note_asked(asked_count),
                None => self.sweep.note_failure(now),
            }
        }
    }

    fn drop_stale(
        &mut self,
        instance: NodeId,
        shards: &[ShardId],
        copies: Result<Vec<(DbKey, KeyCopy)>, String>,
    ) {
        let copies = match copies {
            Ok(copies) => copies,
            Err(why) => {
                tracing::debug!("node {instance} does not say which copies it keeps: {why}");
                return self.sweep.note_failure(self.start.elapsed());
            }
        };
        let owned = &self.owned;
        let stale = sweep::stale(&self.mover, &owned.keys.read().exceptions, shards, &copies);
        if let Some(other) = shards.first().filter(|_| !stale.is_empty()) {
            let (shard, at) = ((owned.shard, owned.epoch), (instance, *other));
            self.sweep.note_asked(1);
            sweep::drop_copies(&self.shared, shard, at, stale, &owned.orders);
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Copies { instance, shards, copies } => {
                self.sweep.note_answer();
                self.drop_stale(instance, &shards, copies);
            }
            Order::Dropped(are_gone) => {
                self.sweep.note_answer();
                if !are_gone {
                    self.sweep.note_failure(self.start.elapsed());
                }
            }
            Order::Serve => self.may_serve = true,
            Order::Repartition(part, done) => _ = done.send(self.repartition(part)),
            Order::MoveKey(key, to, done) => self.move_key(key, to, done),
            Order::Recall(key, done) => self.recall(key, done),
            Order::Overdue(key, number) => {
                if self.wishes.give_up_recall(&key, number) {
                    self.pause_recalls(&key, RECALL_LIMIT);
                }
            }
            Order::Stop(stopped) => {
                self.is_stopping = true;
                self.mover.cancel();
                self.stopped.push(stopped);
            }
            Order::Event(id, event) => {
                self.note(id);
                if event == MoveEvent::Drained {
                    self.draining.remove(&id);
                }
                let event = self.take_lost_key(id, event);
                let effects = self.mover.on(id, event);
                self.note(id);
                self.run(id, effects);
            }
            Order::Status(done) => {
                let moves = self.mover.moves();
                let _ = done.send(OwnerStatus {
                    waiting_moves: self.mover.waiting_count() as u64,
                    moves: moves.map(|it| format!("{} {}", it.id(), it.step_name())).collect(),
                    is_sweeping: self.sweep.is_under_way(),
                });
            }
        }
    }

    /// A key that its instance has lost, as one that went back to an older backup, comes home without a value if that was
    /// ordered. What else wants it there leaves it where its record says: the instance may be put right.
    fn take_lost_key(&self, id: MoveId, event: MoveEvent<Vec<u8>>) -> MoveEvent<Vec<u8>> {
        let MoveEvent::Answered(ticket, MoveAnswer::Refused(Refusal::NotHere)) = event else {
            return event;
        };
        let is_home =
            |it: &&KeyMove<Vec<u8>>| it.is_exporting() && it.direction() == Direction::Home;
        let Some(moved) = self.mover.get(id).filter(is_home) else { return event };
        match moved.keys() {
            [key] if self.wishes.is_ordered_home(key) => {
                let other = moved.other();
                tracing::warn!("the store of shard {other} has lost {key}: home without a value");
                let nothing = vec![self.shared.store.export_of_nothing(key)];
                MoveEvent::Answered(ticket, MoveAnswer::Exported(nothing))
            }
            _ => event,
        }
    }

    fn may_move(&self) -> Result<(), String> {
        match (self.is_stopping, self.owned.instance == self.shared.me) {
            (true, _) => Err("the shard is being given up".into()),
            (_, false) => Err("the shard is served in place of its instance's node".into()),
            _ => Ok(()),
        }
    }

    fn repartition(&mut self, part: Vec<Assignment>) -> Result<u64, String> {
        self.may_move()?;
        self.wishes.plan(part);
        Ok(self.want())
    }

    fn move_key(&mut self, key: DbKey, to: Option<ShardId>, done: Answer) {
        if let Err(why) = self.may_move() {
            return drop(done.send(Err(why)));
        }
        self.wishes.order(key.clone(), to.filter(|to| *to != self.owned.shard), done);
        self.want_one(&key);
    }

    fn recall(&mut self, key: DbKey, done: Callback) {
        let now = self.start.elapsed();
        self.overdue.retain(|_, until| now < *until);
        match self.place_of(&key) {
            Some(at) if !self.is_stopping && !self.overdue.contains_key(&key) => {
                self.recall_count += 1;
                let (number, orders) = (self.recall_count, self.owned.orders.clone());
                self.mover.recall(key.clone(), at);
                self.wishes.need_at_home(key.clone(), number, done);
                tokio::spawn(async move {
                    tokio::time::sleep(RECALL_LIMIT).await;
                    let _ = orders.send(Order::Overdue(key, number));
                });
            }
            // Home, or not to be brought there now: the command that needs it sees which.
            _ => done.call(),
        }
    }

    /// Answers those whose key is in no move and where it shall be, or whose move did not succeed.
    fn settle(&mut self) {
        let mut misplaced = Vec::new();
        let all_finished = self.mover.take_finished();
        if !all_finished.is_empty() {
            let now = self.start.elapsed();
            self.overdue.retain(|_, until| now < *until);
        }
        for finished in all_finished {
            self.sweep.note_move(self.start.elapsed());
            if finished.outcome == Outcome::Moved {
                let count = finished.keys.len() as u64;
                self.shared.moved_keys.fetch_add(count, Ordering::Relaxed);
            }
            for key in &finished.keys {
                self.overdue.remove(key);
            }
            for (key, why) in &finished.refused {
                self.wishes.fail(key, self.place_of(key), &why.to_string());
                self.pause_recalls(key, REFUSED_PAUSE);
            }
            if finished.is_split {
                misplaced.extend(finished.keys);
                continue;
            }
            let undone = match finished.outcome {
                Outcome::Moved => None,
                Outcome::Undone(Some(why)) => Some(why.to_string()),
                Outcome::Undone(None) => Some("the move was undone".into()),
                Outcome::Deposed => Some("the shard has a later owner".into()),
            };
            for key in &finished.keys {
                let at = self.place_of(key);
                match &undone {
                    Some(_) if finished.is_overtaken(self.wishes.place_of(key)) => {
                        misplaced.push(key.clone());
                    }
                    Some(why) => {
                        self.wishes.fail(key, at, why);
                        if finished.direction == Direction::Home
                            && let Outcome::Undone(Some(why)) = finished.outcome
                        {
                            self.leave_away(key, at, why);
                        }
                    }
                    // What was ordered while it was moved.
                    None => {
                        let wanted = self.wishes.place_of(key);
                        if finished.leaves_misplaced(key, at, wanted) {
                            misplaced.push(key.clone());
                        }
                    }
                }
            }
        }
        if !self.is_stopping {
            misplaced.iter().for_each(|key| self.want_one(key));
        }
        let at_rest = |key: &&DbKey| !self.mover.is_busy(key);
        let keys: Vec<DbKey> = self.wishes.awaited().filter(at_rest).cloned().collect();
        keys.iter().for_each(|key| self.wishes.settle(key, self.place_of(key)));
        if self.is_stopping {
            let mover = &self.mover;
            self.wishes.refuse_all("the shard is being given up", |key| !mover.is_busy(key));
        }
    }

    /// A key could not come home for this reason. To find that out again costs a move, and reading as much as may be moved.
    fn leave_away(&mut self, key: &DbKey, at: Option<ShardId>, why: Refusal) {
        let lasts = matches!(why, Refusal::TooLarge | Refusal::NotHere);
        let is_long = lasts || why == Refusal::Full;
        self.pause_recalls(key, if is_long { RECALL_LIMIT } else { REFUSED_PAUSE });
        if lasts {
            self.wishes.stay(key, at);
        }
    }

    /// Commands do not wait for a key for this long.
    fn pause_recalls(&mut self, key: &DbKey, pause: Duration) {
        self.overdue.insert(key.clone(), self.start.elapsed() + pause);
    }

    /// Remembers what a move is of: at its end it is asked for once more.
    fn note(&mut self, id: MoveId) {
        if let Some(it) = self.mover.get(id) {
            let (direction, other) = (it.direction(), it.other());
            self.parts.insert(id, MoveParts { direction, other, keys: it.keys().to_vec() });
        }
    }

    fn run(&mut self, id: MoveId, effects: Vec<Effect<Vec<u8>>>) {
        let Some(parts) = self.parts.get(&id).cloned() else { return };
        for effect in effects {
            match effect {
                Effect::Hold => self.hold(id, &parts, true),
                Effect::HoldDrained => self.hold(id, &parts, false),
                Effect::DrainCalls => self.drain_calls(id),
                Effect::Send { to, call, ticket, attempt } => {
                    self.send(id, &parts, (to, call), (ticket, attempt));
                    self.answer_undone(id);
                }
                Effect::SetExceptions => {
                    let mut keys = self.owned.keys.write();
                    let exception = Exception { at: parts.other, move_id: id };
                    parts.keys.iter().for_each(|key| keys.exceptions.insert(key, exception));
                }
                Effect::ClearExceptions => {
                    let mut keys = self.owned.keys.write();
                    parts.keys.iter().for_each(|key| keys.exceptions.remove(key.db, &key.key));
                }
                Effect::ReleaseHold => self.release(&parts),
                Effect::Over(outcome) => {
                    self.parts.remove(&id);
                    if outcome == Outcome::Deposed {
                        let (shard, epoch) = (self.owned.shard, self.owned.epoch);
                        self.shared.forget_shard(shard, |owned| owned == epoch);
                        let _ = self.shared.deposed.send((shard, epoch, None));
                    }
                }
            }
        }
    }

    /// A key that comes home is held by the instance that has it, from the export on: its calls go there.
    fn hold(&mut self, id: MoveId, parts: &MoveParts, drains: bool) {
        if parts.direction == Direction::Out {
            let mut keys = self.owned.keys.write();
            for key in &parts.keys {
                keys.held.entry(key.clone()).or_insert_with(Held::new);
            }
            let limit = self.shared.config.hold_limit;
            self.next_let_go.get_or_insert(self.start.elapsed().saturating_add(limit));
        }
        if drains {
            self.draining.insert(id, self.start.elapsed());
            // Begun after the hold can be seen: routes from before are behind the gate.
            let drained = self.shared.gate.drain();
            let orders = self.owned.orders.clone();
            tokio::spawn(async move {
                drained.await;
                let _ = orders.send(Order::Event(id, MoveEvent::Drained));
            });
        }
    }

    /// First those who may have routed a call by the list of before, then the calls that they made.
    fn drain_calls(&self, id: MoveId) {
        let (shared, orders) = (self.shared.clone(), self.owned.orders.clone());
        let routed = shared.gate.drain();
        tokio::spawn(async move {
            routed.await;
            shared.calls.drain().await;
            let _ = orders.send(Order::Event(id, MoveEvent::Drained));
        });
    }

    fn release(&mut self, parts: &MoveParts) {
        let mut released = Vec::new();
        {
            let mut keys = self.owned.keys.write();
            for key in &parts.keys {
                released.extend(keys.held.remove(key).iter_mut().flat_map(Held::take_waiting));
            }
        }
        released.into_iter().for_each(Callback::call);
    }

    /// Commands on keys that have been held for too long go on: they find these held, and do not wait again. A move that
    /// cannot be committed, as on a full disk, holds its keys until it can.
    fn let_waiting_go(&mut self) {
        let (now, limit) = (self.start.elapsed(), self.shared.config.hold_limit);
        if self.next_let_go.is_none_or(|at| now < at) {
            return;
        }
        let (mut waiting, mut next) = (Vec::new(), None);
        {
            let mut keys = self.owned.keys.write();
            for held in keys.held.values_mut() {
                match held.time_left(limit) {
                    Some(left) => next = Some(next.unwrap_or(left).min(left)),
                    None => waiting.extend(held.take_waiting()),
                }
            }
        }
        self.next_let_go = next.map(|left: Duration| now.saturating_add(left));
        waiting.into_iter().for_each(Callback::call);
    }

    /// Sends a message, later if it is not the first attempt, and reports its answer.
    fn send(
        &self,
        id: MoveId,
        parts: &MoveParts,
        (to, call): (Site, MoveCall<Vec<u8>>),
        (ticket, attempt): (u32, u32),
    ) {
        let (shared, owned) = (self.shared.clone(), self.owned.clone());
        let (shard, keys) = (owned.shard, parts.keys.clone());
        let (direction, other) = (parts.direction, parts.other);
        let message = MoveMessage { shard, id, direction, other, keys, call };
        tokio::spawn(async move {
            if attempt > 0 {
                let delay = RETRY.0 * 2_u32.saturating_pow((attempt - 1).min(10));
                tokio::time::sleep(delay.min(RETRY.1)).await;
            }
            let site = match to {
                Site::Home => Some(owned.instance),
                Site::Other => shared
                    .topology()
                    .and_then(|topology| topology.shards.get(&other).map(|it| it.instance)),
            };
            let name = message.call.name();
            move_point("owner", name, "sent");
            let answer = match site {
                Some(instance) => shared.apply_move_at(instance, message, owned.epoch).await,
                None => MoveAnswer::Unknown,
            };
            move_point("owner", name, "answered");
            let event = MoveEvent::Answered(ticket, answer);
            let _ = owned.orders.send(Order::Event(id, event));
        });
    }
}
