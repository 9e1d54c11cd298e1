//! HTTP as clients meet it: real connections over loopback, a made-up server, a real store.

mod api;
mod browse;
mod command;
mod history;
mod typescript;
mod wire;

use super::*;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace::{Db, WriteBatch};
use terrace_keyspace::{KeyLayout, Keyspace, Placement};
use terrace_resp::OwnedCommand;

/// A guard against hanging, not a bound.
const HANG: Duration = Duration::from_secs(120);

/// A server with figures that the test sets.
struct Made {
    db: Db,
    /// Over the same store.
    space: Arc<Keyspace>,
    placement: Placement,
    needs_login: AtomicBool,
    /// Also from its own machine.
    is_protected: AtomicBool,
    /// One of the users is off.
    is_alice_off: AtomicBool,
    is_stopping: AtomicBool,
    cluster: Option<Arc<dyn ClusterAdmin>>,
    history_file: Option<PathBuf>,
    /// How often the engine was asked for.
    asked: AtomicU64,
    _dir: tempfile::TempDir,
}

/// This many that took 25 us, and ten that took longer.
fn histogram(count: u64) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 2).unwrap();
    histogram.record_n(25_000, count).unwrap();
    histogram.record_n(4_000_000, 10).unwrap();
    histogram
}

impl ServerStatus for Made {
    fn databases(&self) -> usize {
        16
    }

    fn layout(&self) -> KeyLayout {
        KeyLayout::of(self.placement)
    }

    fn space(&self) -> &Arc<Keyspace> {
        &self.space
    }

    fn engine(&self) -> &Db {
        self.asked.fetch_add(1, Ordering::Relaxed);
        &self.db
    }

    fn figures(&self) -> Figures {
        let m = self.db.metrics();
        Figures {
            started_ms: 1_700_000_000_000,
            uptime_s: 12,
            connected_clients: 3,
            commands: m.gets + m.ops_written,
            reads: m.gets,
            writes: m.ops_written,
            hits: m.gets_found,
            misses: m.gets - m.gets_found,
            ..Figures::default()
        }
    }

    fn timings(&self) -> Timings {
        let m = self.db.metrics();
        Timings { reads: histogram(m.gets), writes: histogram(m.ops_written) }
    }

    fn commands(&self) -> Vec<CommandFigures> {
        let command = |name, calls| {
            let latency = histogram(calls);
            CommandFigures { name, calls, failed: 1, latency }
        };
        vec![command("set", 50), command("get", 100)]
    }

    fn key_count_estimate(&self) -> u64 {
        4711
    }

    fn slow_log(&self, count: usize) -> SlowLog {
        let args = vec![b"GET".to_vec(), b"a\x00b".to_vec()];
        let entry = SlowCommand { id: 7, duration_us: 12_000, args, ..SlowCommand::default() };
        SlowLog { threshold_us: Some(10_000), entries: vec![entry; count.min(200)] }
    }

    fn hot_keys(&self, count: usize) -> HotKeys {
        let key = b"hot".to_vec();
        let key = HotKey { db: 0, key, key_bytes: 3, per_s: 99.5, error_per_s: 0.5 };
        HotKeys {
            sampled_one_in: 16,
            window_s: 60.0,
            read: vec![key; count.min(40)],
            write: Vec::new(),
        }
    }

    fn config(&self) -> Vec<ConfigEntry> {
        vec![ConfigEntry { name: "maxclients".into(), value: "10000".into(), is_live: true }]
    }

    fn history_file(&self) -> Option<PathBuf> {
        self.history_file.clone()
    }

    fn host_names(&self) -> Vec<String> {
        vec!["store.example".into()]
    }

    fn needs_login(&self) -> bool {
        self.needs_login.load(Ordering::Relaxed)
    }

    fn is_protected_from(&self, peer: IpAddr) -> bool {
        self.is_protected.load(Ordering::Relaxed) && peer.is_loopback()
    }

    fn authenticate(&self, user: &str, password: &[u8]) -> Option<Rights> {
        match (user, password) {
            ("alice", _) if self.is_alice_off.load(Ordering::Relaxed) => None,
            ("alice", b"a:b") => Some(Rights { read: true, admin: false }),
            ("root", b"secret") => Some(Rights::ALL),
            ("writer", b"w") => Some(Rights::default()),
            _ => None,
        }
    }

