//! The calls of this node to one other node: a bounded queue, and a task that sends what has gathered in
//! it as one message, over a stream that is opened when there is something to send.
//!
//! ```text
//! push -> queue -> message of up to 1 MiB -> stream -> replies, in any order -> done
//! ```
//! Every `done` is called exactly once. If the stream ends, the calls that were sent have an unknown
//! outcome and are not sent again; those that still wait go over the next stream, or fail if there is
//! none. After a large message the stream ends when no reply is awaited, and its buffers with it. A node that is stopped is noticed by pings of HTTP/2, since a call may take long.

use super::api;
use super::convert::{api_shard, reply_of};
use super::headers::Headers;
use super::limits::{
    BATCH_BYTES, BATCH_CALLS, KEPT_MESSAGE_BYTES, MAX_CALL_BYTES, MAX_MESSAGE_BYTES,
    MAX_QUEUED_BYTES, STREAM_QUEUE,
};
use parking_lot::Mutex;
use prost::bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_cluster::{
    Cancellation, NodeId, OutgoingCall, Reply, ReplyProtocol, Revision, ShardCall, Unserved,
};
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// Bounds of waiting for a node.
#[derive(Debug, Clone, Copy)]
pub struct LinkOptions {
    /// For a connection, and for the answer to a call that has nothing to wait for.
    pub timeout: Duration,
    /// How often an open connection is asked for a sign of life, and how long that is waited for.
    pub ping: Duration,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(1), ping: Duration::from_secs(1) }
    }
}

impl LinkOptions {
    /// A connection to `address` that is made when it is used.
    pub(super) fn channel(&self, address: &str) -> Option<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
        let endpoint = endpoint
            .connect_timeout(self.timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(self.ping)
            .keep_alive_timeout(self.ping)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20);
        Some(endpoint.connect_lazy())
    }
}

/// Which of a node's services executes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Service {
    Coordinator,
    Instance,
}

/// Called with the reply; with `Unreachable` if it is dropped.
struct Done {
    node: NodeId,
    call: Option<Box<dyn FnOnce(Reply) + Send>>,
}

impl Done {
    fn reply(mut self, reply: Reply) {
        if let Some(call) = self.call.take() {
            call(reply);
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            call(Err(Unserved::Unreachable(self.node)));
        }
    }
}

/// Requests as part of a message, which are not copied for it.
struct Requests(Arc<Vec<u8>>);

impl AsRef<[u8]> for Requests {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

struct Waiting {
    call: OutgoingCall,
    shard: Option<ShardCall>,
    revision: Revision,
    cancellation: Cancellation,
    done: Done,
}

/// A call that was sent. The cancellation is kept until it is over.
struct Sent {
    done: Done,
    _cancellation: Cancellation,
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<Waiting>,
    bytes: usize,
    /// Calls that were sent, and for which nobody waits any more.
    cancelled: Vec<u64>,
    is_closed: bool,
}

struct Shared {
    node: NodeId,
    queue: Mutex<Queue>,
    /// Something is in the queue, or it is closed.
    wake: Notify,
    opened_streams: AtomicU64,
    /// Calls that were sent, over all streams: their ids are not given twice.
    sent_calls: AtomicU64,
}

/// See the module. Dropping it fails what waits.
pub struct Link {
    shared: Arc<Shared>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.wake.notify_one();
    }
}

impl Link {
    /// To the service of a node. Within a tokio runtime.
    pub(super) fn open(node: NodeId, channel: Channel, headers: Headers, service: Service) -> Self {
        let queue = Mutex::new(Queue::default());
        let opened_streams = AtomicU64::new(0);
        let (wake, sent_calls) = (Notify::new(), AtomicU64::new(0));
        let shared = Arc::new(Shared { node, queue, wake, opened_streams, sent_calls });
        let stream = OpenStream { channel, headers, service };
        tokio::spawn(run(shared.clone(), stream));
        Self { shared }
    }

