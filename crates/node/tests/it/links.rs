//! Links between two nodes, one of which is a stub that shows what it was sent.

use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use terrace_cluster::{
    CallMode, Cancellation, DbKey, Epoch, IncomingCall, MoveAnswer, NodeId, OutgoingCall, Plan,
    Reply, ReplyProtocol, Revision, ShardCall, ShardId, Unserved,
};
use terrace_node::Part;
use terrace_node::rpc::{
    CallSink, IncomingLimits, LinkOptions, MAX_QUEUED_BYTES, MoveMessage, Peer, Roles, Secret,
    ShardRecords, TakenPlan, TopCounts, api, incoming, routes,
};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, watch};
use tonic::Status;

/// Waiting for longer than this is a hang.
const HANG: Duration = Duration::from_secs(600);

const THERE: NodeId = NodeId([7; 20]);

type Done = Box<dyn FnOnce(Reply) + Send>;

/// Echoes requests, or keeps them.
#[derive(Default)]
struct Stub {
    keeps: AtomicBool,
    kept: Mutex<Vec<(IncomingCall, Done)>>,
    executed: AtomicUsize,
    bytes: AtomicUsize,
    revision: AtomicU64,
    waited_for: Mutex<Vec<Revision>>,
    cancellations: Mutex<Vec<Cancellation>>,
}

#[tonic::async_trait]
impl CallSink for Stub {
    fn me(&self) -> NodeId {
        THERE
    }

    fn revision(&self) -> Revision {
        Revision(self.revision.load(Ordering::SeqCst))
    }

    async fn wait_for_revision(&self, revision: Revision) {
        self.waited_for.lock().push(revision);
    }

    fn execute(&self, call: IncomingCall, done: Done) {
        self.executed.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(call.requests.len(), Ordering::SeqCst);
        match self.keeps.load(Ordering::SeqCst) {
            true => self.kept.lock().push((call, done)),
            false => done(Ok(call.requests)),
        }
    }

    fn execute_until(&self, call: IncomingCall, cancellation: Cancellation, done: Done) {
        self.cancellations.lock().push(cancellation);
        self.execute(call, done);
    }
}

#[tonic::async_trait]
impl Roles for Stub {
    async fn top_counts(&self, keys: usize) -> Result<TopCounts, Status> {
        Ok(TopCounts { writes: keys as u64, ..TopCounts::default() })
    }

    async fn fence(&self, _: ShardId, epoch: Epoch) -> Result<Epoch, Status> {
        Ok(epoch.max(Epoch(100)))
    }

    async fn records(&self, shard: ShardId, _: Epoch) -> Result<ShardRecords, Status> {
        let exception = |number: u32| {
            let move_id = terrace_cluster::MoveId { epoch: Epoch(1), number: number.into() };
            let key = DbKey::new(0, number.to_string());
            (key, terrace_cluster::Exception { at: shard, move_id })
        };
        let exceptions = (0..1000).map(exception).collect();
        Ok(ShardRecords { exceptions, ..Default::default() })
    }

    async fn apply_move(&self, _: MoveMessage, _: Epoch) -> MoveAnswer<Vec<u8>> {
        MoveAnswer::Deposed
    }

    async fn stray_key(&self, part: Part) -> Result<Option<DbKey>, Status> {
        Ok(Some(DbKey::new(3, part.to_string())))
    }

    async fn repartition(&self, plan: Plan) -> Result<TakenPlan, Status> {
        Ok(TakenPlan { moves: plan.key_count() as u64, refused: Vec::new() })
    }

    async fn move_key(&self, _: DbKey, _: Option<ShardId>) -> Result<(), Status> {
        Ok(())
    }

    async fn status(&self) -> api::StatusReply {
        api::StatusReply::default()
    }

    async fn drain(&self, _: bool) -> Result<(), Status> {
        Ok(())
    }
}

/// A server for `stub` on `address`; ends, with all its connections, when the sender is dropped.
async fn serve(
    stub: Arc<Stub>,
    secret: &Secret,
    address: SocketAddr,
) -> (SocketAddr, watch::Sender<()>, tokio::task::JoinHandle<()>) {
    serve_within(stub, secret, address, IncomingLimits::default()).await
}

