//! Replies of other nodes in the output of a client.
//!
//! A command that another node executes leaves a *hole* in the output, and the commands behind it are
//! executed meanwhile. When all replies are there, they are put into their holes; nothing from
//! the first hole on is sent before that, and the client is served no further, so that there is one
//! round of requests of a client on its way at a time.

use crate::cluster::Cluster;
use crate::place::{self, Await, Away, Merge, Part, is_error};
use crate::session::Session;
use std::time::Instant;
use terrace_cluster::{CallTarget, Revision};
use terrace_resp::{Command, Protocol};

/// Commands of one client that are on their way at a time: at first, and at most.
const FIRST_WINDOW: usize = 64;
const MAX_WINDOW: usize = 1024;

/// If the replies of a round have more bytes, the next round has fewer commands.
const MANY_BYTES: usize = 1 << 20;

/// Bytes of requests of one client that are on their way at a time, but for one command of any size.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// A buffer of more bytes is given back when it is empty.
const KEPT_BYTES: usize = 16 << 10;

/// What is kept of a reply that nobody wants: that it has come, and is no error.
const UNWANTED: &[u8] = b"+\r\n";

/// A request that is to be sent.
pub(super) struct Outgoing {
    pub target: CallTarget,
    pub protocol: Protocol,
    pub hole: u32,
    pub part: u32,
    /// How many requests it is; the last one's reply counts.
    pub replies: u32,
    /// Where its bytes end in the client's requests.
    pub end: usize,
}

/// See the module.
pub(crate) struct RemoteReplies {
    /// Commands of the current round, at most.
    window: usize,
    holes: Vec<Hole>,
    /// Holes of the round that are closed already: the number of the first of `holes`.
    closed: u32,
    /// Rounds that are over.
    round: u64,
    /// Bytes of replies of the round.
    round_bytes: usize,
    /// Replies that have come, one behind the other.
    arrived: Vec<u8>,
    /// Bytes of replies of this node that stand between those in one hole.
    own_bytes: usize,
    /// Parts of replies that have not.
    outstanding: usize,
    /// To be sent, with their bytes.
    outgoing: Vec<Outgoing>,
    requests: Vec<u8>,
    /// What the routes of this round follow.
    revision: Revision,
    /// The last command was on all keys: nothing is executed beside it.
    is_for_all: bool,
}

struct Hole {
    /// Where in the output.
    at: usize,
    /// Replies of the current batch before it.
    replies_before: usize,
    /// The client wants to hear it.
    is_wanted: bool,
    merge: Merge,
    protocol: Protocol,
    /// Where in `arrived` the replies of the parts are.
    parts: Parts,
    /// The requests of its second round; then there is no other hole.
    then: Vec<Vec<u8>>,
    /// Of a transaction: when it was sent.
    sent_at: Option<Instant>,
}

enum Parts {
    One((usize, usize)),
    Several(Vec<(usize, usize)>),
}

impl Hole {
    fn places(&mut self) -> &mut [(usize, usize)] {
        match &mut self.parts {
            Parts::One(place) => std::slice::from_mut(place),
            Parts::Several(places) => places,
        }
    }

    /// Whether all its replies have come; no reply is empty.
    fn is_filled(&self) -> bool {
        let has_come = |(start, end): &(usize, usize)| start < end;
        self.then.is_empty()
            && match &self.parts {
                Parts::One(place) => has_come(place),
                Parts::Several(places) => places.iter().all(has_come),
            }
    }
}

impl Default for RemoteReplies {
    fn default() -> Self {
        Self {
            window: FIRST_WINDOW,
            holes: Vec::new(),
            closed: 0,
            round: 0,
            round_bytes: 0,
            arrived: Vec::new(),
            own_bytes: 0,
            outstanding: 0,
            outgoing: Vec::new(),
            requests: Vec::new(),
            revision: Revision::default(),
            is_for_all: false,
        }
    }
}

