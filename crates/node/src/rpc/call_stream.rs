//! The other end of a link: calls that come in are executed in their order, their replies go back as
//! they come, those that are ready in one message.
//!
//! What is under way for one stream is bounded: beyond that its messages are not read, until replies
//! have been handed to the connection.

use super::api;
use super::convert::{api_reply, db_of, shard_of};
use super::limits::{BATCH_BYTES, BATCH_CALLS, MAX_QUEUED_BYTES, STREAM_QUEUE};
use super::link::Service;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use terrace_cluster::{
    CallMode, Cancellation, IncomingCall, NodeId, Reply, ReplyProtocol, Revision, ShardCall,
    Unserved,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// The unit in which bytes under way are counted.
const BYTES_PER_PERMIT: usize = 1024;

/// What a call counts for beside its requests: its reply may be larger than they are.
const CALL_BYTES: usize = 16 << 10;

/// Who executes calls.
#[tonic::async_trait]
pub trait CallSink: Send + Sync + 'static {
    /// The node that this is.
    fn me(&self) -> NodeId;

    /// The revision of the topology that calls are routed by.
    fn revision(&self) -> Revision;

    /// Waits until the topology has this revision, for a bounded time.
    async fn wait_for_revision(&self, revision: Revision);

    /// As [`CommandExecutor::execute`](terrace_cluster::CommandExecutor::execute).
    fn execute(&self, call: IncomingCall, done: Box<dyn FnOnce(Reply) + Send>);

    /// As [`CommandExecutor::execute_until`](terrace_cluster::CommandExecutor::execute_until).
    fn execute_until(
        &self,
        call: IncomingCall,
        _cancellation: Cancellation,
        done: Box<dyn FnOnce(Reply) + Send>,
    ) {
        self.execute(call, done);
    }
}

type Replied = (api::Reply, OwnedSemaphorePermit);

/// Calls that are not answered, by their ids.
type OpenCalls = Arc<Mutex<HashMap<u64, Cancellation>>>;

/// Sends a reply, an unknown outcome if it is dropped before.
struct Answer {
    id: u64,
    me: NodeId,
    permit: Option<OwnedSemaphorePermit>,
    replies: mpsc::UnboundedSender<Replied>,
    open: OpenCalls,
}

