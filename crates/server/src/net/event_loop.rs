//! An event loop: receives the requests of many clients, executes those that cannot block into one batch, commits
//! it, and sends the replies.

mod arrivals;
mod batches;
mod calls;
mod deferred;
mod late;
mod leader_follower;
mod outbox;
mod paused;
mod sent_calls;
mod settle;
mod sleep;

use super::client_state::{MAX_BATCH_BYTES, Progress};
use super::connection::Connection;
use super::executor::Executor;
use super::listen::Bound;
use super::loop_handle::{LoopHandle, Message};
use super::offload::Offload;
use super::phase::Blocked;
use super::thread;
use super::transport::{Received, Tls};
use crate::server::Server;
use crate::settle::UnderWay;
use leader_follower::{LeadOutcome, LeaderFollower};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Poll, Token, Waker};
use outbox::Outbox;
use sent_calls::SentCalls;
use slab::Slab;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_cluster::ServeGuard;
use terrace_keyspace::{CommandBatch, Mode, Wait};

/// What one read takes at most. Also how much of one client is read before others have their turn.
const READ_BYTES: usize = 64 << 10;

/// Commands of one client, received before, that are executed at a time; then the other clients are served. One read
/// brings fewer, as a rule.
const MAX_WAITING_COMMANDS: usize = 4096;

/// With other loops beside it, a loop commits a batch that holds this many locks: the others may want
/// them.
const MAX_SHARED_LOCKS: usize = 128;

/// How often a command is tried here whose key another batch was writing, until it goes where it may
/// wait: then others were always faster.
const MAX_TRIES: u32 = 64;

/// How often idle clients are looked at.
const TICK: Duration = Duration::from_secs(1);

/// How long replies may take to leave when the server ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long no connection is accepted after the process has run out of files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const WAKE: Token = Token(usize::MAX);
const FIRST_LISTENER: usize = usize::MAX / 2;

/// All loops of a server.
pub struct Loops {
    handles: Vec<Arc<LoopHandle>>,
    threads: Vec<JoinHandle<()>>,
}

impl Loops {
    /// Starts `count` loops; the first one accepts what comes to `listeners`.
    ///
    /// # Errors
    /// The machine has no room for more threads or files.
    pub fn start(
        server: &Arc<Server>,
        executor: &Arc<Executor>,
        listeners: Vec<Bound>,
        tls: Option<Tls>,
        count: usize,
    ) -> io::Result<Self> {
        let mut polls = Vec::new();
        let mut handles = Vec::new();
        for _ in 0..count.max(1) {
            let poll = Poll::new()?;
            let waker = Waker::new(poll.registry(), WAKE)?;
            let handle = Arc::new(LoopHandle::new(waker));
            let called = handle.clone();
            server.space.on_release(move || called.key_is_free());
            handles.push(handle);
            polls.push(poll);
        }
        let mut threads = Vec::new();
        let mut listeners = Some(listeners);
        for (number, poll) in polls.into_iter().enumerate() {
            let leader_follower = Arc::new(LeaderFollower::default());
            let mut event_loop = Box::new(EventLoop {
                server: server.clone(),
                executor: executor.clone(),
                handle: handles[number].clone(),
                all: handles.clone(),
                leader_follower: leader_follower.clone(),
                next: 0,
                listeners: listeners.take().unwrap_or_default(),
                tls: tls.clone(),
                poll,
                clients: Slab::new(),
                batch: Box::new(server.space.command_batch(Mode::Memory)),
                served: Vec::new(),
                blocked: Vec::new(),
                own_offload: None,
                batch_number: 0,
                handed_over: Vec::new(),
                under_way: Vec::new(),
                spare: None,
                held_up: Vec::new(),
                paused: BTreeSet::new(),
                pause_seen: 0,
                ready: VecDeque::new(),
                guard: None,
                outbox: Outbox::default(),
                sent_calls: SentCalls::default(),
                idle_for_calls: Vec::new(),
                scratch: vec![0; READ_BYTES],
                last_tick: Instant::now(),
                accepts_again: None,
                stops_by: None,
            });
            event_loop.register_listeners()?;
            leader_follower.give(event_loop);
            for _ in 0..2 {
                let (leader_follower, server) = (leader_follower.clone(), server.clone());
                let name = format!("loop-{number}");
                threads.push(thread::spawn(name, move || {
                    leader_follower::run(leader_follower, &server)
                })?);
            }
        }
        Ok(Self { handles, threads })
    }

    /// The ways to tell them something.
    pub(crate) fn handles(&self) -> &[Arc<LoopHandle>] {
        &self.handles
    }

    /// Accepts nobody any more, sends what was answered, and ends.
    pub fn stop(self) {
        for handle in &self.handles {
            handle.send(Message::Stop);
        }
        for thread in self.threads {
            let _panicked = thread.join();
        }
    }
}

