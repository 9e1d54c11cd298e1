//! Between messages and the words of `terrace-cluster`. No message causes a panic: what is missing or
//! out of range is refused as a whole.

use super::api;
use terrace_cluster::{
    Assignment, CopyState, DbKey, Direction, Epoch, Exception, Intent, IntentState, KeyCopy,
    MoveAnswer, MoveCall, MoveId, NodeId, Plan, Refusal, Reply, Revision, ShardId, TopKey,
    Unserved,
};
use terrace_keyspace::MAX_DATABASES;
use tonic::Status;

/// One step of a move, for an instance. The values are exported keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveMessage {
    /// The shard that the keys belong to, in whose name the step is done.
    pub shard: ShardId,
    /// The move.
    pub id: MoveId,
    /// Which way.
    pub direction: Direction,
    /// The shard of the instance that is not home.
    pub other: ShardId,
    /// The keys.
    pub keys: Vec<DbKey>,
    /// The step.
    pub call: MoveCall<Vec<u8>>,
}

/// What an instance keeps of a shard beside its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardRecords {
    /// Its keys that are elsewhere.
    pub exceptions: Vec<(DbKey, Exception)>,
    /// Its moves that are not settled.
    pub intents: Vec<(DbKey, Intent)>,
    /// Of an instance that is not the shard's: keys of the shard that were brought to it.
    pub copies: Vec<(DbKey, KeyCopy)>,
}

/// What an instance counted since it was asked last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopCounts {
    /// All writes.
    pub writes: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// The size of a memtable.
    pub memtable_bytes: u64,
    /// How much of it may hold hot keys.
    pub hot_bytes: u64,
    /// The most written keys.
    pub keys: Vec<TopKey>,
}

/// What the shards of an owner did with their parts of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenPlan {
    /// How many keys are going to be moved.
    pub moves: u64,
    /// Shards that do not take their part, and why.
    pub refused: Vec<(ShardId, String)>,
}

impl From<TakenPlan> for api::RepartitionReply {
    fn from(taken: TakenPlan) -> Self {
        let refused = taken.refused.into_iter();
        let refused = refused.map(|(shard, why)| api::PartRefusal { shard: shard.0, why });
        Self { moves: taken.moves, refused: refused.collect() }
    }
}

impl From<api::RepartitionReply> for TakenPlan {
    fn from(reply: api::RepartitionReply) -> Self {
        let refused = reply.refused.into_iter().map(|it| (ShardId(it.shard), it.why));
        Self { moves: reply.moves, refused: refused.collect() }
    }
}

fn bad(what: &str) -> Status {
    Status::invalid_argument(format!("the message has no {what}, or one out of range"))
}

/// A store has no databases from [`MAX_DATABASES`] on.
pub(super) fn db_of(db: u32) -> Result<u8, Status> {
    let db = u8::try_from(db).ok().filter(|db| usize::from(*db) < MAX_DATABASES);
    db.ok_or_else(|| bad("database"))
}

impl From<DbKey> for api::DbKey {
    fn from(key: DbKey) -> Self {
        Self { db: key.db.into(), key: key.key }
    }
}

pub(super) fn key_of(key: Option<api::DbKey>) -> Result<DbKey, Status> {
    let key = key.ok_or_else(|| bad("key"))?;
    Ok(DbKey { db: db_of(key.db)?, key: key.key })
}

impl From<MoveId> for api::MoveId {
    fn from(id: MoveId) -> Self {
        Self { epoch: id.epoch.0, number: id.number }
    }
}

fn move_id_of(id: Option<api::MoveId>) -> Result<MoveId, Status> {
    let id = id.ok_or_else(|| bad("move id"))?;
    Ok(MoveId { epoch: Epoch(id.epoch), number: id.number })
}

pub(super) fn api_shard(shard: ShardId, epoch: Epoch) -> Option<api::ShardCall> {
    Some(api::ShardCall { shard: shard.0, epoch: epoch.0 })
}

pub(super) fn shard_of(shard: Option<api::ShardCall>) -> Result<(ShardId, Epoch), Status> {
    let shard = shard.ok_or_else(|| bad("shard"))?;
    Ok((ShardId(shard.shard), Epoch(shard.epoch)))
}

