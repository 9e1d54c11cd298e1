//! What all connections share.

mod encryption_keys;
mod permissions;

use crate::acl::{Acl, AclError, Catalog};
use crate::checkpoints::Checkpoints;
use crate::cluster::Cluster;
use crate::command_observer::{CommandObserver, Observation};
use crate::config::{
    ClusterRedirect, Config, ConfigError, LogLevel, OutputLimit, Settings, UserChange,
};
use crate::error_stats::ErrorStats;
use crate::hot_keys::HotKeys;
use crate::latency::Latency;
use crate::memory_advice;
use crate::pause::Pause;
use crate::session::{Caller, Clients};
use crate::slowlog::SlowLog;
use crate::stats::{Rate, Stats};
use encryption_keys::KEY_FILE;
use parking_lot::{Condvar, Mutex};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use terrace_encryption::EncryptedVfs;
use terrace_keyspace::Keyspace;
use terrace_resp::Limits;

/// The options that column families of the store have.
const FAMILY_OPTIONS: [&str; 4] =
    ["compression", "filter", "learning", "value-separation-threshold"];

/// Why there is no server over a keyspace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A user of the configuration cannot be as it says.
    #[error("{0}")]
    User(#[from] AclError),
    /// The machine's addresses are too small for a histogram.
    #[error("{0}")]
    Histogram(#[from] hdrhistogram::CreationError),
}

/// Called when the log level changes.
type SetLogLevel = Box<dyn Fn(LogLevel) + Send + Sync>;

/// Has the allocator give back what it holds and nobody uses.
type GiveBackPages = Box<dyn Fn() + Send + Sync>;

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
    /// Errors that were answered.
    pub errors: ErrorStats,
    /// Commands that took long.
    pub slow_log: SlowLog,
    /// How long commands take.
    pub latency: Latency,
    /// Which keys are read and written most.
    pub hot_keys: HotKeys,
    /// `BGSAVE`.
    pub checkpoints: Checkpoints,
    /// `CLIENT PAUSE`.
    pub pause: Pause,
    /// The cluster that this is a node of; `None` without one.
    pub cluster: Option<Cluster>,
    /// When it started, by the wall clock, in ms since 1970.
    pub started_ms: u64,
    /// When it started.
    pub started: Instant,
    /// Commands a second.
    pub rate: Rate,
    /// Bytes from clients a second.
    pub received_rate: Rate,
    /// Bytes to clients a second.
    pub sent_rate: Rate,
    /// How it is ended.
    pub stop: Stop,
    /// Where it listens.
    addresses: OnceLock<Vec<SocketAddr>>,
    run_id: String,
    set_log_level: OnceLock<SetLogLevel>,
    give_back_pages: OnceLock<GiveBackPages>,
    /// The file system of an encrypted store.
    encrypted: OnceLock<Arc<EncryptedVfs>>,
    /// Copies of options that every command looks at.
    pub(crate) slower_than_us: AtomicI64,
    pub(crate) spike_ms: AtomicU64,
    reply_limit_bytes: AtomicUsize,
    bulk_bytes: AtomicUsize,
    message_bytes: AtomicUsize,
    limits_version: AtomicU64,
    pub(crate) observation: Observation,
}

impl Server {
    /// Over an open keyspace, with the commands that access control is to know.
    ///
    /// # Errors
    /// A user's rules make no sense, most likely.
    pub(crate) fn with_commands(
        space: Arc<Keyspace>,
        config: Config,
        catalog: Catalog,
    ) -> Result<Self, ServerError> {
        let settings = config.settings();
        let started_ms = space.now_ms();
        let latency = Latency::new(catalog.len() + catalog.subcommand_count())?;
        let acl = Acl::new(catalog);
        configure(&acl, &settings)?;
        let server = Self {
            acl,
            clients: Clients::default(),
            stats: Stats::default(),
            errors: ErrorStats::default(),
            slow_log: SlowLog::default(),
            latency,
            hot_keys: HotKeys::default(),
            checkpoints: Checkpoints::since(started_ms),
            pause: Pause::default(),
            cluster: settings
                .cluster_enabled
                .then(|| Cluster::new(settings.cluster_redirect == ClusterRedirect::Moved)),
            started_ms,
            started: Instant::now(),
            rate: Rate::default(),
            received_rate: Rate::default(),
            sent_rate: Rate::default(),
            stop: Stop::default(),
            addresses: OnceLock::new(),
            // Tells one run from another; no secret.
            run_id: format!("{:032x}{:08x}", u128::from(started_ms) << 64, std::process::id()),
            set_log_level: OnceLock::new(),
            give_back_pages: OnceLock::new(),
            encrypted: OnceLock::new(),
            slower_than_us: AtomicI64::new(0),
            spike_ms: AtomicU64::new(0),
            reply_limit_bytes: AtomicUsize::new(usize::MAX),
            bulk_bytes: AtomicUsize::new(usize::MAX),
            message_bytes: AtomicUsize::new(usize::MAX),
            limits_version: AtomicU64::new(0),
            observation: Observation::default(),
            space,
            config,
        };
        server.copy(&settings);
        Ok(server)
    }

