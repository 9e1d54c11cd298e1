//! The table of options. Everything else about configuration is derived from it.

use super::addresses::overlap;
use super::error::ConfigError;
use super::output_limits::OutputLimits;
use super::user_rules::UserRules;
use super::value::{
    AppendFsync, ClientCertificates, ClusterPlacement, ClusterRedirect, DebugCommand, DirectIoUse,
    Kind, LogFormat, LogLevel, Named, Secret, Value,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use terrace::{CompactionStyle, Compression, FilterPolicy, HotTableMode, Learning, MemorySplit};
use terrace_cluster::PlanSpec;
use terrace_keyspace::MAX_DATABASES;

/// When an option can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// While the server runs.
    Live,
    /// When it starts.
    Start,
}

/// One option.
pub struct OptionSpec {
    /// As in the file, after `--`, and in CONFIG.
    pub name: &'static str,
    /// Another name that means the same.
    pub also: Option<&'static str>,
    /// The heading it is documented under.
    pub group: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Its default, as text.
    pub default: &'static str,
    /// When it can change.
    pub when: When,
    /// What it does, in one sentence.
    pub doc: &'static str,
    show: fn(&OptionSpec, &Settings) -> String,
    assign: fn(&OptionSpec, &mut Settings, &str) -> Option<()>,
    copy: fn(&OptionSpec, &mut Settings, &Settings),
    same: fn(&OptionSpec, &Settings, &Settings) -> bool,
}

/// The heading of options that are only remembered.
const WITHOUT_EFFECT_GROUP: &str = "Accepted without effect";

impl OptionSpec {
    /// One that is remembered and does nothing; `default` is as the kind writes it.
    pub(super) const fn without_effect(
        (name, also): (&'static str, Option<&'static str>),
        kind: Kind,
        default: &'static str,
        when: When,
        doc: &'static str,
    ) -> Self {
        Self {
            name,
            also,
            group: WITHOUT_EFFECT_GROUP,
            kind,
            default,
            when,
            doc,
            show: |option, settings| {
                settings.without_effect.get(option.name).map_or(option.default, |text| text).into()
            },
            assign: |option, settings, text| {
                let text = option.kind.canonical(text)?;
                match text == option.default {
                    true => settings.without_effect.remove(option.name),
                    false => settings.without_effect.insert(option.name, text),
                };
                Some(())
            },
            copy: |option, to, from| {
                match from.without_effect.get(option.name) {
                    Some(text) => to.without_effect.insert(option.name, text.clone()),
                    None => to.without_effect.remove(option.name),
                };
            },
            same: |option, a, b| {
                a.without_effect.get(option.name) == b.without_effect.get(option.name)
            },
        }
    }

    /// Whether it is only remembered.
    pub fn is_without_effect(&self) -> bool {
        self.group == WITHOUT_EFFECT_GROUP
    }

    /// All names of the option.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.also)
    }

    /// Whether it names a file that is read each time the option is set, whatever it was before.
    pub(super) fn names_file(&self) -> bool {
        self.kind == Kind::Path && self.when == When::Live
    }

    /// Whether its value must not be shown.
    pub fn is_secret(&self) -> bool {
        self.kind == Kind::Secret
    }

    /// The name of its environment variable.
    pub fn variable(&self) -> String {
        format!("TERRACE_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    /// Its value in `settings`, as text that [`Self::assign`] takes back.
    pub fn show(&self, settings: &Settings) -> String {
        (self.show)(self, settings)
    }

    /// Gives it the value that `text` says, or says what it must be; then nothing has changed.
    pub fn assign(&'static self, settings: &mut Settings, text: &str) -> Result<(), ConfigError> {
        (self.assign)(self, settings, text).ok_or_else(|| ConfigError::Invalid {
            name: self.name,
            value: match self.is_secret() || self.name == "masterauth" {
                true => "(hidden)".into(),
                false => text.chars().take(128).collect(),
            },
            allowed: self.kind.allowed(),
            complaint: self.kind.complaint(text),
        })
    }

    /// Whether both settings have the same value.
    pub(super) fn same(&self, a: &Settings, b: &Settings) -> bool {
        (self.same)(self, a, b)
    }

    /// Takes its value over from other settings.
    pub(super) fn copy(&self, to: &mut Settings, from: &Settings) {
        (self.copy)(self, to, from);
    }
}

impl std::fmt::Debug for OptionSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OptionSpec").field("name", &self.name).finish_non_exhaustive()
    }
}

