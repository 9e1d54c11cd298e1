//! A server from its start to its end: the one place where everything is put together.

use crate::cluster::{Membership, NodeAdmin};
use crate::command_observer::CommandObserver;
use crate::config::{Config, Settings, Source};
use crate::descriptors;
use crate::http::{self, HttpOptions};
use crate::net::{self, Bound, CallExecutor, Endpoint, Executor, Loops};
use crate::server::{Server, ServerError};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};
use terrace_cluster::{CommandExecutor, Coordinator, Placement};
use terrace_encryption::{EncryptedVfs, KeyError, KeyRing};
use terrace_keyspace::Keyspace;
use terrace_metadata::Metadata;
use terrace_node::{KeyspaceStore, check_alone};

/// Ports after the default one that are tried if it is taken.
const FURTHER_PORTS: u16 = 100;

/// Why a server did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The store could not be opened, or closed.
    #[error("the store in {dir}: {error}")]
    Store {
        /// Its folder.
        dir: String,
        /// What was wrong.
        error: terrace_keyspace::Error,
    },
    /// There are no keys for the store.
    #[error("{0}")]
    Keys(#[from] KeyError),
    /// The configuration does not make a server.
    #[error("{0}")]
    Server(#[from] ServerError),
    /// The node of the cluster did not start, or can never join it.
    #[error("the cluster: {0}")]
    Cluster(String),
    /// No socket, no thread, or no certificate.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A server that runs.
pub struct Running {
    server: Arc<Server>,
    loops: Loops,
    executor: Arc<Executor>,
    calls: Arc<CallExecutor>,
    http: Option<http::Handle>,
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    membership: Option<Membership>,
    /// Why the cluster can never be joined.
    refusal: Arc<OnceLock<String>>,
}

impl Running {
    /// Opens the store and begins to serve; with `cluster-enabled`, as a node of its cluster.
    ///
    /// # Errors
    /// The store is damaged or open elsewhere, an address cannot be listened on, a certificate does
    /// not fit, the node cannot be one of that cluster. Nothing is left running.
    pub fn start(config: Config) -> Result<Self, ServeError> {
        Self::start_node(config, None, |_| {})
    }

    /// As [`Self::start_node`], with an observer of commands ([`Server::observe_commands`]) from the first one on.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_observed(
        config: Config,
        metadata: Option<Arc<dyn Metadata>>,
        change: impl FnOnce(&mut terrace::Options),
        observer: Option<Arc<dyn CommandObserver>>,
    ) -> Result<Self, ServeError> {
        let settings = config.settings();
        if !settings.cluster_enabled {
            return Self::open(config, None, change, observer);
        }
        let mut running = Self::open(config, Some(settings.placement()), change, observer)?;
        match running.join(metadata) {
            Ok(()) => Ok(running),
            Err(error) => {
                if let Err(error) = running.end() {
                    tracing::warn!("{error}");
                }
                Err(ServeError::Cluster(error.to_string()))
            }
        }
    }

    /// As [`Self::start`], with the metadata of a cluster whose nodes are in this process, and with changes to
    /// the engine's options.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_node(
        config: Config,
        metadata: Option<Arc<dyn Metadata>>,
        change: impl FnOnce(&mut terrace::Options),
    ) -> Result<Self, ServeError> {
        Self::start_observed(config, metadata, change, None)
    }

    /// As [`Self::start`], with changes to the engine's options that the configuration cannot say:
    /// another file system, say. With `cluster-enabled` no node is started: the caller has a coordinator for
    /// [`Self::join_cluster`].
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        config: Config,
        change: impl FnOnce(&mut terrace::Options),
    ) -> Result<Self, ServeError> {
        Self::open(config, None, change, None)
    }

    fn open(
        config: Config,
        placement: Option<Placement>,
        change: impl FnOnce(&mut terrace::Options),
        observer: Option<Arc<dyn CommandObserver>>,
    ) -> Result<Self, ServeError> {
        let settings = config.settings();
        // First: what fails for want of them does not say what to do.
        if let Some(warning) = descriptors::warning(terrace::vfs::open_file_limit()) {
            tracing::warn!("{warning}");
        }
        let tls = net::tls(&settings)?;
        let plain = listen(&settings, &settings.bind, settings.port, searches(&config, "port"))?;
        let encrypted = listen(&settings, &settings.bind, settings.tls_port, false)?;
        let searches_http = searches(&config, "http-port");
        let for_http = listen(&settings, &settings.http_bind, settings.http_port, searches_http)?;
        let (plain, encrypted) = (bound(plain, false)?, bound(encrypted, true)?);
        let mut options = settings.engine_options();
        change(&mut options);
        let keys = settings.encryption_key_file.as_deref().map(KeyRing::load).transpose()?;
        let encrypted_vfs =
            keys.map(|keys| Arc::new(EncryptedVfs::new(options.advanced.vfs.clone(), keys)));
        if let Some(vfs) = &encrypted_vfs {
            options.advanced.vfs = vfs.clone();
        }
        let opened = match placement {
            Some(placement) => Keyspace::open_placed(&settings.dir, options, placement),
            None => Keyspace::open(&settings.dir, options),
        };
        let space =
            opened.map_err(|error| ServeError::Store { dir: settings.dir.clone(), error })?;
        if !settings.cluster_enabled
            && let Err(error) = check_alone(&KeyspaceStore::new(space.clone()))
        {
            // Why it does not start says more than how its store was closed.
            let _ = space.close();
            return Err(ServeError::Cluster(error.to_string()));
        }
        let server = Arc::new(Server::new(space, config)?);
        if let Some(vfs) = encrypted_vfs {
            server.note_encryption(vfs);
        }
        if let Some(observer) = observer {
            server.observe_commands(observer);
        }
        let of = |bound: &[Bound]| bound.iter().map(|bound| bound.address).collect::<Vec<_>>();
        let (addresses, tls_addresses) = (of(&plain), of(&encrypted));
        server.note_addresses(&addresses);
        let executor =
            Executor::start(&server, settings.reader_threads, settings.server_threads.max(1))?;
        let listeners = plain.into_iter().chain(encrypted).collect();
        let loops = Loops::start(&server, &executor, listeners, tls, settings.server_threads)?;
        let calls = CallExecutor::new(server.clone(), loops.handles().to_vec());
        let http = match for_http.is_empty() {
            true => None,
            false => {
                let options = HttpOptions::default();
                Some(http::start(for_http, server.clone(), options)?)
            }
        };
        let (membership, refusal) = (None, Arc::default());
        Ok(Self {
            server,
            loops,
            executor,
            calls,
            http,
            addresses,
            tls_addresses,
            membership,
            refusal,
        })
    }

    /// Becomes a node of the cluster that the options name.
    fn join(&mut self, metadata: Option<Arc<dyn Metadata>>) -> Result<(), terrace_node::Error> {
        let has_plain = !self.addresses.is_empty();
        let listens = if has_plain { &self.addresses } else { &self.tls_addresses };
        let (server, executor) = (&self.server, self.call_executor());
        let settings = server.config.settings();
        let membership = Membership::start(&settings, listens, &server.space, executor, metadata)?;
        let (refusal, server) = (self.refusal.clone(), Arc::downgrade(server));
        membership.on_refusal(move |why| {
            tracing::error!("{why}");
            let _first = refusal.set(why);
            if let Some(server) = server.upgrade() {
                server.stop.request();
            }
        });
        if let Some(cluster) = &self.server.cluster {
            let (node, runtime) = (membership.node(), membership.runtime());
            cluster.administer(Arc::new(NodeAdmin::new(&settings.cluster_name, node, runtime)));
        }
        self.join_cluster(membership.coordinator());
        self.membership = Some(membership);
        Ok(())
    }

    /// The node that this server is of its cluster.
    pub fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    /// The server.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// What executes calls of other nodes, in a cluster.
    pub fn call_executor(&self) -> Arc<dyn CommandExecutor> {
        self.calls.clone()
    }

    /// The server is a node of a cluster, by this coordinator: from now on it serves keys. It was
    /// started by [`Self::start_with`], with `cluster-enabled`.
    pub fn join_cluster(&self, coordinator: Arc<dyn Coordinator>) {
        if let Some(cluster) = &self.server.cluster {
            cluster.join(coordinator);
        }
    }

    /// Where the Redis protocol is spoken.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it is spoken over TLS.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }

    /// Where the dashboard is.
    pub fn http_addresses(&self) -> &[SocketAddr] {
        self.http.as_ref().map_or(&[], |http| http.addresses())
    }

    /// Waits until somebody asks the server to stop, and ends it: no connection is accepted any
    /// more, what was begun is answered, and the store is closed.
    ///
    /// # Errors
    /// The store could not be closed cleanly; what was acknowledged is in its log. Or the server has ended by
    /// itself, since its node can never join the cluster.
    pub fn wait(self) -> Result<(), ServeError> {
        self.server.stop.wait();
        let refusal = self.refusal.clone();
        self.end()?;
        match refusal.get() {
            Some(why) => Err(ServeError::Cluster(why.clone())),
            None => Ok(()),
        }
    }

    /// Ends the server now.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn end(self) -> Result<(), ServeError> {
        self.server.stop.request();
        // What is under way may wait for a flush, and nobody is served any more whom that would slow down.
        self.server.space.db().set_rate_limit_bytes_per_s(0);
        if let Some(membership) = &self.membership {
            membership.leave();
        }
        self.calls.close();
        self.loops.stop();
        self.executor.close();
        if let Some(membership) = self.membership {
            membership.end();
        }
        if let Some(http) = self.http {
            http.stop();
        }
        let dir = self.server.config.settings().dir.clone();
        self.server.space.close().map_err(|error| ServeError::Store { dir, error })
    }
}

