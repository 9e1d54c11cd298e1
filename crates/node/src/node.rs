//! A running node: joins the cluster, and starts the tasks that keep it there.

mod admin;

pub use admin::NodeFigures;

use crate::claims;
use crate::config::{MIN_LEASE, NodeConfig};
use crate::coordinator::NodeCoordinator;
use crate::directory::{Directory, Layout, MAX_CREATED_SHARDS, NodeState};
use crate::error::Error;
use crate::follower;
use crate::gate::Gate;
use crate::lease_keeper;
use crate::part::Part;
use crate::part_check::{PartCheck, stray_text};
use crate::partitioner::{self, Repartition};
use crate::passing::Passing;
use crate::roles::NodeRoles;
use crate::rpc::{IncomingLimits, Roles, api, incoming, routes};
use crate::shared::Shared;
use crate::stamp::LeaseStamp;
use crate::store::{Identity, InstanceStore, StoreError};
use crate::vain_wait::VainWait;
use crate::view::View;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use terrace_cluster::{
    CommandExecutor, Coordinator, DbKey, KeyRange, NodeId, Placement, PlanSpec, Revision, ShardId,
    Topology,
};
use terrace_metadata::Metadata;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

/// How many streams of others a connection may have.
const MAX_STREAMS: u32 = 1024;

/// See the module. Ends when it is dropped, as if it were killed; [`Self::leave`] is the polite way, after
/// which nothing can be asked of it.
pub struct Node {
    shared: Arc<Shared>,
    roles: NodeRoles,
    rpc_listen: SocketAddr,
    /// What ends with the node.
    running: Mutex<Option<Tasks>>,
}

/// The tasks of a node, and the connections of others, which end when it is dropped.
struct Tasks {
    tasks: JoinSet<()>,
    _connections: watch::Sender<()>,
}

/// Creates a cluster with these shards, each with its instance and its part of the key space, unless it
/// exists. Whether it was created.
///
/// # Errors
/// The name is none, the shards do not cover the key space once, there are too many, or the metadata store
/// fails.
pub async fn create_cluster(
    metadata: &dyn Metadata,
    cluster: &str,
    placement: Placement,
    shards: &[(ShardId, NodeId, Vec<KeyRange>)],
) -> Result<bool, Error> {
    let layout = layout_of(cluster)?;
    if shards.len() > MAX_CREATED_SHARDS {
        let why = format!("a cluster is created with at most {MAX_CREATED_SHARDS} shards");
        return Err(Error::Config(why));
    }
    let nodes = shards.iter().map(|(_, id, _)| terrace_cluster::Node {
        id: *id,
        redis_address: String::new(),
        rpc_address: String::new(),
        is_alive: false,
    });
    let parts = shards.iter().map(|(id, instance, ranges)| {
        let (id, instance, ranges) = (*id, *instance, ranges.clone());
        terrace_cluster::Shard { id, instance, owner: None, ranges }
    });
    Topology::new(Revision(0), placement, nodes, parts)
        .map_err(|error| Error::Config(error.to_string()))?;
    Ok(metadata.commit(layout.create(placement, shards)).await?.is_some())
}

fn layout_of(cluster: &str) -> Result<Layout, Error> {
    Layout::new(cluster).ok_or_else(|| {
        let cluster = cluster.escape_debug();
        Error::Config(format!("\"{cluster}\" is no name: 1 to 64 letters, digits, '-', '_', '.'"))
    })
}

