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
use crate::net::open_call::{OpenCall, Waiter};
use crate::net::phase::{Blocked, Phase};
use crate::net::transport::Transport;
use crate::place::Await;
use crate::session::{Caller, Origin};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Connections without a call that are kept.
const MAX_IDLE: usize = 64;

impl EventLoop {
    /// Begins to execute a call.
    pub(super) fn take_call(&mut self, call: OpenCall) {
        let cancellation = call.cancellation.clone();
        let is_wanted = self.is_wanted(&call.clients) && !cancellation.is_cancelled();
        if self.stops_by.is_some() || !is_wanted {
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
        let home = self.handle.clone();
        cancellation.on_cancel(move || home.send(Message::Cancelled { token }));
    }

    /// Nobody waits any more for the call of another node that is executed at this place, perhaps: what of it has not begun is
    /// not executed, and what takes long ends.
    pub(super) fn cancel_call(&mut self, token: usize) {
        let Some(client) = self.clients.get(token) else { return };
        if !client.call.as_ref().is_some_and(|call| call.cancellation.is_cancelled()) {
            return;
        }
        client.info.end();
        let (id, awaits) = (client.id, client.awaits);
        if awaits {
            self.resume(token, id);
        }
    }

    /// Whether somebody may wait for a call of these clients: when all of them are gone, it is not executed.
    pub(super) fn is_wanted(&self, clients: &[(usize, u64)]) -> bool {
        let is_here = |(token, id): &(usize, u64)| {
            self.clients.get(*token).is_some_and(|client| client.id == *id)
        };
        clients.is_empty() || clients.iter().any(is_here)
    }

    /// The clients of this loop that wait for these, some by way of calls; empty if another node may wait as well.
    pub(super) fn clients_behind(&self, waiters: &[Waiter]) -> Arc<[(usize, u64)]> {
        let first = waiters.first().map(|first| (first.token, first.id));
        let are_of_one = waiters.iter().all(|waiter| first == Some((waiter.token, waiter.id)));
        let mut clients: Vec<(usize, u64)> = Vec::new();
        for waiter in waiters {
            let one = self.clients.get(waiter.token).filter(|one| one.id == waiter.id);
            match one.and_then(|one| one.call.as_ref()) {
                // Shared: calls may wait for each other in a long row.
                Some(call) if are_of_one || call.clients.is_empty() => return call.clients.clone(),
                Some(call) => clients.extend_from_slice(&call.clients),
                None => clients.push((waiter.token, waiter.id)),
            }
        }
        clients.sort_unstable();
        clients.dedup();
        clients.into()
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
        // Nothing is executed at the place of a client that was ended.
        let is_ended = client.info.is_ended();
        if let Some(call) = client.call.take() {
            call.end(replies);
        }
        match self.idle_for_calls.len() < MAX_IDLE && !is_ended {
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
        let waiting = is_of_another.then(|| cluster.begin_waiting(call_bytes));
        let done: Box<dyn FnOnce() + Send> = Box::new(move || {
            drop(waiting);
            home.send(Message::Resume { token, id });
        });
        match until {
            Await::Release(key) => coordinator.when_released(0, key, done),
            Await::Home(key) => coordinator.recall(0, key, done),
            Await::Served(shard) => coordinator.when_served(*shard, done),
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
        let call = self.clients.get(token).and_then(|client| client.call.as_ref());
        let is_wanted = call
            .is_none_or(|call| self.is_wanted(&call.clients) && !call.cancellation.is_cancelled());
        if let Some(client) = self.clients.get_mut(token).filter(|client| client.id == id) {
            client.awaits = false;
            if !is_wanted && let Some(state) = &mut client.state {
                // What has waited is not executed, nor what is behind it.
                state.end_input();
            }
        }
        self.go_on(token, id);
    }
}
