//! Listeners to the stream, and what they get: server-sent events (HTML standard, section 9.2).
//!
//! Each listener has a queue of [`QUEUED`] events. One whose queue is full takes less than the store
//! gives, and is dropped: its browser connects again when it can. One that may see the store no more is
//! dropped, too.

use super::access::Asker;
use axum::body::{Bytes, HttpBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Events that wait for a listener, at most.
const QUEUED: usize = 4;

/// Those who listen.
#[derive(Default)]
pub(super) struct Listeners(Mutex<Vec<Queue>>);

/// Events for one of them.
struct Queue {
    events: mpsc::Sender<Bytes>,
    asker: Asker,
}

impl Listeners {
    /// A listener more, unless there are `most`.
    pub fn add(&self, most: usize, asker: Asker) -> Option<Listener> {
        let mut all = self.0.lock();
        all.retain(|listener| !listener.events.is_closed());
        if all.len() >= most {
            return None;
        }
        let (events, rest) = mpsc::channel(QUEUED);
        all.push(Queue { events, asker });
        Some(Listener { first: None, rest })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.lock().iter().filter(|listener| !listener.events.is_closed()).count()
    }

    /// Gives all of them `event`; those that may not see it, are behind or gone are dropped.
    pub fn send(&self, event: &Bytes, may_see: impl Fn(&Asker) -> bool) {
        self.0.lock().retain(|listener| {
            may_see(&listener.asker) && listener.events.try_send(event.clone()).is_ok()
        });
    }

    /// Ends all streams.
    pub fn hang_up(&self) {
        self.0.lock().clear();
    }
}

/// The body of one listener's answer.
#[derive(Debug)]
pub(super) struct Listener {
    first: Option<Bytes>,
    rest: mpsc::Receiver<Bytes>,
}

impl Listener {
    /// With `event` before all others.
    pub fn beginning_with(mut self, event: Bytes) -> Self {
        self.first = Some(event);
        self
    }
}

impl HttpBody for Listener {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.rest.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

/// `json`, which has no line ends, as an event called `live`.
pub(super) fn event(json: &str) -> Bytes {
    format!("event: live\ndata: {json}\n\n").into()
}

/// What keeps a connection open and is no event.
pub(super) const COMMENT: Bytes = Bytes::from_static(b": nothing could be seen\n\n");

#[cfg(test)]
mod tests {
    use super::*;

    fn somebody() -> Asker {
        Asker { peer: None, login: None }
    }

    #[test]
    fn who_does_not_keep_up_is_dropped() {
        let listeners = Listeners::default();
        let mut quick = listeners.add(2, somebody()).unwrap();
        let slow = listeners.add(2, somebody()).unwrap();
        assert!(listeners.add(2, somebody()).is_none(), "two are enough");
        for _ in 0..QUEUED {
            listeners.send(&COMMENT, |_| true);
            assert!(quick.rest.try_recv().is_ok());
        }
        assert_eq!(listeners.count(), 2);
        listeners.send(&COMMENT, |_| true);
        assert_eq!(listeners.count(), 1);
        drop(slow);
        assert!(listeners.add(2, somebody()).is_some());
        listeners.hang_up();
        assert!(quick.rest.try_recv().is_ok() && quick.rest.try_recv().is_err());
        assert!(quick.rest.is_closed());
    }

    #[test]
    fn who_is_gone_makes_room() {
        let listeners = Listeners::default();
        drop(listeners.add(1, somebody()).unwrap());
        assert_eq!(listeners.count(), 0);
        assert!(listeners.add(1, somebody()).is_some());
    }
}
