//! What the server does for clients, in small: routes each command and does what the route says.

use super::store::MemoryStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_cluster::{
    CallMode, CallTarget, Coordinator, IncomingCall, OutgoingCall, Refusal, Reply, ReplyProtocol,
    Route, ShardCall, ShardId, Unserved,
};
use tokio::sync::oneshot;

/// A command that is routed again more often than this does not get anywhere.
const MAX_ROUTES: u32 = 20_000;

type Done = Box<dyn FnOnce(Reply) + Send>;

pub struct Front {
    coordinator: Option<Arc<dyn Coordinator>>,
    store: Arc<MemoryStore>,
    is_stopped: AtomicBool,
}

struct Request {
    text: String,
    routes: u32,
    /// Not from another coordinator.
    is_clients: bool,
    done: Done,
}

impl Front {
    pub fn new(coordinator: Arc<dyn Coordinator>, store: Arc<MemoryStore>) -> Arc<Self> {
        let is_stopped = AtomicBool::new(false);
        Arc::new(Self { coordinator: Some(coordinator), store, is_stopped })
    }

    pub fn nowhere(store: Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self { coordinator: None, store, is_stopped: AtomicBool::new(true) })
    }

    /// Nothing reaches the store from now on, as after the death of the process.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
    }

    /// A client's command. An error after which the outcome is unknown is one.
    pub async fn run(self: &Arc<Self>, text: &str) -> Reply {
        let (done, reply) = oneshot::channel();
        let done: Done = Box::new(move |reply| _ = done.send(reply));
        self.submit(Request { text: text.to_string(), routes: 0, is_clients: true, done });
        reply.await.unwrap()
    }

    /// A call of another node.
    pub fn incoming(self: &Arc<Self>, call: IncomingCall, done: Done) {
        let text = String::from_utf8(call.requests).unwrap();
        match call.mode {
            CallMode::Owner => {
                self.submit(Request { text, routes: 0, is_clients: false, done });
            }
            CallMode::Instance(shard) => done(self.at_instance(shard, &text)),
        }
    }

    fn cluster(&self) -> &Arc<dyn Coordinator> {
        self.coordinator.as_ref().unwrap()
    }

    fn at_instance(&self, call: ShardCall, text: &str) -> Reply {
        let guard = self.cluster().admit(call)?;
        let reply = self.execute(call.shard, text);
        assert!(guard.may_reply());
        reply.map_err(|_| Unserved::Moved(self.cluster().revision()))
    }

    fn execute(&self, shard: ShardId, text: &str) -> Result<Vec<u8>, Refusal> {
        if self.is_stopped.load(Ordering::SeqCst) {
            return Err(Refusal::NotHere);
        }
        let words: Vec<&str> = text.split(' ').collect();
        self.store.execute(shard, &words)
    }

    fn submit(self: &Arc<Self>, mut request: Request) {
        request.routes += 1;
        if self.is_stopped.load(Ordering::SeqCst) || request.routes > MAX_ROUTES {
            return (request.done)(Err(Unserved::NoTopology));
        }
        let coordinator = self.cluster();
        let Some(topology) = coordinator.topology() else {
            return (request.done)(Err(Unserved::NoTopology));
        };
        let key = request.text.split(' ').nth(1).unwrap().as_bytes().to_vec();
        let guard = coordinator.guard();
        let is_read = request.text.starts_with("GET");
        match coordinator.route(0, &key) {
            Route::Held if !is_read => {
                drop(guard);
                let this = self.clone();
                coordinator.when_released(0, &key, Box::new(move || this.submit(request)));
            }
            Route::Local | Route::Held => {
                let reply = self.execute(topology.shard_of(&key), &request.text);
                let may_reply = guard.may_reply();
                drop(guard);
                match reply {
                    Ok(reply) if may_reply => (request.done)(Ok(reply)),
                    Ok(_) => (request.done)(Err(Unserved::Unreachable(coordinator.me()))),
                    Err(_) => self.again(request),
                }
            }
            Route::Changing(shard) => {
                drop(guard);
                let this = self.clone();
                coordinator.when_served(shard, Box::new(move || this.submit(request)));
            }
            Route::Instance(call) => self.send(CallTarget::Instance(call), request),
            Route::Owner(node) if request.is_clients => {
                self.send(CallTarget::Owner(node), request);
            }
            Route::Owner(_) => (request.done)(Err(Unserved::Moved(coordinator.revision()))),
            Route::Unserved(why) => (request.done)(Err(why)),
        }
    }

    fn again(self: &Arc<Self>, request: Request) {
        let this = self.clone();
        let revision = self.cluster().revision();
        self.cluster().when_at(revision, Box::new(move || this.submit(request)));
    }

    fn send(self: &Arc<Self>, target: CallTarget, request: Request) {
        let requests = Arc::new(request.text.clone().into_bytes());
        let call = OutgoingCall { db: 0, protocol: ReplyProtocol::Resp2, requests };
        let this = self.clone();
        let done = move |reply| match reply {
            Err(Unserved::Moved(revision)) => {
                let cluster = this.cluster().clone();
                cluster.when_at(revision, Box::new(move || this.submit(request)));
            }
            reply => (request.done)(reply),
        };
        self.cluster().call(target, call, Box::new(done));
    }
}