/// The node that a store belongs to in this cluster; one that was in no cluster gets a fresh id.
///
/// # Errors
/// The store belongs to another cluster, or fails.
pub fn join_store(store: &dyn InstanceStore, cluster: &str) -> Result<NodeId, Error> {
    layout_of(cluster)?;
    match store.identity()? {
        Some(identity) if identity.cluster == cluster => Ok(identity.node),
        Some(identity) => {
            let (found, wanted) = (identity.cluster, cluster.to_string());
            Err(Error::ForeignStore { found, wanted })
        }
        None => {
            let mut id = [0; 20];
            let mut filled = 0;
            while filled < id.len() {
                let flags = rustix::rand::GetRandomFlags::empty();
                let error = |error: rustix::io::Errno| Error::Io {
                    what: "cannot draw an id".into(),
                    error: error.into(),
                };
                filled += rustix::rand::getrandom(&mut id[filled..], flags).map_err(error)?;
            }
            let node = NodeId(id);
            store.set_identity(&Identity { cluster: cluster.to_string(), node })?;
            Ok(node)
        }
    }
}

/// The part of the keys that a store has. One without keys may get any.
fn part_of(store: &dyn InstanceStore) -> Result<Option<Part>, StoreError> {
    match store.part()? {
        Some(_) if store.is_empty()? => Ok(None),
        part => Ok(part),
    }
}

/// Refuses a cluster of these shards if a store has another part of the keys than its node would have, or keys that are not
/// of that.
///
/// # Errors
/// That, or the store fails.
pub fn check_store(
    store: &dyn InstanceStore,
    node: NodeId,
    placement: Placement,
    shards: &[(ShardId, NodeId, Vec<KeyRange>)],
) -> Result<(), Error> {
    let wanted = Part::of(placement, shards, node);
    let Some(known) = part_of(store)? else {
        let Some(wanted) = wanted else { return Ok(()) };
        let stray = store.stray_key(&wanted)?;
        return stray.map_or(Ok(()), |key| Err(Error::Config(stray_text(&wanted, &key))));
    };
    if wanted.as_ref() == Some(&known) {
        return Ok(());
    }
    let wanted = wanted.map_or("none".into(), |wanted| wanted.describe());
    let known = known.describe();
    Err(Error::Config(format!("the store has {known} in its cluster, and would be given {wanted}")))
}

/// Refuses to serve a store without its cluster, if that has keys in other stores: a key that was moved away would be written a
/// second time here, and the cluster would show it twice from then on.
///
/// # Errors
/// That, or the store fails.
pub fn check_alone(store: &dyn InstanceStore) -> Result<(), Error> {
    let Some(part) = store.part()?.filter(|part| !part.is_everything()) else { return Ok(()) };
    let cluster = store.identity()?.map_or(String::new(), |identity| identity.cluster);
    Err(Error::Config(format!(
        "the store has {} of the cluster \"{cluster}\", and is served as a node of it only (cluster-enabled); if all keys \
         of its shard are at home, `terrace convert` makes a store of it that is in no cluster",
        part.describe()
    )))
}