pub(super) fn api_reply(id: u64, reply: Reply) -> api::Reply {
    use api::unserved::Why;
    let outcome = match reply {
        Ok(replies) => api::reply::Outcome::Replies(replies),
        Err(unserved) => {
            let why = match unserved {
                Unserved::NoOwner(shard) => Why::NoOwner(shard.0),
                Unserved::Unreachable(node) => Why::Unreachable(node.0.to_vec()),
                Unserved::Moved(revision) => Why::Moved(revision.0),
                Unserved::NoTopology => Why::NoTopology(true),
                Unserved::Full(node) => Why::Full(node.0.to_vec()),
            };
            api::reply::Outcome::Unserved(api::Unserved { why: Some(why) })
        }
    };
    api::Reply { id, outcome: Some(outcome) }
}

/// What `from` replied. A reply that says nothing is as good as none.
pub(super) fn reply_of(outcome: Option<api::reply::Outcome>, from: NodeId) -> Reply {
    use api::unserved::Why;
    match outcome {
        Some(api::reply::Outcome::Replies(replies)) => Ok(replies),
        Some(api::reply::Outcome::Unserved(unserved)) => Err(match unserved.why {
            Some(Why::NoOwner(shard)) => Unserved::NoOwner(ShardId(shard)),
            Some(Why::Moved(revision)) => Unserved::Moved(Revision(revision)),
            Some(Why::NoTopology(_)) => Unserved::NoTopology,
            Some(Why::Full(node)) => Unserved::Full(node.try_into().map_or(from, NodeId)),
            Some(Why::Unreachable(node)) => {
                Unserved::Unreachable(node.try_into().map_or(from, NodeId))
            }
            None => Unserved::Unreachable(from),
        }),
        None => Err(Unserved::Unreachable(from)),
    }
}

impl From<TopCounts> for api::TopKReply {
    fn from(counts: TopCounts) -> Self {
        let keys = counts.keys.into_iter().map(|top| api::TopKey {
            key: Some(top.key.into()),
            count: top.count,
            error: top.error,
            entry_bytes: top.entry_bytes,
        });
        Self {
            writes: counts.writes,
            write_bytes: counts.write_bytes,
            memtable_bytes: counts.memtable_bytes,
            hot_bytes: counts.hot_bytes,
            keys: keys.collect(),
        }
    }
}

pub(super) fn top_counts_of(reply: api::TopKReply) -> Result<TopCounts, Status> {
    let keys = reply.keys.into_iter().map(|top| {
        let (count, error, entry_bytes) = (top.count, top.error, top.entry_bytes);
        Ok(TopKey { key: key_of(top.key)?, count, error, entry_bytes })
    });
    Ok(TopCounts {
        writes: reply.writes,
        write_bytes: reply.write_bytes,
        memtable_bytes: reply.memtable_bytes,
        hot_bytes: reply.hot_bytes,
        keys: keys.collect::<Result<_, Status>>()?,
    })
}

pub(super) fn api_exception((key, exception): (DbKey, Exception)) -> api::ExceptionRecord {
    let (at, move_id) = (exception.at.0, Some(exception.move_id.into()));
    api::ExceptionRecord { key: Some(key.into()), at, move_id }
}

pub(super) fn api_intent((key, intent): (DbKey, Intent)) -> api::IntentRecord {
    api::IntentRecord {
        key: Some(key.into()),
        move_id: Some(intent.id.into()),
        is_home: intent.direction == Direction::Home,
        other: intent.other.0,
        state: match intent.state {
            IntentState::Open => 0,
            IntentState::Committed => 1,
            IntentState::Undone => 2,
        },
    }
}

pub(super) fn api_copy((key, copy): (DbKey, KeyCopy)) -> api::CopyRecord {
    let (state, leaving) = match copy.state {
        CopyState::Hidden => (0, None),
        CopyState::Live => (1, None),
        CopyState::Leaving(by) => (2, Some(by.into())),
    };
    api::CopyRecord { key: Some(key.into()), move_id: Some(copy.id.into()), state, leaving }
}

pub(super) fn add_records(all: &mut ShardRecords, records: api::Records) -> Result<(), Status> {
    for record in records.exceptions {
        let exception = Exception { at: ShardId(record.at), move_id: move_id_of(record.move_id)? };
        all.exceptions.push((key_of(record.key)?, exception));
    }
    for record in records.intents {
        let state = match record.state {
            0 => IntentState::Open,
            1 => IntentState::Committed,
            2 => IntentState::Undone,
            _ => return Err(bad("state of an intent")),
        };
        let (direction, other) = (direction_of(record.is_home), ShardId(record.other));
        let intent = Intent { id: move_id_of(record.move_id)?, direction, other, state };
        all.intents.push((key_of(record.key)?, intent));
    }
    for record in records.copies {
        let state = match (record.state, record.leaving) {
            (0, None) => CopyState::Hidden,
            (1, None) => CopyState::Live,
            (2, by @ Some(_)) => CopyState::Leaving(move_id_of(by)?),
            _ => return Err(bad("state of a copy")),
        };
        let copy = KeyCopy { id: move_id_of(record.move_id)?, state };
        all.copies.push((key_of(record.key)?, copy));
    }
    Ok(())
}

