//! `INFO`: the state of the server in the words that monitoring for Redis knows.

use super::{Call, CommandSpec, Flags, Group, Keys, Outcome, table};
use crate::process;
use crate::server::Server;
use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;
use terrace::Metrics;

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "info",
        arity: -1,
        flags: Flags::DANGEROUS.with(Flags::WAITS),
        keys: Keys::None,
        group: Group::Server,
        arguments: "[section ...]",
        summary: "Tells the state of the server.",
        complexity: "O(1)",
        since: "1.0.0",
        run: info,
    },
    CommandSpec {
        name: "lolwut",
        arity: -1,
        flags: Flags::READ.with(Flags::FAST),
        keys: Keys::None,
        group: Group::Server,
        arguments: "[VERSION version]",
        summary: "Tells the version.",
        complexity: "O(1)",
        since: "5.0.0",
        run: lolwut,
    },
];

fn lolwut(call: &mut Call<'_>) -> Outcome {
    if call.arg(1).eq_ignore_ascii_case(b"version") && call.count() > 2 {
        call.integer(2)?;
    }
    let (own, redis) = (env!("CARGO_PKG_VERSION"), crate::REDIS_VERSION);
    call.reply.verbatim(*b"txt", format!("Terrace ver. {own}, as Redis ver. {redis}\n"));
    Ok(())
}

/// Writes the lines of a section.
type Section = fn(&mut Page, &ServerStatus<'_>);

/// Quarantined files that are listed, of those that are counted.
const MAX_QUARANTINED: usize = 100;

/// Sections in their order, and whether one is shown without being asked for.
const SECTIONS: &[(&str, bool, Section)] = &[
    ("server", true, server),
    ("clients", true, clients),
    ("memory", true, memory),
    ("persistence", true, persistence),
    ("stats", true, stats),
    ("replication", true, replication),
    ("cpu", true, cpu),
    ("modules", true, |_, _| {}),
    ("commandstats", false, command_stats),
    ("errorstats", true, error_stats),
    ("latencystats", false, latency_stats),
    ("cluster", true, cluster),
    ("keyspace", true, keyspace),
    ("terrace", true, engine),
];

struct ServerStatus<'a> {
    server: &'a Server,
    metrics: Metrics,
    now_ms: u64,
    /// Keys of databases that have any, as `DBSIZE` gives them.
    key_counts: Vec<(u8, u64)>,
}

/// Lines of the reply.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, name: &str, value: impl Display) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "{name}:{value}\r\n");
    }
}

fn info(call: &mut Call<'_>) -> Outcome {
    let wanted: Vec<String> =
        call.args_from(1).map(|name| String::from_utf8_lossy(name).to_lowercase()).collect();
    let has = |name: &str| wanted.iter().any(|wanted| wanted == name);
    let everything = has("all") || has("everything");
    let defaults = wanted.is_empty() || has("default");
    let is_shown =
        |name: &str, is_default: bool| has(name) || everything || (defaults && is_default);
    let mut key_counts = Vec::new();
    let counted = if is_shown("keyspace", true) { call.server.databases() } else { 0 };
    for db in 0..counted {
        let db = db as u8;
        let count = call.batch.count_keys(db)?;
        key_counts.extend((count > 0).then_some((db, count)));
    }
    let facts = ServerStatus {
        server: call.server,
        key_counts,
        metrics: call.server.space.db().metrics(),
        now_ms: call.batch.now_ms(),
    };
    let mut page = Page::default();
    for (name, is_default, write) in SECTIONS {
        if is_shown(name, *is_default) {
            if !page.0.is_empty() {
                page.0.push_str("\r\n");
            }
            let (first, rest) = name.split_at(1);
            let title = match *name {
                "cpu" => "CPU".to_string(),
                _ => first.to_uppercase() + rest,
            };
            let _ = write!(page.0, "# {title}\r\n");
            write(&mut page, &facts);
        }
    }
    call.reply.verbatim(*b"txt", page.0);
    Ok(())
}

