//! Clients that send random commands to the nodes of a cluster and note what became of each, and the check of these
//! histories by porcupine (`tests/porcupine`). Used by tests of the binary, too.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_base::{Rng, SplitMix64};
use terrace_resp::Reply;
use terrace_resp::test_client::{Client, HANG_GUARD, text, until};

/// How long a client waits after an error, or where there is no answer: at first, and at most.
const AFTER_ERROR: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Lets somebody wait who is not served, longer each time in a row: a shard without an owner answers at once, and a
/// history of thousands of errors can not be checked.
pub struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(AFTER_ERROR.0)
    }
}

impl Backoff {
    /// How long it is this time.
    fn next(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(AFTER_ERROR.1);
        wait
    }

    pub fn wait(&mut self) {
        std::thread::sleep(self.next());
    }
}

#[test]
fn who_is_not_served_waits_longer_and_longer_up_to_a_bound() {
    let mut backoff = Backoff::default();
    let waits: Vec<u128> = (0..7).map(|_| backoff.next().as_millis()).collect();
    assert_eq!(waits, [5, 10, 20, 40, 80, 100, 100]);
}

/// How much each client does.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How many times some commands are sent together, without those that are not answered, or with an error; else
    /// until the clients are stopped.
    pub rounds: Option<usize>,
    /// Between two of them.
    pub pause: Duration,
    /// Whether keys are deleted. The checker is slow with deletions of unknown outcome: no value shows them.
    pub deletes: bool,
}

/// One command on one key, or the part of a command on several.
struct Step {
    kind: &'static str,
    key: String,
    value: String,
}

/// What became of a step. Times are nanoseconds since the clients began.
#[derive(Debug, Clone)]
pub struct Line {
    pub key: String,
    client: usize,
    kind: &'static str,
    value: String,
    call: u64,
    end: u64,
    /// `None`: it may have happened, or not.
    reply: Option<String>,
}

struct Shared {
    addresses: Mutex<Vec<SocketAddr>>,
    start: Instant,
    next_value: AtomicU64,
    working: AtomicUsize,
    stop: AtomicBool,
    /// Rounds that were answered well.
    served: AtomicUsize,
    keys: Vec<String>,
    pace: Pace,
}

struct Recorder {
    shared: Arc<Shared>,
    number: usize,
    random: SplitMix64,
    client: Option<Client>,
    first: Option<usize>,
    lines: Vec<Line>,
}

impl Recorder {
    fn step(&mut self, kind: &'static str, key: &str) -> Step {
        let number = self.shared.next_value.fetch_add(1, Ordering::Relaxed);
        let value = match kind {
            "set" => format!("v{number}."),
            "append" => format!("a{number}."),
            _ => String::new(),
        };
        Step { kind, key: key.into(), value }
    }

    /// A command with the steps that it is made of.
    fn command(&mut self) -> (String, Vec<Step>) {
        let count = self.shared.keys.len() as u64;
        let first = self.random.below(count) as usize;
        let second = (first + 1 + self.random.below(count - 1) as usize) % count as usize;
        let keys = self.shared.keys.clone();
        let (a, b) = (&keys[first], &keys[second]);
        match self.random.below(if self.shared.pace.deletes { 11 } else { 9 }) {
            0..3 => (format!("GET {a}"), vec![self.step("get", a)]),
            3..5 => {
                let set = self.step("set", a);
                (format!("SET {a} {}", set.value), vec![set])
            }
            5 | 6 => {
                let append = self.step("append", a);
                (format!("APPEND {a} {}", append.value), vec![append])
            }
            7 => {
                let (one, other) = (self.step("set", a), self.step("set", b));
                (format!("MSET {a} {} {b} {}", one.value, other.value), vec![one, other])
            }
            8 => (format!("MGET {a} {b}"), vec![self.step("get", a), self.step("get", b)]),
            9 => (format!("GETDEL {a}"), vec![self.step("getdel", a)]),
            _ => (format!("DEL {a}"), vec![self.step("del", a)]),
        }
    }

    fn now(&self) -> u64 {
        self.shared.start.elapsed().as_nanos() as u64
    }

    fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::SeqCst)
    }

    /// To some node that listens; first to the one of its number.
    fn connect(&mut self) -> Client {
        let (start, mut backoff) = (Instant::now(), Backoff::default());
        loop {
            let address = {
                let addresses = self.shared.addresses.lock().unwrap();
                let any = self.random.below(addresses.len() as u64) as usize;
                addresses[self.first.take().unwrap_or(any) % addresses.len()]
            };
            if let Ok(stream) = TcpStream::connect(address) {
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
                return Client::over(stream);
            }
            assert!(start.elapsed() < HANG_GUARD, "no node listens");
            backoff.wait();
        }
    }

    /// Whether all commands were answered, and well.
    fn round(&mut self) -> bool {
        // A key once: the checker takes what was sent together for concurrent, and is slow with many of those.
        let mut commands: Vec<(String, Vec<Step>)> = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let (words, steps) = self.command();
            let mut used = commands.iter().flat_map(|(_, steps)| steps);
            if !used.any(|used| steps.iter().any(|step| step.key == used.key)) {
                commands.push((words, steps));
            }
        }
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.connect(),
        };
        let call = self.now();
        let (mut is_open, mut is_served) = (true, true);
        for (words, _) in &commands {
            is_open &= client.try_send(&words.split(' ').collect::<Vec<_>>());
        }
        for (words, steps) in commands {
            let reply = if is_open { client.try_reply() } else { None };
            is_open &= reply.is_some();
            is_served &= !matches!(reply, None | Some(Reply::Error(_)));
            self.note(&words, steps, reply, call);
        }
        // Sometimes to another node.
        self.client = (is_open && self.random.below(20) > 0).then_some(client);
        is_served
    }

    /// All rounds.
    fn run(&mut self) {
        let (mut start, mut done, mut backoff) = (Instant::now(), 0, Backoff::default());
        while !self.is_stopped() && self.shared.pace.rounds.is_none_or(|rounds| done < rounds) {
            match self.round() {
                true => {
                    (start, done, backoff) = (Instant::now(), done + 1, Backoff::default());
                    self.shared.served.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(self.shared.pace.pause);
                }
                false => backoff.wait(),
            }
            assert!(start.elapsed() < HANG_GUARD, "nothing is served after {done} rounds");
        }
        // What is there in the end.
        for key in self.shared.keys.clone() {
            let step = self.step("get", &key);
            let mut client = match self.client.take() {
                Some(client) => client,
                None => self.connect(),
            };
            let call = self.now();
            client.try_send(&["GET", &key]);
            let reply = client.try_reply();
            self.client = reply.is_some().then_some(client);
            self.note(&key, vec![step], reply, call);
        }
    }

    fn note(&mut self, words: &str, steps: Vec<Step>, reply: Option<Reply<'static>>, call: u64) {
        let is_whole = steps.len() == 1;
        let replies: Vec<Option<String>> = match &reply {
            Some(Reply::Error(why)) => {
                let why = String::from_utf8_lossy(why);
                let is_known = why.starts_with("CLUSTERDOWN") || why.starts_with("TRYAGAIN");
                assert!(is_known, "{words}: {why}");
                if is_whole && !why.contains("may have happened") {
                    return;
                }
                steps.iter().map(|_| None).collect()
            }
            Some(Reply::Array(all)) => all.iter().map(|one| Some(shown(one))).collect(),
            Some(one) => steps.iter().map(|_| Some(shown(one))).collect(),
            None => steps.iter().map(|_| None).collect(),
        };
        assert_eq!(replies.len(), steps.len(), "{words}: {reply:?}");
        for (step, reply) in steps.into_iter().zip(replies) {
            if step.kind == "get" && reply.is_none() {
                continue;
            }
            let (client, end) = (self.number, self.now());
            let Step { kind, key, value } = step;
            self.lines.push(Line { key, client, kind, value, call, end, reply });
        }
    }
}

fn shown(reply: &Reply<'_>) -> String {
    match reply {
        Reply::Null => String::new(),
        Reply::Integer(number) => number.to_string(),
        other => text(other),
    }
}