impl RemoteReplies {
    /// Bytes of replies of other nodes that are not in the output yet.
    pub fn arrived_bytes(&self) -> usize {
        self.arrived.len()
    }

    /// Bytes of all replies that are not in the output yet.
    pub fn held_bytes(&self) -> usize {
        self.arrived.len() + self.own_bytes
    }

    /// The number of the round that is open, or comes next.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Whether a part of a reply is still to come.
    pub fn awaits(&self, round: u64, hole: u32, part: u32) -> bool {
        let hole = hole.checked_sub(self.closed).and_then(|at| self.holes.get(at as usize));
        let place = hole.and_then(|hole| match &hole.parts {
            Parts::One(place) => (part == 0).then_some(place),
            Parts::Several(places) => places.get(part as usize),
        });
        round == self.round && place.is_some_and(|(start, end)| start == end)
    }

    /// Answers with `error` the transactions that were sent at this moment or before, and were not answered. Whether there were any.
    pub fn give_up_transactions(&mut self, sent_by: Instant, error: &[u8]) -> bool {
        let is_late = |hole: &Hole| hole.sent_at.is_some_and(|sent_at| sent_at <= sent_by);
        let numbered = self.holes.iter().zip(self.closed..);
        let late = numbered.filter(|&(hole, _)| is_late(hole) && !hole.is_filled());
        let late: Vec<u32> = late.map(|(_, number)| number).collect();
        late.iter().for_each(|number| self.fill(*number, 0, error));
        !late.is_empty()
    }

    /// Whether there are holes.
    pub fn is_open(&self) -> bool {
        !self.holes.is_empty()
    }

    /// How many parts of replies have not come.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Whether all replies have come.
    pub fn is_complete(&self) -> bool {
        self.outstanding == 0
    }

    /// Whether no further command may be executed before the replies are there. The routes of commands
    /// behind the first may have changed with the topology: they are not sent past it.
    pub fn is_full(&self, cluster: Option<&Cluster>) -> bool {
        let revision = || cluster.and_then(Cluster::coordinator).map(|one| one.revision());
        self.is_open()
            && (self.is_for_all
                || self.holes.len() >= self.window
                || self.requests.len() > MAX_REQUEST_BYTES
                || revision() != Some(self.revision))
    }

    /// A command is executed elsewhere: makes its hole, and what is to be sent. Or gives what it has to
    /// wait for.
    pub fn take(
        &mut self,
        away: Away,
        args: &Command<'_>,
        (output, batch_replies): (&[u8], usize),
        session: &mut Session,
        cluster: Option<&Cluster>,
    ) -> Option<Await> {
        let (mut then, mut sent_at) = (Vec::new(), None);
        let (merge, parts) = match away {
            Away::Wait(until) => return Some(until),
            Away::Send(target) => {
                args.append_request(&mut self.requests);
                (Merge::Only, Ok((target, 1)))
            }
            Away::Exec(target) => {
                sent_at = Some(Instant::now());
                let queued = session.end_transaction().unwrap_or_default();
                let (requests, count) = place::requests_of(&queued);
                self.requests.extend_from_slice(&requests);
                let merge = queued.aside.map_or(Merge::Only, Merge::Transaction);
                (merge, Ok((target, count)))
            }
            Away::Split(split) => {
                then = split.then;
                (split.merge, Err(split.parts))
            }
        };
        let coordinator = cluster.and_then(Cluster::coordinator);
        let own = coordinator.map(|one| CallTarget::Owner(one.me()));
        session.round.open(match &parts {
            Ok((target, _)) => Some(*target) == own,
            Err(parts) => parts.iter().any(|part| Some(part.target) == own),
        });
        self.is_for_all = merge.is_for_all();
        if self.holes.is_empty() {
            self.revision = coordinator.map(|one| one.revision()).unwrap_or_default();
        }
        let hole = self.closed + self.holes.len() as u32;
        let protocol = session.protocol;
        let parts = match parts {
            Ok((target, replies)) => {
                let end = self.requests.len();
                self.outgoing.push(Outgoing { target, protocol, hole, part: 0, replies, end });
                self.outstanding += 1;
                Parts::One((0, 0))
            }
            Err(parts) => self.take_parts(parts, hole, protocol),
        };
        let (at, replies_before) = (output.len(), batch_replies);
        let is_wanted = crate::dispatch::wants_reply(session);
        // Of one that is not written nothing is held.
        let merge = if is_wanted { merge } else { Merge::Only };
        self.own_bytes += merge.own_bytes();
        let hole = Hole { at, replies_before, is_wanted, merge, protocol, parts, then, sent_at };
        self.holes.push(hole);
        None
    }

