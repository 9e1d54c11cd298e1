//! The way to tell an event loop something, from any thread.

use super::client_state::{ClientState, Progress};
use super::open_call::{OpenCall, Replied};
use crate::session::ConnectionCloser;
use crate::settle::UnderWay;
use mio::Waker;
use mio::net::TcpStream;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_cluster::ServeGuard;
use terrace_keyspace::CommandBatch;

/// A batch, and who waits for it: tokens and ids.
pub(crate) struct BatchCommit {
    pub batch: Box<CommandBatch>,
    /// Which of its loop's batches it is.
    pub number: u64,
    pub clients: Vec<(usize, u64)>,
    /// In a cluster: until it is committed.
    pub guard: Option<Box<dyn ServeGuard>>,
}

/// A batch that was committed, or not: then with the error that its clients get.
pub(crate) struct Committed {
    pub commit: BatchCommit,
    pub error: Option<String>,
}

/// A message to a loop from another thread.
pub(super) enum Message {
    Client {
        socket: TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
        is_tls: bool,
    },
    Back {
        token: usize,
        state: Box<ClientState>,
        progress: Progress,
    },
    Committed(Committed),
    Kill {
        token: usize,
        id: u64,
        under_way: UnderWay,
    },
    /// Other rules hold for a client.
    Settle {
        token: usize,
        id: u64,
        under_way: UnderWay,
    },
    /// What a client waited for to settle is over.
    Settled {
        token: usize,
        id: u64,
    },
    /// Requests to be executed that did not come from a client.
    Call(Box<OpenCall>),
    /// The call at this place was cancelled, or one before it.
    Cancelled {
        token: usize,
    },
    /// What another node answered.
    Replied(Replied),
    /// The cluster lets a client go on.
    Resume {
        token: usize,
        id: u64,
    },
    Stop,
}

/// The way to tell a loop something.
pub struct LoopHandle {
    messages: Mutex<Vec<Message>>,
    waker: Waker,
    /// Whether the loop has been woken and has not looked yet.
    is_woken: AtomicBool,
    /// Whether a key is free that a batch was refused.
    has_free_key: AtomicBool,
}

impl LoopHandle {
    pub(super) fn new(waker: Waker) -> Self {
        let (is_woken, has_free_key) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { messages: Mutex::default(), waker, is_woken, has_free_key }
    }

    /// What the loop was told since it last looked.
    pub(super) fn take_messages(&self) -> Vec<Message> {
        // Before the look: a message that is sent after it wakes the loop again.
        self.is_woken.store(false, Ordering::Release);
        std::mem::take(&mut *self.messages.lock())
    }

    /// Whether a key is free, since it was last asked, that a batch was refused.
    pub(super) fn take_free_key(&self) -> bool {
        self.has_free_key.swap(false, Ordering::AcqRel)
    }

    pub(super) fn send(&self, message: Message) {
        self.messages.lock().push(message);
        self.wake();
    }

    /// A key is free that a batch was refused.
    pub(super) fn key_is_free(&self) {
        if !self.has_free_key.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel)
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "cannot wake an event loop");
        }
    }

    /// A client's offload ends.
    pub(crate) fn come_back(&self, token: usize, state: Box<ClientState>, progress: Progress) {
        self.send(Message::Back { token, state, progress });
    }

    /// The executor has done with a batch.
    pub(crate) fn committed(&self, committed: Committed) {
        self.send(Message::Committed(committed));
    }
}

impl ConnectionCloser for LoopHandle {
    fn end(&self, token: usize, id: u64, under_way: UnderWay) {
        self.send(Message::Kill { token, id, under_way });
    }

    fn settle(&self, token: usize, id: u64, under_way: UnderWay) {
        self.send(Message::Settle { token, id, under_way });
    }

    fn settled(&self, token: usize, id: u64) {
        self.send(Message::Settled { token, id });
    }
}
