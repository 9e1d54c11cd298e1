//! The end of a turn: its commit, here or by the committer, and what its clients hear.
//!
//! A commit that may have to wait (for a sync, or since writes are held back) is left to the
//! committer: those who have a part in the turn wait for it, all others are served in the next one.
//! That one is committed when the one before is, so that all who come meanwhile share its sync.

use super::super::committer::{Committed, Handed};
use super::super::visit::Visit;
use super::{EventLoop, MAX_TURN_BYTES};
use crate::dispatch;
use std::sync::atomic::Ordering;
use terrace_keyspace::Mode;

/// While more clients than this wait for the device, their replies leave from the loop: it sends
/// many at a time, and hears of many requests at a time.
const MAX_ANSWERED_THERE: u64 = 2;

impl EventLoop {
    /// Commits what was written, then sends the replies, then lets go those who have to wait.
    pub(super) fn end_turn(&mut self) {
        if self.served.is_empty() {
            return;
        }
        let may_wait = || self.handed_over > 0 || self.server.space.db().write_may_wait();
        if !self.turn.is_clean() && may_wait() {
            return self.hand_over();
        }
        let error = dispatch::commit(&mut self.turn, &self.server).err();
        let mut served = std::mem::take(&mut self.served);
        for token in served.drain(..) {
            self.leave_turn(token, error.as_deref());
        }
        self.served = served;
        self.let_go();
    }

    /// Leaves the commit to the committer. While that has one already the turn goes on, unless it
    /// is large. Those who have no part in it need not wait.
    fn hand_over(&mut self) {
        let clients = &self.clients;
        let is_bound = |token: &mut usize| clients.get(*token).is_some_and(|c| c.is_bound);
        let free: Vec<usize> = self.served.extract_if(.., |token| !is_bound(token)).collect();
        for token in free {
            self.leave_turn(token, None);
        }
        self.let_go();
        if self.handed_over > 0 && self.turn.size_bytes() <= MAX_TURN_BYTES {
            return;
        }
        let fresh = || Box::new(self.server.space.command_batch(Mode::Memory));
        let next = self.spare.take().unwrap_or_else(fresh);
        let turn = std::mem::replace(&mut self.turn, next);
        let mut clients = Vec::with_capacity(self.served.len());
        for token in self.served.drain(..) {
            if let Some(client) = self.clients.get_mut(token).filter(|client| client.in_turn) {
                client.awaits_commit = true;
                clients.push((token, client.id));
            }
        }
        self.handed_over += 1;
        self.server.stats.waited_turns.add(1);
        if let Err(mut handed) = self.committer.send(Handed { turn, clients }) {
            handed.turn.abandon();
            let error = Some("ERR the commit was given up".into());
            self.turn_is_back(Committed { handed, error });
        }
    }

    /// The committer has done with a turn.
    pub(super) fn turn_is_back(&mut self, Committed { handed, error }: Committed) {
        self.handed_over -= 1;
        for (token, id) in handed.clients {
            if self.clients.get(token).is_some_and(|client| client.id == id) {
                self.leave_turn(token, error.as_deref());
                self.queue_if_more(token);
            }
        }
        self.spare = Some(handed.turn);
        self.let_go();
    }

    /// A client's turn is over: its replies leave, or are all `error`.
    fn leave_turn(&mut self, token: usize, error: Option<&str>) {
        if let Some(client) = self.clients.get_mut(token).filter(|client| client.in_turn) {
            client.leave_turn(error);
            self.flush(token);
        }
    }

    /// Those who go to the pool go, if their turn is over.
    fn let_go(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let (clients, home) = (&mut self.clients, &self.handle);
        let mut visits: Vec<Visit> = Vec::with_capacity(self.leaving.len());
        self.leaving.retain(|token| {
            let Some(client) = clients.get_mut(*token) else { return false };
            if client.in_turn {
                return true;
            }
            visits.extend(client.depart(home, *token));
            false
        });
        self.server.stats.pool_visits.add(visits.len() as u64);
        let before = self.server.stats.waiting.fetch_add(visits.len() as u64, Ordering::Relaxed);
        if before + visits.len() as u64 > MAX_ANSWERED_THERE {
            visits.iter_mut().for_each(|visit| visit.socket = None);
        }
        if visits.len() == 1 && self.own_visit.is_none() && self.pool.is_idle() {
            self.own_visit = visits.pop();
        }
        if !visits.is_empty() {
            self.pool.send(visits.into_iter());
        }
    }

    /// Whether a client's visit is to be paid by this thread, while the other one of the loop leads
    /// it: only if nobody else has something to do.
    pub(super) fn take_own_visit(&mut self) -> Option<Visit> {
        let visit = self.own_visit.take()?;
        if self.ready.is_empty() && self.relay.has_relief() {
            return Some(visit);
        }
        self.pool.send(std::iter::once(visit));
        None
    }
}