macro_rules! options {
    ($($group:literal { $(
        $name:literal $(or $also:literal)? => $field:ident: $type:ty = $default:literal,
        $kind:expr, $when:ident, $doc:literal;
    )* })*) => {
        /// The value of every option, checked.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Settings {
            $($(#[doc = $doc] pub $field: $type,)*)*
            /// Users of the file, `[[user]]`, in its order.
            pub users: Vec<UserRules>,
            /// What options without effect were given, where it is not their default.
            pub without_effect: BTreeMap<&'static str, String>,
        }

        impl Settings {
            /// Every field empty: what defaults are written over.
            fn blank() -> Self {
                Self { $($($field: Default::default(),)*)* users: Vec::new(), without_effect: BTreeMap::new() }
            }
        }

        /// Every option, in the order of the documentation.
        pub static OPTIONS: &[OptionSpec] = &[$($(OptionSpec {
            name: $name,
            also: options!(@also $($also)?),
            group: $group,
            kind: $kind,
            default: $default,
            when: When::$when,
            doc: $doc,
            show: |_, settings| Value::show(&settings.$field),
            assign: |option, settings, text| {
                Value::assign(&mut settings.$field, text, &option.kind)
            },
            copy: |_, to, from| to.$field.clone_from(&from.$field),
            same: |_, a, b| a.$field == b.$field,
        },)*)*];
    };
    (@also) => { None };
    (@also $also:literal) => { Some($also) };
}

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Self::blank();
        for option in OPTIONS {
            let assigned = (option.assign)(option, &mut settings, option.default);
            debug_assert!(assigned.is_some(), "the default of {}", option.name);
        }
        settings
    }
}

const PORT: Kind = Kind::Whole { min: 0, max: 65_535 };
const SECONDS: Kind = Kind::Whole { min: 0, max: 100_000_000 };
const ENTRIES: Kind = Kind::Whole { min: 0, max: 1_000_000 };
const MIB: u64 = 1 << 20;

