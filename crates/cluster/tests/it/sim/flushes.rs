//! Flushes of all stores: a node leads one for a client, in two rounds. The message of a round goes to the owner of the
//! store's shard, and from there to the store. None is sent twice by the transport; one that was not executed is sent
//! again.

use super::node::{Node, Purpose};
use super::world::*;
use crate::instance::*;
use std::collections::BTreeSet;
use std::time::Duration;
use terrace_cluster::*;

/// The clock by which announced flushes lapse goes faster by this factor: after a tenth of a second.
const CLOCK_FACTOR: u32 = 300;

/// A round is sent to a store at most this often.
const MAX_TRIES: u32 = 60;

/// A flush that a node leads.
pub struct Leading {
    round: Round,
    /// Shards whose stores have not answered in this round.
    awaited: BTreeSet<ShardId>,
    tries: u32,
    /// The client's call.
    call: u64,
    from: Place,
}

/// What a store does in a round.
pub fn execute_round(
    instance: &mut Instance,
    sender: Sender,
    round: Round,
    id: FlushId,
) -> RoundAnswer {
    if !instance.fence(sender) {
        return RoundAnswer::NotDone;
    }
    match round {
        Round::Announce if instance.announce(id) => RoundAnswer::Done,
        Round::Announce => RoundAnswer::NotDone,
        Round::Execute if instance.flush(id) => RoundAnswer::Done,
        Round::Execute => RoundAnswer::NotAnnounced,
    }
}

impl World {
    pub fn flush_clock(&self) -> Duration {
        self.time() * CLOCK_FACTOR
    }

    /// A client asks this node for a flush.
    pub fn lead_flush(&mut self, call: u64, from: Place, at: usize) {
        self.next_flush += 1;
        let id = FlushId(self.next_flush);
        let round = match self.planted.off.flush_rounds {
            true => Round::Execute,
            false => Round::Announce,
        };
        let leading = Leading { round, awaited: BTreeSet::new(), tries: 0, call, from };
        self.nodes[at].leading.insert(id, leading);
        self.begin_round(at, id, round);
    }

    fn begin_round(&mut self, at: usize, id: FlushId, round: Round) {
        let shards: Vec<ShardId> = (1..=NODES as u32).map(ShardId).collect();
        let Some(leading) = self.nodes[at].leading.get_mut(&id) else { return };
        (leading.round, leading.tries) = (round, 0);
        leading.awaited = shards.iter().copied().collect();
        shards.into_iter().for_each(|shard| self.send_round(at, id, shard));
    }

    /// Sends the present round to the owner of a shard.
    pub fn send_round(&mut self, at: usize, id: FlushId, shard: ShardId) {
        let node: &Node = &self.nodes[at];
        let Some(round) = node.leading.get(&id).map(|leading| leading.round) else { return };
        let known = node.owners.get(&shard).filter(|owner| owner.is_claimed);
        let owner = match node.ownerships[&shard].serving() {
            Some(_) => Some(at),
            None => known.map(|owner| node_at(owner.node)),
        };
        match owner {
            Some(owner) => {
                let request = Request::Round(shard, round, id);
                let purpose = Purpose::Round(id, shard);
                self.call(Place::Node(at), Place::Node(owner), request, purpose);
            }
            None => self.round_answered(at, id, shard, RoundAnswer::NotDone),
        }
    }

    /// The message of a round comes to the owner of a shard.
    pub fn pass_round(&mut self, (call, from): (u64, Place), at: usize, request: Request) {
        let Request::Round(shard, round, id) = request else { return };
        let Some(epoch) = self.nodes[at].ownerships[&shard].serving() else {
            let not_done = Response::Round(RoundAnswer::NotDone);
            return self.reply(call, Place::Node(at), from, not_done);
        };
        let request = Request::RoundAt(Sender { home: shard, epoch }, round, id);
        let purpose = Purpose::PassedRound { shard, epoch, call, from };
        self.call(Place::Node(at), Place::Node(place_of(shard)), request, purpose);
    }

    /// There is an answer to the message of a round, or there will be none. An owner passes on what a store says while it
    /// is sure of its lease.
    pub fn round_ended(&mut self, at: usize, purpose: Purpose, response: Option<Response>) {
        let answer = match response {
            Some(Response::Round(answer)) => answer,
            _ => RoundAnswer::Unknown,
        };
        let (shard, epoch, call, from) = match purpose {
            Purpose::PassedRound { shard, epoch, call, from } => (shard, epoch, call, from),
            Purpose::Round(id, shard) => return self.round_answered(at, id, shard, answer),
            _ => return,
        };
        let (now, node) = (self.time(), &self.nodes[at]);
        let is_sure = node.ownerships[&shard].may_reply(&node.lease, now, epoch);
        let answer = if is_sure { answer } else { RoundAnswer::Unknown };
        self.reply(call, Place::Node(at), from, Response::Round(answer));
    }

    /// What became of a round at the store of a shard, to its leader.
    fn round_answered(&mut self, at: usize, id: FlushId, shard: ShardId, answer: RoundAnswer) {
        let node = &mut self.nodes[at];
        let Some(leading) = node.leading.get_mut(&id) else { return };
        match answer {
            RoundAnswer::Done => {
                leading.awaited.remove(&shard);
                let (round, is_over) = (leading.round, leading.awaited.is_empty());
                match round {
                    _ if !is_over => {}
                    Round::Announce => self.begin_round(at, id, Round::Execute),
                    Round::Execute => self.end_flush(at, id, ClientAnswer::Done(None)),
                }
            }
            RoundAnswer::NotDone if leading.tries < MAX_TRIES => {
                leading.tries += 1;
                self.counts.add("round again");
                let incarnation = node.incarnation;
                self.after(5, Event::RoundAgain { node: at, incarnation, flush: id, shard });
            }
            RoundAnswer::NotDone | RoundAnswer::NotAnnounced | RoundAnswer::Unknown => {
                if answer == RoundAnswer::NotAnnounced {
                    self.counts.add("flush not announced");
                }
                // Nothing is removed before the second round.
                let answer = match leading.round {
                    Round::Announce => ClientAnswer::NotDone(None),
                    Round::Execute => ClientAnswer::Unknown,
                };
                self.end_flush(at, id, answer);
            }
        }
    }

    fn end_flush(&mut self, at: usize, id: FlushId, answer: ClientAnswer) {
        if let Some(leading) = self.nodes[at].leading.remove(&id) {
            self.reply(leading.call, Place::Node(at), leading.from, Response::Client(answer));
        }
    }

    /// A flush was acknowledged, which has these records: no store shows what had been written before it began.
    pub fn check_flushed(&mut self, keys: &[(DbKey, usize)]) {
        for (key, place) in keys {
            let history = &self.history[key];
            let begin = history[*place].begin;
            for instance in self.nodes.iter().map(|node| &node.instance) {
                let Some(value) = instance.values.get(key) else { continue };
                let copy = instance.copies.get(key);
                let is_shown = copy.is_none_or(|copy| copy.state != CopyState::Hidden);
                let written = history.iter().find(|it| it.wrote == Some(Some(*value)));
                let end = written.and_then(|it| it.end);
                if is_shown && end.is_some_and(|end| end < begin) {
                    let at = instance.shard;
                    self.wrong = Some(format!("key {key}: {value} at {at} outlived a flush"));
                }
            }
        }
    }
}