impl Node {
    /// Starts a node within a tokio runtime with several threads. Returns when other nodes can connect;
    /// it joins in the background, as soon as the metadata store answers.
    ///
    /// # Errors
    /// A setting cannot work, the store is foreign, or the port is taken.
    pub async fn start(
        config: NodeConfig,
        metadata: Arc<dyn Metadata>,
        store: Arc<dyn InstanceStore>,
        executor: Arc<dyn CommandExecutor>,
    ) -> Result<Self, Error> {
        if config.lease < MIN_LEASE {
            return Err(Error::Config(format!("a lease has at least {MIN_LEASE:?}")));
        }
        if config.secret.is_none() && !config.rpc_listen.ip().is_loopback() {
            let why = "nodes on several machines need a shared secret (cluster-secret)";
            return Err(Error::Config(why.into()));
        }
        let layout = layout_of(&config.cluster)?;
        let me = join_store(&*store, &config.cluster)?;
        let part_check = PartCheck::new(me, part_of(&*store)?);
        let io = |error| Error::Io {
            what: format!("cannot listen on {} for other nodes", config.rpc_listen),
            error,
        };
        let listener = TcpListener::bind(config.rpc_listen).await.map_err(io)?;
        let rpc_listen = listener.local_addr().map_err(io)?;
        let rpc_address = config.rpc_address.clone().unwrap_or_else(|| rpc_listen.to_string());
        let (deposed, deposed_terms) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            me,
            rpc_address,
            layout,
            metadata,
            store,
            part_check,
            executor,
            stamp: LeaseStamp::new(config.clock.clone(), config.lease),
            lease: watch::Sender::new(None),
            gate: Gate::new(),
            calls: Gate::new(),
            view: ArcSwap::from_pointee(View::default()),
            view_changed: watch::Sender::new(()),
            revision: AtomicU64::new(0),
            published: watch::Sender::new(Revision(0)),
            vain_wait: VainWait::none(),
            directory: watch::Sender::new(None),
            refusal: watch::Sender::new(None),
            refresh: Notify::new(),
            deposed,
            passing: Passing::new(),
            too_far: Mutex::default(),
            is_draining: watch::Sender::new(false),
            leads_partitioner: AtomicBool::new(false),
            moved_keys: AtomicU64::new(0),
            runtime: tokio::runtime::Handle::current(),
            epochs: Mutex::new(HashMap::new()),
            raising: Mutex::new(()),
            fencing: Mutex::default(),
            peers: Mutex::new(HashMap::new()),
            config,
        });
        let mut tasks = JoinSet::new();
        let (_connections, ended) = watch::channel(());
        tasks.spawn(serve(shared.clone(), listener, ended));
        tasks.spawn(lease_keeper::keep(shared.clone()));
        tasks.spawn(follower::follow(shared.clone()));
        tasks.spawn(claims::run(shared.clone(), deposed_terms));
        if let Some(partitioner) = shared.config.partitioner.clone() {
            tasks.spawn(partitioner::run(shared.clone(), partitioner));
        }
        let roles = NodeRoles { shared: shared.clone() };
        let running = Mutex::new(Some(Tasks { tasks, _connections }));
        Ok(Self { shared, roles, rpc_listen, running })
    }

    /// Its id.
    pub fn id(&self) -> NodeId {
        self.shared.me
    }

    /// Where other nodes connect to.
    pub fn rpc_listen(&self) -> SocketAddr {
        self.rpc_listen
    }

    /// The cluster, for the server in front of clients.
    pub fn coordinator(&self) -> Arc<dyn Coordinator> {
        Arc::new(NodeCoordinator { shared: self.shared.clone() })
    }

    /// What the node does at the moment.
    pub async fn status(&self) -> api::StatusReply {
        self.roles.status().await
    }

    /// Makes a plan of what all instances counted, and sends it to the owners.
    ///
    /// # Errors
    /// An instance or an owner is away, or there is no plan.
    pub async fn repartition(&self, spec: &PlanSpec, keys: usize) -> Result<Repartition, Error> {
        partitioner::repartition(&self.shared, spec, keys).await
    }

    /// Moves a key to a shard's instance, or home, wherever it is owned; returns when it is there.
    ///
    /// # Errors
    /// The owner is away, or refuses; the text says why.
    pub async fn move_key(&self, key: DbKey, to: Option<ShardId>) -> Result<(), Error> {
        let unserved = |why: &str| Error::Unserved(why.to_string());
        let topology =
            self.shared.topology().ok_or_else(|| unserved("there is no topology yet"))?;
        let shard = topology.shard_of(&key.key);
        let owner = topology.shards.get(&shard).and_then(|shard| shard.owner);
        let owner = owner.filter(|owner| owner.is_claimed);
        let owner = owner.ok_or_else(|| unserved("the key's shard has no owner"))?;
        let peer = self.shared.known_peer(owner.node).map_err(|it| unserved(it.message()))?;
        peer.move_key(key, to).await.map_err(|status| unserved(status.message()))
    }

    /// Gives up all shards of a node and lets it take none, or lets it take them again.
    ///
    /// # Errors
    /// The node does not answer, or no other one would take its shards. It takes shards then as it did before, or the
    /// text says that it does not.
    pub async fn drain(&self, node: NodeId, is_over: bool) -> Result<(), Error> {
        let unserved = |status: tonic::Status| Error::Unserved(status.message().to_string());
        if is_over {
            let peer = self.shared.known_peer(node).map_err(unserved)?;
            return peer.drain(true).await.map_err(unserved);
        }
        let was_drained = self.look_for_others(node).await?;
        let peer = self.shared.known_peer(node).map_err(unserved)?;
        peer.drain(false).await.map_err(unserved)?;
        // Of two at the same time each may have counted on the other's node. The metadata say of this one by now that it
        // is drained, so that the later one sees it.
        let Err(error) = self.look_for_others(node).await else { return Ok(()) };
        let stays = |why: &str| Error::Unserved(format!("{error}; node {node} {why}"));
        if was_drained {
            return Err(stays("stays drained, as it was before"));
        }
        match peer.drain(true).await {
            Ok(()) => Err(error),
            Err(status) => {
                let why = status.message();
                Err(stays(&format!(
                    "stays drained, as it could not be asked to take shards: {why}"
                )))
            }
        }
    }

    /// Whether a node is drained, by the metadata of this moment.
    ///
    /// # Errors
    /// By these no other node is alive and takes shards, or they cannot be read.
    async fn look_for_others(&self, node: NodeId) -> Result<bool, Error> {
        let (layout, metadata) = (&self.shared.layout, &self.shared.metadata);
        let snapshot = metadata.snapshot(layout.prefix()).await?;
        let directory = Directory::new(layout.clone(), snapshot);
        let takes_shards =
            |id: NodeId| directory.state_of(id) == Some(NodeState::Coordinator) && id != node;
        if !directory.members().iter().any(|member| takes_shards(member.id)) {
            let why = "no other node that is alive takes shards: its keys would not be served";
            return Err(Error::Unserved(why.into()));
        }
        Ok(directory.state_of(node) == Some(NodeState::Draining))
    }

    /// Why this node can never join the cluster, as soon as that is known; `None` when the node has ended. What is
    /// returned does not keep the node.
    pub fn refusal(&self) -> impl Future<Output = Option<String>> + Send + use<> {
        let mut refusal = self.shared.refusal.subscribe();
        async move { refusal.wait_for(Option::is_some).await.ok()?.clone() }
    }

    /// Gives up its shards and its lease, so that others need not wait for the lease's end, and ends. What was under way is
    /// answered before, unless it takes longer than [`NodeConfig::leave`].
    pub async fn leave(&self) {
        let _ = tokio::time::timeout(self.shared.config.leave, self.roles.give_up_shards()).await;
        let lease = *self.shared.lease.borrow();
        if let Some(lease) = lease {
            self.shared.stamp.lose();
            if let Err(error) = self.shared.metadata.revoke(lease).await {
                tracing::debug!("the lease is not revoked: {error}");
            }
        }
        self.stop();
    }

    /// Ends, as if it were killed. Whatever is still under way finds that it may not reply.
    fn stop(&self) {
        self.shared.stamp.lose();
        self.shared.change_view(|view| *view = View::default());
        if let Some(mut running) = self.running.lock().take() {
            running.tasks.abort_all();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn serve(shared: Arc<Shared>, listener: TcpListener, ended: watch::Receiver<()>) {
    let secret = shared.config.secret.clone();
    let ping = shared.config.links.ping;
    let served = tonic::transport::Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .http2_keepalive_interval(Some(ping))
        .http2_keepalive_timeout(Some(2 * ping))
        .tcp_nodelay(true)
        .add_routes(routes(Arc::new(NodeRoles { shared }), &secret))
        .serve_with_incoming(incoming(listener, ended, IncomingLimits::default()));
    if let Err(error) = served.await {
        tracing::error!("the server for other nodes ends: {error}");
    }
}