/// The clients, each a thread.
pub struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Vec<Line>>>,
}

impl Clients {
    /// They begin.
    pub fn start(
        addresses: Vec<SocketAddr>,
        keys: Vec<String>,
        count: usize,
        pace: Pace,
        seed: u64,
    ) -> Self {
        let shared = Arc::new(Shared {
            addresses: Mutex::new(addresses),
            start: Instant::now(),
            next_value: AtomicU64::new(0),
            working: AtomicUsize::new(count),
            stop: AtomicBool::new(false),
            served: AtomicUsize::new(0),
            keys,
            pace,
        });
        let client = |number: usize| {
            let shared = shared.clone();
            std::thread::spawn(move || {
                let random = SplitMix64::new(seed * 100 + number as u64);
                let (client, lines) = (None, Vec::new());
                let (shared_by, first) = (shared.clone(), Some(number));
                let mut one = Recorder { shared: shared_by, number, random, client, first, lines };
                // Counted down also by one that panics.
                struct Ended(Arc<Shared>);
                impl Drop for Ended {
                    fn drop(&mut self) {
                        self.0.working.fetch_sub(1, Ordering::SeqCst);
                    }
                }
                let _ended = Ended(shared);
                one.run();
                one.lines
            })
        };
        let threads = (0..count).map(client).collect();
        Self { shared, threads }
    }

    /// Whether any goes on.
    pub fn are_working(&self) -> bool {
        self.shared.working.load(Ordering::SeqCst) > 0
    }

    pub fn keys(&self) -> &[String] {
        &self.shared.keys
    }

    /// A node listens somewhere else now.
    pub fn set_address(&self, at: usize, address: SocketAddr) {
        self.shared.addresses.lock().unwrap()[at] = address;
    }

    /// Waits until this many more rounds were answered well.
    pub fn let_pass(&self, rounds: usize) {
        let target = self.shared.served.load(Ordering::SeqCst) + rounds;
        until("nothing is served", || self.shared.served.load(Ordering::SeqCst) >= target);
    }

    /// Nanoseconds since they began.
    pub fn now(&self) -> u64 {
        self.shared.start.elapsed().as_nanos() as u64
    }

    /// Waits for their end, or ends them if they know none. Gives all that they noted.
    pub fn end(self) -> Vec<Line> {
        if self.shared.pace.rounds.is_none() {
            self.shared.stop.store(true, Ordering::SeqCst);
        }
        self.threads.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

/// The longest time within which no command on these keys ended well, from `start` on.
pub fn longest_gap(lines: &[Line], start: u64, is_meant: impl Fn(&str) -> bool) -> Duration {
    let meant = lines.iter().filter(|line| line.reply.is_some() && is_meant(&line.key));
    let mut ends: Vec<u64> = meant.map(|line| line.end).filter(|end| *end >= start).collect();
    ends.sort_unstable();
    let first = ends.first().map_or(0, |first| first - start);
    let gaps = ends.windows(2).map(|pair| pair[1] - pair[0]);
    Duration::from_nanos(gaps.fold(first, u64::max))
}

/// Operations and how many of them are of unknown outcome.
pub fn count(lines: &[Line]) -> (usize, usize) {
    (lines.len(), lines.iter().filter(|line| line.reply.is_none()).count())
}

/// Fails unless the history of each key is that of one copy of it.
pub fn check(lines: &[Line]) {
    let json = |line: &Line| {
        let object = serde_json::json!({
            "key": line.key, "client": line.client, "kind": line.kind, "value": line.value,
            "call": line.call, "return": line.end, "known": line.reply.is_some(),
            "reply": line.reply.clone().unwrap_or_default(),
        });
        format!("{object}\n")
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/porcupine");
    let mut go = Command::new("go");
    go.args(["run", "."]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut go = go.spawn().expect("start go: cargo xtask test installs it");
    let text: String = lines.iter().map(json).collect();
    go.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = go.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{told}");
    assert!(output.status.success() && told.contains("all histories are linearizable"), "{told}");
}