fn direction_of(is_home: bool) -> Direction {
    if is_home { Direction::Home } else { Direction::Out }
}

pub(super) fn api_move(message: MoveMessage, epoch: Epoch) -> api::MoveRequest {
    use api::move_request::Step;
    let empty = api::Empty {};
    let step = match message.call {
        MoveCall::Begin => Step::Begin(empty),
        MoveCall::Export => Step::Export(empty),
        MoveCall::Import(values) => Step::Import(api::Values { values }),
        MoveCall::Commit(values) => Step::Commit(api::Values { values }),
        MoveCall::Finish => Step::Finish(empty),
        MoveCall::Drop => Step::Drop(empty),
        MoveCall::Release => Step::Release(empty),
        MoveCall::Undo => Step::Undo(empty),
        MoveCall::Forget => Step::Forget(empty),
    };
    api::MoveRequest {
        shard: api_shard(message.shard, epoch),
        move_id: Some(message.id.into()),
        is_home: message.direction == Direction::Home,
        other: message.other.0,
        keys: message.keys.into_iter().map(Into::into).collect(),
        step: Some(step),
    }
}

pub(super) fn move_of(request: api::MoveRequest) -> Result<(MoveMessage, Epoch), Status> {
    use api::move_request::Step;
    let (shard, epoch) = shard_of(request.shard)?;
    let keys = request.keys.into_iter().map(|key| key_of(Some(key)));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let one_each = |values: Vec<Vec<u8>>| match values.len() == keys.len() {
        true => Ok(values),
        false => Err(bad("value of each key")),
    };
    let call = match request.step.ok_or_else(|| bad("step"))? {
        Step::Begin(_) => MoveCall::Begin,
        Step::Export(_) => MoveCall::Export,
        Step::Import(values) => MoveCall::Import(one_each(values.values)?),
        Step::Commit(values) if values.values.is_empty() => MoveCall::Commit(Vec::new()),
        Step::Commit(values) => MoveCall::Commit(one_each(values.values)?),
        Step::Finish(_) => MoveCall::Finish,
        Step::Drop(_) => MoveCall::Drop,
        Step::Release(_) => MoveCall::Release,
        Step::Undo(_) => MoveCall::Undo,
        Step::Forget(_) => MoveCall::Forget,
    };
    let (id, direction) = (move_id_of(request.move_id)?, direction_of(request.is_home));
    let other = ShardId(request.other);
    Ok((MoveMessage { shard, id, direction, other, keys, call }, epoch))
}

fn api_refusal(refusal: Refusal) -> api::Refusal {
    match refusal {
        Refusal::Late => api::Refusal::Late,
        Refusal::Busy => api::Refusal::Busy,
        Refusal::NotHere => api::Refusal::NotHere,
        Refusal::Held => api::Refusal::Held,
        Refusal::TooLarge => api::Refusal::TooLarge,
        Refusal::Tied => api::Refusal::Tied,
        Refusal::Flushing => api::Refusal::Flushing,
        Refusal::Full => api::Refusal::Full,
    }
}

fn refusal_of(number: i32) -> Result<Option<Refusal>, Status> {
    Ok(Some(match api::Refusal::try_from(number).map_err(|_| bad("refusal"))? {
        api::Refusal::None => return Ok(None),
        api::Refusal::Late => Refusal::Late,
        api::Refusal::Busy => Refusal::Busy,
        api::Refusal::NotHere => Refusal::NotHere,
        api::Refusal::Held => Refusal::Held,
        api::Refusal::TooLarge => Refusal::TooLarge,
        api::Refusal::Tied => Refusal::Tied,
        api::Refusal::Flushing => Refusal::Flushing,
        api::Refusal::Full => Refusal::Full,
    }))
}

