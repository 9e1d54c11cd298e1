//! etcd servers of a test's own: on free ports of the loopback interface, in a directory that goes
//! with them. Used by the tests of `terrace-node` too.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use terrace_resp::test_client::free_port;

/// Waiting for longer than this is a hang.
const HANG: Duration = Duration::from_secs(600);

/// An etcd cluster.
pub struct EtcdCluster {
    members: Vec<EtcdMember>,
    dir: tempfile::TempDir,
}

struct EtcdMember {
    client_port: u16,
    peer_port: u16,
    process: Option<Child>,
}

impl EtcdCluster {
    /// Starts this many members, and waits until they have a leader.
    pub fn start(count: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let member =
            |_| EtcdMember { client_port: free_port(), peer_port: free_port(), process: None };
        let mut cluster = Self { members: (0..count).map(member).collect(), dir };
        (0..count).for_each(|at| cluster.start_member(at));
        cluster.wait_until_healthy();
        cluster
    }

    /// Starts a member that does not run, on its data if it has any.
    pub fn start_member(&mut self, at: usize) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let peers = self.members.iter().enumerate();
        let peers = peers.map(|(at, member)| format!("m{at}={}", url(member.peer_port)));
        let peers = peers.collect::<Vec<_>>().join(",");
        let member = &self.members[at];
        assert!(member.process.is_none(), "member {at} runs");
        let data = self.data_dir(at);
        let log = std::fs::File::create(data.with_extension("log")).unwrap();
        let (client, peer) = (url(member.client_port), url(member.peer_port));
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{at}"), "--data-dir"]).arg(&data);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &peers, "--logger", "zap"]);
        // No test cuts the power, and a device under load makes etcd miss its own time limits.
        command.arg("--unsafe-no-fsync");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().expect("start etcd: cargo xtask test installs etcd-server");
        self.members[at].process = Some(process);
    }

    /// `kill -9`.
    pub fn kill_member(&mut self, at: usize) {
        let mut process = self.members[at].process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// A member's process.
    pub fn process_id(&self, at: usize) -> u32 {
        self.members[at].process.as_ref().unwrap().id()
    }

    /// Of all members.
    pub fn urls(&self) -> Vec<String> {
        (0..self.members.len()).map(|at| self.url(at)).collect()
    }

    /// Of one member.
    pub fn url(&self, at: usize) -> String {
        format!("http://127.0.0.1:{}", self.members[at].client_port)
    }

    /// Which member leads.
    pub fn leader(&self) -> usize {
        let is_leader = |at: &usize| {
            let status = self.etcdctl(*at, &["endpoint", "status", "--write-out", "fields"]);
            let of = |name: &str| {
                let line = status.as_deref().unwrap_or("").lines();
                line.filter_map(|line| line.split_once(" : ")).find(|(key, _)| *key == name)
            };
            let member = of("\"MemberID\"").map(|(_, value)| value.to_string());
            member.is_some() && of("\"Leader\"").map(|(_, value)| value.to_string()) == member
        };
        let running = (0..self.members.len()).filter(|at| self.members[*at].process.is_some());
        let running: Vec<_> = running.collect();
        wait_for("a leader", || running.iter().copied().find(is_leader))
    }

    /// Drops all changes up to `revision`.
    pub fn compact(&self, revision: u64) {
        self.etcdctl(0, &["compact", &revision.to_string()]).expect("compact");
    }

    /// Waits until every member that runs answers with a leader.
    pub fn wait_until_healthy(&self) {
        for at in (0..self.members.len()).filter(|at| self.members[*at].process.is_some()) {
            wait_for("a healthy etcd", || self.etcdctl(at, &["endpoint", "health"]));
        }
    }

    /// Runs etcdctl at one member: what it printed, or nothing if it failed.
    fn etcdctl(&self, at: usize, words: &[&str]) -> Option<String> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url(at)]).args(words);
        let output = command.stdin(Stdio::null()).output();
        let output = output.expect("start etcdctl: cargo xtask test installs etcd-client");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn data_dir(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("m{at}"))
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn signal(process: u32, signal: &str) {
    let kill = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(kill.unwrap().success());
}

/// Makes a process stand still, and waits until each of its threads does: the signal alone says only that they will.
pub fn stop_process(process: u32) {
    signal(process, "-STOP");
    wait_for("a process that stands still", || stands_still(process).then_some(()));
}

/// Lets it go on.
pub fn continue_process(process: u32) {
    signal(process, "-CONT");
}

/// Whether each thread of a process stands still, as the kernel says.
pub fn stands_still(process: u32) -> bool {
    std::fs::read_dir(format!("/proc/{process}/task")).unwrap().all(|task| {
        // A thread may have ended meanwhile.
        let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        // The state comes after the name, which is in parentheses.
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
    })
}

/// Looks until there is something.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < HANG, "waited for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
