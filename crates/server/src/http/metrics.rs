//! `/metrics`, in the text format of OpenMetrics, which Prometheus reads: what the engine counts, and
//! what the server counts. `docs/metrics.md` is made of the same tables by a test.

use super::{CommandFigures, Figures};
use hdrhistogram::Histogram;
use std::fmt::Write as _;

/// The metrics that Prometheus scrapes.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const END: &str = "# EOF\n";

/// Everything of the server at one moment.
#[derive(Debug, Default)]
pub(super) struct Scrape {
    pub figures: Figures,
    pub commands: Vec<CommandFigures>,
    pub rss_bytes: Option<u64>,
    pub http_connections: u64,
    pub http_refused_connections: u64,
    pub http_requests: u64,
    pub http_listeners: u64,
}

/// A metric without labels: name, kind, meaning, value.
type Single = (&'static str, Kind, &'static str, fn(&Scrape) -> u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

use Kind::{Counter, Gauge};

const SINGLE: [Single; 27] = [
    ("uptime_seconds", Gauge, "Time since the start", |s| s.figures.uptime_s),
    (
        "resident_bytes",
        Gauge,
        "Resident set of the process; 0 where the system does not say",
        |s| s.rss_bytes.unwrap_or(0),
    ),
    ("connected_clients", Gauge, "Clients of the Redis protocol", |s| s.figures.connected_clients),
    ("connections", Counter, "Connections of the Redis protocol that were accepted", |s| {
        s.figures.connections
    }),
    (
        "rejected_connections",
        Counter,
        "Connections of the Redis protocol that were turned away",
        |s| s.figures.rejected_connections,
    ),
    ("reads", Counter, "Commands that read keys and change none", |s| s.figures.reads),
    ("writes", Counter, "Commands that may change keys", |s| s.figures.writes),
    ("keyspace_hits", Counter, "Lookups of keys that were there", |s| s.figures.hits),
    ("keyspace_misses", Counter, "Lookups of keys that were not there", |s| s.figures.misses),
    ("net_input_bytes", Counter, "Bytes received from clients of the Redis protocol", |s| {
        s.figures.net_input_bytes
    }),
    ("net_output_bytes", Counter, "Bytes sent to clients of the Redis protocol", |s| {
        s.figures.net_output_bytes
    }),
    ("slow_log_entries", Gauge, "Entries of the slow log", |s| s.figures.slow_log_entries),
    ("pool_queue", Gauge, "Commands that wait for a thread that may wait for the device", |s| {
        s.figures.pool_queue
    }),
    ("pool_commands", Counter, "Commands that such threads executed", |s| s.figures.pool_commands),
    ("http_connections", Counter, "Connections of HTTP that were accepted", |s| s.http_connections),
    ("http_refused_connections", Counter, "Connections of HTTP that were too many", |s| {
        s.http_refused_connections
    }),
    ("http_requests", Counter, "Requests of HTTP", |s| s.http_requests),
    ("cluster_nodes", Gauge, "Nodes that are known; 0 without a cluster, as all below", |s| {
        s.figures.cluster.nodes
    }),
    ("cluster_nodes_alive", Gauge, "Nodes whose lease is there", |s| s.figures.cluster.nodes_alive),
    ("cluster_shards", Gauge, "Shards of the cluster", |s| s.figures.cluster.shards),
    ("cluster_shards_unowned", Gauge, "Shards that no node that is alive owns", |s| {
        s.figures.cluster.shards_unowned
    }),
    ("cluster_shards_served", Gauge, "Shards that this node serves", |s| {
        s.figures.cluster.shards_served
    }),
    ("cluster_exceptions", Gauge, "Keys of these that are not at home", |s| {
        s.figures.cluster.exceptions
    }),
    ("cluster_moved_keys", Counter, "Keys that this node moved as owner", |s| {
        s.figures.cluster.moved_keys
    }),
    ("cluster_lease_age_ms", Gauge, "Time since the last confirmed keep-alive was sent", |s| {
        s.figures.cluster.lease_age_ms
    }),
    ("cluster_is_draining", Gauge, "1 while this node gives its shards up", |s| {
        s.figures.cluster.is_draining.into()
    }),
    ("cluster_leads_partitioner", Gauge, "1 while this node makes plans by itself", |s| {
        s.figures.cluster.leads_partitioner.into()
    }),
];
const LISTENERS: Single =
    ("http_listeners", Gauge, "Pages that listen to the stream", |s| s.http_listeners);

const INFO: (&str, &str) = ("info", "1; the version is a label");
const COMMANDS: (&str, &str) = ("commands", "Commands executed");
const FAILED: (&str, &str) = ("commands_failed", "Commands that gave an error");
const DURATION: (&str, &str) =
    ("command_duration_seconds", "How long commands took that were timed");

/// Upper bounds of the buckets of latencies: what is written, and nanoseconds.
const BOUNDS: [(&str, u64); 18] = [
    ("1e-06", 1_000),
    ("2.5e-06", 2_500),
    ("5e-06", 5_000),
    ("1e-05", 10_000),
    ("2.5e-05", 25_000),
    ("5e-05", 50_000),
    ("0.0001", 100_000),
    ("0.00025", 250_000),
    ("0.0005", 500_000),
    ("0.001", 1_000_000),
    ("0.0025", 2_500_000),
    ("0.005", 5_000_000),
    ("0.01", 10_000_000),
    ("0.025", 25_000_000),
    ("0.05", 50_000_000),
    ("0.1", 100_000_000),
    ("0.5", 500_000_000),
    ("1.0", 1_000_000_000),
];

/// The engine's text and the server's.
pub(super) fn text(engine: &terrace::Metrics, scrape: &Scrape) -> String {
    let mut out = engine.to_prometheus();
    out.truncate(out.trim_end().trim_end_matches(END.trim_end()).len());
    for (name, kind, help, value) in SINGLE.iter().chain([&LISTENERS]) {
        let suffix = if *kind == Counter { "_total" } else { "" };
        head(&mut out, name, kind.name(), help);
        let _ = writeln!(out, "terrace_server_{name}{suffix} {}", value(scrape));
    }
    head(&mut out, INFO.0, "gauge", INFO.1);
    let version = env!("CARGO_PKG_VERSION");
    let _ = writeln!(out, "terrace_server_{}{{version=\"{version}\"}} 1", INFO.0);
    by_command(&mut out, COMMANDS, scrape, |command| command.calls);
    by_command(&mut out, FAILED, scrape, |command| command.failed);
    head(&mut out, DURATION.0, "histogram", DURATION.1);
    for command in &scrape.commands {
        durations(&mut out, command);
    }
    out.push_str(END);
    out
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ =
        writeln!(out, "# HELP terrace_server_{name} {help}.\n# TYPE terrace_server_{name} {kind}");
}

fn by_command(
    out: &mut String,
    (name, help): (&str, &str),
    scrape: &Scrape,
    count: fn(&CommandFigures) -> u64,
) {
    head(out, name, "counter", help);
    for command in &scrape.commands {
        let label = command.name;
        let _ =
            writeln!(out, "terrace_server_{name}_total{{command=\"{label}\"}} {}", count(command));
    }
}

fn durations(out: &mut String, command: &CommandFigures) {
    let name = format_args!("terrace_server_{}", DURATION.0).to_string();
    let label = command.name;
    let (counts, sum_ns) = buckets(&command.latency);
    for ((bound, _), count) in BOUNDS.iter().zip(counts) {
        let _ = writeln!(out, "{name}_bucket{{command=\"{label}\",le=\"{bound}\"}} {count}");
    }
    let all = command.latency.len();
    let _ = writeln!(out, "{name}_bucket{{command=\"{label}\",le=\"+Inf\"}} {all}");
    let _ = writeln!(out, "{name}_sum{{command=\"{label}\"}} {}", sum_ns / 1e9);
    let _ = writeln!(out, "{name}_count{{command=\"{label}\"}} {all}");
}

/// How many values are at most each of the [`BOUNDS`], and their sum, both as exact as the histogram.
fn buckets(latency: &Histogram<u64>) -> ([u64; BOUNDS.len()], f64) {
    let mut counts = [0; BOUNDS.len()];
    let mut sum_ns = 0.0;
    for value in latency.iter_recorded() {
        let (ns, count) = (value.value_iterated_to(), value.count_since_last_iteration());
        sum_ns += ns as f64 * count as f64;
        for (slot, _) in counts.iter_mut().zip(BOUNDS).filter(|(_, (_, bound))| ns <= *bound) {
            *slot += count;
        }
    }
    (counts, sum_ns)
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Counter => "counter",
            Gauge => "gauge",
        }
    }
}