impl Answer {
    fn send(&mut self, reply: Reply) {
        if let Some(permit) = self.permit.take() {
            self.open.lock().remove(&self.id);
            // Without a receiver the stream has ended, and with it the sender's interest.
            let _ = self.replies.send((api_reply(self.id, reply), permit));
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.send(Err(Unserved::Unreachable(self.me)));
    }
}

/// Executes the calls of a stream; gives the stream of replies.
pub(super) fn serve(
    sink: Arc<dyn CallSink>,
    mut calls: Streaming<api::Calls>,
    service: Service,
) -> ReceiverStream<Result<api::Replies, Status>> {
    // Bounded by the permits.
    let (replies, ready) = mpsc::unbounded_channel();
    let (out, stream) = mpsc::channel(STREAM_QUEUE);
    let fail = out.clone();
    tokio::spawn(send_replies(ready, out));
    tokio::spawn(async move {
        let (mut waits, open) = (Waits::default(), OpenCalls::default());
        let permits = Arc::new(Semaphore::new(MAX_QUEUED_BYTES / BYTES_PER_PERMIT));
        loop {
            let message = tokio::select! {
                message = calls.message() => message,
                () = fail.closed() => return,
            };
            let Ok(Some(message)) = message else { return };
            for call in message.calls {
                let answers = (&permits, &replies, &open);
                let executed = execute(&*sink, call, service, answers, &mut waits);
                if let Err(status) = executed.await {
                    let _ = fail.send(Err(status)).await;
                    return;
                }
            }
            for id in message.cancelled {
                let cancelled = open.lock().get(&id).cloned();
                cancelled.unwrap_or_default().cancel();
            }
        }
    });
    ReceiverStream::new(stream)
}

/// How the calls of a stream wait for the topology that their sender knew.
#[derive(Default)]
struct Waits {
    /// The topology of a wait that was in vain: a node that sees no later one executes the calls behind by it at
    /// once, so that they do not wait one after the other.
    in_vain_at: Option<Revision>,
}

impl Waits {
    async fn wait(&mut self, sink: &dyn CallSink, revision: Revision) {
        if revision <= sink.revision() || self.in_vain_at == Some(sink.revision()) {
            return;
        }
        sink.wait_for_revision(revision).await;
        let known = sink.revision();
        self.in_vain_at = (known < revision).then_some(known);
    }
}

async fn execute(
    sink: &dyn CallSink,
    call: api::Call,
    service: Service,
    (permits, replies, open): (&Arc<Semaphore>, &mpsc::UnboundedSender<Replied>, &OpenCalls),
    waits: &mut Waits,
) -> Result<(), Status> {
    let mode = match (service, call.shard) {
        (Service::Coordinator, None) => CallMode::Owner,
        (Service::Instance, shard) => {
            let (shard, epoch) = shard_of(shard)?;
            CallMode::Instance(ShardCall { instance: sink.me(), shard, epoch })
        }
        (Service::Coordinator, Some(_)) => {
            return Err(Status::invalid_argument("a call to a coordinator names a shard"));
        }
    };
    let db = db_of(call.db)?;
    let size = (call.requests.len() + CALL_BYTES).min(MAX_QUEUED_BYTES) / BYTES_PER_PERMIT;
    let permit = permits.clone().acquire_many_owned(size as u32).await;
    let permit = Some(permit.map_err(|_| Status::unavailable("the node is ending"))?);
    let (id, me, replies) = (call.id, sink.me(), replies.clone());
    let mut answer = Answer { id, me, permit, replies, open: open.clone() };
    if mode == CallMode::Owner {
        waits.wait(sink, Revision(call.revision)).await;
    }
    let protocol = match call.is_resp3 {
        true => ReplyProtocol::Resp3,
        false => ReplyProtocol::Resp2,
    };
    let call = IncomingCall { mode, db, protocol, requests: call.requests.into() };
    let cancellation = Cancellation::of_call();
    open.lock().insert(id, cancellation.clone());
    sink.execute_until(call, cancellation, Box::new(move |reply| answer.send(reply)));
    Ok(())
}

/// Sends replies that are ready, together, until all senders are gone: more than [`BATCH_BYTES`] only if it is one.
async fn send_replies(
    mut ready: mpsc::UnboundedReceiver<Replied>,
    out: mpsc::Sender<Result<api::Replies, Status>>,
) {
    let size = |reply: &api::Reply| match &reply.outcome {
        Some(api::reply::Outcome::Replies(bytes)) => bytes.len(),
        _ => 0,
    };
    let mut next = None;
    loop {
        let first = match next.take() {
            Some(first) => Some(first),
            None => ready.recv().await,
        };
        let Some((first, permit)) = first else { return };
        let mut bytes = size(&first);
        let (mut replies, mut permits) = (vec![first], vec![permit]);
        while replies.len() < BATCH_CALLS
            && bytes < BATCH_BYTES
            && let Ok((reply, permit)) = ready.try_recv()
        {
            bytes += size(&reply);
            if bytes > BATCH_BYTES {
                next = Some((reply, permit));
                break;
            }
            replies.push(reply);
            permits.push(permit);
        }
        if out.send(Ok(api::Replies { replies })).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With those before it, it might be more than a message may be, and end the stream for all of them.
    #[tokio::test]
    async fn a_large_reply_is_a_message_of_its_own() {
        let (replies, ready) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(10));
        for (id, bytes) in (1..).zip([10, BATCH_BYTES - 10, 1, 2 * BATCH_BYTES, 1, 1]) {
            let permit = permits.clone().try_acquire_owned().unwrap();
            replies.send((api_reply(id, Ok(vec![b'x'; bytes])), permit)).unwrap();
        }
        drop(replies);
        let (out, mut messages) = mpsc::channel(10);
        send_replies(ready, out).await;
        let mut ids = Vec::new();
        while let Some(message) = messages.recv().await {
            let of_message = message.unwrap().replies.into_iter().map(|reply| reply.id);
            ids.push(of_message.collect::<Vec<u64>>());
        }
        assert_eq!(ids, [vec![1, 2], vec![3], vec![4], vec![5, 6]]);
        assert_eq!(permits.available_permits(), 10);
    }
}
