//! A client as its event loop sees it: its socket, its replies that have not left, and where its
//! [`ClientState`] is.

use super::client_state::{ClientState, KEPT_BYTES, MAX_UNSENT_BYTES};
use super::loop_handle::LoopHandle;
use super::offload::{Offload, ReturnSlot};
use super::open_call::{Deferred, OpenCall};
use super::phase::{Blocked, Phase};
use super::transport::{Received, Transport};
use crate::session::ClientInfo;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A client as its loop sees it.
pub(crate) struct Connection {
    pub transport: Transport,
    /// `None` while it is on a offload.
    pub state: Option<Box<ClientState>>,
    /// Where it lies when it is back. `None` before its first offload.
    return_slot: Option<Arc<ReturnSlot>>,
    pub id: u64,
    pub info: Arc<ClientInfo>,
    /// Replies that the socket has not taken, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// How many waiting bytes were too many for long, and since when (monotonic, us).
    over_soft: Option<(u64, u64)>,
    /// There may be something to read.
    pub is_readable: bool,
    /// The client sends nothing more after what can be read now.
    pub was_left: bool,
    /// Everything that it sent is received, and some of it not executed.
    is_at_end: bool,
    /// Where it stands between two commands.
    pub phase: Phase,
    /// It was to be served while its batch held it, and is queued when that is over.
    pub goes_on_later: bool,
    /// It is in the ready queue.
    pub is_queued: bool,
    /// It ends when everything is sent.
    pub closes: bool,
    /// What it executes, if it is no client but executes calls.
    pub call: Option<Box<OpenCall>>,
    /// Whether it is such a one.
    pub is_for_calls: bool,
    /// The cluster will call back before its next command is tried again.
    pub awaits: bool,
    /// Requests to other nodes that wait until it has read what has come of the others.
    pub deferred: Vec<Deferred>,
}

impl Connection {
    pub fn new(transport: Transport, state: Box<ClientState>) -> Self {
        Self {
            id: state.session.id,
            info: state.session.info.clone(),
            transport,
            state: Some(state),
            return_slot: None,
            unsent: Vec::new(),
            sent: 0,
            over_soft: None,
            is_readable: false,
            was_left: false,
            is_at_end: false,
            phase: Phase::Ready,
            goes_on_later: false,
            is_queued: false,
            closes: false,
            call: None,
            is_for_calls: false,
            awaits: false,
            deferred: Vec::new(),
        }
    }

    /// Begins a offload, if it has to.
    pub fn offload(&mut self, home: &Arc<LoopHandle>, token: usize) -> Option<Offload> {
        let Phase::Blocked(Blocked::Command(wait)) = self.phase else { return None };
        let state = self.state.take()?;
        if let Some(call) = &mut self.call
            && state.ends_without_key()
        {
            // What was before it is committed.
            call.guard = None;
        }
        let return_slot = self.return_slot.get_or_insert_default().clone();
        return_slot.leave(self.is_readable);
        let is_flushed = !self.waits_to_send() && state.output.is_empty();
        let socket = self.transport.shared_socket().filter(|_| is_flushed);
        Some(Offload { state, wait, tries: 0, home: home.clone(), token, socket, return_slot })
    }

    /// Takes the state back from an offload, if that is over. If not, the loop is woken when it is.
    pub fn look(&mut self) {
        if self.state.is_none()
            && let Some(return_slot) = &self.return_slot
        {
            self.state = return_slot.look();
            if self.state.is_some() {
                self.phase.unblock();
            }
        }
    }

