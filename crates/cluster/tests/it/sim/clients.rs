//! Clients, which record what they see, and partitioners, which make plans of what was written.

use super::node::Purpose;
use super::world::*;
use crate::history::Recorded;
use crate::instance::Op;
use terrace_cluster::*;

/// In every other run one operation of this number is a flush of all stores. Not in every run: a flush of unknown outcome
/// excuses keys that are lost.
const FLUSH_ONCE_IN: u64 = 20;

impl World {
    /// A client begins its next operation, or sends the present one again.
    pub fn client(&mut self, at: usize) {
        if self.clients[at].current.is_none() {
            if self.clients[at].left == 0 {
                return;
            }
            self.clients[at].left -= 1;
            if self.has_flushes && self.rng.below(FLUSH_ONCE_IN) == 0 {
                self.record(at, None, self.keys.clone());
            } else {
                self.begin_random(at);
            }
        }
        let random = self.rng.below(NODES as u64) as usize;
        let client = &mut self.clients[at];
        let Some(current) = &mut client.current else { return };
        current.tries += 1;
        let target = client.target.unwrap_or(random);
        let request = match current.op {
            Some(op) => Request::Client(current.keys[0].0.clone(), op),
            None => Request::Flush,
        };
        // What was sent before was not executed, or is a read.
        let (keys, begin) = (current.keys.clone(), self.moment());
        self.each_record(&keys, |it| it.begin = begin);
        self.call(Place::Client(at), Place::Node(target), request, Purpose::Client(at));
    }

    fn begin_random(&mut self, at: usize) {
        // Some keys are hotter than others.
        let of = self.rng.below(self.keys.len() as u64) * self.rng.below(2);
        let key = self.keys[of as usize].clone();
        let is_read = self.rng.below(2) == 0;
        self.begin(at, key, is_read);
    }

    /// Records the begin of an operation.
    pub fn begin(&mut self, at: usize, key: DbKey, is_read: bool) {
        let op = match is_read {
            true => Op::Read,
            false => {
                self.next_value += 1;
                Op::Write(self.next_value)
            }
        };
        self.record(at, Some(op), vec![key]);
    }

    fn record(&mut self, at: usize, op: Option<Op>, keys: Vec<DbKey>) {
        let begin = self.moment();
        let wrote = match op {
            Some(Op::Read) => None,
            Some(Op::Write(value)) => Some(Some(value)),
            // For each key it is a write of nothing.
            None => Some(None),
        };
        let recorded = Recorded { begin, end: None, wrote, value: None };
        let mut places = Vec::new();
        for key in keys {
            let history = self.history.entry(key.clone()).or_default();
            history.push(recorded);
            places.push((key, history.len() - 1));
        }
        self.clients[at].current = Some(Operation { op, keys: places, tries: 0 });
    }

    fn each_record(&mut self, keys: &[(DbKey, usize)], mut change: impl FnMut(&mut Recorded)) {
        for (key, place) in keys {
            if let Some(history) = self.history.get_mut(key) {
                change(&mut history[*place]);
            }
        }
    }

    pub fn client_answered(&mut self, at: usize, response: Option<Response>) {
        let answer = match response {
            Some(Response::Client(answer)) => answer,
            _ => ClientAnswer::Unknown,
        };
        let Some(current) = self.clients[at].current.clone() else { return };
        let (op, tries) = (current.op, current.tries);
        match answer {
            ClientAnswer::Done(value) => {
                let moment = self.moment();
                let end = |it: &mut Recorded| (it.end, it.value) = (Some(moment), value);
                self.each_record(&current.keys, end);
                self.counts.add(if op.is_none() { "flushed" } else { "answered" });
                if op.is_none() {
                    self.check_flushed(&current.keys);
                }
                self.clients[at].current = None;
            }
            ClientAnswer::NotDone(hint) if tries < 40 || self.is_calm => {
                self.clients[at].target = hint;
                return self.after(20, Event::Client(at));
            }
            // A read is asked again; what became of a write is not known.
            ClientAnswer::Unknown if self.is_calm && op == Some(Op::Read) => {
                self.clients[at].target = None;
                return self.after(20, Event::Client(at));
            }
            ClientAnswer::NotDone(_) | ClientAnswer::Unknown => {
                self.counts.add(match op {
                    None => "flush of unknown outcome",
                    Some(_) => "outcome unknown",
                });
                self.clients[at].target = None;
                self.clients[at].current = None;
            }
        }
        let wait = self.rng.below(30);
        self.after(wait, Event::Client(at));
    }

    /// One of the partitioners makes a plan and sends it.
    pub fn partitioner(&mut self, at: usize) {
        if self.is_calm {
            return;
        }
        let wait = self.rng.between(150, 700);
        self.after(wait, Event::Partitioner(at));
        let view = self.metadata.view();
        let topology = topology(&view);
        let shards = topology.shards.len() as u64;
        let spec = match self.rng.below(4) {
            0 => {
                let shard = Some(ShardId(1 + self.rng.below(shards) as u32));
                PlanSpec::TopNToOne { keys: 1 + self.rng.below(6) as usize, shard }
            }
            1 => PlanSpec::TopNTiered(vec![1 + self.rng.below(2) as usize; 3]),
            _ => PlanSpec::Absorb,
        };
        let lists: Vec<TopList> = (0..NODES)
            .map(|node| {
                let keys = self.keys.clone();
                let keys = keys.into_iter().map(|key| TopKey {
                    key,
                    count: self.rng.below(1_000),
                    error: 0,
                    entry_bytes: 100,
                });
                TopList {
                    shard: ShardId(node as u32 + 1),
                    writes: 5_000,
                    write_bytes: 500_000,
                    keys: keys.collect(),
                    memtable_bytes: 10_000,
                    hot_bytes: self.rng.below(400),
                }
            })
            .collect();
        let plan = make_plan(&spec, &topology, &lists).expect("a plan of known shards");
        for (shard, part) in plan.parts {
            self.counts.add("part of a plan");
            if let Some(owner) = view.owners.get(&shard) {
                let to = Place::Node(node_at(owner.node));
                let request = Request::Repartition(shard, part);
                self.call(Place::Client(usize::MAX - at), to, request, Purpose::Nothing);
            }
        }
    }
}