    /// Begins the second round of the last command, if it has one and the first is over: its hole, and what is to be
    /// sent. Not if a part failed: then the reply to that is the reply.
    pub fn begin_second_round(&mut self) -> Option<(u32, Protocol, Vec<Vec<u8>>)> {
        let number = self.holes.len().checked_sub(1).filter(|_| self.outstanding == 0)?;
        let hole = &mut self.holes[number];
        let requests = std::mem::take(&mut hole.then);
        let has_failed = |(start, end): &(usize, usize)| is_error(&self.arrived[*start..*end]);
        if requests.is_empty() {
            return None;
        }
        if matches!(&hole.parts, Parts::Several(places) if places.iter().any(has_failed)) {
            // The others have executed nothing either.
            hole.merge = Merge::Only;
            return None;
        }
        hole.parts = Parts::Several(vec![(0, 0); requests.len()]);
        self.outstanding = requests.len();
        Some((self.closed + number as u32, hole.protocol, requests))
    }

    fn take_parts(&mut self, parts: Vec<Part>, hole: u32, protocol: Protocol) -> Parts {
        for (number, part) in parts.iter().enumerate() {
            self.requests.extend_from_slice(&part.requests);
            let (end, replies) = (self.requests.len(), part.replies);
            let (target, number) = (part.target, number as u32);
            self.outgoing.push(Outgoing { target, protocol, hole, part: number, replies, end });
        }
        self.outstanding += parts.len();
        Parts::Several(vec![(0, 0); parts.len()])
    }

    /// What is to be sent, with its bytes; once.
    pub fn take_outgoing(&mut self) -> (Vec<Outgoing>, Vec<u8>) {
        (std::mem::take(&mut self.outgoing), std::mem::take(&mut self.requests))
    }

    /// The reply of a part has come.
    pub fn fill(&mut self, hole: u32, part: u32, reply: &[u8]) {
        let hole = hole.checked_sub(self.closed).and_then(|at| self.holes.get_mut(at as usize));
        let Some(hole) = hole else { return };
        let kept = if hole.is_wanted || is_error(reply) { reply } else { UNWANTED };
        if let Some(slot) = hole.places().get_mut(part as usize) {
            *slot = (self.arrived.len(), self.arrived.len() + kept.len());
            self.arrived.extend_from_slice(kept);
            self.round_bytes += kept.len();
            self.outstanding = self.outstanding.saturating_sub(1);
        }
    }

    /// Puts the replies, which have all come, into the holes of the output. The round is over.
    pub fn weave(&mut self, output: &mut Vec<u8>) {
        if !self.is_open() {
            return;
        }
        let (mut woven, from) = self.close_holes(self.holes.len(), output);
        woven.extend_from_slice(&output[from..]);
        *output = woven;
        self.end_round();
    }

