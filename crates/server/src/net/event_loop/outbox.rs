//! What a loop sends to other nodes: the requests of all its clients for one target in one call, and the
//! replies to them back to the clients.
//!
//! A request that had come to the wrong node is executed again by this loop, as a call of its own,
//! when the topology has the revision by which the other node judged.

use super::EventLoop;
use crate::net::loop_handle::Message;
use crate::net::open_call::{Deferred, Done, OpenCall, Replied, Waiter};
use crate::place::{HELD, LIMITS, MOVED, PATIENT};
use crate::session::Caller;
use std::ops::Range;
use std::sync::Arc;
use terrace_cluster::{CallTarget, Cancellation, OutgoingCall, ReplyProtocol, Revision, Unserved};
use terrace_resp::{Protocol, ReplyParser, ReplyStep, parse_integer, write_request};

/// A call of this many bytes is sent before more is executed.
const MAX_CALL_BYTES: usize = 1 << 20;

/// How often a command is routed again. The coordinator lets some ms go by before each time, and a move
/// whose steps are made durable on a busy device takes many of them.
const MAX_TRIES: u32 = 1024;

/// To a request that was routed as often as may be. Nothing of it was executed.
const ROUTED_IN_VAIN: &[u8] =
    b"-TRYAGAIN the key is in a move for long, or the owner of its shard was not found; nothing was executed\r\n";

/// To a request whose reply is none.
const UNREADABLE: &[u8] =
    b"-CLUSTERDOWN the reply of another node cannot be read; a write may have happened\r\n";

/// Requests that were not sent yet.
#[derive(Default)]
pub(super) struct Outbox(Vec<Parcel>);

/// Requests for one target.
struct Parcel {
    target: CallTarget,
    protocol: Protocol,
    /// The id of the client whose requests alone these are.
    alone: Option<u64>,
    requests: Vec<u8>,
    waiters: Vec<Waiter>,
}

impl Outbox {
    /// Whether it should be sent before more is executed.
    pub fn is_large(&self) -> bool {
        self.0.iter().any(|parcel| parcel.requests.len() > MAX_CALL_BYTES)
    }

