//! The node behind a server: what its options mean, the runtime that its tasks are in, and the cluster's
//! metadata.

use crate::config::{ClusterPlacement, Settings};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use terrace::SystemClock;
use terrace_cluster::{
    CommandExecutor, Coordinator, KeyRange, NodeId, Placement, SLOT_COUNT, ShardId,
};
use terrace_keyspace::Keyspace;
use terrace_metadata::{Embedded, Etcd, EtcdOptions, Metadata};
use terrace_node::rpc::{LinkOptions, Secret};
use terrace_node::{
    Error, KeyspaceStore, Node, NodeConfig, PartitionerConfig, check_store, create_cluster,
    join_store,
};
use tokio::runtime::{Builder, Handle, Runtime};

/// Threads of the node's tasks.
const WORKERS: usize = 2;

/// What is added to the port of the Redis protocol, as Redis does for its bus.
const PORT_OFFSET: u16 = 10_000;

/// How long work that waits for the device may go on when the node ends.
const LAST_WORK: Duration = Duration::from_secs(3);

/// The shard of a cluster of one server.
const ONLY_SHARD: ShardId = ShardId(1);

/// See the module.
pub struct Membership {
    node: Arc<Node>,
    metadata: Arc<dyn Metadata>,
    runtime: Runtime,
}

impl Settings {
    /// The placement that the store must have in a cluster.
    pub fn placement(&self) -> Placement {
        match self.cluster_placement {
            ClusterPlacement::Slots => Placement::Slots,
            ClusterPlacement::Range => Placement::Range,
        }
    }
}

impl Membership {
    /// Starts the node of a server that listens for clients at `listens`, of which the first is announced.
    /// `metadata` is that of other servers of this process; if there is none, it is in etcd, or in the server's own
    /// store, where a cluster of this server alone is made.
    ///
    /// # Errors
    /// Options that cannot work, a store of another cluster, a port that is taken.
    pub fn start(
        settings: &Settings,
        listens: &[SocketAddr],
        space: &Arc<Keyspace>,
        executor: Arc<dyn CommandExecutor>,
        metadata: Option<Arc<dyn Metadata>>,
    ) -> Result<Self, Error> {
        let config = node_config(settings, announced_address(settings, listens)?)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("cluster")
            .enable_all()
            .build()
            .map_err(|error| Error::Io { what: "no threads for the cluster".into(), error })?;
        let store = KeyspaceStore::new(space.clone());
        let is_alone = metadata.is_none() && settings.cluster_etcd.trim().is_empty();
        let started = runtime.block_on(async {
            let metadata = match metadata {
                Some(metadata) => metadata,
                None => open_metadata(settings, space)?,
            };
            if is_alone {
                let shards =
                    [(ONLY_SHARD, join_store(&store, &config.cluster)?, everything(settings))];
                let name = &config.cluster;
                check_store(&store, shards[0].1, settings.placement(), &shards)?;
                if create_cluster(&*metadata, name, settings.placement(), &shards).await? {
                    tracing::info!("the cluster \"{name}\" is made, of this server alone");
                }
            }
            let node = Node::start(config, metadata.clone(), Arc::new(store), executor).await?;
            Ok::<_, Error>((Arc::new(node), metadata))
        });
        match started {
            Ok((node, metadata)) => {
                tracing::info!(node = %node.id(), "listens on {} for other nodes", node.rpc_listen());
                Ok(Self { node, metadata, runtime })
            }
            Err(error) => {
                runtime.shutdown_timeout(LAST_WORK);
                Err(error)
            }
        }
    }

    /// The cluster, for the server in front of clients.
    pub fn coordinator(&self) -> Arc<dyn Coordinator> {
        self.node.coordinator()
    }

    /// The node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The node's id.
    pub fn id(&self) -> NodeId {
        self.node.id()
    }

    /// Where the cluster's metadata is, for other servers of this process.
    pub fn metadata(&self) -> &Arc<dyn Metadata> {
        &self.metadata
    }

