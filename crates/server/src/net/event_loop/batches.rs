//! The end of a batch: commits it, here or by the executor, then sends the replies.
//!
//! A commit that may wait (for a sync, or since writes are stalled) or takes long goes to the executor. Clients with a
//! write in the batch wait for it; the others are served in the next batch, which is committed
//! after it, so that all writes of the meantime share one sync.

use super::super::loop_handle::{BatchCommit, Committed};
use super::super::offload::Offload;
use super::{EventLoop, MAX_BATCH_BYTES};
use crate::dispatch::{self, LARGE_BATCH_BYTES};
use std::sync::atomic::Ordering;
use terrace_keyspace::Mode;

/// While more clients than this are offloaded, their replies are sent by the loop, many at a time, and no longer by
/// the thread that executed the command.
const MAX_ANSWERED_THERE: u64 = 2;

impl EventLoop {
    /// Commits the batch, sends the replies, and offloads the clients whose next command may block.
    pub(super) fn end_batch(&mut self) {
        // Clients that are gone may have left writes behind.
        if self.served.is_empty() && self.batch.is_clean() {
            return;
        }
        // What was routed under the guard is on its way before that is given back.
        self.send_outbox();
        let may_wait = || {
            !self.handed_over.is_empty()
                || self.batch.size_bytes() > LARGE_BATCH_BYTES
                || self.server.stats.large_commits.load(Ordering::Relaxed) > 0
                || self.server.space.db().write_may_wait()
        };
        if !self.batch.is_clean() && may_wait() {
            return self.send_to_executor();
        }
        let error = dispatch::commit(&mut self.batch, &self.server).err();
        let may_reply = self.guard.take().is_none_or(|guard| guard.may_reply());
        let mut served = std::mem::take(&mut self.served);
        for token in served.drain(..) {
            self.leave_batch(token, error.as_deref(), may_reply);
        }
        self.served = served;
        self.has_settled(self.batch_number);
        self.batch_number += 1;
        self.let_go();
    }

    /// Leaves the commit to the executor. While that has one already the batch stays open, unless it
    /// is large. Clients without a write in it do not wait.
    fn send_to_executor(&mut self) {
        let clients = &self.clients;
        let is_bound = |token: &mut usize| clients.get(*token).is_some_and(|c| c.phase.is_bound());
        let free: Vec<usize> = self.served.extract_if(.., |token| !is_bound(token)).collect();
        let may_reply = self.guard.as_ref().is_none_or(|guard| guard.may_reply());
        for token in free {
            self.leave_batch(token, None, may_reply);
        }
        self.let_go();
        if !self.handed_over.is_empty() && self.batch.size_bytes() <= MAX_BATCH_BYTES {
            return;
        }
        let fresh = || Box::new(self.server.space.command_batch(Mode::Memory));
        let next = self.spare.take().unwrap_or_else(fresh);
        let batch = std::mem::replace(&mut self.batch, next);
        let mut clients = Vec::with_capacity(self.served.len());
        for token in self.served.drain(..) {
            if let Some(client) =
                self.clients.get_mut(token).filter(|client| client.phase.is_in_batch())
            {
                client.phase.await_commit();
                clients.push((token, client.id));
            }
        }
        let number = self.batch_number;
        self.batch_number += 1;
        self.handed_over.push(number);
        self.server.stats.waited_batches.add(1);
        let guard = self.guard.take();
        self.executor.commit(BatchCommit { batch, number, clients, guard }, self.handle.clone());
    }

    /// The executor has done with a batch.
    pub(super) fn batch_is_back(&mut self, Committed { commit, error }: Committed) {
        self.handed_over.retain(|number| *number != commit.number);
        let may_reply = commit.guard.as_ref().is_none_or(|guard| guard.may_reply());
        drop(commit.guard);
        // It may have taken longer than a client may be idle.
        let now_ms = self.server.space.now_ms();
        for (token, id) in commit.clients {
            if let Some(client) = self.clients.get(token).filter(|client| client.id == id) {
                client.info.note_use(None, now_ms);
                self.leave_batch(token, error.as_deref(), may_reply);
                self.queue_if_more(token);
            }
        }
        self.spare = Some(commit.batch);
        self.has_settled(commit.number);
        self.let_go();
    }

    /// A client's batch is over: its replies leave, or are all `error`. Unless `may_reply`, nothing may be shown
    /// that was read, and what was written may have been too late: the connection ends.
    fn leave_batch(&mut self, token: usize, error: Option<&str>, may_reply: bool) {
        let Some(client) = self.clients.get_mut(token).filter(|client| client.phase.is_in_batch())
        else {
            return;
        };
        if !may_reply && client.state.as_ref().is_some_and(|state| state.session.is_guarded) {
            return self.end_unsure(token);
        }
        // Who has neither written nor seen what was written has nothing to do with the failure.
        let shares_failure = client.phase.shares_failure();
        client.leave_batch(error.filter(|_| shares_failure));
        let goes_on = std::mem::take(&mut client.goes_on_later);
        self.go_on_deferred(token);
        let Some(client) = self.clients.get_mut(token) else { return };
        if client.leave_cluster() {
            client.info.note_use(None, self.server.space.now_ms());
            self.queue_if_more(token);
        }
        if goes_on {
            self.queue_if_more(token);
        }
        self.flush(token);
    }

    /// Ends the connection of a client of whose last commands it is not known what became. A call ends without
    /// an answer: who made it must not execute it again.
    pub(super) fn end_unsure(&mut self, token: usize) {
        self.server.stats.unsure_closed.add(1);
        self.remove(token);
    }

    /// Offloads clients whose batch is committed.
    fn let_go(&mut self) {
        if self.blocked.is_empty() {
            return;
        }
        let (clients, home) = (&mut self.clients, &self.handle);
        let mut offloads: Vec<Offload> = Vec::with_capacity(self.blocked.len());
        self.blocked.retain(|token| {
            let Some(client) = clients.get_mut(*token) else { return false };
            if client.phase.is_in_batch() {
                return true;
            }
            offloads.extend(client.offload(home, *token));
            false
        });
        self.server.stats.offloads.add(offloads.len() as u64);
        let before = self.server.stats.waiting.fetch_add(offloads.len() as u64, Ordering::Relaxed);
        if before + offloads.len() as u64 > MAX_ANSWERED_THERE {
            offloads.iter_mut().for_each(|offload| offload.socket = None);
        }
        if offloads.len() == 1 && self.own_offload.is_none() && self.executor.is_idle() {
            self.own_offload = offloads.pop();
        }
        if !offloads.is_empty() {
            self.executor.offload(offloads.into_iter());
        }
    }

    /// The offload that this thread executes itself while the follower leads the loop: only if no other
    /// client has something to do.
    pub(super) fn take_own_offload(&mut self) -> Option<Offload> {
        let offload = self.own_offload.take()?;
        if self.ready.is_empty() && self.leader_follower.has_relief() {
            return Some(offload);
        }
        self.executor.offload(std::iter::once(offload));
        None
    }
}