options! {
    "Store" {
        "dir" => dir: String = "./terrace-data", Kind::Path, Start,
            "Folder of the store.";
        "databases" => databases: u32 = "16",
            Kind::Whole { min: 1, max: MAX_DATABASES as i64 }, Start,
            "Databases that SELECT knows.";
        "maxmemory" or "memory-budget" => maxmemory: u64 = "512mb",
            Kind::Budget { min: terrace_min_budget(), max: u64::MAX >> 1, default: 512 * MIB }, Live,
            "Memory for caches, filters and memtables together; data may be many times larger.";
        "memory-split" => memory_split: MemorySplit = "fixed",
            Kind::Choice(MemorySplit::NAMES), Live,
            "Whether that memory stays where it is, or moves to where it saves the most.";
        "appendfsync" => appendfsync: AppendFsync = "everysec",
            Kind::Choice(AppendFsync::NAMES), Live,
            "When writes are on the device: within a second, before they are acknowledged, or \
             when the operating system likes to.";
        "value-separation-threshold" => value_separation_threshold: Option<u64> = "1kb",
            Kind::BytesOrOff, Live,
            "Values of at least this many bytes stay in the log, and are moved only to collect garbage.";
        "gc-garbage-ratio" => gc_garbage_ratio: f64 = "0.3",
            Kind::Ratio { min: 0.05, max: 1.0 }, Live,
            "Share of garbage among separated values that is allowed; 1 collects nothing.";
        "rate-limit-bytes" => rate_limit_bytes: u64 = "0",
            Kind::Bytes { min: 0, max: u64::MAX }, Live,
            "Bytes that flush and compaction may write a second; 0 is no limit.";
        "hot-table" => hot_table: HotTableMode = "off", Kind::Choice(HotTableMode::NAMES), Live,
            "Whether keys that are written again and again stay in memory instead of being flushed.";
        "background-jobs" => background_jobs: usize = "2", Kind::Whole { min: 1, max: 64 }, Live,
            "Threads for flush and compaction.";
        "compression" => compression: Vec<Compression> = "none,none,lz4", Kind::Compressions, Live,
            "Compression of blocks, by level, in files that are written from then on.";
        "filter" => filter: Vec<FilterPolicy> = "ribbon:16", Kind::Filters, Live,
            "Filters of keys, by level, in files that are written from then on.";
        "learning" => learning: Learning = "build", Kind::Choice(Learning::NAMES), Live,
            "When SSTs get a model that replaces their index in memory.";
        "compaction" => compaction: CompactionStyle = "leveled",
            Kind::Choice(CompactionStyle::NAMES), Start,
            "How SSTs are merged: few runs to read, or few bytes to write.";
        "direct-io" => direct_io: DirectIoUse = "no", Kind::Choice(DirectIoUse::NAMES), Start,
            "What bypasses the page cache of the operating system.";
    }
    "Network" {
        "bind" => bind: Vec<String> = "127.0.0.1 -::1", Kind::Addresses, Start,
            "Addresses to listen on.";
        "port" => port: u16 = "6379", PORT, Start,
            "Port of the Redis protocol; 0 listens to none.";
        "port-search" => port_search: bool = "yes", Kind::YesNo, Start,
            "Take the next free port when the default port is busy.";
        "http-bind" => http_bind: Vec<String> = "127.0.0.1 -::1", Kind::Addresses, Start,
            "Addresses to serve metrics and the dashboard on.";
        "http-port" => http_port: u16 = "6380", PORT, Start,
            "Port of metrics and the dashboard; 0 serves none.";
        "http-host-names" => http_host_names: Vec<String> = "", Kind::HostNames, Live,
            "Names that HTTP requests may have in their Host header, besides addresses and \
             localhost.";
        "http-history" => http_history: bool = "yes", Kind::YesNo, Start,
            "Keep the charts of the dashboard for a day in a file beside the store, so that a \
             restart does not end them.";
        "protected-mode" => protected_mode: bool = "yes", Kind::YesNo, Live,
            "Serve only this machine while the default user needs no password.";
        "maxclients" => maxclients: u32 = "10000", Kind::Whole { min: 1, max: 1_000_000 }, Live,
            "Most connections at a time; never more than nearly half of the limit on open files.";
        "timeout" => timeout: u64 = "0", SECONDS, Live,
            "Seconds after which a connection is closed that nothing came from or went to; 0 is never.";
        "tcp-keepalive" => tcp_keepalive: u64 = "300", SECONDS, Live,
            "Seconds between probes of silent connections, 32,767 at most; 0 sends none.";
        "tcp-backlog" => tcp_backlog: u32 = "511", Kind::Whole { min: 1, max: 65_535 }, Start,
            "Connections that may wait to be accepted.";
        "client-output-buffer-limit" => client_output_buffer_limit: OutputLimits =
            "normal 576mb 128mb 60 pubsub 32mb 8mb 60", Kind::OutputLimits, Live,
            "Bytes that may wait for a client that does not read, at once and for some seconds; a single reply has no more than the first.";
        "client-query-buffer-limit" => client_query_buffer_limit: u64 = "1gb",
            Kind::Bytes { min: MIB, max: 4 << 30 }, Live,
            "Bytes of one request, and of those that wait until their client reads its replies.";
        "proto-max-bulk-len" => proto_max_bulk_len: u64 = "512mb",
            Kind::Bytes { min: MIB, max: 1 << 30 }, Live,
            "Bytes of one argument.";
    }
    "Threads" {
        "server-threads" => server_threads: usize = "1", Kind::Whole { min: 1, max: 128 }, Start,
            "Threads that serve connections.";
        "reader-threads" => reader_threads: usize = "8", Kind::Whole { min: 1, max: 256 }, Start,
            "Threads that run commands which must read the device.";
    }
    "Security" {
        "requirepass" => requirepass: Secret = "", Kind::Secret, Live,
            "Password of the default user; empty asks for none.";
        "acllog-max-len" => acllog_max_len: usize = "128", ENTRIES, Live,
            "Entries of ACL LOG.";
        "enable-debug-command" => enable_debug_command: DebugCommand = "no",
            Kind::Choice(DebugCommand::NAMES), Start,
            "Who may use DEBUG.";
    }
    "Encryption at rest" {
        "encryption-key-file" => encryption_key_file: Option<PathBuf> = "", Kind::Path, Live,
            "File with the keys of an encrypted store, read again each time it is set; empty opens one that is not encrypted.";
    }
    "TLS" {
        "tls-port" => tls_port: u16 = "0", PORT, Start,
            "Port of the Redis protocol over TLS; 0 listens to none.";
        "tls-cert-file" => tls_cert_file: Option<PathBuf> = "", Kind::Path, Start,
            "Certificate of the server, with its chain (PEM).";
        "tls-key-file" => tls_key_file: Option<PathBuf> = "", Kind::Path, Start,
            "Private key of the certificate (PEM).";
        "tls-ca-cert-file" => tls_ca_cert_file: Option<PathBuf> = "", Kind::Path, Start,
            "Certificates that sign those of clients (PEM).";
        "tls-auth-clients" => tls_auth_clients: ClientCertificates = "no",
            Kind::Choice(ClientCertificates::NAMES), Start,
            "Whether clients must show a certificate.";
    }
    "Cluster" {
        "cluster-enabled" => cluster_enabled: bool = "no", Kind::YesNo, Start,
            "Be a node of a cluster.";
        "cluster-name" => cluster_name: String = "terrace", Kind::Text, Start,
            "Name of the cluster; nodes with the same name and the same metadata are one cluster.";
        "cluster-etcd" => cluster_etcd: String = "", Kind::Text, Start,
            "URLs of etcd, separated by commas, where the cluster's metadata is; without, it is in \
             this server's store, and the cluster is this server alone.";
        "cluster-redirect" => cluster_redirect: ClusterRedirect = "proxy",
            Kind::Choice(ClusterRedirect::NAMES), Start,
            "What is answered for keys that another node owns: the reply, by way of that node, or \
             MOVED.";
        "cluster-placement" => cluster_placement: ClusterPlacement = "slots",
            Kind::Choice(ClusterPlacement::NAMES), Start,
            "How a new store has its keys, which must be the placement of the cluster: by Redis \
             Cluster's slots, or in order.";
        "cluster-bind" => cluster_bind: String = "127.0.0.1", Kind::Text, Start,
            "IP address to listen on for other nodes.";
        "cluster-port" => cluster_port: u16 = "0", PORT, Start,
            "Port for other nodes; 0 is that of the Redis protocol + 10000.";
        "cluster-announce-ip" => cluster_announce_ip: String = "", Kind::Text, Start,
            "Address or name that clients and other nodes connect to; without, what is listened on.";
        "cluster-announce-port" => cluster_announce_port: u16 = "0", PORT, Start,
            "Port of the Redis protocol that clients connect to; 0 is the one that is listened on.";
        "cluster-announce-bus-port" => cluster_announce_bus_port: u16 = "0", PORT, Start,
            "Port that other nodes connect to; 0 is the one that is listened on.";
        "cluster-secret" => cluster_secret: Secret = "", Kind::Secret, Start,
            "What nodes show each other; needed if cluster-bind is not the loopback interface, and with requirepass or users.";
        "cluster-lease" => cluster_lease: u64 = "3000",
            Kind::Whole { min: 1_000, max: 600_000 }, Start,
            "Milliseconds after which a node that does not answer has lost its shards.";
        "cluster-coordinator" => cluster_coordinator: bool = "yes", Kind::YesNo, Start,
            "Own shards; without, the store is served by other nodes.";
        "cluster-partitioner" => cluster_partitioner: bool = "yes", Kind::YesNo, Start,
            "Be ready to lead the partitioner, if there is a cluster-plan.";
        "cluster-plan" => cluster_plan: String = "", Kind::Text, Start,
            "By which plan keys are moved by themselves (top-n-to-one:N, top-n-tiered:N,N or \
             absorb); without, only when somebody asks.";
        "cluster-plan-interval" => cluster_plan_interval: u64 = "60",
            Kind::Whole { min: 1, max: 100_000_000 }, Start,
            "Seconds between two plans.";
        "cluster-plan-keys" => cluster_plan_keys: usize = "1000",
            Kind::Whole { min: 1, max: 100_000 }, Start,
            "Most written keys that each node counts, and that a plan is made of.";
    }
    "Observation" {
        "loglevel" => loglevel: LogLevel = "notice", Kind::Choice(LogLevel::NAMES), Live,
            "How much is logged.";
        "log-format" => log_format: LogFormat = "text", Kind::Choice(LogFormat::NAMES), Start,
            "How lines of the log are written: for people, or as a JSON object each.";
        "otlp-endpoint" => otlp_endpoint: String = "", Kind::Text, Start,
            "Where traces are sent, by OTLP over gRPC, as http://HOST:4317; needs a program that was built with the \
             feature opentelemetry.";
        "trace-sample-every" => trace_sample_every: u64 = "1000",
            Kind::Whole { min: 0, max: i64::MAX }, Live,
            "One command in every this many becomes a span of the traces, and all that get into SLOWLOG; 0 sends only these.";
        "slowlog-log-slower-than" => slowlog_log_slower_than: i64 = "10000",
            Kind::Whole { min: -1, max: i64::MAX }, Live,
            "Microseconds at which a command gets into SLOWLOG; -1 logs none, 0 logs all.";
        "slowlog-max-len" => slowlog_max_len: usize = "128", ENTRIES, Live,
            "Entries of SLOWLOG.";
        "latency-monitor-threshold" => latency_monitor_threshold: u64 = "0",
            Kind::Whole { min: 0, max: i64::MAX }, Live,
            "Milliseconds at which an event gets into LATENCY; 0 watches none.";
    }
}

