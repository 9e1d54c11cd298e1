//! What all connections share.

use crate::acl::{Acl, User};
use crate::command::{CommandSpec, Flags};
use crate::config::Config;
use crate::latency::Latency;
use crate::session::{Clients, Session};
use crate::slowlog::SlowLog;
use crate::stats::Stats;
use parking_lot::{Condvar, Mutex};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use terrace_keyspace::Keyspace;
use terrace_resp::{Command, Limits};

/// The state of the server.
pub struct Server {
    /// The data.
    pub space: Arc<Keyspace>,
    /// The options.
    pub config: Config,
    /// Who may do what.
    pub acl: Acl,
    /// Who is connected.
    pub clients: Clients,
    /// Counters.
    pub stats: Stats,
    /// Commands that took long.
    pub slow_log: SlowLog,
    /// How long commands take.
    pub latency: Latency,
    /// Which keys are read and written most.
    pub hot_keys: HotKeys,
    /// When it started: by the wall clock, in ms since 1970, and by the other one.
    pub started_ms: u64,
    /// See `started_ms`.
    pub started: Instant,
    /// How it is ended.
    pub stop: Stop,
    /// A copy of `slowlog-log-slower-than` for every command to look at.
    slower_than_us: AtomicI64,
}
