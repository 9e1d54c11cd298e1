//! HTTP for people and monitoring: `/metrics`, `/healthz`, `/readyz`, the JSON API of the dashboard
//! under `/api/v1`, and the dashboard itself.
//!
//! ```text
//! accept ──> wire ──> guard ──> api ──> look ──> engine        one thread; what may take long runs
//!            limits,  method,   JSON    shape,   ^             on at most BLOCKING_THREADS others
//!            timeouts Host,             memory   |
//!                     access    stream <── sampler: every second the counters, and as long as
//!                                          somebody listens one event for all who may still see it
//! ```
//! Reads only: no request changes anything. Everything comes from [`ServerStatus`], which the server gives,
//! and from the engine behind it. Types of `json.rs` are those of `dashboard/src/api.ts`.

mod access;
mod api;
mod api_error;
mod assets;
mod blocking;
mod browse;
mod command;
mod escape;
mod explain;
mod guard;
mod history;
mod history_file;
mod json;
mod listed_files;
mod metrics;
mod peers;
mod sampler;
mod shared;
mod socket;
mod store_view;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

pub use explain::explain;
pub use history_file::file_of as history_file_of;
pub use metrics::document as metrics_document;

use crate::cluster::{ClusterAdmin, ClusterFigures};
use hdrhistogram::Histogram;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use terrace_resp::OwnedCommand;
use tokio::sync::watch;

/// Connections at a time; more are answered 503 and closed.
pub const MAX_CONNECTIONS: usize = 64;
/// Of these, connections of one peer that is not on this machine.
pub const MAX_PEER_CONNECTIONS: usize = 24;
/// Connections beside them, for one health check each, while all others are taken.
pub const SPARE_CONNECTIONS: usize = 8;
/// Listeners to the stream at a time; more are answered 503.
pub const MAX_LISTENERS: usize = 16;
/// Bytes of a request's line and headers together.
pub const MAX_HEAD_BYTES: usize = 16 << 10;
/// What a connection takes of a long answer, at least.
pub const LEAST_BYTES_PER_S: u64 = 16 << 10;
/// Explanations, models, lists of keys and values that are made at the same time; more wait.
pub const MAX_EXPENSIVE: usize = 2;
/// Those, the shape, the sample of this second, metrics, and the file of the history.
const BLOCKING_THREADS: usize = MAX_EXPENSIVE + 4;

/// Options of the HTTP side.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// A request must have come this long after the connection was opened or the last answer.
    pub read_timeout: Duration,
    /// A connection that takes nothing for this long is closed; so is one that lags for longer than this and takes less
    /// than [`LEAST_BYTES_PER_S`].
    pub write_timeout: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        let (read_timeout, write_timeout) = (Duration::from_secs(10), Duration::from_secs(10));
        Self { read_timeout, write_timeout }
    }
}

/// What HTTP needs of a server. All functions are cheap or say so, none waits for the device, and
/// all may be called from any thread.
pub trait ServerStatus: Send + Sync + 'static {
    /// The engine.
    fn engine(&self) -> &terrace::Db;
    /// The keys in it. Reading them may wait for the device.
    fn space(&self) -> &Arc<terrace_keyspace::Keyspace>;

    /// How the keys lie in it.
    fn layout(&self) -> terrace_keyspace::KeyLayout;

    /// How many databases there are.
    fn databases(&self) -> usize;

    /// Counters and states of this moment. Called every second.
    fn figures(&self) -> Figures;

    /// How long commands took since the start. Called every second.
    fn timings(&self) -> Timings;

    /// What is counted by command: those that were called.
    fn commands(&self) -> Vec<CommandFigures>;

    /// Keys of all databases, as `DBSIZE` estimates them. Called every second.
    fn key_count_estimate(&self) -> u64;

    /// The slow log, at most `count` entries of it: it may have very many, and who adds one waits meanwhile.
    fn slow_log(&self, count: usize) -> SlowLog;

    /// Keys that are read and written most, at most `count` of each.
    fn hot_keys(&self, count: usize) -> HotKeys;

    /// The options, as `CONFIG GET` gives them, without passwords and other secrets. Called every second.
    fn config(&self) -> Vec<ConfigEntry>;

    /// Where the history of the dashboard is kept; `None`: it ends with the server.
    fn history_file(&self) -> Option<PathBuf>;

    /// Names that a `Host` header may have, beside `localhost` and addresses: a page of another
    /// site, whose name was made to point here, has none of them.
    fn host_names(&self) -> Vec<String>;

    /// Whether anybody has to log in.
    fn needs_login(&self) -> bool;

    /// Whether clients at this address are not served, since there is no password.
    fn is_protected_from(&self, peer: IpAddr) -> bool;

    /// What a user may see; `None` if there is no such user, or this is not the password.
    fn authenticate(&self, user: &str, password: &[u8]) -> Option<Rights>;

    /// Executes a command that only reads, in a database, and gives its reply in RESP3. `login`: user and password; without one,
    /// or if nobody has to log in, it is executed as the default user. May wait for the device.
    ///
    /// # Errors
    /// Nothing was executed.
    fn read_command(
        &self,
        login: Option<(&str, &[u8])>,
        peer: Option<IpAddr>,
        db: u8,
        command: &OwnedCommand,
    ) -> Result<Vec<u8>, Unread>;

    /// Who knows the cluster; `None` without one.
    fn cluster_admin(&self) -> Option<Arc<dyn ClusterAdmin>>;

    /// Whether the server is stopping: it is not ready for clients any more.
    fn is_stopping(&self) -> bool;
}