    fn read_command(
        &self,
        login: Option<(&str, &[u8])>,
        _peer: Option<IpAddr>,
        db: u8,
        command: &OwnedCommand,
    ) -> Result<Vec<u8>, Unread> {
        let words: Vec<_> = command.as_command().iter().map(<[u8]>::to_vec).collect();
        let user = login.map_or("default", |(user, _)| user);
        let bulk =
            |bytes: &[u8]| [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        match &words[0][..] {
            b"WHO" => Ok(bulk(format!("{user} in {db}").as_bytes())),
            b"ECHO" => Ok([&b"%1\r\n"[..], &bulk(&words[1]), b"*2\r\n:7\r\n_\r\n"].concat()),
            b"MANY" => Ok([&b"*3000\r\n"[..], &b":1\r\n".repeat(3000)].concat()),
            b"BUSY" => Err(Unread::Busy),
            _ => Err(Unread::Refused("it does not only read".into())),
        }
    }

    fn cluster_admin(&self) -> Option<Arc<dyn ClusterAdmin>> {
        self.cluster.clone()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }
}

impl Made {
    /// Over a new store, without login, cluster and history.
    fn over(store: terrace::Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let placement = Placement::Range;
        let space =
            Keyspace::open_without_active_expire(dir.path(), store, Some(placement)).unwrap();
        Self {
            db: space.db().clone(),
            space,
            placement,
            needs_login: AtomicBool::new(false),
            is_protected: AtomicBool::new(false),
            is_alice_off: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            cluster: None,
            history_file: None,
            asked: AtomicU64::new(0),
            _dir: dir,
        }
    }
}

const ALICE: &str = "Authorization: Basic YWxpY2U6YTpi\r\n";
const ROOT: &str = "Authorization: Basic cm9vdDpzZWNyZXQ=\r\n";

/// A served store.
struct Served {
    made: Arc<Made>,
    handle: Handle,
}

fn small() -> terrace::Options {
    let mut options = terrace::Options { memory_budget: 8 << 20, ..terrace::Options::default() };
    options.advanced.memtable_bytes = 64 << 10;
    options.advanced.target_file_bytes = 64 << 10;
    options
}

impl Served {
    fn start(needs_login: bool, options: HttpOptions) -> Self {
        Self::over(small(), needs_login, options)
    }

    fn over(store: terrace::Options, needs_login: bool, options: HttpOptions) -> Self {
        Self::of(Made { needs_login: needs_login.into(), ..Made::over(store) }, options)
    }

    /// In a cluster that this fake knows.
    fn in_cluster(admin: Arc<dyn ClusterAdmin>) -> Self {
        Self::of(Made { cluster: Some(admin), ..Made::over(small()) }, HttpOptions::default())
    }

    fn of(made: Made, options: HttpOptions) -> Self {
        let made = Arc::new(made);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let handle = start(vec![listener], made.clone(), options).unwrap();
        Self { made, handle }
    }

    fn open() -> Self {
        Self::start(false, HttpOptions::default())
    }

    /// Writes `count` strings of database 0.
    fn fill(&self, count: u32) {
        for n in 0..count {
            let key = format!("\0key{n:06}");
            self.made.db.put(key, format!("value-{n}-").repeat(5)).unwrap();
        }
        self.made.db.flush().unwrap();
        self.made.db.wait_idle().unwrap();
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.handle.addresses()[0]).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        stream
    }

    /// The answer to `request`, which is sent as it is.
    fn send(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        let _ = stream.write_all(request);
        Answer::read(&mut BufReader::new(stream))
    }

    fn get_with(&self, path: &str, headers: &str) -> Answer {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        self.send(format!("{head}{headers}\r\n").as_bytes())
    }

    fn get(&self, path: &str) -> Answer {
        self.get_with(path, "")
    }

    /// The JSON at `path`, which must be there.
    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        serde_json::from_str(&answer.body).unwrap()
    }
}

/// What came back; status 0: nothing.
#[derive(Debug, Default)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn read_head(from: &mut impl std::io::BufRead) -> Self {
        let mut answer = Self::default();
        let mut line = String::new();
        while from.read_line(&mut line).unwrap_or(0) > 0 && line.trim() != "" {
            if answer.status == 0 {
                answer.status = line.split(' ').nth(1).unwrap().parse().unwrap();
            } else if let Some((name, value)) = line.split_once(':') {
                answer.headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
            }
            line.clear();
        }
        answer
    }

    /// Reads until the connection ends.
    fn read(from: &mut impl std::io::BufRead) -> Self {
        let mut answer = Self::read_head(from);
        let mut body = Vec::new();
        let _ = from.read_to_end(&mut body);
        answer.body = String::from_utf8(body).unwrap();
        answer
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}