/// `None` for an answer that says nothing.
pub(super) fn api_answer(answer: MoveAnswer<Vec<u8>>) -> api::MoveReply {
    use api::move_reply::Answer;
    let answer = match answer {
        MoveAnswer::Done => Some(Answer::Done(api::Empty {})),
        MoveAnswer::Begun(keys) => {
            let number = |key: Result<(), Refusal>| match key {
                Ok(()) => api::Refusal::None.into(),
                Err(refusal) => api_refusal(refusal).into(),
            };
            Some(Answer::Begun(api::Begun { keys: keys.into_iter().map(number).collect() }))
        }
        MoveAnswer::Exported(values) => Some(Answer::Exported(api::Values { values })),
        MoveAnswer::Refused(refusal) => Some(Answer::Refused(api_refusal(refusal).into())),
        MoveAnswer::Deposed => Some(Answer::Deposed(api::Empty {})),
        MoveAnswer::Unknown => None,
    };
    api::MoveReply { answer }
}

pub(super) fn answer_of(reply: api::MoveReply) -> Result<MoveAnswer<Vec<u8>>, Status> {
    use api::move_reply::Answer;
    Ok(match reply.answer {
        None => MoveAnswer::Unknown,
        Some(Answer::Done(_)) => MoveAnswer::Done,
        Some(Answer::Begun(begun)) => {
            let key = |number| refusal_of(number).map(|refusal| refusal.map_or(Ok(()), Err));
            MoveAnswer::Begun(begun.keys.into_iter().map(key).collect::<Result<_, Status>>()?)
        }
        Some(Answer::Exported(values)) => MoveAnswer::Exported(values.values),
        Some(Answer::Refused(number)) => {
            refusal_of(number)?.map_or(MoveAnswer::Unknown, MoveAnswer::Refused)
        }
        Some(Answer::Deposed(_)) => MoveAnswer::Deposed,
    })
}

pub(super) fn api_plan(plan: Plan) -> api::RepartitionRequest {
    let parts = plan.parts.into_iter().map(|(shard, keys)| {
        let keys = keys.into_iter();
        let keys = keys.map(|it| api::Assignment { key: Some(it.key.into()), at: it.at.0 });
        api::PlanPart { shard: shard.0, keys: keys.collect() }
    });
    api::RepartitionRequest { parts: parts.collect() }
}