    /// The parcel for a target. A client whose requests may wait has one of its own, and so has one that has more than
    /// a call's `bytes` of them: a link refuses what is too long as a whole.
    fn parcel(
        &mut self,
        target: CallTarget,
        protocol: Protocol,
        (id, is_patient): (u64, bool),
        bytes: usize,
    ) -> &mut Parcel {
        let alone = (is_patient || bytes > MAX_CALL_BYTES).then_some(id);
        let is_it = |known: &Parcel| {
            known.target == target && known.protocol == protocol && known.alone == alone
        };
        let at = self.0.iter().position(is_it).unwrap_or_else(|| {
            let (mut requests, waiters) = (Vec::new(), Vec::new());
            if is_patient && matches!(target, CallTarget::Owner(_)) {
                write_request(&mut requests, &[PATIENT]);
            }
            self.0.push(Parcel { target, protocol, alone, requests, waiters });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

pub(super) fn reply_protocol(protocol: Protocol) -> ReplyProtocol {
    match protocol {
        Protocol::Resp2 => ReplyProtocol::Resp2,
        Protocol::Resp3 => ReplyProtocol::Resp3,
    }
}

impl EventLoop {
    /// Takes over what a client has for other nodes.
    pub(super) fn post(&mut self, token: usize) {
        let Some(client) = self.clients.get_mut(token) else { return };
        let tries = client.call.as_ref().map_or(0, |call| call.tries);
        let (id, Some(state)) = (client.id, &mut client.state) else { return };
        let is_patient = state.session.is_patient;
        let round = state.remote.round();
        let (outgoing, mut requests) = state.remote.take_outgoing();
        self.server.stats.forwarded.add(outgoing.len() as u64);
        let (mut start, bytes) = (0, requests.len());
        for one in outgoing {
            let (of, outbox) = ((id, is_patient), &mut self.outbox);
            let parcel = outbox.parcel(one.target, one.protocol, of, bytes);
            match parcel.requests.is_empty() && start == 0 && one.end == requests.len() {
                // They may be large.
                true => parcel.requests = std::mem::take(&mut requests),
                false => parcel.requests.extend_from_slice(&requests[start..one.end]),
            }
            start = one.end;
            let (hole, part, replies, end) =
                (one.hole, one.part, one.replies, parcel.requests.len());
            parcel.waiters.push(Waiter { token, id, round, hole, part, replies, end, tries });
        }
    }

    /// Sends what is to be sent.
    pub(super) fn send_outbox(&mut self) {
        if self.outbox.0.is_empty() {
            return;
        }
        let server = self.server.clone();
        let Some(coordinator) = server.cluster.as_ref().and_then(|one| one.coordinator()) else {
            return;
        };
        let me = coordinator.me();
        for Parcel { target, protocol, requests, waiters, .. } in std::mem::take(&mut self.outbox.0)
        {
            let requests = Arc::new(requests);
            let is_own = target == CallTarget::Owner(me);
            let clients = self.clients_behind(&waiters);
            let (home, sent) = (self.handle.clone(), requests.clone());
            let done: Done = Box::new(move |reply| {
                home.send(Message::Replied(Replied { waiters, protocol, requests: sent, reply }));
            });
            if is_own {
                let mut call = OpenCall::new(me, Caller::Owner, done);
                (call.protocol, call.requests) = (protocol, Arc::unwrap_or_clone(requests));
                call.clients = clients;
                self.handle.send(Message::Call(Box::new(call)));
                continue;
            }
            let call = OutgoingCall { db: 0, protocol: reply_protocol(protocol), requests };
            let mut cancellation = Cancellation::default();
            if !clients.is_empty() {
                cancellation = Cancellation::of_call();
                self.sent_calls.enter(clients, cancellation.clone());
            }
            coordinator.call_until(target, call, cancellation, done);
        }
    }

    /// Another node has answered.
    pub(super) fn take_replies(&mut self, replied: Replied) {
        let Replied { waiters, protocol, requests, reply } = replied;
        let (replies, error) = match reply {
            Ok(replies) => (replies, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let mut parser = ReplyParser::new(LIMITS);
        let (mut at, mut start) = (0, 0);
        let (mut again, mut held): (Vec<(Waiter, Range<usize>)>, Vec<_>) = Default::default();
        let mut revision = Revision::default();
        let mut deferred = Vec::new();
        let mut filled = Vec::with_capacity(waiters.len());
        for mut waiter in waiters {
            let own = start..waiter.end;
            start = waiter.end;
            let mut found: Option<&[u8]> = None;
            for _ in 0..waiter.replies {
                found = match parser.next(&replies[at..]) {
                    Ok(ReplyStep::Frame(frame)) => Some(frame.bytes()),
                    _ => None,
                };
                at += found.map_or(0, <[u8]>::len);
            }
            // Its client is gone, or has been answered already.
            if !self.is_awaited(&waiter) {
                continue;
            }
            match (found, &error) {
                (Some(bytes), _) if is_held(bytes) => held.push((waiter, own)),
                (Some(bytes), _) => match moved(bytes) {
                    Some(by) => {
                        revision = revision.max(by);
                        again.push((waiter, own));
                    }
                    None => {
                        filled.push((waiter.token, waiter.id));
                        self.fill(&waiter, bytes);
                    }
                },
                // Nothing of it was executed.
                (None, Some(Unserved::Moved(by))) => {
                    revision = revision.max(*by);
                    again.push((waiter, own));
                }
                (None, Some(why)) => {
                    filled.push((waiter.token, waiter.id));
                    self.fill(&waiter, format!("-{} {why}\r\n", why.code()).as_bytes());
                }
                // Something was executed of which nothing is known.
                (None, None) if at < replies.len() => {
                    filled.push((waiter.token, waiter.id));
                    self.fill(&waiter, UNREADABLE);
                }
                // What did not fit into the reply was not executed. It is no try if others did.
                (None, None) => {
                    waiter.tries = waiter.tries.saturating_sub(u32::from(at > 0));
                    match self.may_defer(&waiter) {
                        true => deferred.push((waiter, own)),
                        false => again.push((waiter, own)),
                    }
                }
            }
        }
        // What comes behind a request that waits stays behind it.
        let waits = |id| held.iter().any(|(waiter, _): &(Waiter, _)| waiter.id == id);
        let of_again = again.extract_if(.., |(waiter, _)| waits(waiter.id));
        let of_deferred = deferred.extract_if(.., |(waiter, _)| waits(waiter.id));
        let behind: Vec<_> = of_again.chain(of_deferred).collect();
        held.extend(behind);
        // Nor does it pass one that is routed again.
        let moves = |id| again.iter().any(|(waiter, _): &(Waiter, _)| waiter.id == id);
        let behind: Vec<_> = deferred.extract_if(.., |(waiter, _)| moves(waiter.id)).collect();
        again.extend(behind);
        for (waiter, range) in deferred {
            filled.push((waiter.token, waiter.id));
            self.defer(Deferred { waiter, requests: requests.clone(), range, protocol });
        }
        self.route_again(again, &requests, (protocol, false), revision);
        // Clients wait without each other.
        held.sort_by_key(|(waiter, range)| (waiter.id, range.start));
        while let Some(id) = held.first().map(|(waiter, _)| waiter.id) {
            let rest = held.partition_point(|(waiter, _)| waiter.id == id);
            let later = held.split_off(rest);
            self.route_again(held, &requests, (protocol, true), revision);
            held = later;
        }
        filled.dedup();
        for (token, id) in filled {
            if self.clients.get(token).is_some_and(|client| client.id == id)
                && !self.ends_over_limit(token)
            {
                self.go_on(token, id);
            }
        }
    }

    /// Whether nothing has come for a part of a reply, and its client waits for it.
    fn is_awaited(&self, waiter: &Waiter) -> bool {
        let client = self.clients.get(waiter.token).filter(|client| client.id == waiter.id);
        let state = client.and_then(|client| client.state.as_ref());
        state.is_some_and(|state| state.remote.awaits(waiter.round, waiter.hole, waiter.part))
    }

    fn fill(&mut self, waiter: &Waiter, reply: &[u8]) {
        if self.is_awaited(waiter)
            && let Some(client) = self.clients.get_mut(waiter.token)
            && let Some(state) = &mut client.state
        {
            state.remote.fill(waiter.hole, waiter.part, reply);
        }
    }

    /// Serves a client further if nothing keeps it any more.
    pub(super) fn go_on(&mut self, token: usize, id: u64) {
        if self.clients.get(token).is_some_and(|client| client.id == id) {
            self.go_on_deferred(token);
        }
        if let Some(client) = self.clients.get_mut(token)
            && client.id == id
            && let Some(state) = &mut client.state
            && let Some((hole, protocol, requests)) = state.remote.begin_second_round()
        {
            let round = state.remote.round();
            return self.post_second_round((token, id, round), (hole, protocol), &requests);
        }
        if let Some(client) = self.clients.get_mut(token)
            && client.id == id
            && client.leave_cluster()
        {
            client.info.note_use(None, self.server.space.now_ms());
            self.queue_if_more(token);
            self.flush(token);
        }
    }

    /// The second round of a client's command: a call of its own, so that its parts are routed now.
    fn post_second_round(
        &mut self,
        (token, id, round): (usize, u64, u64),
        (hole, protocol): (u32, Protocol),
        requests: &[Vec<u8>],
    ) {
        let server = self.server.clone();
        let Some(coordinator) = server.cluster.as_ref().and_then(|one| one.coordinator()) else {
            return;
        };
        let mut end = 0;
        let waiters = requests.iter().enumerate().map(|(part, request)| {
            end += request.len();
            Waiter { token, id, round, hole, part: part as u32, replies: 1, end, tries: 0 }
        });
        let (waiters, bytes): (Vec<_>, _) = (waiters.collect(), requests.concat());
        let (home, sent) = (self.handle.clone(), Arc::new(bytes.clone()));
        let done: Done = Box::new(move |reply| {
            home.send(Message::Replied(Replied { waiters, protocol, requests: sent, reply }));
        });
        let mut call = OpenCall::new(coordinator.me(), Caller::Again, done);
        (call.protocol, call.requests) = (protocol, bytes);
        self.handle.send(Message::Call(Box::new(call)));
    }

    /// Executes requests again, in their order, as soon as the topology is that of `revision`.
    pub(super) fn route_again(
        &mut self,
        again: Vec<(Waiter, Range<usize>)>,
        requests: &[u8],
        (protocol, is_patient): (Protocol, bool),
        revision: Revision,
    ) {
        let server = self.server.clone();
        let Some(coordinator) = server.cluster.as_ref().and_then(|one| one.coordinator()) else {
            return;
        };
        self.server.stats.rerouted.add(again.len() as u64);
        let (mut bytes, mut waiters) = (Vec::new(), Vec::new());
        let mut tries = 0;
        for (mut waiter, range) in again {
            let is_wanted = self.is_wanted(&self.clients_behind(std::slice::from_ref(&waiter)));
            if waiter.tries >= MAX_TRIES || !is_wanted {
                self.fill(&waiter, ROUTED_IN_VAIN);
                self.go_on(waiter.token, waiter.id);
                continue;
            }
            bytes.extend_from_slice(&requests[range]);
            waiter.tries += u32::from(!is_patient);
            waiter.end = bytes.len();
            tries = tries.max(waiter.tries);
            waiters.push(waiter);
        }
        if waiters.is_empty() {
            return;
        }
        let clients = self.clients_behind(&waiters);
        let (home, sent) = (self.handle.clone(), Arc::new(bytes.clone()));
        let done: Done = Box::new(move |reply| {
            home.send(Message::Replied(Replied { waiters, protocol, requests: sent, reply }));
        });
        let mut call = Box::new(OpenCall::new(coordinator.me(), Caller::Again, done));
        (call.protocol, call.requests, call.tries) = (protocol, bytes, tries);
        (call.is_patient, call.clients) = (is_patient, clients);
        let home = self.handle.clone();
        coordinator.when_at(revision, Box::new(move || home.send(Message::Call(call))));
    }
}

/// Whether a node would have had to let a request wait.
fn is_held(reply: &[u8]) -> bool {
    reply.strip_prefix(b"-").is_some_and(|text| text.starts_with(HELD.as_bytes()))
}

/// The revision by which a node says that it does not own a shard.
fn moved(reply: &[u8]) -> Option<Revision> {
    let rest = reply.strip_prefix(b"-")?.strip_prefix(MOVED.as_bytes())?.strip_prefix(b" ")?;
    let revision = parse_integer(rest.strip_suffix(b"\r\n")?)?;
    Some(Revision(u64::try_from(revision).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_cluster::NodeId;

    #[test]
    fn long_requests_and_those_that_may_wait_go_without_those_of_others() {
        let target = CallTarget::Owner(NodeId([1; 20]));
        let mut outbox = Outbox::default();
        let posts = [
            (1, false, 10),
            (2, false, MAX_CALL_BYTES),
            (3, false, MAX_CALL_BYTES + 1),
            (4, true, 10),
            (5, false, 10),
        ];
        for (id, is_patient, bytes) in posts {
            // In two pieces, which stay together.
            for piece in [bytes / 2, bytes - bytes / 2] {
                let parcel = outbox.parcel(target, Protocol::Resp2, (id, is_patient), bytes);
                parcel.requests.extend(std::iter::repeat_n(b'x', piece));
            }
        }
        let lengths = outbox.0.iter().map(|parcel| {
            let count = |byte: &&u8| **byte == b'x';
            (parcel.alone, parcel.requests.iter().filter(count).count())
        });
        let shared = (None, MAX_CALL_BYTES + 20);
        let wanted = [shared, (Some(3), MAX_CALL_BYTES + 1), (Some(4), 10)];
        assert_eq!(lengths.collect::<Vec<_>>(), wanted);
    }
}