struct EventLoop {
    server: Arc<Server>,
    executor: Arc<Executor>,
    handle: Arc<LoopHandle>,
    all: Vec<Arc<LoopHandle>>,
    /// The threads that lead it in turns.
    leader_follower: Arc<LeaderFollower>,
    /// Which loop takes the next client.
    next: usize,
    listeners: Vec<Bound>,
    tls: Option<Tls>,
    poll: Poll,
    clients: Slab<Connection>,
    batch: Box<CommandBatch>,
    /// Clients that take part in the batch.
    served: Vec<usize>,
    /// Those that are offloaded once their batch is committed: what they wrote has to be seen there.
    blocked: Vec<usize>,
    /// One of them that this thread may serve itself.
    own_offload: Option<Offload>,
    /// Grows with every batch.
    batch_number: u64,
    /// The numbers of the batches that the executor commits.
    handed_over: Vec<u64>,
    /// What is dropped when the batch of this number is over.
    under_way: Vec<(u64, UnderWay)>,
    /// One that came back.
    spare: Option<Box<CommandBatch>>,
    /// Clients whose key another batch is writing: tried again when one is free.
    held_up: Vec<usize>,
    /// Those whose next command waits for the end of a `CLIENT PAUSE`.
    paused: BTreeSet<usize>,
    /// What the pause was at the last look at it: they were tried after that.
    pause_seen: u64,
    /// Clients with more to do.
    ready: VecDeque<usize>,
    /// In a cluster: of the open batch.
    guard: Option<Box<dyn ServeGuard>>,
    /// In a cluster: what is to be sent to other nodes.
    outbox: Outbox,
    /// In a cluster: what other nodes execute.
    sent_calls: SentCalls,
    /// Connections that execute calls and have none.
    idle_for_calls: Vec<usize>,
    scratch: Vec<u8>,
    last_tick: Instant,
    /// When connections are accepted without an event.
    accepts_again: Option<Instant>,
    stops_by: Option<Instant>,
}