pub(super) fn plan_of(request: api::RepartitionRequest) -> Result<Plan, Status> {
    let mut plan = Plan::default();
    for part in request.parts {
        let keys = part.keys.into_iter();
        let keys = keys.map(|it| Ok(Assignment { key: key_of(it.key)?, at: ShardId(it.at) }));
        let keys = keys.collect::<Result<_, Status>>()?;
        if plan.parts.insert(ShardId(part.shard), keys).is_some() {
            return Err(Status::invalid_argument("the plan has two parts of one shard"));
        }
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> MoveId {
        MoveId { epoch: Epoch(7), number: 9 }
    }

    #[test]
    fn replies_are_what_they_were() {
        let node = NodeId([3; 20]);
        for reply in [
            Ok(b"+OK\r\n".to_vec()),
            Ok(Vec::new()),
            Err(Unserved::NoOwner(ShardId(5))),
            Err(Unserved::Unreachable(node)),
            Err(Unserved::Moved(Revision(6))),
            Err(Unserved::NoTopology),
            Err(Unserved::Full(node)),
        ] {
            let sent = api_reply(8, reply.clone());
            assert_eq!((sent.id, reply_of(sent.outcome, NodeId([0; 20]))), (8, reply));
        }
        let short = api::unserved::Why::Unreachable(vec![1]);
        let short = api::reply::Outcome::Unserved(api::Unserved { why: Some(short) });
        assert_eq!(reply_of(Some(short), node), Err(Unserved::Unreachable(node)));
        assert_eq!(reply_of(None, node), Err(Unserved::Unreachable(node)));
    }

    #[test]
    fn steps_of_moves_are_what_they_were() {
        let values = vec![b"1".to_vec(), Vec::new()];
        for call in [
            MoveCall::Begin,
            MoveCall::Export,
            MoveCall::Import(values.clone()),
            MoveCall::Commit(values.clone()),
            MoveCall::Commit(Vec::new()),
            MoveCall::Finish,
            MoveCall::Drop,
            MoveCall::Release,
            MoveCall::Undo,
            MoveCall::Forget,
        ] {
            for direction in [Direction::Out, Direction::Home] {
                let keys = vec![DbKey::new(0, "a"), DbKey::new(15, "")];
                let (shard, other, call) = (ShardId(1), ShardId(2), call.clone());
                let message = MoveMessage { shard, id: id(), direction, other, keys, call };
                let sent = api_move(message.clone(), Epoch(7));
                assert_eq!(move_of(sent).unwrap(), (message, Epoch(7)));
            }
        }
        for answer in [
            MoveAnswer::Done,
            MoveAnswer::Begun(vec![Ok(()), Err(Refusal::Busy), Err(Refusal::Flushing)]),
            MoveAnswer::Exported(values),
            MoveAnswer::Refused(Refusal::TooLarge),
            MoveAnswer::Refused(Refusal::Full),
            MoveAnswer::Deposed,
            MoveAnswer::Unknown,
        ] {
            assert_eq!(answer_of(api_answer(answer.clone())).unwrap(), answer);
        }
    }

    #[test]
    fn messages_with_parts_missing_or_out_of_range_are_refused() {
        assert!(move_of(api::MoveRequest::default()).is_err());
        let keys = vec![DbKey::new(0, "a")];
        let (direction, call) = (Direction::Out, MoveCall::Import(vec![Vec::new()]));
        let (shard, other) = (ShardId(1), ShardId(2));
        let message = MoveMessage { shard, id: id(), direction, other, keys, call };
        let good = || api_move(message.clone(), Epoch(1));
        assert!(move_of(good()).is_ok());
        type Break = fn(&mut api::MoveRequest);
        let breaks: [Break; 7] = [
            |it| it.shard = None,
            |it| it.move_id = None,
            |it| it.step = None,
            |it| it.keys[0].db = 128,
            |it| it.keys[0].db = 255,
            |it| it.keys[0].db = 256,
            |it| it.keys.push(api::DbKey::default()),
        ];
        for change in breaks {
            let mut request = good();
            change(&mut request);
            assert!(move_of(request).is_err());
        }
        let mut last = good();
        last.keys[0].db = 127;
        assert!(move_of(last).is_ok(), "the last database");
        let answer = api::move_reply::Answer::Refused(99);
        assert!(answer_of(api::MoveReply { answer: Some(answer) }).is_err());
        let mut records = ShardRecords::default();
        let intents = vec![api::IntentRecord { state: 3, ..Default::default() }];
        assert!(add_records(&mut records, api::Records { intents, ..Default::default() }).is_err());
        for (state, leaving) in [(2, None), (1, Some(id().into())), (3, None)] {
            let key = Some(DbKey::new(0, "k").into());
            let copy = api::CopyRecord { key, move_id: Some(id().into()), state, leaving };
            let copies = api::Records { copies: vec![copy], ..Default::default() };
            assert!(add_records(&mut records, copies).is_err());
        }
    }

    #[test]
    fn records_and_plans_are_what_they_were() {
        let key = DbKey::new(3, "k");
        let mut want = ShardRecords::default();
        want.exceptions.push((key.clone(), Exception { at: ShardId(4), move_id: id() }));
        for state in [IntentState::Open, IntentState::Committed, IntentState::Undone] {
            let (direction, other) = (Direction::Home, ShardId(2));
            want.intents.push((key.clone(), Intent { id: id(), direction, other, state }));
        }
        for state in [CopyState::Hidden, CopyState::Live, CopyState::Leaving(id())] {
            want.copies.push((key.clone(), KeyCopy { id: id(), state }));
        }
        let sent = api::Records {
            copies: want.copies.iter().cloned().map(api_copy).collect(),
            exceptions: want.exceptions.iter().cloned().map(api_exception).collect(),
            intents: want.intents.iter().cloned().map(api_intent).collect(),
        };
        let mut records = ShardRecords::default();
        add_records(&mut records, sent).unwrap();
        assert_eq!(records, want);
        let mut plan = Plan::default();
        plan.parts.insert(ShardId(1), vec![Assignment { key, at: ShardId(2) }]);
        plan.parts.insert(ShardId(2), Vec::new());
        assert_eq!(plan_of(api_plan(plan.clone())).unwrap(), plan);
        let refused = vec![(ShardId(3), "away".to_string())];
        let taken = TakenPlan { moves: 5, refused };
        let sent: api::RepartitionReply = taken.clone().into();
        assert_eq!(TakenPlan::from(sent), taken);
        let mut twice = api_plan(plan);
        twice.parts.push(twice.parts[0].clone());
        assert!(plan_of(twice).is_err());
    }
}
