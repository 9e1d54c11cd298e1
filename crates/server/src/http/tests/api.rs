//! What the endpoints answer.

use super::typescript::Types;
use super::*;
use crate::cluster::{
    AdminAnswer, AdminReply, AdminRequest, ClusterStatus, NodeReport, NodeStatus, ShardStatus,
};
use crate::http::store_view::StoreView;
use std::thread;
use std::time::Instant;
use terrace::{ModelSegment, ModelShape};
use terrace_resp::test_client::until;

pub(super) fn types() -> Types {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dashboard/src/api.ts");
    Types::parse(&std::fs::read_to_string(path).unwrap())
}

pub(super) fn check(types: &Types, name: &str, value: &Value) {
    let complaints = types.complaints(name, value);
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// Reads and writes until it is dropped.
struct Load(Arc<AtomicBool>, Option<thread::JoinHandle<()>>);

impl Load {
    fn on(served: &Served) -> Self {
        let (made, stop) = (served.made.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let work = thread::spawn(move || {
            for n in 0u32.. {
                let mut batch = WriteBatch::new();
                batch.put(format!("\0key{:06}", n % 20_000), [b'x'; 100]);
                made.db.write(batch).unwrap();
                for ahead in [7, 7919] {
                    made.db.get(format!("\0key{:06}", (n * ahead) % 25_000)).unwrap();
                }
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        Self(stop, Some(work))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().unwrap().join().unwrap();
    }
}

#[test]
fn every_endpoint_answers_as_api_ts_says_while_a_load_runs() {
    let (served, types) = (Served::open(), types());
    served.fill(20_000);
    let load = Load::on(&served);
    let rates = ["ops_per_s", "reads_per_s", "writes_per_s"];
    let has_rates = |summary: &Value| rates.iter().all(|rate| summary[rate].as_f64() > Some(0.0));
    until("rates are measured", || has_rates(&served.json("/api/v1/summary")));
    let has_history = |it: &Value| it["t_ms"].as_array().is_some_and(|times| times.len() >= 2);
    until("there is a history", || has_history(&served.json("/api/v1/history")));
    for (path, kind) in [
        ("/api/v1", "Index"),
        ("/api/v1/summary", "Summary"),
        ("/api/v1/shape", "Shape"),
        ("/api/v1/jobs", "Job[]"),
        ("/api/v1/memory", "Memory"),
        ("/api/v1/live", "Live"),
        ("/api/v1/history", "History"),
        ("/api/v1/history?seconds=1", "History"),
        ("/api/v1/history?seconds=86400", "History"),
        ("/api/v1/keys?prefix=key0000", "KeyList"),
        ("/api/v1/value?key=key000001", "KeyValue"),
        ("/api/v1/filters?family=default", "Filters"),
        ("/api/v1/explain?key=key000001", "Explanation"),
        ("/api/v1/explain?db=5&hex=00ff", "Explanation"),
        ("/api/v1/hotkeys", "HotKeys"),
        ("/api/v1/slowlog", "SlowLog"),
        ("/api/v1/latency", "CommandLatencies"),
        ("/api/v1/config", "Config"),
        ("/api/v1/cluster", "Cluster | null"),
    ] {
        check(&types, kind, &served.json(path));
    }
    let summary = served.json("/api/v1/summary");
    assert_eq!(summary["connected_clients"], 3);
    assert_eq!(summary["dbsize_estimate"], 4711);
    assert!(summary["disk_bytes"].as_u64().unwrap() > 100_000, "{summary}");
    assert!(summary["latency_us"]["read"]["p50"].as_f64().unwrap() > 20.0, "{summary}");
    drop(load);
    served.made.db.wait_idle().unwrap();
    thread::sleep(store_view::FRESH);
    let shape = served.json("/api/v1/shape");
    let metrics = served.made.db.metrics();
    let families = shape["families"].as_array().unwrap();
    for (number, row) in metrics.levels.iter().enumerate() {
        let sum = |of: &str| {
            let levels = families.iter().filter_map(|family| family["levels"].get(number));
            levels.map(|level| level[of].as_u64().unwrap()).sum::<u64>()
        };
        let (files, bytes) = (sum("file_count"), sum("size_bytes"));
        assert_eq!((files, bytes), (row.file_count, row.size_bytes), "L{number}");
    }
    assert_eq!(served.json("/api/v1/cluster"), Value::Null, "without a cluster");
    let hot = served.json("/api/v1/hotkeys");
    assert_eq!(hot["read"].as_array().unwrap().len(), 32);
    assert_eq!(hot["read"][0]["key"]["hex"], "686f74");
    let slow = served.json("/api/v1/slowlog");
    // Of 200, and no more were asked for.
    assert_eq!(slow["entries"].as_array().unwrap().len(), 128);
    assert_eq!(slow["entries"][0]["args"][1], "a\\x00b");
    assert_eq!(served.json("/api/v1/latency")["commands"][0]["name"], "get");
}

#[test]
fn the_index_and_the_openapi_document_name_every_route() {
    let served = Served::open();
    let document = served.json("/api/v1/openapi.json");
    let described: Vec<&str> =
        document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let index = served.json("/api/v1");
    let listed = index["endpoints"].as_array().unwrap().iter();
    assert!(listed.map(|endpoint| &endpoint["path"]).eq(described.iter().copied()));
    assert_eq!(served.json("/api/v1/"), index);
    let routes = include_str!("../api.rs").split(".route(\"").skip(1);
    let routes = routes.map(|rest| rest.split('"').next().unwrap());
    let served = [crate::http::shared::CONFIG, "/api/v1/openapi.json"].into_iter().chain(routes);
    let mut served: Vec<&str> = served.filter(|path| !path.ends_with('/')).collect();
    served.sort_unstable();
    assert_eq!(described, served);
}

/// What a damaged block, a device that fails and a panic are answered with.
#[test]
fn the_document_says_that_every_endpoint_of_the_store_can_fail() {
    let document = Served::open().json("/api/v1/openapi.json");
    for (path, about) in document["paths"].as_object().unwrap() {
        let responses = about["get"]["responses"].as_object().unwrap();
        assert_eq!(responses.contains_key("500"), !path.ends_with('z'), "{path}");
    }
}

#[test]
fn answers_have_the_types_that_the_document_says() {
    let served = Served::open();
    let document = served.json("/api/v1/openapi.json");
    for (path, about) in document["paths"].as_object().unwrap() {
        // A stream does not end.
        if path == "/api/v1/stream" || about["get"]["parameters"].is_array() {
            continue;
        }
        let answer = served.get(path);
        let kind = answer.header("content-type").unwrap().split(';').next().unwrap();
        let said = about["get"]["responses"]["200"]["content"].as_object().unwrap();
        assert!(answer.status == 200 && said.contains_key(kind), "{path}: {kind}");
    }
}

struct Told(AdminAnswer);

impl ClusterAdmin for Told {
    fn begin(&self, request: AdminRequest, done: Box<dyn FnOnce(AdminAnswer) + Send>) {
        assert_eq!(request, AdminRequest::Status);
        // From another thread, as the answer of other nodes comes.
        let answer = self.0.clone();
        thread::spawn(move || done(answer));
    }

    fn figures(&self) -> ClusterFigures {
        ClusterFigures::default()
    }
}

#[test]
fn the_cluster_is_shown_as_its_nodes_tell() {
    let told = NodeStatus { report: Some(NodeReport::default()), ..NodeStatus::default() };
    let away = NodeStatus { error: Some("away".into()), ..NodeStatus::default() };
    let shard = ShardStatus { exceptions: Some(3), ..ShardStatus::default() };
    let status = ClusterStatus {
        nodes: vec![told, away],
        shards: vec![shard, ShardStatus::default()],
        ..ClusterStatus::default()
    };
    let answer = Ok(AdminReply::Status(Box::new(status)));
    let served = Served::in_cluster(Arc::new(Told(answer)));
    let shown = served.json("/api/v1/cluster");
    check(&types(), "Cluster", &shown);
    assert_eq!(
        (&shown["shards"][0]["exceptions"], &shown["nodes"][1]["error"]),
        (&3.into(), &"away".into())
    );
    let served = Served::in_cluster(Arc::new(Told(Err("nobody knows".into()))));
    let refused = served.get("/api/v1/cluster");
    assert!(refused.status == 503 && refused.body.contains("nobody knows"), "{refused:?}");
}

#[test]
fn filters_and_models_of_a_file_are_those_of_that_file() {
    let (served, types) = (Served::open(), types());
    served.fill(20_000);
    for n in 0..2000 {
        served.made.db.get(format!("\0key{n:06}")).unwrap();
    }
    let shape = served.json("/api/v1/shape");
    let files = shape["families"][0]["levels"].as_array().unwrap().iter();
    let files: Vec<&Value> = files.flat_map(|level| level["files"].as_array().unwrap()).collect();
    let learned =
        files.iter().find(|file| file["has_model"] == true).expect("some file has learned");
    let number = &learned["number"];
    let model = served.json(&format!("/api/v1/model?family=default&file={number}"));
    check(&types, "Model", &model);
    assert_eq!(model["keys"], learned["entry_count"]);
    let segments = model["segments"].as_array().unwrap();
    let starts: Vec<f64> = segments.iter().map(|s| s["start"].as_f64().unwrap()).collect();
    assert!(starts[0] == 0.0 && starts.is_sorted() && starts.iter().all(|at| *at <= 1.0));
    let one = served.json(&format!("/api/v1/filters?family=default&file={number}"));
    assert_eq!(one["files"].as_array().unwrap().len(), 1);
    let units = |of: usize| {
        let partitions = one["files"][0]["partitions"].as_array().unwrap();
        partitions.iter().map(|partition| partition[of].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(units(0), learned["filter_units"].as_u64().unwrap());
    assert!(units(0) > 0 && units(1) <= units(0));
    for (path, status) in [
        ("/api/v1/model?family=default&file=999999", 404),
        ("/api/v1/model?family=nobody&file=1", 404),
        ("/api/v1/model?family=default&file=x", 400),
        ("/api/v1/model?family=default", 400),
        ("/api/v1/filters?family=nobody", 404),
        ("/api/v1/filters?family=default&file=999999", 404),
        ("/api/v1/filters", 400),
        ("/api/v1/nothing", 404),
        ("/api", 404),
        ("/api/v1/explain", 400),
        ("/api/v1/explain?key=a&hex=61", 400),
        ("/api/v1/explain?hex=abc", 400),
        ("/api/v1/explain?db=128&key=a", 400),
        ("/api/v1/explain?db=-1&key=a", 400),
        // Another key would be explained.
        ("/api/v1/explain?key=%ff", 400),
        ("/api/v1/history?seconds=-1", 400),
    ] {
        let answer = served.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        check(&types, "ApiError", &serde_json::from_str(&answer.body).unwrap());
    }
}

#[test]
fn a_key_is_explained_as_it_is() {
    let served = Served::open();
    let db = &served.made.db;
    served.fill(5000);
    let ask = |key: &str| served.json(&format!("/api/v1/explain?key={key}"));
    let outcomes = |told: &Value| -> Vec<String> {
        let steps = told["steps"].as_array().unwrap().iter();
        steps.map(|step| step["outcome"].as_str().unwrap().to_string()).collect()
    };
    let found = ask("key000042");
    assert_eq!(found["engine_key"], "006b6579303030303432");
    assert_eq!((&found["type"], &found["found"]["value"]["len"]), (&"string".into(), &45.into()));
    assert_eq!(outcomes(&found).last().unwrap(), "found", "{found:#}");
    let absent = ask("key000042x");
    assert_eq!((&absent["type"], &absent["found"]), (&Value::Null, &Value::Null));
    let steps = outcomes(&absent);
    assert!(
        !steps.is_empty() && !steps.iter().any(|s| s == "found" || s == "deleted"),
        "{absent:#}"
    );
    db.delete("\0key000042").unwrap();
    let deleted = ask("key000042");
    assert!(outcomes(&deleted).contains(&"deleted".to_string()), "{deleted:#}");
    assert_eq!(deleted["found"], Value::Null);
    db.put_with_ttl("\0soon", "v", Duration::from_secs(1000)).unwrap();
    assert!(ask("soon")["found"]["expires_at_ms"].as_u64().unwrap() > 1_700_000_000_000);
    // A hash of three fields, as the keyspace stores it: kind, id, count, expiry, first.
    let mut meta = vec![1];
    for word in [9u64, 3, 0, 0] {
        meta.extend_from_slice(&word.to_le_bytes());
    }
    db.column_family("collections").unwrap().put("\0h", &meta).unwrap();
    let hash = ask("h");
    assert_eq!((&hash["type"], &hash["found"]["expires_at_ms"]), (&"hash".into(), &Value::Null));
    assert_eq!(hash["steps"].as_array().unwrap().last().unwrap()["family"], "collections");
    // The same since 1970.
    meta[17] = 1;
    db.column_family("collections").unwrap().put("\0h", &meta).unwrap();
    let expired = ask("h");
    assert_eq!((&expired["type"], &expired["found"]), (&Value::Null, &Value::Null));
    let last = expired["steps"].as_array().unwrap().last().unwrap();
    let said = (&last["answer"], &last["outcome"]);
    assert_eq!(said, (&"absent: it has expired".into(), &"deleted".into()));
}

#[test]
fn keys_in_slots_are_shown_with_their_slots() {
    let made = Made { placement: Placement::Slots, ..Made::over(small()) };
    // Slot 15,495, database 0, the key.
    let explained = explain(&made.db, made.layout(), 0, b"a").unwrap();
    assert_eq!(explained.engine_key, "3c870061");
    let served = Served::of(made, HttpOptions::default());
    assert_eq!(served.json("/api/v1/shape")["slot_bytes"], 2);
    assert_eq!(Served::open().json("/api/v1/shape")["slot_bytes"], 0);
}

#[test]
fn a_shape_becomes_json_once_for_all_who_ask() {
    let view = Arc::new(StoreView::take(&Made::over(small())));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (one, other) = tokio::join!(view.shape_json(), view.shape_json());
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.as_ptr(), other.as_ptr(), "they share the bytes");
        check(&types(), "Shape", &serde_json::from_slice(&one).unwrap());
    });
}

#[test]
fn of_a_model_with_many_segments_some_are_drawn() {
    let of = |count: u64| {
        let segment = |n| ModelSegment {
            first_block: n,
            last_block: n + 1,
            first_key: n * 10,
            last_key: n * 10 + 10,
            slope: 0.1,
        };
        let segments = (0..count).map(segment).collect();
        crate::http::api::drawn(&ModelShape { blocks: count, segments, ..ModelShape::default() })
    };
    for (count, shown) in [(0, 0), (1, 1), (2, 2), (500, 500), (501, 500), (98_765, 500)] {
        let model = of(count);
        let blocks: Vec<u64> = model.segments.iter().map(|segment| segment.first_block).collect();
        assert_eq!((model.segment_count, blocks.len()), (count, shown));
        assert!(blocks.is_sorted_by(|one, next| one < next), "{count}");
        let ends = (count > 0).then(|| (0, count - 1));
        assert_eq!(blocks.first().copied().zip(blocks.last().copied()), ends);
        let gaps = blocks.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.clone().max().unwrap_or(0) <= gaps.min().unwrap_or(0) + 1, "{count}");
    }
}

/// The events of a stream.
struct Events(BufReader<TcpStream>);

impl Events {
    fn of(served: &Served) -> (Answer, Self) {
        Self::with(served, "")
    }

    fn with(served: &Served, headers: &str) -> (Answer, Self) {
        let mut stream = served.connect();
        let head = format!("GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut stream = BufReader::new(stream);
        (Answer::read_head(&mut stream), Self(stream))
    }

    /// The next event; `None` at the end.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        while self.0.read_line(&mut line).ok()? > 0 {
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
            // The last chunk.
            if line.trim_end() == "0" {
                return None;
            }
            line.clear();
        }
        None
    }
}

#[test]
fn the_stream_tells_every_second_what_happened() {
    let (served, types) = (Served::open(), types());
    let (head, mut events) = Events::of(&served);
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(head.header("x-accel-buffering"), Some("no"), "for proxies");
    let first = events.next().unwrap();
    check(&types, "Live", &first);
    served.fill(3000);
    // One event a second, also while the store is filled, which may take long.
    let flush = std::iter::from_fn(|| events.next()).take(600).find_map(|live| {
        check(&types, "Live", &live);
        let finished = live["finished"].as_array().unwrap().clone();
        let flush = finished.into_iter().find(|job| job["kind"] == "flush")?;
        Some((flush, live))
    });
    let (flush, live) = flush.expect("the flush is listed");
    assert_eq!((&flush["family"], &flush["output_level"]), (&"default".into(), &0.into()));
    assert!(live["summary"]["now_ms"].as_u64() > first["summary"]["now_ms"].as_u64());
    assert_ne!(live["shape"]["epoch"], first["shape"]["epoch"]);
    // No job is listed twice.
    let again = events.next().unwrap();
    let ids = again["finished"].as_array().unwrap().iter().map(|job| &job["id"]);
    assert!(!ids.into_iter().any(|id| *id == flush["id"]), "{again}");
    let began = Instant::now();
    served.handle.stop();
    while events.next().is_some() {}
    assert!(began.elapsed() < HANG / 2, "a stop ends streams");
}

#[test]
fn a_stream_ends_when_it_may_not_be_seen_any_more() {
    let alice_goes: fn(&Made) = |made| made.is_alice_off.store(true, Ordering::Relaxed);
    let is_protected: fn(&Made) = |made| made.is_protected.store(true, Ordering::Relaxed);
    let asks_for_logins: fn(&Made) = |made| made.needs_login.store(true, Ordering::Relaxed);
    for (needs_login, headers, change) in [
        (true, ALICE, alice_goes),
        (true, ALICE, is_protected),
        (false, "", is_protected),
        (false, "", asks_for_logins),
    ] {
        let served = Served::start(needs_login, HttpOptions::default());
        let (head, mut events) = Events::with(&served, headers);
        assert_eq!(head.status, 200);
        assert!(events.next().is_some() && events.next().is_some(), "it goes on");
        change(&served.made);
        assert!((0..20).any(|_| events.next().is_none()), "it ends");
    }
    let served = Served::start(true, HttpOptions::default());
    let ((_, mut alice), (_, mut root)) =
        (Events::with(&served, ALICE), Events::with(&served, ROOT));
    alice_goes(&served.made);
    assert!((0..20).any(|_| alice.next().is_none()));
    assert!((0..3).all(|_| root.next().is_some()), "others go on");
}

#[test]
fn so_many_may_listen_and_nothing_is_looked_at_for_nobody() {
    let served = Served::open();
    let listeners: Vec<_> = (0..MAX_LISTENERS).map(|_| Events::of(&served)).collect();
    assert!(listeners.iter().all(|(head, _)| head.status == 200));
    assert_eq!(served.get("/api/v1/stream").status, 503);
    drop(listeners);
    // The next event finds nobody.
    until("there is room again", || Events::of(&served).0.status == 200);
    let nobody = "\nterrace_server_http_listeners 0\n";
    until("nobody listens", || served.get("/metrics").body.contains(nobody));
    let began = Instant::now();
    let asked = served.made.asked.load(Ordering::Relaxed);
    thread::sleep(Duration::from_secs(5));
    let more = served.made.asked.load(Ordering::Relaxed) - asked;
    // A sample may have been late, and the last look under way. With looks there are two for each second.
    assert!(more <= began.elapsed().as_secs() + 3, "one sample a second, no looks: {more}");
}