    /// Where the node's methods are run.
    pub fn runtime(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Calls back if the cluster can never be joined, with the reason.
    pub fn on_refusal(&self, call: impl FnOnce(String) + Send + 'static) {
        let refusal = self.node.refusal();
        self.runtime.spawn(async move {
            if let Some(why) = refusal.await {
                call(why);
            }
        });
    }

    /// Gives up what this node owns and its lease, so that others need not wait for its end. Commands of clients
    /// are still answered meanwhile.
    pub fn leave(&self) {
        self.runtime.block_on(self.node.leave());
    }

    /// Ends what is left of the node.
    pub fn end(self) {
        let Self { node, metadata, runtime } = self;
        drop((node, metadata));
        runtime.shutdown_timeout(LAST_WORK);
    }
}

fn open_metadata(settings: &Settings, space: &Keyspace) -> Result<Arc<dyn Metadata>, Error> {
    let urls = settings.cluster_etcd.split(',').map(str::trim).filter(|url| !url.is_empty());
    let urls: Vec<&str> = urls.collect();
    Ok(match urls.is_empty() {
        true => Arc::new(Embedded::open(space.db(), Arc::new(SystemClock::default()))?),
        false => Arc::new(Etcd::new(&urls, EtcdOptions::default())?),
    })
}

fn everything(settings: &Settings) -> Vec<KeyRange> {
    vec![match settings.placement() {
        Placement::Slots => KeyRange::Slots(0, SLOT_COUNT - 1),
        Placement::Range => KeyRange::Keys { start: Vec::new(), end: None },
    }]
}

fn refused(option: &str, why: impl Display) -> Error {
    Error::Config(format!("{option}: {why}"))
}

/// The address among those of `bind` that clients and other nodes connect to.
fn announced_address(settings: &Settings, listens: &[SocketAddr]) -> Result<SocketAddr, Error> {
    let why = "a node of a cluster must listen for clients";
    let first = *listens.first().ok_or_else(|| Error::Config(why.into()))?;
    let is_reached = listens.iter().any(|address| !address.ip().is_loopback());
    if first.ip().is_loopback() && is_reached && settings.cluster_announce_ip.trim().is_empty() {
        let why = "it must be given, since the first address of `bind` is one that other machines cannot connect to";
        return Err(refused("cluster-announce-ip", why));
    }
    Ok(first)
}

/// What the options mean for the node.
fn node_config(settings: &Settings, listens: SocketAddr) -> Result<NodeConfig, Error> {
    let bind: IpAddr = settings.cluster_bind.parse().map_err(|why| refused("cluster-bind", why))?;
    let port = match settings.cluster_port {
        0 => listens.port().checked_add(PORT_OFFSET).ok_or_else(|| {
            let port = listens.port();
            refused("cluster-port", format!("it must be given: {port} + {PORT_OFFSET} is no port"))
        })?,
        port => port,
    };
    let announced = settings.cluster_announce_ip.trim();
    if announced.is_empty() && listens.ip().is_unspecified() {
        let why = "with this `bind`, clients must be told an address to connect to";
        return Err(refused("cluster-announce-ip", why));
    }
    let address = |ip: IpAddr, port: u16| match announced {
        "" => SocketAddr::new(ip, port).to_string(),
        name if name.contains(':') => format!("[{name}]:{port}"),
        name => format!("{name}:{port}"),
    };
    let or = |announced: u16, own: u16| if announced == 0 { own } else { announced };
    let secret = match settings.cluster_secret.reveal() {
        "" => Secret::none(),
        text => Secret::new(text)
            .ok_or_else(|| refused("cluster-secret", "it must be of printable ASCII characters"))?,
    };
    let partitioner = match settings.cluster_plan.trim() {
        "" => None,
        _ if !settings.cluster_partitioner => None,
        plan => Some(PartitionerConfig {
            interval: Duration::from_secs(settings.cluster_plan_interval),
            plan: plan.parse().map_err(|why| refused("cluster-plan", why))?,
            keys: settings.cluster_plan_keys,
        }),
    };
    let local = NodeConfig::local(&settings.cluster_name, "");
    let lease = Duration::from_millis(settings.cluster_lease);
    // Where terms are long, a node that stands still for a moment is waited for.
    let patience = (lease / 3).max(LinkOptions::default().timeout);
    Ok(NodeConfig {
        placement: Some(settings.placement()),
        rpc_listen: SocketAddr::new(bind, port),
        rpc_address: Some(address(bind, or(settings.cluster_announce_bus_port, port))),
        redis_address: address(listens.ip(), or(settings.cluster_announce_port, listens.port())),
        secret,
        lease,
        is_coordinator: settings.cluster_coordinator,
        partitioner,
        links: LinkOptions { timeout: patience, ping: patience },
        ..local
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_address_is_not_told_to_those_who_connect_to_another_one() {
        let [here, there] = ["127.0.0.1:1", "10.0.0.1:1"].map(|address| address.parse().unwrap());
        let mut settings = Settings::default();
        assert_eq!(announced_address(&settings, &[here]).unwrap(), here);
        assert_eq!(announced_address(&settings, &[there, here]).unwrap(), there);
        assert!(announced_address(&settings, &[]).is_err());
        let refused = announced_address(&settings, &[here, there]).unwrap_err().to_string();
        assert!(refused.starts_with("cluster-announce-ip: it must be given"), "{refused}");
        settings.cluster_announce_ip = "10.0.0.1".into();
        assert_eq!(announced_address(&settings, &[here, there]).unwrap(), here);
    }
}