fn cluster(page: &mut Page, facts: &ServerStatus<'_>) {
    let Some(cluster) = &facts.server.cluster else { return page.line("cluster_enabled", 0) };
    let Some(coordinator) = cluster.coordinator() else { return page.line("cluster_enabled", 1) };
    page.0.push_str(&super::cluster::info(&**coordinator));
    let stats = &facts.server.stats;
    page.line("cluster_forwarded_commands", stats.forwarded.get());
    page.line("cluster_rerouted_commands", stats.rerouted.get());
    page.line("cluster_executed_calls", stats.calls.get());
    page.line("cluster_calls_at_once", stats.calls_at_once.get());
    page.line("cluster_unsure_closed_connections", stats.unsure_closed.get());
}

fn server(page: &mut Page, facts: &ServerStatus<'_>) {
    let server = facts.server;
    let settings = server.config.settings();
    let uptime = server.started.elapsed().as_secs();
    page.line("redis_version", crate::REDIS_VERSION);
    // Of no commit of Redis.
    page.line("redis_git_sha1", "00000000");
    page.line("redis_git_dirty", 0);
    page.line("redis_build_id", 0);
    page.line("terrace_version", env!("CARGO_PKG_VERSION"));
    page.line("redis_mode", if server.cluster.is_some() { "cluster" } else { "standalone" });
    page.line("os", format_args!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
    page.line("arch_bits", usize::BITS);
    page.line("multiplexing_api", "epoll");
    // As Redis says it of another compiler.
    page.line("gcc_version", "0.0.0");
    page.line("process_id", std::process::id());
    page.line("run_id", server.run_id());
    page.line("tcp_port", server.port().unwrap_or(settings.port));
    page.line("server_time_usec", facts.now_ms * 1000);
    page.line("uptime_in_seconds", uptime);
    page.line("uptime_in_days", uptime / 86_400);
    let hz = settings.without_effect.get("hz").map_or("10", |hz| hz);
    page.line("hz", hz);
    page.line("configured_hz", hz);
    page.line("io_threads_active", u8::from(settings.server_threads > 1));
    let file = server.config.file().map(|file| file.display().to_string()).unwrap_or_default();
    page.line("config_file", file);
    if let Ok(path) = std::env::current_exe() {
        page.line("executable", path.display());
    }
}

fn clients(page: &mut Page, facts: &ServerStatus<'_>) {
    page.line("connected_clients", facts.server.clients.count());
    page.line("cluster_connections", 0);
    page.line("maxclients", facts.server.most_clients());
    // CLIENT TRACKING is refused.
    page.line("tracking_clients", 0);
    page.line("clients_in_timeout_table", 0);
    page.line("pubsub_clients", 0);
    page.line("total_blocking_keys", 0);
    // No command waits for what another client does, but for the end of a CLIENT PAUSE.
    page.line("blocked_clients", facts.server.pause.waiting());
    page.line("offloaded_clients", facts.server.stats.waiting.load(Ordering::Relaxed));
}

fn memory(page: &mut Page, facts: &ServerStatus<'_>) {
    let m = &facts.metrics;
    let used = m.cache_used_bytes + m.memtable_bytes + m.pinned_bytes;
    let rss = process::resident_bytes().unwrap_or(0);
    let most = facts.server.config.settings().maxmemory;
    for (name, bytes) in [("used_memory", used), ("used_memory_rss", rss), ("maxmemory", most)] {
        page.line(name, bytes);
        page.line(&format!("{name}_human"), human(bytes));
    }
    if let Some(bytes) = process::system_memory_bytes() {
        page.line("total_system_memory", bytes);
        page.line("total_system_memory_human", human(bytes));
    }
    // Memory is for caches and buffers: nothing is ever evicted from the store.
    page.line("maxmemory_policy", "noeviction");
    page.line("allocator_active_defrag_running", 0);
    page.line("mem_allocator", "libc");
    // There are none, and nothing is freed later.
    for name in [
        "used_memory_lua",
        "used_memory_vm_eval",
        "used_memory_scripts_eval",
        "used_memory_vm_functions",
        "used_memory_functions",
        "used_memory_scripts",
        "mem_clients_slaves",
        "mem_replication_backlog",
        "number_of_cached_scripts",
        "number_of_functions",
        "number_of_libraries",
        "active_defrag_running",
        "lazyfree_pending_objects",
        "lazyfreed_objects",
    ] {
        page.line(name, 0);
    }
    page.line("mem_fragmentation_ratio", format_args!("{:.2}", rss as f64 / used.max(1) as f64));
}

/// As Redis writes sizes for people.
fn human(bytes: u64) -> String {
    let units = [("G", 1_u64 << 30), ("M", 1 << 20), ("K", 1 << 10)];
    match units.iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => format!("{:.2}{unit}", bytes as f64 / *size as f64),
        None => format!("{bytes}B"),
    }
}