    /// Closes the first holes, as far as all their replies have come, and takes out of the output what is before the
    /// next one: it may be sent.
    pub fn weave_ready(&mut self, output: &mut Vec<u8>) -> Vec<u8> {
        let ready = self.holes.iter().take_while(|hole| hole.is_filled()).count();
        let Some(next) = self.holes.get(ready).map(|hole| hole.at) else { return Vec::new() };
        let (mut woven, from) = self.close_holes(ready, output);
        woven.extend_from_slice(&output[from..next]);
        output.drain(..next);
        let mut kept = Vec::new();
        for hole in &mut self.holes {
            hole.at -= next;
            for (start, end) in hole.places().iter_mut().filter(|(start, end)| end > start) {
                let at = kept.len();
                kept.extend_from_slice(&self.arrived[*start..*end]);
                (*start, *end) = (at, kept.len());
            }
        }
        self.arrived = kept;
        woven
    }

    /// Ends the round with the replies of its first commands, of which there is at least one, if nothing behind them was
    /// executed. Else nothing is changed.
    pub fn cut_short(&mut self, output: &mut Vec<u8>) -> bool {
        let ready = self.holes.iter().take_while(|hole| hole.is_filled()).count();
        let rest = self.holes.get_mut(ready..).unwrap_or_default();
        let is_new = |hole: &mut Hole| {
            hole.at == output.len() && hole.places().iter().all(|(start, end)| start == end)
        };
        if ready == 0 || !rest.iter_mut().all(is_new) {
            return false;
        }
        let (mut woven, from) = self.close_holes(ready, output);
        woven.extend_from_slice(&output[from..]);
        *output = woven;
        self.holes.clear();
        self.outstanding = 0;
        self.end_round();
        true
    }

    /// The output up to the last of the first `count` holes with their replies in them, and where that is; the holes are
    /// gone.
    fn close_holes(&mut self, count: usize, output: &[u8]) -> (Vec<u8>, usize) {
        let Self { holes, arrived, own_bytes, closed, .. } = self;
        let mut woven = Vec::with_capacity(output.len() + arrived.len() + *own_bytes);
        let mut from = 0;
        for hole in holes.drain(..count) {
            woven.extend_from_slice(&output[from..hole.at]);
            from = hole.at;
            *own_bytes -= hole.merge.own_bytes();
            if !hole.is_wanted {
                continue;
            }
            match &hole.parts {
                Parts::One((start, end)) => {
                    hole.merge.write(&[&arrived[*start..*end]], hole.protocol, &mut woven);
                }
                Parts::Several(places) => {
                    let parts: Vec<&[u8]> =
                        places.iter().map(|(start, end)| &arrived[*start..*end]).collect();
                    hole.merge.write(&parts, hole.protocol, &mut woven);
                }
            }
        }
        *closed += count as u32;
        (woven, from)
    }

    fn end_round(&mut self) {
        self.window = match self.round_bytes > MANY_BYTES {
            true => (self.window / (self.round_bytes / MANY_BYTES + 1)).max(1),
            false => (self.window * 2).min(MAX_WINDOW),
        };
        (self.closed, self.round_bytes, self.own_bytes) = (0, 0, 0);
        self.round += 1;
        self.arrived.clear();
        self.arrived.shrink_to(KEPT_BYTES);
    }

