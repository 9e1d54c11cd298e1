//! Calls: requests that do not come from a client's socket, but from another node, or from this one
//! because they have to be routed again.
//!
//! Each is executed by a connection without a socket, of which the loop keeps some, so that everything that
//! holds for clients holds for calls: batches, offloads, and waiting for the cluster.

use super::EventLoop;
use crate::cluster::AdminSlot;
use crate::net::client_state::{ClientState, MAX_UNSENT_BYTES, Progress};
use crate::net::connection::Connection;
use crate::net::loop_handle::Message;
use crate::net::open_call::OpenCall;
use crate::net::phase::{Blocked, Phase};
use crate::net::transport::Transport;
use crate::place::Await;
use crate::session::{Caller, Origin};
use std::net::{Ipv4Addr, SocketAddr};

/// Connections without a call that are kept.
const MAX_IDLE: usize = 64;

impl EventLoop {
    /// Begins to execute a call.
    pub(super) fn take_call(&mut self, call: OpenCall) {
        if self.stops_by.is_some() {
            return;
        }
        let token = self.idle_for_calls.pop().unwrap_or_else(|| self.add_for_calls());
        let Some(client) = self.clients.get_mut(token) else { return };
        let Some(state) = &mut client.state else { return };
        self.server.stats.calls.add(1);
        let mut call = Box::new(call);
        state.begin_call_of(&mut call);
        client.call = Some(call);
        client.closes = false;
        self.queue(token);
    }

    fn add_for_calls(&mut self) -> usize {
        let entry = self.clients.vacant_entry();
        let token = entry.key();
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let home = self.handle.clone();
        let origin = Origin { peer: here, local: here, is_tls: false, home, token };
        let state = Box::new(ClientState::begin_call(&self.server, origin));
        entry.insert(Connection::new(Transport::Calls, state)).is_for_calls = true;
        token
    }

    /// Gives the replies of a call if it is executed, or as many as fit into one reply.
    pub(super) fn end_call(&mut self, token: usize) {
        let Some(client) = self.clients.get_mut(token) else { return };
        if client.phase != Phase::Ready || client.waits_for_cluster() || client.call.is_none() {
            return;
        }
        let Some(state) = &mut client.state else { return };
        let is_full = state.output.len() > MAX_UNSENT_BYTES && state.session.queued.is_none();
        if state.has_input() && !is_full && !client.closes {
            return self.queue(token);
        }
        if state.has_input() || client.closes {
            state.end_input();
        }
        client.closes = false;
        let replies = std::mem::take(&mut state.output);
        if let Some(call) = client.call.take() {
            call.end(replies);
        }
        match self.idle_for_calls.len() < MAX_IDLE {
            true => self.idle_for_calls.push(token),
            false => self.remove(token),
        }
    }

    /// In a cluster, after commands of a client were executed: sends what is for other nodes. Gives how to
    /// go on.
    pub(super) fn after_commands(&mut self, token: usize, progress: Progress) -> Progress {
        self.post(token);
        let Some(client) = self.clients.get_mut(token) else { return Progress::Idle };
        if client.call.is_some()
            && progress == Progress::Idle
            && let Some(state) = &mut client.state
        {
            // Requests come whole: what is left is none.
            state.end_input();
        }
        if !client.waits_for_cluster() {
            return progress;
        }
        client.phase.block(Blocked::Cluster);
        match progress {
            Progress::Close | Progress::Await(_) => progress,
            // Tried again when the replies are there, and the batch is committed.
            _ => Progress::Idle,
        }
    }

    /// The next command of a client waits for the cluster.
    pub(super) fn await_cluster(&mut self, token: usize, until: &Await) {
        let server = self.server.clone();
        let Some(cluster) = &server.cluster else { return };
        let Some(coordinator) = cluster.coordinator() else { return };
        let Some(client) = self.clients.get_mut(token) else { return };
        client.awaits = true;
        client.phase.block(Blocked::Cluster);
        let (home, id) = (self.handle.clone(), client.id);
        let is_of_another = client.call.as_ref().is_some_and(|call| call.caller == Caller::Owner);
        let call_bytes = client.state.as_ref().map_or(0, |state| state.session.call_bytes);
        let done = Box::new(move || home.send(Message::Resume { token, id }));
        match until {
            Await::Release(key) => coordinator.when_released(0, key, done),
            Await::Home(key) => coordinator.recall(0, key, done),
            Await::Served(shard) => {
                let waiting = is_of_another.then(|| cluster.begin_waiting(call_bytes));
                let done = move || {
                    drop(waiting);
                    done();
                };
                coordinator.when_served(*shard, Box::new(done));
            }
            Await::Admin(request) => {
                let slot = AdminSlot::default();
                if let Some(state) = &mut client.state {
                    state.session.admin = Some(slot.clone());
                }
                let done = move |answer| {
                    slot.lay(answer);
                    done();
                };
                match cluster.admin() {
                    Some(admin) => admin.begin((**request).clone(), Box::new(done)),
                    None => done(Err("the cluster of this server has no administration".into())),
                }
            }
        }
    }

    /// The cluster lets a client go on.
    pub(super) fn resume(&mut self, token: usize, id: u64) {
        if let Some(client) = self.clients.get_mut(token).filter(|client| client.id == id) {
            client.awaits = false;
        }
        self.go_on(token, id);
    }
}
