//! Calls of clients at the owner of their key: routed to an instance, held, routed again, answered.

use super::node::{Purpose, Running, shard_of};
use super::world::*;
use crate::instance::*;
use terrace_cluster::*;

impl World {
    pub fn client_call(&mut self, call: u64, from: Place, at: usize, key: DbKey, op: Op) {
        let shard = shard_of(&key);
        let node = &mut self.nodes[at];
        let Some(epoch) = node.ownerships[&shard].serving() else {
            let owner = node.owners.get(&shard).filter(|owner| owner.is_claimed);
            let answer = ClientAnswer::NotDone(owner.map(|owner| node_at(owner.node)));
            return self.reply(call, Place::Node(at), from, Response::Client(answer));
        };
        node.next_running += 1;
        let running = node.next_running;
        let it = Running { shard, epoch, key, op, call, from, tries: 0, result: None, at: shard };
        node.running.insert(running, it);
        self.route(at, running);
    }

    /// Sends a client's call to where its key is.
    pub fn route(&mut self, at: usize, running: u64) {
        let Some(it) = self.nodes[at].running.get(&running) else { return };
        let (shard, epoch, key, op) = (it.shard, it.epoch, it.key.clone(), it.op);
        let Some(serving) = self.nodes[at].shards.get_mut(&shard).filter(|it| it.epoch == epoch)
        else {
            return self.end(at, running, ClientAnswer::NotDone(None));
        };
        if op != Op::Read {
            if serving.held.contains(&key) && !self.planted.off.owner_hold {
                self.counts.add("held");
                return serving.waiting.push(running);
            }
            *serving.writes.entry(key.clone()).or_default() += 1;
        }
        let place = serving.exceptions.get(key.db, &key.key).map_or(shard, |it| it.at);
        if let Some(it) = self.nodes[at].running.get_mut(&running) {
            it.at = place;
        }
        if place != shard {
            self.counts.add("call to another instance");
        }
        let request = Request::Call(Sender { home: shard, epoch }, key, op);
        let to = Place::Node(place_of(place));
        self.call(Place::Node(at), to, request, Purpose::Call(running));
    }

    pub fn call_ended(&mut self, at: usize, running: u64, answer: Option<CallAnswer>) {
        let Some(it) = self.nodes[at].running.get_mut(&running) else { return };
        it.tries += 1;
        let (shard, epoch, key, op, tries) = (it.shard, it.epoch, it.key.clone(), it.op, it.tries);
        if let Some(serving) = self.nodes[at].shards.get_mut(&shard).filter(|it| it.epoch == epoch)
            && op != Op::Read
            && let Some(writes) = serving.writes.get_mut(&key)
        {
            *writes -= 1;
            if *writes == 0 {
                serving.writes.remove(&key);
            }
        }
        match answer {
            Some(CallAnswer::Done(value)) => {
                let node = &mut self.nodes[at];
                if let Some(it) = node.running.get_mut(&running) {
                    it.result = value;
                }
                let (incarnation, wait) = (node.incarnation, self.rng.below(3));
                self.after(wait, Event::Answer { node: at, incarnation, running });
            }
            Some(CallAnswer::Refused(_)) => {
                self.counts.add("refused");
                let serving = self.nodes[at].shards.get_mut(&shard);
                match serving.filter(|it| it.epoch == epoch) {
                    Some(serving) if tries < 6 && serving.held.contains(&key) => {
                        serving.waiting.push(running);
                    }
                    Some(_) if tries < 6 => self.route(at, running),
                    _ => self.end(at, running, ClientAnswer::NotDone(None)),
                }
            }
            Some(CallAnswer::Deposed) => {
                self.counts.add("call of a former owner refused");
                self.end(at, running, ClientAnswer::NotDone(None));
                self.owner_event(at, shard, OwnerEvent::Deposed(epoch, None));
            }
            None => self.end(at, running, ClientAnswer::Unknown),
        }
        self.check_holds(at, shard);
    }

    /// The reply is about to leave: only if the lease is sure.
    pub fn answer_local(&mut self, at: usize, running: u64) {
        let (now, node) = (self.time(), &self.nodes[at]);
        let Some(it) = node.running.get(&running) else { return };
        let may = node.ownerships[&it.shard].may_reply(&node.lease, now, it.epoch);
        let answer = match may {
            true => ClientAnswer::Done(it.result),
            false => ClientAnswer::Unknown,
        };
        if !may {
            self.counts.add("reply kept back");
        }
        self.end(at, running, answer);
    }

    pub fn end(&mut self, at: usize, running: u64, answer: ClientAnswer) {
        let Some(it) = self.nodes[at].running.remove(&running) else { return };
        self.reply(it.call, Place::Node(at), it.from, Response::Client(answer));
        self.check_drained(at, it.shard);
    }
}