/// Whether another port may be taken than that of an option: if nobody asked for this one.
fn searches(config: &Config, name: &str) -> bool {
    config.settings().port_search && config.source(name) == Some(Source::Default)
}

/// Listens on all addresses of `bind`, all at the same port; nowhere if that is 0. Those that may be left out are, but not
/// all of them.
fn listen(
    settings: &Settings,
    bind: &[String],
    port: u16,
    search: bool,
) -> io::Result<Vec<TcpListener>> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    if port == 0 {
        return Ok(listeners);
    }
    let mut left_out = None;
    for (ip, is_optional) in net::addresses(bind)? {
        let (port, further_ports) = match listeners.first() {
            Some(first) => (first.local_addr()?.port(), 0),
            None => (port, if search { FURTHER_PORTS } else { 0 }),
        };
        let backlog = i32::try_from(settings.tcp_backlog).unwrap_or(i32::MAX);
        match (Endpoint { ip, port, further_ports, backlog }).bind() {
            Ok(listener) => listeners.push(listener),
            Err(error) if is_optional => {
                tracing::debug!(%error, "an address is left out");
                left_out = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match left_out {
        Some(error) if listeners.is_empty() => Err(error),
        _ => Ok(listeners),
    }
}

fn bound(listeners: Vec<TcpListener>, is_tls: bool) -> io::Result<Vec<Bound>> {
    listeners.into_iter().map(|listener| Bound::of(listener, is_tls)).collect()
}