    fn copy(&self, settings: &Settings) {
        self.slower_than_us.store(settings.slowlog_log_slower_than, Ordering::Relaxed);
        self.spike_ms.store(settings.latency_monitor_threshold, Ordering::Relaxed);
        self.observation.set_every(settings.trace_sample_every);
        let hard = usize::try_from(settings.client_output_buffer_limit.normal.hard_bytes);
        // 0 is none.
        let hard = hard.ok().filter(|bytes| *bytes > 0).unwrap_or(usize::MAX);
        self.reply_limit_bytes.store(hard, Ordering::Relaxed);
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let bulk = bytes(settings.proto_max_bulk_len);
        let message = bytes(settings.client_query_buffer_limit);
        let bulk_before = self.bulk_bytes.swap(bulk, Ordering::Relaxed);
        let message_before = self.message_bytes.swap(message, Ordering::Relaxed);
        if (bulk_before, message_before) != (bulk, message) {
            self.space.set_max_string_bytes(bulk);
            // Release: who sees the version sees the limits that it stands for.
            self.limits_version.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn note_addresses(&self, addresses: &[SocketAddr]) {
        // Once, at the start.
        let _first = self.addresses.set(addresses.to_vec());
    }

    /// The port of the Redis protocol.
    pub fn port(&self) -> Option<u16> {
        Some(self.addresses.get()?.first()?.port())
    }

    /// Tells one run of the server from another.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// What is called when the log level changes.
    pub fn on_log_level(&self, set: impl Fn(LogLevel) + Send + Sync + 'static) {
        // The first one stays.
        let _first = self.set_log_level.set(Box::new(set));
    }

    /// What `MEMORY PURGE` calls: it belongs to the program whose allocator that is.
    pub fn on_memory_purge(&self, give_back: impl Fn() + Send + Sync + 'static) {
        // The first one stays.
        let _first = self.give_back_pages.set(Box::new(give_back));
    }

    /// `MEMORY PURGE`. May take as long as a walk over all that is free.
    pub(crate) fn purge_memory(&self) {
        if let Some(give_back) = self.give_back_pages.get() {
            give_back();
        }
    }

    /// From now on this observer sees one command of `trace-sample-every`, and all that get into SLOWLOG; the first
    /// one stays. In a cluster it sees what this node executes, also what other nodes send.
    pub fn observe_commands(&self, observer: Arc<dyn CommandObserver>) {
        self.observation.begin(observer);
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.config.settings().databases as usize
    }

    /// What requests may be like.
    pub fn limits(&self) -> Limits {
        Limits {
            // As many as Redis takes. Memory is taken for those that have come, which `message_bytes` bounds.
            elements: i32::MAX as usize,
            bulk_bytes: self.bulk_bytes.load(Ordering::Relaxed),
            message_bytes: self.message_bytes.load(Ordering::Relaxed),
            ..Limits::default()
        }
    }

    /// Grows when [`Self::limits`] change.
    pub(crate) fn limits_version(&self) -> u64 {
        self.limits_version.load(Ordering::Acquire)
    }

    /// Milliseconds after which an idle client is ended.
    pub fn idle_timeout_ms(&self) -> Option<u64> {
        let seconds = self.config.settings().timeout;
        (seconds > 0).then_some(seconds * 1000)
    }

    /// Seconds between probes of a silent connection.
    pub fn keepalive(&self) -> Option<u32> {
        u32::try_from(self.config.settings().tcp_keepalive).ok().filter(|seconds| *seconds > 0)
    }

    /// How many bytes of replies there may be at a time, for a command of such a caller. What goes to other nodes has to
    /// fit a message.
    pub(crate) fn reply_limit(&self, caller: Caller) -> usize {
        /// Nobody sets a limit below this; and messages between nodes take this, with what is before it.
        const BOUNDS: (usize, usize) = (64 << 10, 511 << 20);
        /// The page shows less; the Redis port gives more.
        const PAGE_BYTES: usize = 16 << 20;
        let bytes = self.reply_limit_bytes.load(Ordering::Relaxed);
        match caller {
            Caller::Client => bytes.max(BOUNDS.0),
            Caller::Page => bytes.clamp(BOUNDS.0, PAGE_BYTES),
            _ => bytes.clamp(BOUNDS.0, BOUNDS.1),
        }
    }

    /// How many bytes of replies may wait for a client.
    pub fn output_limit(&self) -> OutputLimit {
        self.config.settings().client_output_buffer_limit.normal
    }

    /// Carries a change of options out: all of it, or nothing, so that what can fail comes first.
    ///
    /// # Errors
    /// Why it cannot be; nothing has changed, but that an encrypted store may have newer keys, which do no harm.
    pub(crate) fn carry_out(
        &self,
        before: &Settings,
        after: &Settings,
        names: &[&'static str],
    ) -> Result<(), String> {
        let changed = |name: &str| names.contains(&name);
        if changed("user") {
            let checked = self.acl.check_configuration(after.requirepass.reveal(), users_of(after));
            checked.map_err(|error| error.to_string())?;
        }
        if changed(KEY_FILE) {
            self.read_keys(after.encryption_key_file.as_deref())?;
        }
        self.set_jobs_and_families(before, after, names)?;
        // No value that the settings take is refused from here on.
        let db = self.space.db();
        let engine = |outcome: terrace::Result<()>| outcome.map_err(|error| error.to_string());
        if changed("maxmemory") {
            engine(db.set_memory_budget(usize::try_from(after.maxmemory).unwrap_or(usize::MAX)))?;
        }
        if changed("appendfsync") {
            engine(db.set_sync(after.sync_mode()))?;
        }
        if changed("gc-garbage-ratio") {
            engine(db.set_gc_garbage_ratio(after.gc_garbage_ratio))?;
        }
        if changed("memory-split") {
            db.set_memory_split(after.memory_split);
        }
        if changed("hot-table") {
            db.set_hot_table(after.hot_table);
        }
        if changed("rate-limit-bytes") {
            db.set_rate_limit_bytes_per_s(after.rate_limit_bytes);
        }
        if changed("user") {
            configure(&self.acl, after).map_err(|error| error.to_string())?;
        } else if changed("requirepass") {
            self.acl.require_password(after.requirepass.reveal());
        }
        if changed("loglevel")
            && let Some(set) = self.set_log_level.get()
        {
            set(after.loglevel);
        }
        self.copy(after);
        Ok(())
    }

    /// The options for which the engine has to start threads, or to write to the device.
    ///
    /// # Errors
    /// Why it cannot; none of them has changed.
    fn set_jobs_and_families(
        &self,
        before: &Settings,
        after: &Settings,
        names: &[&'static str],
    ) -> Result<(), String> {
        let db = self.space.db();
        let changes_jobs = names.contains(&"background-jobs");
        if changes_jobs {
            db.set_background_jobs(after.background_jobs).map_err(|error| error.to_string())?;
        }
        if !FAMILY_OPTIONS.iter().any(|option| names.contains(option)) {
            return Ok(());
        }
        db.set_family_options(&after.engine_options().default_family).map_err(|error| {
            if changes_jobs {
                let _best_effort = db.set_background_jobs(before.background_jobs);
            }
            error.to_string()
        })
    }

    /// Reads the configuration file again (SIGHUP), and the key file of an encrypted store.
    pub fn reload(&self) {
        let reloaded = self.config.reload(|before, after, names| {
            let others: Vec<_> = names.iter().copied().filter(|name| *name != KEY_FILE).collect();
            if others.len() < names.len()
                && let Err(why) = self.read_keys(after.encryption_key_file.as_deref())
            {
                // The other options change: a user may have been taken out among them.
                tracing::error!(%why, "the encryption keys stay as they were");
            }
            self.carry_out(before, after, &others)
        });
        if !reloaded.as_ref().is_ok_and(|reload| reload.changed.contains(&KEY_FILE)) {
            self.read_keys_again();
        }
        match reloaded {
            Ok(reload) => tracing::info!(?reload, "configuration read again"),
            Err(error) => tracing::error!(%error, "the configuration stays as it was"),
        }
    }

    /// `CONFIG REWRITE`: options that were changed, and users.
    ///
    /// # Errors
    /// Those of the file; then it is as it was.
    pub(crate) fn rewrite_config(&self) -> Result<(), ConfigError> {
        self.config.rewrite(|settings| {
            let users = users_of(settings);
            let changed = self.acl.changed_since(settings.requirepass.reveal(), users);
            let changed = changed.map_err(|error| error.to_string())?.into_iter();
            changed
                .map(|(name, rules)| {
                    let no_text = || format!("a rule of the user {name} is no UTF-8");
                    let text = |rule| String::from_utf8(rule).map_err(|_| no_text());
                    let rules = rules.map(|rules| rules.into_iter().map(text).collect());
                    let rules: Option<Vec<String>> = rules.transpose()?;
                    Ok(UserChange { name, rules })
                })
                .collect()
        })
    }

    /// `CONFIG RESETSTAT`.
    pub(crate) fn reset_stats(&self) {
        self.stats.reset();
        self.latency.reset();
        self.errors.reset();
        self.clients.reset_total();
    }

    /// Why nothing can be written now.
    pub fn unwritable(&self) -> Option<&'static str> {
        let metrics = self.space.db().metrics();
        if self.stop.is_requested() {
            return Some("the server is stopping");
        }
        if metrics.poisoned {
            return Some("an earlier failure of the device; restart to recover");
        }
        metrics.disk_full.then_some("the disk is full")
    }

    /// `MEMORY DOCTOR`.
    pub(crate) fn memory_advice(&self) -> String {
        let resident = crate::process::resident_bytes().unwrap_or(0);
        memory_advice::of(&self.space.db().memory(), resident)
    }
}

impl Server {
    /// About how many keys there are in all databases. Reads nothing but what is in memory.
    pub fn key_count_estimate(&self) -> u64 {
        let databases = [0]..[terrace_keyspace::MAX_DATABASES as u8];
        let count = |family: &terrace::ColumnFamily| {
            family.estimate(databases.clone()).map_or(0, |estimate| estimate.keys)
        };
        count(self.space.strings()) + count(self.space.collections())
    }

    /// Lookups of strings that found their key, and that did not, since the start.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.stats.keyspace_hits.get(), self.stats.keyspace_misses.get())
    }

    /// Once a second: rates are taken, and what was hot long ago fades.
    pub(crate) fn tick(&self) {
        self.rate.take(self.latency.calls());
        self.received_rate.take(self.stats.received_bytes.get());
        self.sent_rate.take(self.stats.sent_bytes.get());
        self.hot_keys.tick();
    }
}

/// Users as the settings have them, in the place of all.
fn configure(acl: &Acl, settings: &Settings) -> Result<(), AclError> {
    acl.configure(settings.requirepass.reveal(), users_of(settings))
}

/// The users of the settings, with their rules.
fn users_of(settings: &Settings) -> impl Iterator<Item = (&str, &[String])> {
    settings.users.iter().map(|user| (user.name.as_str(), &user.rules[..]))
}

/// How a server is asked to end.
#[derive(Default)]
pub struct Stop {
    /// Looked at for every key of a walk.
    is_requested: AtomicBool,
    /// Held while that changes, and by those who look at it before they wait.
    changing: Mutex<()>,
    changed: Condvar,
}

impl Stop {
    /// Asks it to end.
    pub fn request(&self) {
        let changing = self.changing.lock();
        self.is_requested.store(true, Ordering::Relaxed);
        drop(changing);
        self.changed.notify_all();
    }

    /// Whether it was asked to.
    pub fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::Relaxed)
    }

    /// Waits until it is asked to.
    pub fn wait(&self) {
        let mut changing = self.changing.lock();
        while !self.is_requested() {
            self.changed.wait(&mut changing);
        }
    }
}