    pub fn unsent_bytes(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Whether there is something that the socket has not taken.
    pub fn waits_to_send(&self) -> bool {
        self.unsent_bytes() > 0 || !self.transport.is_flushed()
    }

    /// Bytes of replies that have not left.
    pub fn held_output(&self) -> u64 {
        let output =
            self.state.as_ref().map_or(0, |state| state.output.len() + state.remote.held_bytes());
        (self.unsent_bytes() + output) as u64
    }

    /// Notes that `held` bytes wait at `now_us`, where `soft_bytes` are many: for how long there
    /// have been that many without a break.
    pub fn note_held(&mut self, held: u64, soft_bytes: u64, now_us: u64) -> Duration {
        if held < soft_bytes {
            self.over_soft = None;
            return Duration::ZERO;
        }
        let (_, since) = *self.over_soft.get_or_insert((soft_bytes, now_us));
        Duration::from_micros(now_us.saturating_sub(since))
    }

    /// Whether it is to be served: it is here, and takes its replies.
    pub fn can_be_served(&self) -> bool {
        self.state.is_some()
            && !self.closes
            && self.phase.can_serve()
            && self.unsent_bytes() <= MAX_UNSENT_BYTES
            && !self.is_held_by_batch()
            && !self.is_settling()
    }

    /// Whether its last reply waits until what is under way of other clients is over, and everything behind that.
    pub fn is_settling(&self) -> bool {
        self.state.as_deref().is_some_and(|state| state.session.is_settling())
    }

    /// Whether nothing more is executed of it until its batch is over, since its replies, which are many, cannot leave
    /// before.
    pub fn is_held_by_batch(&self) -> bool {
        self.phase.is_in_batch()
            && self.state.as_deref().is_some_and(|state| state.output.len() > MAX_UNSENT_BYTES)
    }

    /// Whether its requests are to be received, but not executed until it has read its replies: else a client that
    /// writes all its requests before it reads would wait for ever. One that has not logged in has to read.
    pub fn is_only_received(&self) -> bool {
        let has_logged_in =
            |state: &ClientState| state.session.user.is_some() && !self.is_for_calls;
        self.unsent_bytes() > MAX_UNSENT_BYTES
            && self.is_readable
            && !self.is_at_end
            && !self.closes
            && self.phase.can_serve()
            && self.state.as_deref().is_some_and(has_logged_in)
    }

    /// Receives requests, to be executed later: how many bytes.
    pub fn receive_ahead(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = match self.receive(buf)? {
            Received::All(bytes) | Received::More(bytes) => bytes,
            Received::Closed => {
                // Heard again when everything is executed.
                (self.is_readable, self.is_at_end) = (true, true);
                0
            }
        };
        if let Some(state) = &mut self.state {
            state.lay_by(&buf[..bytes]);
        }
        Ok(bytes)
    }

    /// Its batch is over: its replies may leave, or are all `error`.
    pub fn leave_batch(&mut self, error: Option<&str>) {
        self.phase.leave_batch();
        if let (Some(error), Some(state)) = (error, &mut self.state)
            && state.fail_batch(error)
        {
            self.closes = true;
            if matches!(self.phase, Phase::Blocked(Blocked::Command(_))) {
                // That command is not executed any more.
                self.phase.unblock();
            }
        }
    }

    /// Its state is back from an offload.
    pub fn give_back(&mut self, state: Box<ClientState>) {
        self.state = Some(state);
        self.phase.unblock();
    }

    /// Whether other nodes have commands of it, or the cluster lets its next command wait.
    pub fn waits_for_cluster(&self) -> bool {
        self.awaits || self.state.as_ref().is_some_and(|state| state.remote.is_open())
    }

    /// Whether it waits for what is done here: for the commit of its batch, or for a key that another batch writes.
    pub fn waits_for_server(&self) -> bool {
        let has_command = self.state.as_deref().is_some_and(ClientState::has_command);
        self.phase.is_in_batch() || has_command && self.can_be_served()
    }

    /// Whether so much has come from other nodes that what else it has asked for may wait.
    pub fn is_ahead_of_its_reader(&self) -> bool {
        let many = |state: &ClientState| state.remote.arrived_bytes() > MAX_UNSENT_BYTES;
        self.state.as_deref().is_some_and(many)
    }

    /// Takes what is ready of its replies, while others are still to come, for sending.
    pub fn spill(&mut self) {
        if let Some(state) = self.state.as_mut().filter(|_| !self.phase.is_in_batch()) {
            let ready = state.remote.weave_ready(&mut state.output);
            if self.sent > 0 {
                self.unsent.drain(..self.sent);
                self.sent = 0;
            }
            match self.unsent.is_empty() {
                true => self.unsent = ready,
                false => self.unsent.extend_from_slice(&ready),
            }
        }
    }

    /// Whether requests that wait may be sent: little is held for the client, or nothing else can come that would let it
    /// become less.
    pub fn may_send_deferred(&self) -> bool {
        let Some(state) = self.state.as_deref().filter(|_| !self.deferred.is_empty()) else {
            return false;
        };
        let are_next = state.remote.outstanding() == self.deferred.len();
        // While its batch is not over nothing leaves.
        !self.phase.is_in_batch()
            && self.unsent_bytes() <= MAX_UNSENT_BYTES
            && (are_next || state.remote.arrived_bytes() <= MAX_UNSENT_BYTES)
    }

    /// Takes the replies of other nodes over, if all have come and its batch is over: whether it can
    /// be served again.
    pub fn leave_cluster(&mut self) -> bool {
        let is_blocked = self.phase == Phase::Blocked(Blocked::Cluster);
        let Some(state) = self.state.as_mut().filter(|_| is_blocked && !self.awaits) else {
            return false;
        };
        if !state.remote.is_complete() {
            return false;
        }
        state.weave();
        self.phase.unblock();
        true
    }

    /// Whether all replies have left.
    pub fn is_flushed(&self) -> bool {
        let is_sent = |state: &ClientState| state.output.is_empty() && !state.remote.is_open();
        self.unsent_bytes() == 0
            && self.transport.is_flushed()
            && self.state.as_deref().is_some_and(is_sent)
    }

    pub fn receive(&mut self, buf: &mut [u8]) -> io::Result<Received> {
        let received = self.transport.receive(buf)?;
        self.is_readable = match received {
            // The end is not told a second time.
            Received::All(bytes) => self.was_left && bytes > 0,
            Received::More(_) => true,
            Received::Closed => false,
        };
        Ok(received)
    }

    /// Sends what there is to send, as far as the socket takes it; replies of a batch only when it
    /// is over. How many bytes went out.
    pub fn flush(&mut self) -> io::Result<usize> {
        let out = self.send()?;
        if self.over_soft.is_some_and(|(soft_bytes, _)| self.held_output() < soft_bytes) {
            self.over_soft = None;
        }
        Ok(out)
    }

    fn send(&mut self) -> io::Result<usize> {
        let mut out = 0;
        if self.waits_to_send() {
            let sent = self.transport.send(&self.unsent[self.sent..])?;
            out += sent;
            self.sent += sent;
            if self.sent == self.unsent.len() {
                self.unsent.clear();
                self.unsent.shrink_to(KEPT_BYTES);
                self.sent = 0;
            }
        }
        let may_leave = |state: &&mut Box<ClientState>| {
            !self.phase.is_in_batch()
                && !state.output.is_empty()
                && !state.remote.is_open()
                && !state.session.is_settling()
        };
        let Some(state) = self.state.as_mut().filter(may_leave) else { return Ok(out) };
        let sent = match self.unsent.is_empty() {
            true => self.transport.send(&state.output)?,
            false => 0,
        };
        if self.unsent.is_empty() && state.output.len() > KEPT_BYTES {
            // As they are: they may be long.
            (self.unsent, self.sent) = (std::mem::take(&mut state.output), sent);
            if self.sent == self.unsent.len() {
                (self.unsent, self.sent) = (Vec::new(), 0);
            }
            return Ok(out + sent);
        }
        if self.sent > self.unsent.len() / 2 {
            // What has left is not kept as long as the client is behind.
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
        self.unsent.extend_from_slice(&state.output[sent..]);
        state.output.clear();
        state.output.shrink_to(KEPT_BYTES);
        Ok(out + sent)
    }

    /// Gives back memory that an idle client does not need.
    pub fn release(&mut self) {
        if self.unsent.is_empty() {
            self.unsent = Vec::new();
        }
        if let Some(state) = &mut self.state {
            state.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::server::Server;
    use crate::session::{ConnectionCloser, Origin};
    use crate::settle::UnderWay;
    use std::io::Read;
    use terrace_keyspace::Keyspace;

    struct Nobody;

    impl ConnectionCloser for Nobody {
        fn end(&self, _token: usize, _id: u64, _under_way: UnderWay) {}
        fn settle(&self, _token: usize, _id: u64, _under_way: UnderWay) {}
        fn settled(&self, _token: usize, _id: u64) {}
    }

    /// A client, and the other end of its connection.
    fn connected(dir: &std::path::Path) -> (Connection, std::net::TcpStream) {
        let config = Config::load(None, [], []).unwrap();
        let space = Keyspace::open(dir, config.settings().engine_options()).unwrap();
        let server = Server::new(space, config).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let theirs = std::net::TcpStream::connect(address).unwrap();
        let (ours, peer) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let home = Arc::new(Nobody);
        let origin = Origin { peer, local: address, is_tls: false, home, token: 0 };
        let state = ClientState::begin(&server, origin);
        let transport = Transport::new(mio::net::TcpStream::from_std(ours), None).unwrap();
        (Connection::new(transport, Box::new(state)), theirs)
    }

    /// However long it is behind.
    #[test]
    fn what_a_client_has_read_is_not_kept() {
        const PIECE: usize = 1 << 20;
        /// Pieces that the reader is behind.
        const BEHIND: usize = 64;
        let dir = tempfile::tempdir().unwrap();
        let (mut client, mut theirs) = connected(dir.path());
        let say = |client: &mut Connection, bytes: usize| {
            client.state.as_mut().unwrap().output.resize(bytes, b'x');
            client.flush().unwrap();
        };
        // More than the sockets take, also if the system gives the reader's all that it has for one (32 MiB).
        say(&mut client, BEHIND * PIECE);
        let mut piece = vec![0; PIECE];
        for _ in 0..100 {
            theirs.read_exact(&mut piece).unwrap();
            say(&mut client, PIECE);
            assert!(client.unsent_bytes() > 0);
            let most = (2 * BEHIND + 6) * PIECE;
            assert!(client.unsent.len() < most, "{} bytes", client.unsent.len());
        }
        for _ in 0..BEHIND {
            theirs.read_exact(&mut piece).unwrap();
            client.flush().unwrap();
        }
        assert!(piece.iter().all(|byte| *byte == b'x'));
    }

    #[test]
    fn replies_of_a_turn_leave_when_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let (mut client, mut theirs) = connected(dir.path());
        let say = |client: &mut Connection, text: &[u8]| {
            let state = client.state.as_mut().unwrap();
            state.begin_batch();
            state.output.extend_from_slice(text);
            state.batch_replies = 1;
            client.phase.enter_batch();
        };
        say(&mut client, b"+one\r\n");
        assert_eq!(client.flush().unwrap(), 0, "it is not committed");
        assert!(!client.is_flushed());
        client.leave_batch(None);
        assert_eq!(client.flush().unwrap(), 6);
        say(&mut client, b"+two\r\n");
        client.leave_batch(Some("ERR three"));
        client.flush().unwrap();
        assert!(client.is_flushed());
        drop(client);
        let mut heard = String::new();
        theirs.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "+one\r\n-ERR three\r\n");
    }
}