    /// Sends a call. If too much waits already, or it is longer than a message may be, it fails at once.
    pub fn push(
        &self,
        call: OutgoingCall,
        (shard, revision): (Option<ShardCall>, Revision),
        cancellation: Cancellation,
        done: Box<dyn FnOnce(Reply) + Send>,
    ) {
        let done = Done { node: self.shared.node, call: Some(done) };
        let bytes = call.requests.len();
        let waiting = Waiting { call, shard, revision, cancellation, done };
        {
            let mut queue = self.shared.queue.lock();
            let is_full = !queue.calls.is_empty() && queue.bytes + bytes > MAX_QUEUED_BYTES;
            if queue.is_closed {
                drop(queue);
                // Fails `waiting` without the lock.
                return drop(waiting);
            }
            if is_full || bytes > MAX_CALL_BYTES {
                drop(queue);
                return waiting.done.reply(Err(Unserved::Full(self.shared.node)));
            }
            queue.bytes += bytes;
            queue.calls.push_back(waiting);
        }
        self.shared.wake.notify_one();
    }

    /// Bytes of requests that wait.
    pub fn queued_bytes(&self) -> usize {
        self.shared.queue.lock().bytes
    }

    /// How many streams were opened.
    pub fn opened_streams(&self) -> u64 {
        self.shared.opened_streams.load(Ordering::Relaxed)
    }
}

struct OpenStream {
    channel: Channel,
    headers: Headers,
    service: Service,
}

impl OpenStream {
    async fn open(
        &self,
        receiver: mpsc::Receiver<api::Calls>,
    ) -> Result<Streaming<api::Replies>, Status> {
        let request = self.headers.sign(ReceiverStream::new(receiver));
        let channel = self.channel.clone();
        let answer = match self.service {
            Service::Coordinator => {
                let client = api::coordinator_client::CoordinatorClient::new(channel);
                client.max_decoding_message_size(MAX_MESSAGE_BYTES).call(request).await
            }
            Service::Instance => {
                let client = api::instance_client::InstanceClient::new(channel);
                client.max_decoding_message_size(MAX_MESSAGE_BYTES).call(request).await
            }
        };
        answer.map(tonic::Response::into_inner)
    }
}

/// Opens streams while there is something to send, until the queue is closed.
async fn run(shared: Arc<Shared>, stream: OpenStream) {
    loop {
        loop {
            let (is_empty, is_closed) = {
                let queue = shared.queue.lock();
                (queue.calls.is_empty(), queue.is_closed)
            };
            if is_closed {
                return fail_waiting(&shared);
            }
            if !is_empty {
                break;
            }
            shared.wake.notified().await;
        }
        let (sender, receiver) = mpsc::channel(STREAM_QUEUE);
        match stream.open(receiver).await {
            Ok(replies) => {
                shared.opened_streams.fetch_add(1, Ordering::Relaxed);
                serve(&shared, &sender, replies).await;
            }
            Err(status) => {
                tracing::debug!("no link to node {}: {status}", shared.node);
                fail_waiting(&shared);
            }
        }
    }
}

fn fail_waiting(shared: &Shared) {
    let calls = {
        let mut queue = shared.queue.lock();
        queue.bytes = 0;
        std::mem::take(&mut queue.calls)
    };
    // Their callbacks are called without the lock.
    drop(calls);
}

/// Sends and receives until the stream ends, or is to end. Dropping `sent` fails what has no reply.
async fn serve(
    shared: &Arc<Shared>,
    sender: &mpsc::Sender<api::Calls>,
    mut replies: Streaming<api::Replies>,
) {
    let mut sent: HashMap<u64, Sent> = HashMap::new();
    let mut has_large_buffers = false;
    loop {
        if has_large_buffers && sent.is_empty() {
            return;
        }
        let (is_empty, is_closed) = {
            let queue = shared.queue.lock();
            (queue.calls.is_empty() && queue.cancelled.is_empty(), queue.is_closed)
        };
        if is_closed {
            return;
        }
        tokio::select! {
            place = sender.reserve(), if !is_empty => match place {
                Ok(place) => {
                    let (batch, bytes) = take_batch(shared, &mut sent);
                    has_large_buffers |= bytes > KEPT_MESSAGE_BYTES;
                    place.send(batch);
                }
                Err(_) => return,
            },
            () = shared.wake.notified(), if is_empty => {}
            message = replies.message() => match message {
                Ok(Some(message)) => {
                    has_large_buffers |= reply_bytes(&message) > KEPT_MESSAGE_BYTES;
                    for reply in message.replies {
                        if let Some(sent) = sent.remove(&reply.id) {
                            sent.done.reply(reply_of(reply.outcome, shared.node));
                        }
                    }
                }
                Ok(None) => return,
                Err(status) => {
                    return tracing::debug!("link to node {} ended: {status}", shared.node);
                }
            },
        }
    }
}