/// A documented metric: its name as Prometheus stores it, kind, labels, meaning.
type Documented = (String, String, String, String);

/// All metrics, in the order of `/metrics`.
fn documented() -> Vec<Documented> {
    let figures = Histogram::new(2).map(|latency| CommandFigures {
        name: "get",
        calls: 0,
        failed: 0,
        latency,
    });
    let scrape = Scrape { commands: figures.into_iter().collect(), ..Scrape::default() };
    let text = text(&terrace::Metrics::default(), &scrape);
    let mut all: Vec<Documented> = Vec::new();
    let mut help = "";
    let mut current = ("", "");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            current = rest.split_once(' ').unwrap_or((rest, ""));
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap_or(line);
            let name = if current.1 == "histogram" { current.0 } else { name };
            if all.last().is_some_and(|(last, ..)| last == name) {
                continue;
            }
            all.push((name.into(), current.1.into(), labels(line), help.into()));
        }
    }
    all
}

/// The labels of a sample, without those of a histogram's buckets.
fn labels(line: &str) -> String {
    let inside = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let pairs = inside.map_or("", |(inside, _)| inside).split(',');
    let names = pairs.filter_map(|pair| pair.split_once('=')).map(|(name, _)| name);
    names.filter(|name| *name != "le").collect::<Vec<_>>().join(", ")
}

