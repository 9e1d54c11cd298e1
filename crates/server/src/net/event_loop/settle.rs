//! Clients that are ended, or for which other rules hold from now on: who asked for it gets the reply when nothing of
//! before is under way any more (module [`settle`](crate::settle)).

use super::EventLoop;
use crate::net::connection::Connection;
use crate::net::phase::{Blocked, Phase};
use crate::settle::UnderWay;

impl EventLoop {
    /// Keeps `under_way` until what is executed of a client now is committed. What is executed of it later goes by what
    /// holds now.
    pub(super) fn settle(&mut self, token: usize, id: u64, under_way: &UnderWay) {
        // One that is gone may have left a write behind.
        if let Some(client) = self.clients.get(token).filter(|client| client.id == id) {
            if let Phase::Blocked(Blocked::Command(_)) = client.phase {
                return client.info.await_work(under_way.clone());
            }
            if !client.phase.shares_failure() {
                return;
            }
        }
        let open = (!self.batch.is_clean()).then_some(self.batch_number);
        let numbers = self.handed_over.iter().copied().chain(open);
        self.under_way.extend(numbers.map(|number| (number, under_way.clone())));
    }

    /// As [`Self::settle`], with the calls that are executed here for the client.
    pub(super) fn settle_with_calls(&mut self, token: usize, id: u64, under_way: &UnderWay) {
        self.settle(token, id, under_way);
        let client = self.clients.get(token).filter(|client| client.id == id);
        if client.is_none_or(Connection::waits_for_cluster) {
            for (call, _) in self.calls_of((token, id)) {
                let id = self.clients.get(call).map_or(0, |call| call.id);
                self.settle(call, id, under_way);
            }
        }
    }

    /// Ends a client, and the calls that are executed for it and for nobody else; of others, what is executed now is waited
    /// for.
    pub(super) fn kill(&mut self, token: usize, id: u64, under_way: &UnderWay) {
        self.settle(token, id, under_way);
        let client = self.clients.get(token).filter(|client| client.id == id);
        let may_have_calls = client.is_none_or(Connection::waits_for_cluster);
        if client.is_some() {
            self.remove(token);
        }
        if may_have_calls {
            // What is still to be sent would not be known there.
            self.send_outbox();
            self.sent_calls.cancel_of((token, id));
        }
        let calls = if may_have_calls { self.calls_of((token, id)) } else { Vec::new() };
        for (token, is_wanted) in calls {
            let Some(call) = self.clients.get(token) else { continue };
            let id = call.id;
            if !is_wanted {
                call.info.end();
            }
            self.settle(token, id, under_way);
            if !is_wanted {
                self.remove(token);
            }
        }
    }

    /// The calls that are executed for a client, and whether others wait for them as well.
    fn calls_of(&self, client: (usize, u64)) -> Vec<(usize, bool)> {
        let of_call = |(token, one): (usize, &Connection)| {
            let call = one.call.as_ref().filter(|call| call.clients.contains(&client))?;
            Some((token, self.is_wanted(&call.clients)))
        };
        self.clients.iter().filter_map(of_call).collect()
    }

    /// This batch is committed, or given up.
    pub(super) fn has_settled(&mut self, batch_number: u64) {
        self.under_way.retain(|(number, _)| *number != batch_number);
    }

    /// Nothing is under way any more of those that a client waits for.
    pub(super) fn go_on_settled(&mut self, token: usize, id: u64) {
        if self.clients.get(token).is_some_and(|client| client.id == id) {
            self.flush(token);
            self.queue_if_more(token);
        }
    }
}
