//! Options of Redis that tune what Terrace does in another way, or not at all: they are checked, remembered and shown, so
//! that configurations and tests of Redis work, and do nothing. The defaults are those of Redis 7.0.

use super::table::{OptionSpec, When};
use super::value::Kind;

const DOC: &str = "As in Redis; it does nothing.";

const COUNT: Kind = Kind::Whole { min: 0, max: i64::MAX };
const INTEGER: Kind = Kind::Whole { min: 0, max: i32::MAX as i64 };
const SIZE: Kind = Kind::Bytes { min: 0, max: i64::MAX as u64 };
const PERCENT: Kind = Kind::Whole { min: 0, max: 1000 };
const PORT: Kind = Kind::Whole { min: 0, max: 65_535 };
const FLAG: Kind = Kind::YesNo;

const fn whole(min: i64, max: i64) -> Kind {
    Kind::Whole { min, max }
}

/// One that is remembered.
const fn row(name: &'static str, kind: Kind, default: &'static str) -> OptionSpec {
    OptionSpec::without_effect((name, None), kind, default, When::Live, DOC)
}

/// One with another name that is still in use.
const fn twin(
    name: &'static str,
    also: &'static str,
    kind: Kind,
    default: &'static str,
) -> OptionSpec {
    OptionSpec::without_effect((name, Some(also)), kind, default, When::Live, DOC)
}

/// One that has one value only.
const fn only(name: &'static str, value: &'static str, why: &'static str) -> OptionSpec {
    let kind = Kind::Only { value, why };
    OptionSpec::without_effect((name, None), kind, value, When::Start, "It is always so.")
}

/// Those that only their name shows, and no pattern: Redis has them for its own tests.
pub const HIDDEN: [&str; 2] = ["rdb-key-save-delay", "key-load-delay"];