/// What `docs/metrics.md` says.
pub fn document() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         What `GET /metrics` of `terrace serve` gives, in the text format of OpenMetrics. Made of the\n\
         tables that the server itself uses; a test keeps it so (`UPDATE=1` rewrites it). A dashboard\n\
         for Grafana is in [grafana/terrace.json](grafana/terrace.json).\n\n\
         Counters start at 0 when the store is opened or the server starts. Rates are for the reader\n\
         of the metrics to make: `rate(terrace_server_commands_total[1m])`. A histogram `x` comes as\n\
         `x_bucket`, `x_sum` and `x_count`.\n",
    );
    for (title, is_of_server) in [("The server", true), ("The engine", false)] {
        let _ =
            write!(out, "\n## {title}\n\n| name | kind | labels | meaning |\n|---|---|---|---|\n");
        for (name, kind, labels, help) in documented() {
            if name.starts_with("terrace_server_") == is_of_server {
                let _ = writeln!(out, "| `{name}` | {kind} | {labels} | {help} |");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::path::PathBuf;

    fn docs(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
    }

    #[test]
    fn the_document_lists_what_is_there() {
        let path = docs("metrics.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, document()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert_eq!(written, document(), "run the test with UPDATE=1");
        assert!(written.contains("| `terrace_server_commands_total` | counter | command |"));
        assert!(written.contains("| `terrace_gets_total` | counter |"));
    }

    #[test]
    fn buckets_are_cumulative_and_hold_everything() {
        let mut latency = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 2).unwrap();
        for ns in [900, 4_000, 4_100, 80_000, 3_000_000_000] {
            latency.record(ns).unwrap();
        }
        let command = CommandFigures { name: "get", calls: 7, failed: 1, latency };
        let scrape = Scrape { commands: vec![command], ..Scrape::default() };
        let text = text(&terrace::Metrics::default(), &scrape);
        for line in [
            "terrace_server_commands_total{command=\"get\"} 7",
            "terrace_server_commands_failed_total{command=\"get\"} 1",
            "terrace_server_command_duration_seconds_bucket{command=\"get\",le=\"1e-06\"} 1",
            "terrace_server_command_duration_seconds_bucket{command=\"get\",le=\"5e-06\"} 3",
            "terrace_server_command_duration_seconds_bucket{command=\"get\",le=\"0.0001\"} 4",
            "terrace_server_command_duration_seconds_bucket{command=\"get\",le=\"1.0\"} 4",
            "terrace_server_command_duration_seconds_bucket{command=\"get\",le=\"+Inf\"} 5",
            "terrace_server_command_duration_seconds_count{command=\"get\"} 5",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line} is not in {text}");
        }
        let sum = text.lines().find_map(|line| {
            line.strip_prefix("terrace_server_command_duration_seconds_sum{command=\"get\"} ")
        });
        let sum: f64 = sum.unwrap().parse().unwrap();
        assert!((2.97..3.03).contains(&sum), "{sum}");
    }

    /// The rules of the format that a reader refuses to do without.
    #[test]
    fn the_text_is_well_formed() {
        let text = text(&terrace::Metrics::default(), &Scrape::default());
        assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1, "{text}");
        assert!(!text.contains("\n\n"));
        let mut described = HashSet::new();
        let mut family = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                family = rest.split(' ').next().unwrap().to_string();
                assert!(described.insert(family.clone()), "{family} twice");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(name.starts_with(&family), "{line} under {family}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(described.len() > 100, "{}", described.len());
    }

    /// The expressions of the dashboard of Grafana.
    fn expressions() -> Vec<String> {
        let text = std::fs::read_to_string(docs("grafana/terrace.json")).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut expressions = Vec::new();
        gather(&dashboard, &mut expressions);
        assert!(expressions.len() > 30, "{}", expressions.len());
        expressions
    }

    /// A memtable also answers that a key was deleted: then a read is none of those that found theirs.
    #[test]
    fn the_dashboard_of_grafana_takes_no_reads_of_memtables_from_those_that_found_a_key() {
        for expression in expressions() {
            let (found, rest) = expression.split_once(" - ").unwrap_or((expression.as_str(), ""));
            let is_more =
                rest.contains("gets_in_memtable_total") && !found.contains("terrace_gets_total");
            assert!(!is_more, "{expression} may be below 0");
        }
    }

    #[test]
    fn the_dashboard_of_grafana_names_only_metrics_that_exist() {
        let mut known: HashSet<String> = HashSet::new();
        for (name, kind, ..) in documented() {
            for suffix in ["_bucket", "_sum", "_count"].iter().filter(|_| kind == "histogram") {
                known.insert(format!("{name}{suffix}"));
            }
            known.insert(name);
        }
        for expression in expressions() {
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let named: Vec<_> = words.filter(|word| word.starts_with("terrace_")).collect();
            assert!(!named.is_empty(), "{expression}");
            for name in named {
                assert!(known.contains(name), "{name} of {expression}");
            }
        }
    }

    fn gather(value: &serde_json::Value, into: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    match (name.as_str(), value) {
                        ("expr", serde_json::Value::String(text)) => into.push(text.clone()),
                        _ => gather(value, into),
                    }
                }
            }
            serde_json::Value::Array(values) => values.iter().for_each(|v| gather(v, into)),
            _ => {}
        }
    }
}