fn reply_bytes(message: &api::Replies) -> usize {
    let bytes = |reply: &api::Reply| match &reply.outcome {
        Some(api::reply::Outcome::Replies(bytes)) => bytes.len(),
        _ => 0,
    };
    message.replies.iter().map(bytes).sum()
}

/// What has gathered, as one message, and the bytes of its requests: of more than [`BATCH_BYTES`] only if it is one call.
fn take_batch(shared: &Arc<Shared>, sent: &mut HashMap<u64, Sent>) -> (api::Calls, usize) {
    let (mut calls, mut cancellations) = (Vec::new(), Vec::new());
    let (mut bytes, mut unsent) = (0, Vec::new());
    let mut queue = shared.queue.lock();
    while calls.len() < BATCH_CALLS
        && let Some(next) = queue.calls.front()
        && (calls.is_empty() || bytes + next.call.requests.len() <= BATCH_BYTES)
        && let Some(waiting) = queue.calls.pop_front()
    {
        let Waiting { call, shard, revision, cancellation, done } = waiting;
        queue.bytes -= call.requests.len();
        if cancellation.is_cancelled() {
            unsent.push(done);
            continue;
        }
        bytes += call.requests.len();
        let id = shared.sent_calls.fetch_add(1, Ordering::Relaxed) + 1;
        cancellations.push((id, cancellation.clone()));
        sent.insert(id, Sent { done, _cancellation: cancellation });
        calls.push(api::Call {
            id,
            db: call.db.into(),
            is_resp3: call.protocol == ReplyProtocol::Resp3,
            requests: Bytes::from_owner(Requests(call.requests)),
            shard: shard.and_then(|call| api_shard(call.shard, call.epoch)),
            revision: revision.0,
        });
    }
    let mut cancelled = std::mem::take(&mut queue.cancelled);
    drop(queue);
    // Fails calls that were cancelled before they were sent, without the lock.
    drop(unsent);
    // Those of other streams, and those that are answered, are over.
    cancelled.retain(|id| sent.contains_key(id));
    // Without the lock: one that was cancelled since says so at once, and goes with the next message.
    for (id, cancellation) in cancellations {
        let shared = Arc::downgrade(shared);
        cancellation.on_cancel(move || {
            if let Some(shared) = shared.upgrade() {
                shared.queue.lock().cancelled.push(id);
                shared.wake.notify_one();
            }
        });
    }
    (api::Calls { calls, cancelled }, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With those before it, it might be more than a message may be, and end the stream for all of them.
    #[test]
    fn a_large_call_is_a_message_of_its_own() {
        let (node, queue) = (NodeId([1; 20]), Mutex::default());
        let (opened_streams, sent_calls) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Shared { node, queue, wake: Notify::new(), opened_streams, sent_calls };
        let link = Link { shared: Arc::new(shared) };
        for bytes in [10, BATCH_BYTES - 10, 1, 2 * BATCH_BYTES, 1, 1] {
            let requests = Arc::new(vec![b'x'; bytes]);
            let call = OutgoingCall { db: 0, protocol: ReplyProtocol::Resp2, requests };
            let done = Box::new(|_: Reply| {});
            link.push(call, (None, Revision(0)), Cancellation::default(), done);
        }
        let (mut sent, mut messages) = (HashMap::new(), Vec::new());
        while link.queued_bytes() > 0 {
            let (message, bytes) = take_batch(&link.shared, &mut sent);
            messages.push((message.calls.len(), bytes));
        }
        assert_eq!(messages, [(2, BATCH_BYTES), (1, 1), (1, 2 * BATCH_BYTES), (2, 2)]);
    }
}