/// In the order of the documentation.
pub static WITHOUT_EFFECT: &[OptionSpec] = &[
    only("appendonly", "yes", "the log is the state"),
    only("save", "", "checkpoints are made by BGSAVE alone"),
    only("maxmemory-policy", "noeviction", "nothing is ever evicted"),
    only("dbfilename", "dump.rdb", "there is no such file"),
    only("daemonize", "no", "the server stays in the foreground"),
    only("supervised", "no", "systemd is notified without it"),
    only("pidfile", "", "there is no such file"),
    only("logfile", "", "the log goes to standard error"),
    only("unixsocket", "", "there are only sockets of TCP"),
    only("aclfile", "", "users stand in terrace.toml"),
    only("io-threads", "1", "threads are set by server-threads"),
    only("masterauth", "", "there is no replication"),
    only("masteruser", "", "there is no replication"),
    OptionSpec::without_effect(
        ("replicaof", Some("slaveof")),
        Kind::Only { value: "", why: "there is no replication" },
        "",
        When::Start,
        "It is always so.",
    ),
    OptionSpec::without_effect(
        ("notify-keyspace-events", None),
        Kind::Only { value: "", why: "there are no notifications of keys" },
        "",
        When::Live,
        "It is always so.",
    ),
    twin("list-max-listpack-size", "list-max-ziplist-size", whole(-5, i32::MAX as i64), "-2"),
    row("list-compress-depth", INTEGER, "0"),
    row("set-max-intset-entries", COUNT, "512"),
    twin("hash-max-listpack-entries", "hash-max-ziplist-entries", COUNT, "512"),
    twin("hash-max-listpack-value", "hash-max-ziplist-value", SIZE, "64"),
    twin("zset-max-listpack-entries", "zset-max-ziplist-entries", COUNT, "128"),
    twin("zset-max-listpack-value", "zset-max-ziplist-value", SIZE, "64"),
    row("hll-sparse-max-bytes", SIZE, "3000"),
    row("stream-node-max-entries", COUNT, "100"),
    row("stream-node-max-bytes", SIZE, "4096"),
    row("maxmemory-samples", whole(1, 64), "5"),
    row("maxmemory-eviction-tenacity", whole(0, 100), "10"),
    row("maxmemory-clients", Kind::BytesOrPercent, "0"),
    row("lfu-log-factor", INTEGER, "10"),
    row("lfu-decay-time", INTEGER, "1"),
    row("lazyfree-lazy-eviction", FLAG, "no"),
    row("lazyfree-lazy-expire", FLAG, "no"),
    row("lazyfree-lazy-server-del", FLAG, "no"),
    row("lazyfree-lazy-user-del", FLAG, "no"),
    row("lazyfree-lazy-user-flush", FLAG, "no"),
    row("activedefrag", FLAG, "no"),
    row("active-defrag-cycle-min", whole(1, 99), "1"),
    row("active-defrag-cycle-max", whole(1, 99), "25"),
    row("active-defrag-ignore-bytes", SIZE, "104857600"),
    row("active-defrag-max-scan-fields", whole(1, i64::MAX), "1000"),
    row("active-defrag-threshold-lower", PERCENT, "10"),
    row("active-defrag-threshold-upper", PERCENT, "100"),
    row("activerehashing", FLAG, "yes"),
    row("active-expire-effort", whole(1, 10), "1"),
    row("hz", INTEGER, "10"),
    row("dynamic-hz", FLAG, "yes"),
    row("latency-tracking", FLAG, "yes"),
    row("latency-tracking-info-percentiles", Kind::Percentiles, "50 99 99.9"),
    row("tracking-table-max-keys", COUNT, "1000000"),
    twin("busy-reply-threshold", "lua-time-limit", COUNT, "5000"),
    row("acl-pubsub-default", Kind::Choice(&["allchannels", "resetchannels"]), "resetchannels"),
    row("sanitize-dump-payload", Kind::Choice(&["no", "yes", "clients"]), "no"),
    row("appendfilename", Kind::Text, "appendonly.aof"),
    row("no-appendfsync-on-rewrite", FLAG, "no"),
    row("auto-aof-rewrite-percentage", INTEGER, "100"),
    row("auto-aof-rewrite-min-size", SIZE, "67108864"),
    row("aof-load-truncated", FLAG, "yes"),
    row("aof-use-rdb-preamble", FLAG, "yes"),
    row("aof-rewrite-incremental-fsync", FLAG, "yes"),
    row("rdbcompression", FLAG, "yes"),
    row("rdbchecksum", FLAG, "yes"),
    row("rdb-save-incremental-fsync", FLAG, "yes"),
    row("rdb-del-sync-files", FLAG, "no"),
    row("rdb-key-save-delay", whole(i32::MIN as i64, i32::MAX as i64), "0"),
    row("key-load-delay", whole(i32::MIN as i64, i32::MAX as i64), "0"),
    row("stop-writes-on-bgsave-error", FLAG, "yes"),
    row("always-show-logo", FLAG, "no"),
    row("oom-score-adj", Kind::Choice(&["no", "yes", "relative", "absolute"]), "no"),
    row("repl-backlog-size", Kind::Bytes { min: 1, max: i64::MAX as u64 }, "1048576"),
    row("repl-backlog-ttl", COUNT, "3600"),
    row("repl-disable-tcp-nodelay", FLAG, "no"),
    row("repl-diskless-load", Kind::Choice(&["disabled", "on-empty-db", "swapdb"]), "disabled"),
    row("repl-diskless-sync", FLAG, "yes"),
    row("repl-diskless-sync-delay", INTEGER, "5"),
    row("repl-diskless-sync-max-replicas", INTEGER, "0"),
    twin("repl-ping-replica-period", "repl-ping-slave-period", whole(1, i32::MAX as i64), "10"),
    row("repl-timeout", whole(1, i32::MAX as i64), "60"),
    twin("min-replicas-to-write", "min-slaves-to-write", INTEGER, "0"),
    twin("min-replicas-max-lag", "min-slaves-max-lag", INTEGER, "10"),
    twin("replica-serve-stale-data", "slave-serve-stale-data", FLAG, "yes"),
    twin("replica-read-only", "slave-read-only", FLAG, "yes"),
    twin("replica-priority", "slave-priority", INTEGER, "100"),
    twin("replica-lazy-flush", "slave-lazy-flush", FLAG, "no"),
    twin("replica-ignore-maxmemory", "slave-ignore-maxmemory", FLAG, "yes"),
    twin("replica-announce-port", "slave-announce-port", PORT, "0"),
];