    /// The `count` replies of this node behind `mark` become errors; holes stay between them.
    pub fn fail_batch(
        &mut self,
        output: &mut Vec<u8>,
        (mark, count): (usize, usize),
        mut error: impl FnMut(&mut Vec<u8>),
    ) {
        output.truncate(mark);
        let mut written = 0;
        for hole in self.holes.iter_mut().filter(|hole| hole.at >= mark) {
            (written..hole.replies_before).for_each(|_| error(output));
            written = written.max(hole.replies_before);
            hole.at = output.len();
        }
        (written..count).for_each(|_| error(output));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies of this node with holes behind the first and the third of them.
    fn holes(is_wanted: bool) -> (RemoteReplies, Vec<u8>) {
        let output = b"+1\r\n+2\r\n+3\r\n+4\r\n".to_vec();
        let hole = |at, replies_before, merge, parts| {
            let (protocol, then) = (Protocol::Resp2, Vec::new());
            Hole { at, replies_before, is_wanted, merge, protocol, parts, then, sent_at: None }
        };
        let several = Parts::Several(vec![(0, 0); 2]);
        let mut remote = RemoteReplies::default();
        remote.holes.push(hole(4, 1, Merge::Only, Parts::One((0, 0))));
        remote.holes.push(hole(12, 3, Merge::Sum { all: false }, several));
        remote.outstanding = 3;
        (remote, output)
    }

    #[test]
    fn replies_come_into_their_holes_in_any_order() {
        for is_wanted in [true, false] {
            let (mut remote, mut output) = holes(is_wanted);
            remote.fill(1, 1, b":2\r\n");
            remote.fill(0, 0, b"$1\r\nx\r\n");
            assert!(!remote.is_complete());
            remote.fill(1, 0, b":40\r\n");
            assert!(remote.is_complete() && remote.is_open());
            remote.weave(&mut output);
            assert!(!remote.is_open());
            let woven = match is_wanted {
                true => &b"+1\r\n$1\r\nx\r\n+2\r\n+3\r\n:42\r\n+4\r\n"[..],
                false => b"+1\r\n+2\r\n+3\r\n+4\r\n",
            };
            assert_eq!(output, woven, "{}", output.escape_ascii());
        }
    }

    #[test]
    fn replies_of_this_node_in_a_hole_are_held_until_it_is_closed() {
        let (mut remote, mut output) = holes(true);
        let merge = Merge::Transaction([(0, b"$1\r\nx\r\n".to_vec())].to_vec());
        remote.own_bytes = merge.own_bytes();
        remote.holes[0].merge = merge;
        remote.fill(0, 0, b"*1\r\n:1\r\n");
        assert_eq!((remote.arrived_bytes(), remote.held_bytes()), (8, 15));
        assert_eq!(remote.weave_ready(&mut output), b"+1\r\n*2\r\n$1\r\nx\r\n:1\r\n+2\r\n+3\r\n");
        assert_eq!(remote.held_bytes(), 0);
    }

    #[test]
    fn of_replies_that_nobody_wants_is_held_that_they_have_come() {
        let (mut remote, mut output) = holes(false);
        let large = [b"$3000\r\n", &[b'x'; 3000][..], b"\r\n"].concat();
        remote.fill(0, 0, &large);
        remote.fill(1, 0, &large);
        assert_eq!((remote.held_bytes(), remote.outstanding()), (2 * UNWANTED.len(), 1));
        assert_eq!(remote.weave_ready(&mut output), b"+1\r\n+2\r\n+3\r\n");
        remote.fill(1, 1, &large);
        remote.weave(&mut output);
        assert_eq!(output, b"+4\r\n");
        // An error ends a command of two rounds after the first.
        let (mut remote, _) = holes(false);
        remote.holes[1].then = vec![b"GET k\r\n".to_vec()];
        remote.fill(0, 0, &large);
        remote.fill(1, 0, &large);
        remote.fill(1, 1, b"-CLUSTERDOWN x\r\n");
        assert!(remote.begin_second_round().is_none());
    }

    #[test]
    fn a_first_round_that_fails_says_nothing_of_other_parts() {
        let refused = b"-TRYAGAIN x; nothing was executed\r\n";
        let (mut remote, mut output) = holes(true);
        remote.holes[1].then = vec![b"GET k\r\n".to_vec(); 2];
        remote.fill(0, 0, b"+a\r\n");
        remote.fill(1, 0, b":1\r\n");
        remote.fill(1, 1, refused);
        assert!(remote.begin_second_round().is_none());
        remote.weave(&mut output);
        let woven = [&b"+1\r\n+a\r\n+2\r\n+3\r\n"[..], refused, b"+4\r\n"].concat();
        assert_eq!(output, woven, "{}", output.escape_ascii());
        // In the second round others may have executed it.
        let (mut remote, mut output) = holes(true);
        remote.holes[1].then = vec![b"GET k\r\n".to_vec(); 2];
        remote.fill(0, 0, b"+a\r\n");
        (0..2).for_each(|part| remote.fill(1, part, b":1\r\n"));
        assert!(remote.begin_second_round().is_some());
        remote.fill(1, 0, b":1\r\n");
        remote.fill(1, 1, refused);
        remote.weave(&mut output);
        assert!(!output.windows(refused.len()).any(|part| part == refused));
    }

    #[test]
    fn what_is_ready_leaves_before_the_rest_has_come() {
        let (mut remote, mut output) = holes(true);
        remote.fill(1, 1, b":2\r\n");
        assert_eq!(remote.weave_ready(&mut output), b"+1\r\n");
        remote.fill(0, 0, b"$1\r\nx\r\n");
        assert!(!remote.cut_short(&mut output), "a part of the second command was executed");
        assert_eq!(remote.weave_ready(&mut output), b"$1\r\nx\r\n+2\r\n+3\r\n");
        assert_eq!(
            (&output[..], remote.outstanding(), remote.arrived_bytes()),
            (&b"+4\r\n"[..], 1, 4)
        );
        remote.fill(1, 0, b":40\r\n");
        assert!(remote.weave_ready(&mut output).is_empty(), "the round is over");
        remote.weave(&mut output);
        assert_eq!(output, b":42\r\n+4\r\n");
        assert!(!remote.is_open() && remote.arrived_bytes() == 0);
    }

    #[test]
    fn a_transaction_is_given_up_and_what_comes_for_it_later_is_not_awaited() {
        let (mut remote, mut output) = holes(true);
        let now = Instant::now();
        remote.holes[0].sent_at = Some(now);
        assert!(
            !remote.give_up_transactions(now - std::time::Duration::from_secs(1), b"-late\r\n")
        );
        assert!(remote.awaits(0, 0, 0) && !remote.awaits(0, 0, 1) && !remote.awaits(1, 0, 0));
        assert!(remote.give_up_transactions(now, b"-late\r\n"));
        assert!(!remote.give_up_transactions(now, b"-late\r\n"), "it is answered");
        assert!(!remote.awaits(0, 0, 0) && remote.awaits(0, 1, 0) && remote.awaits(0, 1, 1));
        (0..2).for_each(|part| remote.fill(1, part, b":1\r\n"));
        remote.weave(&mut output);
        assert_eq!(output, b"+1\r\n-late\r\n+2\r\n+3\r\n:2\r\n+4\r\n");
        assert_eq!((remote.round(), remote.awaits(0, 0, 0)), (1, false));
    }

    #[test]
    fn a_round_is_cut_short_where_nothing_more_was_executed() {
        let (mut remote, mut output) = holes(true);
        assert!(!remote.cut_short(&mut output), "nothing has come");
        remote.fill(0, 0, b"+a\r\n");
        assert!(!remote.cut_short(&mut output), "a command of this node is behind it");
        output.truncate(12);
        assert!(remote.cut_short(&mut output));
        assert_eq!(output, b"+1\r\n+a\r\n+2\r\n+3\r\n");
        assert!(!remote.is_open() && remote.is_complete());
    }

    #[test]
    fn a_batch_that_fails_leaves_the_replies_of_others() {
        let (mut remote, mut output) = holes(true);
        // The first reply and its hole are of an earlier batch.
        remote.holes[0].at = 0;
        remote.fail_batch(&mut output, (4, 3), |output| output.extend_from_slice(b"-e\r\n"));
        remote.fill(0, 0, b"+a\r\n");
        remote.fill(1, 0, b":1\r\n");
        remote.fill(1, 1, b":1\r\n");
        remote.weave(&mut output);
        assert_eq!(output.escape_ascii().to_string(), r"+a\r\n+1\r\n-e\r\n-e\r\n-e\r\n:2\r\n");
    }
}