impl EventLoop {
    /// Serves clients until the loop ends, or until somebody else is to lead it.
    fn lead(mut self: Box<Self>, events: &mut Events) -> LeadOutcome {
        loop {
            let timeout = self.longest_sleep();
            match self.poll.poll(events, Some(timeout)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!(%error, "cannot wait for clients");
                    return LeadOutcome::Ended;
                }
            }
            for event in &*events {
                self.take_event(event);
            }
            if self.handle.take_free_key() {
                for token in std::mem::take(&mut self.held_up) {
                    self.queue(token);
                }
            }
            self.look_at_the_pause();
            for _ in 0..self.ready.len() {
                if let Some(token) = self.ready.pop_front() {
                    if let Some(client) = self.clients.get_mut(token) {
                        client.is_queued = false;
                    }
                    self.serve(token);
                }
            }
            self.send_outbox();
            self.end_batch();
            self.tick();
            if self.has_ended() {
                // What nobody was told of; others may wait for its keys.
                self.batch.abandon();
                return LeadOutcome::Ended;
            }
            if let Some(offload) = self.take_own_offload() {
                return LeadOutcome::PassedOn(self, offload);
            }
        }
    }

    fn take_event(&mut self, event: &Event) {
        match event.token() {
            WAKE => self.take_messages(),
            Token(at) if at >= FIRST_LISTENER => self.accept(at - FIRST_LISTENER),
            Token(at) => {
                let Some(client) = self.clients.get_mut(at) else { return };
                if event.is_writable() && client.waits_to_send() {
                    self.flush(at);
                }
                if let Some(client) = self.clients.get_mut(at)
                    && (event.is_readable() || event.is_read_closed() || event.is_error())
                {
                    client.is_readable = true;
                    // Said once, and perhaps before the last bytes are read.
                    client.was_left |= event.is_read_closed() || event.is_error();
                    self.serve(at);
                }
            }
        }
    }

    fn take_messages(&mut self) {
        for message in self.handle.take_messages() {
            match message {
                Message::Client { socket, peer, local, is_tls } => {
                    self.welcome(socket, peer, local, is_tls);
                }
                Message::Back { token, state, progress } => {
                    // The place may have another client now.
                    let is_back = |client: &&mut Connection| client.id == state.session.id;
                    let Some(client) = self.clients.get_mut(token).filter(is_back) else {
                        continue;
                    };
                    client.give_back(state);
                    // Its command may have taken longer than a client may be idle.
                    client.info.note_use(None, self.server.space.now_ms());
                    client.closes |= progress == Progress::Close;
                    match progress {
                        Progress::Await(until) => self.await_cluster(token, &until),
                        Progress::Unsure => {
                            self.end_unsure(token);
                            continue;
                        }
                        _ => {}
                    }
                    self.flush(token);
                    if !self.ends_over_limit(token) {
                        self.serve(token);
                    }
                }
                Message::Call(call) => self.take_call(*call),
                Message::Cancelled { token } => self.cancel_call(token),
                Message::Replied(replied) => self.take_replies(replied),
                Message::Resume { token, id } => self.resume(token, id),
                Message::Committed(committed) => self.batch_is_back(committed),
                Message::Settle { token, id, under_way } => {
                    self.settle_with_calls(token, id, &under_way);
                }
                Message::Settled { token, id } => self.go_on_settled(token, id),
                Message::Kill { token, id, under_way } => self.kill(token, id, &under_way),
                Message::Stop => self.stop(),
            }
        }
    }

    /// Reads and executes what the client has sent, as far as it goes without waiting.
    fn serve(&mut self, token: usize) {
        let Some(client) = self.clients.get_mut(token) else { return };
        client.look();
        if self.stops_by.is_some() {
            return;
        }
        if client.is_only_received() {
            return self.receive_ahead(token);
        }
        if !client.can_be_served() {
            // A queue that it stands in again and again would keep the loop from sleeping.
            client.goes_on_later |= client.is_held_by_batch();
            return;
        }
        let Connection { state: Some(state), .. } = client else { return };
        if client.phase.enter_batch() {
            state.begin_batch();
            self.served.push(token);
            if self.guard.is_none()
                && let Some(cluster) = &self.server.cluster
            {
                self.guard = cluster.guard();
            }
        }
        let mut progress = match state.has_input() {
            true => {
                let most = if client.is_for_calls { usize::MAX } else { MAX_WAITING_COMMANDS };
                state.go_on(&mut self.batch, &self.server, most)
            }
            false => Progress::Idle,
        };
        if progress == Progress::Idle && client.is_readable {
            match client.receive(&mut self.scratch) {
                Ok(Received::All(0)) => {}
                Ok(Received::All(n) | Received::More(n)) => {
                    self.server.stats.received_bytes.add(n as u64);
                    // A large command may take longer to arrive than a client may be idle.
                    client.info.note_use(None, self.server.space.now_ms());
                    if let Some(state) = &mut client.state {
                        progress =
                            state.feed(&mut self.scratch[..n], &mut self.batch, &self.server);
                    }
                }
                // It sends nothing more; what it has asked for it may still read.
                Ok(Received::Closed) => progress = Progress::Close,
                Err(_) => return self.remove(token),
            }
        }
        if self.batch.took_part() {
            client.phase.bind();
            if let Some(state) = &mut client.state {
                state.session.is_bound = true;
            }
        }
        if self.server.cluster.is_some() {
            progress = self.after_commands(token, progress);
        }
        if self.ends_over_limit(token) {
            return;
        }
        let Some(client) = self.clients.get_mut(token) else { return };
        match progress {
            Progress::Elsewhere(Wait::Key, tries) if tries < MAX_TRIES => self.held_up.push(token),
            Progress::Elsewhere(wait, _) => {
                client.phase.block(Blocked::Command(wait));
                self.blocked.push(token);
            }
            Progress::Close => client.closes = true,
            Progress::More => self.queue(token),
            Progress::Idle if client.is_readable => self.queue(token),
            Progress::Idle => {}
            Progress::Await(until) => self.await_cluster(token, &until),
            Progress::AfterCommit => client.phase.block(Blocked::Cluster),
            Progress::Paused => self.pause(token),
            Progress::Unsure => return self.end_unsure(token),
        }
        if self.outbox.is_large() {
            self.send_outbox();
        }
        let is_shared = self.all.len() > 1 && self.handed_over.is_empty();
        let holds_many = is_shared && self.batch.lock_count() > MAX_SHARED_LOCKS;
        if holds_many || self.batch.size_bytes() > MAX_BATCH_BYTES {
            self.end_batch();
        }
    }

    /// Ends the connection if too many replies wait for their reader, or some for too long.
    fn ends_over_limit(&mut self, token: usize) -> bool {
        /// Nobody sets a limit below this.
        const HARMLESS: u64 = 64 << 10;
        let Some(client) = self.clients.get_mut(token) else { return true };
        if client.is_for_calls {
            return false;
        }
        let held = client.held_output();
        let now_us = self.server.space.monotonic_us();
        if held <= HARMLESS {
            client.note_held(held, u64::MAX, now_us);
            return false;
        }
        let limit = self.server.output_limit();
        if !limit.is_broken(held, client.note_held(held, limit.soft_bytes, now_us)) {
            return false;
        }
        tracing::warn!(client = client.id, "replies over the output limit");
        self.server.stats.output_limit_closed.add(1);
        self.remove(token);
        true
    }

    fn queue(&mut self, token: usize) {
        if let Some(client) = self.clients.get_mut(token)
            && !client.is_queued
        {
            client.is_queued = true;
            self.ready.push_back(token);
        }
    }

    /// Sends what there is to send; ends the connection if that was all it waited for.
    fn flush(&mut self, token: usize) {
        let Some(client) = self.clients.get_mut(token) else { return };
        if client.is_for_calls {
            return self.end_call(token);
        }
        let was_full = !client.can_be_served();
        // Before the client can have read what is sent.
        let now_ms = self.server.space.now_ms();
        match client.flush() {
            Ok(0) => {}
            Ok(sent) => {
                self.server.stats.sent_bytes.add(sent as u64);
                // A large reply may take as long to be read.
                client.info.note_use(None, now_ms);
            }
            Err(_) => return self.remove(token),
        }
        if client.closes && client.is_flushed() {
            return self.remove(token);
        }
        if was_full && client.can_be_served() {
            self.queue_if_more(token);
        }
        self.send_deferred(token);
    }

    fn queue_if_more(&mut self, token: usize) {
        let Some(client) = self.clients.get(token) else { return };
        if client.is_readable || client.state.as_ref().is_some_and(|state| state.has_input()) {
            self.queue(token);
        }
    }

    fn remove(&mut self, token: usize) {
        let Some(mut client) = self.clients.try_remove(token) else { return };
        if let Some(socket) = client.transport.socket() {
            let _gone = self.poll.registry().deregister(&mut SourceFd(&socket.as_raw_fd()));
        }
        client.transport.close();
        self.blocked.retain(|blocked| *blocked != token);
        self.forget_paused(token);
        self.server.clients.leave(client.id);
    }

    /// Once a second: ends connections that were idle for too long, gives back memory.
    fn tick(&mut self) {
        let now = Instant::now();
        if self.accepts_again.is_some_and(|at| at <= now) {
            self.accepts_again = None;
            (0..self.listeners.len()).for_each(|number| self.accept(number));
        }
        if now.duration_since(self.last_tick) < TICK {
            return;
        }
        self.last_tick = now;
        self.give_up_late_transactions(now);
        if Arc::ptr_eq(&self.handle, &self.all[0]) {
            self.server.tick();
        }
        let now_ms = self.server.space.now_ms();
        let timeout_ms = self.server.idle_timeout_ms();
        let mut overdue = Vec::new();
        for (token, client) in &mut self.clients {
            client.look();
            let idle_ms = now_ms.saturating_sub(client.info.last_used_ms());
            if client.is_for_calls {
                continue;
            }
            let has_to_read = !client.deferred.is_empty() && client.unsent_bytes() > 0;
            let waits = client.waits_for_cluster() && !has_to_read || client.is_settling();
            let waits = waits || client.waits_for_server() || self.paused.contains(&token);
            let is_busy = client.state.is_none() || waits;
            if !is_busy && timeout_ms.is_some_and(|most| idle_ms >= most) {
                overdue.push(token);
            } else if idle_ms >= 1000 {
                client.release();
            }
        }
        for token in overdue {
            self.server.stats.timed_out.add(1);
            self.remove(token);
        }
        // A client that reads nothing is not served, so no event leads here.
        let behind = self.clients.iter().filter(|(_, client)| client.unsent_bytes() > 0);
        let behind: Vec<usize> = behind.map(|(token, _)| token).collect();
        for token in behind {
            self.ends_over_limit(token);
        }
    }

    fn stop(&mut self) {
        for bound in &mut self.listeners {
            let _gone = self.poll.registry().deregister(&mut bound.listener);
        }
        self.listeners.clear();
        self.stops_by = Some(Instant::now() + FAREWELL);
    }

    /// Whether the loop was stopped, everything is committed, everybody is back from the executor, and
    /// all replies are sent.
    fn has_ended(&mut self) -> bool {
        let Some(by) = self.stops_by else { return false };
        if Instant::now() < by {
            if !self.handed_over.is_empty() || !self.served.is_empty() {
                return false;
            }
            self.clients.iter_mut().for_each(|(_, client)| client.look());
            let done = |client: &Connection| client.state.is_some() && client.is_flushed();
            let done: Vec<usize> =
                self.clients.iter().filter(|(_, client)| done(client)).map(|(at, _)| at).collect();
            done.into_iter().for_each(|token| self.remove(token));
            if !self.clients.is_empty() {
                return false;
            }
        }
        let left: Vec<usize> = self.clients.iter().map(|(at, _)| at).collect();
        left.into_iter().for_each(|token| self.remove(token));
        true
    }
}