/// Why a command was not executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// It never will be here.
    Refused(String),
    /// Later it may be.
    Busy,
}

/// Counters since the start, and states.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Wall clock of the start, in ms since 1970.
    pub started_ms: u64,
    /// Time since the start in seconds, of a clock that nobody sets.
    pub uptime_s: u64,
    /// Clients of the Redis protocol now.
    pub connected_clients: u64,
    /// Connections of the Redis protocol that were accepted.
    pub connections: u64,
    /// Those that were turned away: too many, or from where nobody may come.
    pub rejected_connections: u64,
    /// Commands executed.
    pub commands: u64,
    /// Of these, those that read keys and change none.
    pub reads: u64,
    /// Of these, those that may change keys.
    pub writes: u64,
    /// Lookups of keys that were there.
    pub hits: u64,
    /// Lookups of keys that were not.
    pub misses: u64,
    /// Bytes received from clients.
    pub net_input_bytes: u64,
    /// Bytes sent to clients.
    pub net_output_bytes: u64,
    /// Entries of the slow log.
    pub slow_log_entries: u64,
    /// Commands that wait for a thread that may wait for the device.
    pub pool_queue: u64,
    /// Commands that such threads executed.
    pub pool_commands: u64,
    /// Of the cluster, as this node sees it.
    pub cluster: ClusterFigures,
}

/// Latencies since the start, in nanoseconds; histograms of any range and precision.
#[derive(Debug, Clone)]
pub struct Timings {
    /// Of commands that read keys and change none.
    pub reads: Histogram<u64>,
    /// Of commands that may change keys.
    pub writes: Histogram<u64>,
}

/// What is counted of one command.
#[derive(Debug, Clone)]
pub struct CommandFigures {
    /// In lower case.
    pub name: &'static str,
    /// How often it was executed.
    pub calls: u64,
    /// How often it gave an error.
    pub failed: u64,
    /// Durations in nanoseconds of those that were timed.
    pub latency: Histogram<u64>,
}

/// The slow log, newest entry first.
#[derive(Debug, Clone, Default)]
pub struct SlowLog {
    /// Commands that took this many microseconds or more are kept; `None`: none are.
    pub threshold_us: Option<u64>,
    /// At most as many as were asked for.
    pub entries: Vec<SlowCommand>,
}

/// A command that was slow.
#[derive(Debug, Clone, Default)]
pub struct SlowCommand {
    /// Unique and growing.
    pub id: u64,
    /// When it ended, in ms since 1970.
    pub at_ms: u64,
    /// How long it took.
    pub duration_us: u64,
    /// Its name and arguments, cut as `SLOWLOG GET` gives them.
    pub args: Vec<Vec<u8>>,
    /// Address of the client.
    pub client: String,
    /// `CLIENT SETNAME`.
    pub client_name: String,
}

/// Keys that are read and written most, each list from most to least.
#[derive(Debug, Clone, Default)]
pub struct HotKeys {
    /// One of this many operations is counted; the rates below are scaled up.
    pub sampled_one_in: u32,
    /// How far back the counts reach, about, in seconds.
    pub window_s: f64,
    /// By reads.
    pub read: Vec<HotKey>,
    /// By writes.
    pub write: Vec<HotKey>,
}

/// One of them.
#[derive(Debug, Clone, Default)]
pub struct HotKey {
    /// Its database.
    pub db: u8,
    /// Its name, or the beginning of a long one.
    pub key: Vec<u8>,
    /// Bytes of the whole name.
    pub key_bytes: u64,
    /// Operations per second.
    pub per_s: f64,
    /// `per_s` may be too high by this much.
    pub error_per_s: f64,
}

/// One option.
#[derive(Debug, Clone, Default)]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// Its value, as `CONFIG GET` gives it.
    pub value: String,
    /// Whether `CONFIG SET` changes it while the server runs.
    pub is_live: bool,
}

/// What somebody may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights {
    /// Everything but the options: for users who may read all keys with all commands of `@read`.
    /// Hot keys, the slow log and the edges of files name keys of anybody.
    pub read: bool,
    /// The options: for users with all commands of `@admin`.
    pub admin: bool,
}

impl Rights {
    /// What everybody may see where nobody has to log in.
    pub const ALL: Self = Self { read: true, admin: true };
}

/// A running HTTP server; dropping it stops it.
#[derive(Debug)]
pub struct Handle {
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Serves what `status` say at all `listeners` until it is stopped, on a thread of its own.
///
/// # Errors
/// Those of listeners, the thread and its timers.
pub fn start(
    listeners: Vec<TcpListener>,
    status: Arc<dyn ServerStatus>,
    options: HttpOptions,
) -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("terrace-http-work")
        .build()?;
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
    let registered = {
        let _inside = runtime.enter();
        let register = |listener: TcpListener| {
            listener.set_nonblocking(true)?;
            tokio::net::TcpListener::from_std(listener)
        };
        listeners.into_iter().map(register).collect::<io::Result<Vec<_>>>()?
    };
    let (stop, stopped) = watch::channel(false);
    let thread = std::thread::Builder::new().name("terrace-http".into()).spawn(move || {
        runtime.block_on(wire::serve(registered, status, options, stopped));
        // Explanations of the moment may wait for the device: nobody waits for them.
        runtime.shutdown_timeout(Duration::from_secs(1));
    })?;
    Ok(Handle { addresses, stop, thread: Some(thread) })
}

impl Handle {
    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Stops listening, lets answers that are under way end within a second, and waits for that.
    pub fn stop(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.join();
    }
}