const fn terrace_min_budget() -> u64 {
    terrace::MIN_MEMORY_BUDGET as u64
}

impl Settings {
    /// Refuses options that do not go together.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let conflict = |name, why: &str| Err(ConfigError::Conflict { name, why: why.to_string() });
        let ports =
            [("port", self.port), ("http-port", self.http_port), ("tls-port", self.tls_port)];
        for (at, (name, port)) in ports.iter().enumerate() {
            if let Some((other, _)) = ports[..at].iter().find(|(_, p)| p == port && *p != 0) {
                return conflict(name, &format!("{port} is the port of {other} already"));
            }
        }
        if self.tls_port != 0 && (self.tls_cert_file.is_none() || self.tls_key_file.is_none()) {
            return conflict("tls-port", "TLS needs tls-cert-file and tls-key-file");
        }
        if self.tls_auth_clients != ClientCertificates::No && self.tls_ca_cert_file.is_none() {
            return conflict("tls-auth-clients", "certificates are checked with tls-ca-cert-file");
        }
        let serves = self.port != 0 || self.tls_port != 0;
        let lists =
            [("bind", serves, &self.bind), ("http-bind", self.http_port != 0, &self.http_bind)];
        for (name, _, words) in lists.into_iter().filter(|(_, listens, _)| *listens) {
            if words.is_empty() {
                return conflict(name, "there must be an address to listen on");
            }
            if let Some(why) = overlap(words) {
                return conflict(name, &why);
            }
        }
        if self.proto_max_bulk_len > self.client_query_buffer_limit {
            let why = "an argument cannot be longer than client-query-buffer-limit";
            return conflict("proto-max-bulk-len", why);
        }
        if !self.otlp_endpoint.is_empty() && !self.otlp_endpoint.starts_with("http://") {
            let why = "it must be as http://HOST:4317; a collector is not spoken to with TLS: run one on this \
                       machine that passes the traces on";
            return conflict("otlp-endpoint", why);
        }
        self.check_cluster()
    }

    fn check_cluster(&self) -> Result<(), ConfigError> {
        let conflict = |name, why: &str| Err(ConfigError::Conflict { name, why: why.to_string() });
        let Ok(ip) = self.cluster_bind.parse::<IpAddr>() else {
            return conflict("cluster-bind", "it must be an IP address");
        };
        if self.cluster_enabled && !ip.is_loopback() && self.cluster_secret.is_empty() {
            let why = "nodes that other machines can reach need a cluster-secret that they share";
            return conflict("cluster-bind", why);
        }
        let asks_who = !self.requirepass.is_empty() || !self.users.is_empty();
        if self.cluster_enabled && asks_who && self.cluster_secret.is_empty() {
            let why = "a node that asks clients for passwords needs one: without it, everybody \
                       who reaches cluster-port can execute commands there";
            return conflict("cluster-secret", why);
        }
        // A list without any URL would be taken for metadata in this store, and the node wait for a cluster to be made of it.
        let urls = self.cluster_etcd.trim();
        if !urls.is_empty() && urls.split(',').all(|url| url.trim().is_empty()) {
            return conflict("cluster-etcd", "it must be URLs, separated by commas");
        }
        // It stands in the lines of CLUSTER NODES, and with a port behind it.
        let announced = self.cluster_announce_ip.trim();
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !announced.chars().all(is_of_name) && announced.parse::<Ipv6Addr>().is_err() {
            return conflict("cluster-announce-ip", "it must be an IP address or a host's name");
        }
        if self.cluster_enabled && self.port == 0 && self.tls_port == 0 {
            return conflict("port", "a node of a cluster must listen for clients");
        }
        if self.cluster_enabled && ip.is_unspecified() && announced.is_empty() {
            let why = "with this cluster-bind, others must be told an address to connect to";
            return conflict("cluster-announce-ip", why);
        }
        if !self.cluster_plan.is_empty()
            && let Err(why) = self.cluster_plan.parse::<PlanSpec>()
        {
            return conflict("cluster-plan", &why.to_string());
        }
        Ok(())
    }
}