async fn serve_within(
    stub: Arc<Stub>,
    secret: &Secret,
    address: SocketAddr,
    limits: IncomingLimits,
) -> (SocketAddr, watch::Sender<()>, tokio::task::JoinHandle<()>) {
    let listener = listen(address).await;
    let address = listener.local_addr().unwrap();
    let router = tonic::transport::Server::builder().add_routes(routes(stub, secret));
    let (stop, mut stopped) = watch::channel(());
    let connections = incoming(listener, stopped.clone(), limits);
    let serving = tokio::spawn(async move {
        tokio::select! {
            served = router.serve_with_incoming(connections) => served.unwrap(),
            _ = stopped.changed() => {}
        }
    });
    (address, stop, serving)
}

/// A listener. A port that was free before may be another socket's for a while.
async fn listen(address: SocketAddr) -> TcpListener {
    let bound = tokio::time::timeout(HANG, async {
        loop {
            if let Ok(listener) = TcpListener::bind(address).await {
                return listener;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    bound.await.expect("the port stays taken")
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A link that no pause of a loaded machine ends.
fn peer(address: SocketAddr, secret: &Secret) -> Peer {
    let options = LinkOptions { timeout: HANG / 10, ping: HANG / 10 };
    Peer::new(THERE, &address.to_string(), secret, &options).unwrap()
}

fn call(requests: impl Into<Vec<u8>>) -> OutgoingCall {
    let (db, protocol) = (3, ReplyProtocol::Resp3);
    OutgoingCall { db, protocol, requests: Arc::new(requests.into()) }
}

/// Sends calls with these requests; gives their replies in the order in which they come.
struct Replies {
    sender: mpsc::UnboundedSender<(usize, Reply)>,
    receiver: mpsc::UnboundedReceiver<(usize, Reply)>,
}

impl Replies {
    fn new() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { sender, receiver }
    }

    fn done(&self, number: usize) -> Done {
        let sender = self.sender.clone();
        Box::new(move |reply| sender.send((number, reply)).unwrap())
    }

    async fn next(&mut self) -> (usize, Reply) {
        tokio::time::timeout(HANG, self.receiver.recv()).await.expect("a reply hangs").unwrap()
    }
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(HANG, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("waited until {what}"));
}

#[tokio::test]
async fn calls_come_in_order_and_many_in_a_message() {
    let stub = Arc::new(Stub::default());
    stub.keeps.store(true, Ordering::SeqCst);
    let (address, _stop, _) = serve(stub.clone(), &Secret::none(), any()).await;
    let peer = peer(address, &Secret::none());
    let mut replies = Replies::new();
    for number in 0..4_000 {
        peer.call_owner(call(number.to_string()), Revision(5), replies.done(number));
    }
    wait_until("all have come", || stub.executed.load(Ordering::SeqCst) == 4_000).await;
    let kept = std::mem::take(&mut *stub.kept.lock());
    for (number, (call, _)) in kept.iter().enumerate() {
        assert_eq!((call.mode, call.db), (CallMode::Owner, 3));
        assert_eq!(call.protocol, ReplyProtocol::Resp3);
        assert_eq!(call.requests, number.to_string().into_bytes());
    }
    assert_eq!(*stub.waited_for.lock(), [Revision(5)], "the others do not wait again");
    // In any order.
    for (call, done) in kept.into_iter().rev() {
        done(if call.requests == b"77" { Err(Unserved::NoTopology) } else { Ok(call.requests) });
    }
    let mut seen = vec![false; 4_000];
    for _ in 0..4_000 {
        let (number, reply) = replies.next().await;
        let want = match number {
            77 => Err(Unserved::NoTopology),
            _ => Ok(number.to_string().into_bytes()),
        };
        assert_eq!(reply, want);
        assert!(!std::mem::replace(&mut seen[number], true), "each is answered once");
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_so_at_the_other_end() {
    let stub = Arc::new(Stub::default());
    stub.keeps.store(true, Ordering::SeqCst);
    let (address, _stop, _) = serve(stub.clone(), &Secret::none(), any()).await;
    let peer = peer(address, &Secret::none());
    let mut replies = Replies::new();
    let own = [(); 2].map(|()| Cancellation::of_call());
    for (number, cancellation) in own.iter().enumerate() {
        let done = replies.done(number);
        peer.call_owner_until(call("x"), Revision(0), cancellation.clone(), done);
    }
    wait_until("both have come", || stub.executed.load(Ordering::SeqCst) == 2).await;
    let is_cancelled = |at: usize| stub.cancellations.lock()[at].is_cancelled();
    assert!(!is_cancelled(0) && !is_cancelled(1));
    own[1].cancel();
    wait_until("one is cancelled", || is_cancelled(1)).await;
    assert!(!is_cancelled(0));
    for (call, done) in std::mem::take(&mut *stub.kept.lock()) {
        done(Ok(call.requests));
    }
    for _ in 0..2 {
        assert_eq!(replies.next().await.1, Ok(b"x".to_vec()), "both are answered");
    }
    wait_until("nothing is kept", || own.iter().all(Cancellation::is_alone)).await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_it_is_sent_is_not() {
    let stub = Arc::new(Stub::default());
    let (address, _stop, _) = serve(stub.clone(), &Secret::none(), any()).await;
    let peer = peer(address, &Secret::none());
    let mut replies = Replies::new();
    let cancelled = Cancellation::of_call();
    cancelled.cancel();
    peer.call_owner_until(call("x"), Revision(0), cancelled.clone(), replies.done(0));
    assert_eq!(replies.next().await, (0, Err(Unserved::Unreachable(THERE))));
    peer.call_owner(call("y"), Revision(0), replies.done(1));
    assert_eq!(replies.next().await, (1, Ok(b"y".to_vec())));
    assert_eq!(stub.executed.load(Ordering::SeqCst), 1);
    wait_until("nothing is kept", || cancelled.is_alone()).await;
}

/// A node that is cut off from the metadata knows no later topology however long calls wait for it.
#[tokio::test]
async fn calls_do_not_wait_one_after_the_other_for_a_topology_that_does_not_come() {
    let stub = Arc::new(Stub::default());
    let (address, _stop, _) = serve(stub.clone(), &Secret::none(), any()).await;
    let peer = peer(address, &Secret::none());
    let mut replies = Replies::new();
    let mut send = async |revision: u64| {
        peer.call_owner(call("x"), Revision(revision), replies.done(0));
        assert_eq!(replies.next().await, (0, Ok(b"x".to_vec())));
    };
    for revision in [5, 5, 6, 5, 9] {
        send(revision).await;
    }
    assert_eq!(*stub.waited_for.lock(), [Revision(5)]);
    // A later one is waited for again.
    stub.revision.store(6, Ordering::SeqCst);
    for revision in [5, 6, 9, 9] {
        send(revision).await;
    }
    assert_eq!(*stub.waited_for.lock(), [Revision(5), Revision(9)]);
}

#[tokio::test]
async fn a_call_to_an_instance_names_its_shard() {
    let stub = Arc::new(Stub::default());
    stub.keeps.store(true, Ordering::SeqCst);
    let (address, _stop, _) = serve(stub.clone(), &Secret::none(), any()).await;
    let peer = peer(address, &Secret::none());
    let mut replies = Replies::new();
    let shard = ShardCall { instance: THERE, shard: ShardId(4), epoch: Epoch(9) };
    peer.call_instance(call("x"), shard, replies.done(0));
    wait_until("it has come", || stub.executed.load(Ordering::SeqCst) == 1).await;
    let (call, done) = stub.kept.lock().pop().unwrap();
    assert_eq!(call.mode, CallMode::Instance(shard));
    // Dropped without a reply: the outcome is unknown.
    drop(done);
    assert_eq!(replies.next().await, (0, Err(Unserved::Unreachable(THERE))));
}

#[tokio::test]
async fn a_call_with_a_database_that_no_store_has_is_not_executed() {
    let stub = Arc::new(Stub::default());
    let (address, _stop, _) = serve(stub.clone(), &Secret::none(), any()).await;
    let peer = peer(address, &Secret::none());
    let mut replies = Replies::new();
    let shard = ShardCall { instance: THERE, shard: ShardId(4), epoch: Epoch(9) };
    for db in [128, 200, 255] {
        peer.call_owner(OutgoingCall { db, ..call("x") }, Revision(0), replies.done(0));
        assert_eq!(replies.next().await, (0, Err(Unserved::Unreachable(THERE))));
        peer.call_instance(OutgoingCall { db, ..call("x") }, shard, replies.done(1));
        assert_eq!(replies.next().await, (1, Err(Unserved::Unreachable(THERE))));
    }
    assert_eq!(stub.executed.load(Ordering::SeqCst), 0);
    peer.call_owner(OutgoingCall { db: 127, ..call("x") }, Revision(0), replies.done(2));
    assert_eq!(replies.next().await, (2, Ok(b"x".to_vec())));
}

#[tokio::test]
async fn without_the_secret_nothing_is_done() {
    let stub = Arc::new(Stub::default());
    let secret = Secret::new("right").unwrap();
    let (address, _stop, _) = serve(stub.clone(), &secret, any()).await;
    for wrong in [Secret::none(), Secret::new("wrong").unwrap()] {
        let peer = peer(address, &wrong);
        let mut replies = Replies::new();
        peer.call_owner(call("x"), Revision(0), replies.done(0));
        assert_eq!(replies.next().await, (0, Err(Unserved::Unreachable(THERE))));
        let code = peer.top_counts(1).await.unwrap_err().code();
        assert_eq!(code, tonic::Code::Unauthenticated);
        assert!(peer.status().await.is_err());
    }
    assert_eq!(stub.executed.load(Ordering::SeqCst), 0);
    let peer = peer(address, &secret);
    let mut replies = Replies::new();
    peer.call_owner(call("x"), Revision(0), replies.done(0));
    assert_eq!(replies.next().await, (0, Ok(b"x".to_vec())));
    assert_eq!(peer.top_counts(12).await.unwrap().writes, 12);
    assert_eq!(peer.fence(ShardId(1), Epoch(5)).await.unwrap(), Epoch(100));
    assert_eq!(peer.records(ShardId(1), Epoch(5)).await.unwrap().exceptions.len(), 1000);
    let part = "slots 1:00000-16383";
    let stray = peer.stray_key(&part.parse().unwrap()).await.unwrap();
    assert_eq!(stray, Some(DbKey::new(3, part)));
    peer.move_key(DbKey::new(0, "k"), None).await.unwrap();
    peer.drain(false).await.unwrap();
}

#[tokio::test]
async fn a_node_that_ends_leaves_no_call_without_an_answer_and_is_found_again() {
    let stub = Arc::new(Stub::default());
    stub.keeps.store(true, Ordering::SeqCst);
    let (address, stop, serving) = serve(stub.clone(), &Secret::none(), any()).await;
    let peer = peer(address, &Secret::none());
    let mut replies = Replies::new();
    for number in 0..100 {
        peer.call_owner(call("x"), Revision(0), replies.done(number));
    }
    wait_until("all have come", || stub.executed.load(Ordering::SeqCst) == 100).await;
    drop(stop);
    serving.await.unwrap();
    stub.kept.lock().clear();
    for _ in 0..100 {
        assert_eq!(replies.next().await.1, Err(Unserved::Unreachable(THERE)));
    }
    // Nobody there.
    peer.call_owner(call("y"), Revision(0), replies.done(0));
    assert_eq!(replies.next().await.1, Err(Unserved::Unreachable(THERE)));
    stub.keeps.store(false, Ordering::SeqCst);
    let (_, _stop, _) = serve(stub.clone(), &Secret::none(), address).await;
    let again = async {
        loop {
            peer.call_owner(call("z"), Revision(0), replies.done(0));
            if let (_, Ok(reply)) = replies.next().await {
                return reply;
            }
        }
    };
    assert_eq!(tokio::time::timeout(HANG, again).await.unwrap(), b"z");
}

#[tokio::test]
async fn a_node_that_is_silent_is_given_up() {
    // Takes connections, and says nothing.
    let listener = TcpListener::bind(any()).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let peer = Peer::new(THERE, &address, &Secret::none(), &LinkOptions::default()).unwrap();
    let mut replies = Replies::new();
    peer.call_owner(call("x"), Revision(0), replies.done(0));
    assert_eq!(replies.next().await, (0, Err(Unserved::Unreachable(THERE))));
    assert!(peer.status().await.is_err());
}

/// Who connects and says nothing, or has not the secret, takes no other's place for long.
#[tokio::test]
async fn connections_that_make_no_call_are_ended_and_others_wait_for_their_places() {
    let (stub, secret) = (Arc::new(Stub::default()), Secret::new("right").unwrap());
    let limits = IncomingLimits { connections: 2, first_call: Duration::from_millis(300) };
    let (address, _stop, _) = serve_within(stub.clone(), &secret, any(), limits).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    let stranger = peer(address, &Secret::new("wrong").unwrap());
    let stranger = tokio::spawn(async move { stranger.status().await.is_err() });
    // It waits until there is a place.
    let peer = peer(address, &secret);
    let mut replies = Replies::new();
    let served = async {
        loop {
            peer.call_owner(call("x"), Revision(0), replies.done(0));
            if let (_, Ok(reply)) = replies.next().await {
                return reply;
            }
        }
    };
    assert_eq!(tokio::time::timeout(HANG, served).await.unwrap(), b"x");
    for mut stream in silent {
        let mut bytes = Vec::new();
        let ended = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut bytes);
        let _end = tokio::time::timeout(HANG, ended).await.expect("it is held for ever");
    }
    assert!(stranger.await.unwrap());
    // One that was let in stays, however long it says nothing.
    stub.keeps.store(true, Ordering::SeqCst);
    peer.call_owner(call("y"), Revision(0), replies.done(1));
    wait_until("it has come", || stub.kept.lock().len() == 1).await;
    tokio::time::sleep(2 * limits.first_call).await;
    let (call, done) = stub.kept.lock().pop().unwrap();
    done(Ok(call.requests));
    assert_eq!(replies.next().await, (1, Ok(b"y".to_vec())));
}

#[tokio::test]
async fn a_slow_node_does_not_fill_the_memory() {
    let stub = Arc::new(Stub::default());
    stub.keeps.store(true, Ordering::SeqCst);
    let (address, _stop, _) = serve(stub.clone(), &Secret::none(), any()).await;
    let peer = peer(address, &Secret::none());
    let mut replies = Replies::new();
    let requests = Arc::new(vec![b'x'; 1 << 20]);
    let (db, protocol) = (0, ReplyProtocol::Resp2);
    let count = 4 * MAX_QUEUED_BYTES / requests.len();
    for number in 0..count {
        let call = OutgoingCall { db, protocol, requests: requests.clone() };
        peer.call_owner(call, Revision(0), replies.done(number));
    }
    // What is too much fails at once; what was taken is executed bit by bit.
    let (_, first) = replies.next().await;
    assert_eq!(first, Err(Unserved::Full(THERE)));
    wait_until("the node has all it takes", || {
        stub.bytes.load(Ordering::SeqCst) + (3 << 20) >= MAX_QUEUED_BYTES
    })
    .await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(stub.bytes.load(Ordering::SeqCst) <= MAX_QUEUED_BYTES);
    // Nothing is lost: each call has one reply.
    stub.keeps.store(false, Ordering::SeqCst);
    let kept = std::mem::take(&mut *stub.kept.lock());
    kept.into_iter().for_each(|(_, done)| done(Ok(Vec::new())));
    let mut served = 0;
    for _ in 1..count {
        served += usize::from(replies.next().await.1.is_ok());
    }
    assert!(served >= MAX_QUEUED_BYTES >> 20, "{served}");
}

/// A stream keeps buffers of the size of its largest message.
#[tokio::test]
async fn a_stream_ends_when_a_large_message_is_answered_and_others_go_on() {
    let stub = Arc::new(Stub::default());
    let (address, _stop, _) = serve(stub.clone(), &Secret::none(), any()).await;
    let peer = peer(address, &Secret::none());
    let mut replies = Replies::new();
    // After how many streams each is answered.
    for (number, (bytes, streams)) in
        [(1, 1), (1, 1), (8 << 20, 1), (1, 2), (1, 2), (8 << 20, 2), (8 << 20, 3), (1, 4)]
            .into_iter()
            .enumerate()
    {
        peer.call_owner(call(vec![b'x'; bytes]), Revision(0), replies.done(number));
        let (answered, reply) = replies.next().await;
        assert_eq!((answered, reply.map(|reply| reply.len())), (number, Ok(bytes)));
        assert_eq!(peer.opened_streams(), streams, "call {number}");
    }
    // One that is large does not end while another waits, and the one that waits has its answer.
    stub.keeps.store(true, Ordering::SeqCst);
    peer.call_owner(call("waits"), Revision(0), replies.done(100));
    wait_until("it waits", || stub.kept.lock().len() == 1).await;
    stub.keeps.store(false, Ordering::SeqCst);
    peer.call_owner(call(vec![b'x'; 8 << 20]), Revision(0), replies.done(101));
    assert_eq!(replies.next().await.0, 101);
    peer.call_owner(call("passes"), Revision(0), replies.done(102));
    assert_eq!(replies.next().await, (102, Ok(b"passes".to_vec())));
    let (waiting, done) = stub.kept.lock().pop().unwrap();
    done(Ok(waiting.requests));
    assert_eq!(replies.next().await, (100, Ok(b"waits".to_vec())));
    assert_eq!(peer.opened_streams(), 4);
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_is_named() {
    // Nobody listens there, and nobody else can meanwhile.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(any()).unwrap();
    let address = socket.local_addr().unwrap();
    let peer = peer(address, &Secret::none());
    let named = format!("node {THERE} at {address} cannot be reached: ");
    let errors = [
        peer.status().await.map(drop).unwrap_err(),
        peer.drain(false).await.unwrap_err(),
        peer.move_key(DbKey::new(0, "key"), None).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.message().starts_with(&named), "{error}");
    }
}