fn persistence(page: &mut Page, facts: &ServerStatus<'_>) {
    let state = &facts.server.checkpoints;
    page.line("loading", 0);
    page.line("async_loading", 0);
    page.line("rdb_bgsave_in_progress", u8::from(state.is_running()));
    page.line("rdb_last_save_time", state.last_ms() / 1000);
    page.line("rdb_last_bgsave_status", if state.has_failed() { "err" } else { "ok" });
    page.line("rdb_saves", state.count());
    let took_s = state.took_ms().map_or(-1, |ms| (ms / 1000) as i64);
    page.line("rdb_last_bgsave_time_sec", took_s);
    let runs_s = state.running_s().map_or(-1, |s| s as i64);
    page.line("rdb_current_bgsave_time_sec", runs_s);
    // No process is forked for it.
    for name in [
        "current_cow_peak",
        "current_cow_size",
        "rdb_last_cow_size",
        "aof_last_cow_size",
        "module_fork_in_progress",
        "module_fork_last_cow_size",
    ] {
        page.line(name, 0);
    }
    page.line("aof_enabled", 1);
    // The log is not rewritten: merges empty its segments.
    page.line("aof_rewrite_in_progress", 0);
    page.line("aof_rewrite_scheduled", 0);
    page.line("aof_last_rewrite_time_sec", -1);
    page.line("aof_current_rewrite_time_sec", -1);
    page.line("aof_last_bgrewrite_status", "ok");
    let writable = facts.server.unwritable().is_none();
    page.line("aof_last_write_status", if writable { "ok" } else { "err" });
}

fn stats(page: &mut Page, facts: &ServerStatus<'_>) {
    let stats = &facts.server.stats;
    page.line("total_connections_received", facts.server.clients.total());
    page.line("total_commands_processed", facts.server.latency.calls());
    page.line("instantaneous_ops_per_sec", facts.server.rate.per_second());
    page.line("total_net_input_bytes", stats.received_bytes.get());
    page.line("total_net_output_bytes", stats.sent_bytes.get());
    let kbps = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    page.line("instantaneous_input_kbps", kbps(facts.server.received_rate.per_second()));
    page.line("instantaneous_output_kbps", kbps(facts.server.sent_rate.per_second()));
    page.line("rejected_connections", stats.rejected_connections.get());
    page.line("expired_time_cap_reached_count", 0);
    page.line("evicted_keys", 0);
    page.line("evicted_clients", 0);
    page.line("total_eviction_exceeded_time", 0);
    page.line("current_eviction_exceeded_time", 0);
    page.line("keyspace_hits", stats.keyspace_hits.get());
    page.line("keyspace_misses", stats.keyspace_misses.get());
    // There are no subscriptions, no replicas, no tracking of keys and no child processes.
    for name in [
        "pubsub_channels",
        "pubsub_patterns",
        "pubsubshard_channels",
        "sync_full",
        "sync_partial_ok",
        "sync_partial_err",
        "latest_fork_usec",
        "total_forks",
        "migrate_cached_sockets",
        "slave_expires_tracked_keys",
        "active_defrag_hits",
        "active_defrag_misses",
        "active_defrag_key_hits",
        "active_defrag_key_misses",
        "total_active_defrag_time",
        "current_active_defrag_time",
        "dump_payload_sanitizations",
        "total_net_repl_input_bytes",
        "total_net_repl_output_bytes",
        "tracking_total_keys",
        "tracking_total_items",
        "tracking_total_prefixes",
        "io_threaded_reads_processed",
        "io_threaded_writes_processed",
    ] {
        page.line(name, 0);
    }
    page.line("acl_access_denied_auth", stats.auth_failures.get());
    page.line("client_query_buffer_limit_disconnections", stats.query_limit_closed.get());
    page.line("client_output_buffer_limit_disconnections", stats.output_limit_closed.get());
    page.line("unexpected_error_replies", stats.failed_batches.get());
    page.line("total_error_replies", facts.server.errors.total());
    page.line("offloads", stats.offloads.get());
    page.line("waited_batches", stats.waited_batches.get());
}

