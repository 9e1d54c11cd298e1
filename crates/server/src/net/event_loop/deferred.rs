//! Requests that wait until their client has read the replies before them.
//!
//! A node answers as many requests of a call as fit into one reply; what is behind them was not executed there. Where
//! much has arrived for the client already, these are not sent again at once: what is ready of its output leaves first,
//! so that a pipeline for large values takes the memory of a few of them, however long it is.

use super::EventLoop;
use crate::net::open_call::{Deferred, Waiter};
use crate::net::phase::{Blocked, Phase};
use std::sync::Arc;
use terrace_cluster::Revision;

impl EventLoop {
    /// Whether requests of a client that were not executed may wait for its reading.
    pub(super) fn may_defer(&self, waiter: &Waiter) -> bool {
        self.clients
            .get(waiter.token)
            .is_some_and(|client| client.id == waiter.id && client.is_ahead_of_its_reader())
    }

    /// Lets a request wait.
    pub(super) fn defer(&mut self, deferred: Deferred) {
        if let Some(client) = self.clients.get_mut(deferred.waiter.token)
            && client.id == deferred.waiter.id
        {
            client.deferred.push(deferred);
        }
    }

    /// Sends what is ready of a client's replies if requests of it wait for that, and then these as far as they may go.
    /// A call has no reader: it ends with the replies that it has, and its caller sends the rest again.
    pub(super) fn go_on_deferred(&mut self, token: usize) {
        let Some(client) = self.clients.get_mut(token).filter(|one| !one.deferred.is_empty())
        else {
            return;
        };
        if !client.is_for_calls {
            client.spill();
            return self.flush(token);
        }
        let is_here = client.phase == Phase::Blocked(Blocked::Cluster) && !client.awaits;
        let waiting = client.deferred.len();
        let Some(state) = client.state.as_mut().filter(|_| is_here) else { return };
        if state.remote.outstanding() != waiting {
            return;
        }
        if state.cut_short() {
            client.deferred.clear();
            client.phase.unblock();
            return self.end_call(token);
        }
        self.send_deferred(token);
    }

    /// Sends requests that waited, unless their client still has much to read.
    pub(super) fn send_deferred(&mut self, token: usize) {
        let Some(client) = self.clients.get_mut(token).filter(|one| one.may_send_deferred()) else {
            return;
        };
        // Those of one call again in one, which has one target: so it can be cut short.
        let mut deferred = std::mem::take(&mut client.deferred);
        while let Some(Deferred { requests, protocol, .. }) = deferred.first() {
            let (requests, protocol) = (requests.clone(), *protocol);
            let together = |one: &mut Deferred| Arc::ptr_eq(&one.requests, &requests);
            let again = deferred.extract_if(.., together);
            let again = again.map(|one| (one.waiter, one.range)).collect();
            self.route_again(again, &requests, (protocol, false), Revision::default());
        }
    }
}