fn replication(page: &mut Page, facts: &ServerStatus<'_>) {
    page.line("role", "master");
    page.line("connected_slaves", 0);
    page.line("master_failover_state", "no-failover");
    // Nothing is sent to replicas of Redis.
    page.line("master_repl_offset", 0);
    page.line("second_repl_offset", -1);
    let settings = facts.server.config.settings();
    let size = settings.without_effect.get("repl-backlog-size").map_or("1048576", |size| size);
    page.line("repl_backlog_active", 0);
    page.line("repl_backlog_size", size);
    page.line("repl_backlog_first_byte_offset", 0);
    page.line("repl_backlog_histlen", 0);
}

fn cpu(page: &mut Page, _: &ServerStatus<'_>) {
    let Some((user, system)) = process::cpu_seconds() else { return };
    page.line("used_cpu_sys", format_args!("{system:.6}"));
    page.line("used_cpu_user", format_args!("{user:.6}"));
}

fn command_stats(page: &mut Page, facts: &ServerStatus<'_>) {
    for (number, row) in facts.server.latency.commands() {
        let Some(name) = table().counted_name(number) else { continue };
        let us = row.total_ns / 1000;
        let per_call = us as f64 / row.calls.max(1) as f64;
        page.line(
            &format!("cmdstat_{name}"),
            format_args!(
                "calls={},usec={us},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                row.calls, row.rejected, row.failed
            ),
        );
    }
}

fn error_stats(page: &mut Page, facts: &ServerStatus<'_>) {
    for (code, count) in facts.server.errors.counts() {
        page.line(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn latency_stats(page: &mut Page, facts: &ServerStatus<'_>) {
    for (number, row) in facts.server.latency.commands() {
        let Some(name) = table().counted_name(number) else { continue };
        let us = |quantile: f64| row.durations.value_at_quantile(quantile) as f64 / 1000.0;
        page.line(
            &format!("latency_percentiles_usec_{name}"),
            format_args!("p50={:.3},p99={:.3},p99.9={:.3}", us(0.5), us(0.99), us(0.999)),
        );
    }
}

fn keyspace(page: &mut Page, facts: &ServerStatus<'_>) {
    // As of DBSIZE; keys with an expiry are not counted apart.
    for (db, keys) in &facts.key_counts {
        page.line(&format!("db{db}"), format_args!("keys={keys},expires=0,avg_ttl=0"));
    }
}

fn engine(page: &mut Page, facts: &ServerStatus<'_>) {
    let m = &facts.metrics;
    page.line("write_amplification", format_args!("{:.2}", m.write_amplification()));
    page.line("space_amplification", format_args!("{:.2}", m.space_amplification()));
    page.line("disk_bytes", crate::stats::disk_bytes(m));
    page.line("gets", m.gets);
    page.line("gets_found", m.gets_found);
    page.line("batches", m.batches);
    page.line("groups", m.groups);
    page.line("flushes", m.flushes);
    page.line("compactions", m.compactions);
    page.line("quarantined_files", m.quarantined_files);
    for file in facts.server.space.db().quarantined_files().iter().take(MAX_QUARANTINED) {
        let name = format!("quarantined_{:06}", file.number);
        page.line(
            &name,
            format_args!("family={},level={}", file.family.escape_debug(), file.level),
        );
    }
    page.line("stall_us", m.stall_us);
    for (cause, row) in m.stalls_by_cause() {
        page.line(
            &format!("stall_{}", cause.name()),
            format_args!("slowdowns={},stops={},us={}", row.slowdowns, row.stops, row.stall_us),
        );
    }
    for (level, row) in m.levels.iter().enumerate().filter(|(_, row)| row.file_count > 0) {
        page.line(
            &format!("level{level}"),
            format_args!(
                "files={},bytes={},entries={}",
                row.file_count, row.size_bytes, row.entry_count
            ),
        );
    }
}
