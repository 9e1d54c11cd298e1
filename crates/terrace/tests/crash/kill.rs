//! Where a child dies: at the n-th time that a thread passes a named point. Points are the steps
//! that the engine names, operations on files by kind, and operations of the script.
//!
//! A file's kind and not its name decides, so that a point is the same in every store. `torn` is an
//! append of which the kernel got half.

use rustix::process::{Signal, getpid, kill_process};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use terrace::KILL_POINTS;
use terrace::vfs::{PosixVfs, Vfs};
use terrace_base::Result;
use terrace_manifest::names::{self, FileName};
use terrace_vfs::{AppendFile, Call, Interposed};

/// The point at every operation of a script.
pub const OPERATION: &str = "operation";

/// Operations on files at which a process dies, by operation, kind of file, and moment.
const FILE_POINTS: [&str; 35] = [
    "append:log:before",
    "append:log:torn",
    "append:log:after",
    "append:manifest:before",
    "append:manifest:torn",
    "append:manifest:after",
    "append:output:torn",
    "append:output:after",
    "append:current:torn",
    "append:current:after",
    "create:log:after",
    "create:manifest:after",
    "create:output:after",
    "create:current:after",
    "sync:log:before",
    "sync:log:after",
    "sync:manifest:before",
    "sync:manifest:after",
    "sync:output:before",
    "sync:output:after",
    "sync:current:after",
    "rename:current:before",
    "rename:current:after",
    "rename:sst:before",
    "rename:sst:after",
    "rename:vlog:after",
    "rename:checkpoint:before",
    "rename:checkpoint:after",
    "remove:log:after",
    "remove:manifest:after",
    "remove:sst:after",
    "remove:vlog:after",
    "link:sst:after",
    "link:log:after",
    "sync_dir:directory:before",
];

/// Every point there is.
pub fn points() -> impl Iterator<Item = &'static str> {
    KILL_POINTS.into_iter().chain(FILE_POINTS).chain([OPERATION])
}

/// How often each point was passed.
static PASSED: LazyLock<BTreeMap<&'static str, AtomicU64>> =
    LazyLock::new(|| points().map(|name| (name, AtomicU64::new(0))).collect());

struct Sentence {
    point: String,
    count: u64,
    /// Where the process leaves how often it passed each point.
    report: PathBuf,
}

static SENTENCE: OnceLock<Sentence> = OnceLock::new();

/// The process dies the `count`th time that it passes `point`; 0: it does not.
pub fn sentence(point: &str, count: u64, report: &Path) {
    let report = report.to_path_buf();
    let _ = SENTENCE.set(Sentence { point: point.to_string(), count, report });
    assert!(terrace::watch_kill_points(pass), "the engine names no steps in a release build");
}

/// The calling thread passes `point`.
pub fn pass(point: &'static str) {
    let passed = PASSED.get(point).unwrap_or_else(|| panic!("{point} is not listed"));
    let count = passed.fetch_add(1, Ordering::SeqCst) + 1;
    if SENTENCE.get().is_some_and(|s| s.count == count && s.point == point) {
        report();
        let _ = kill_process(getpid(), Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

/// Leaves word of how often each point was passed.
pub fn report() {
    let Some(sentence) = SENTENCE.get() else { return };
    let line =
        |(name, passed): (&&str, &AtomicU64)| format!("{name} {}\n", passed.load(Ordering::SeqCst));
    let text: String = PASSED.iter().map(line).collect();
    let _ = std::fs::write(&sentence.report, text);
}

/// What a process left in `report`: how often it passed each point.
pub fn read_report(report: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(report).unwrap_or_default();
    let entry = |line: &str| {
        let (name, passed) = line.split_once(' ')?;
        Some((name.to_string(), passed.parse().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

/// The file system of the machine, at whose operations the process may die.
#[derive(Clone)]
pub struct KillVfs(PosixVfs);

impl KillVfs {
    pub fn shared() -> Arc<dyn Vfs> {
        Arc::new(Self(PosixVfs::new()))
    }
}

fn kind(path: &Path) -> &'static str {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match names::parse(name) {
        FileName::Log(_) => "log",
        FileName::ValueLog(_) => "vlog",
        FileName::Sst(_) => "sst",
        FileName::Manifest(_) => "manifest",
        // SSTs and value segments under work.
        FileName::Temp if names::temp_number(name).is_some() => "output",
        FileName::Current | FileName::Temp => "current",
        _ if name.starts_with("checkpoint") => "checkpoint",
        _ => "other",
    }
}

/// Passes the point of an operation on a file, if it is one.
fn at(operation: &str, path: &Path, moment: &str) {
    let name = format!("{operation}:{}:{moment}", kind(path));
    if let Some(name) = FILE_POINTS.into_iter().find(|point| *point == name) {
        pass(name);
    }
}

/// Appends half of `data` if the process is to die of it.
fn tear(file: &mut dyn AppendFile, path: &Path, data: &[u8]) -> Result<()> {
    // One at a time: the process that tears its append must be the one that dies.
    static TEARING: Mutex<()> = Mutex::new(());
    let point = format!("append:{}:torn", kind(path));
    let Some(sentence) = SENTENCE.get().filter(|s| s.point == point) else {
        at("append", path, "torn");
        return Ok(());
    };
    let _alone = TEARING.lock();
    if PASSED[&*point].load(Ordering::SeqCst) + 1 == sentence.count {
        file.append(&data[..data.len() / 2])?;
    }
    at("append", path, "torn");
    Ok(())
}

impl Interposed for KillVfs {
    type Files = PosixVfs;

    fn files(&self) -> &PosixVfs {
        &self.0
    }

    fn around<T>(
        &self,
        call: Call<'_>,
        path: &Path,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match call {
            Call::Rename(to) => at("rename", to, "before"),
            Call::SyncDir => pass("sync_dir:directory:before"),
            Call::SyncFile | Call::Sync(_) => at("sync", path, "before"),
            _ => {}
        }
        let result = work()?;
        match call {
            Call::Create => at("create", path, "after"),
            Call::Rename(to) => at("rename", to, "after"),
            Call::Remove => at("remove", path, "after"),
            Call::HardLink(to) => at("link", to, "after"),
            Call::SyncFile | Call::Sync(_) => at("sync", path, "after"),
            _ => {}
        }
        Ok(result)
    }

    fn append(&self, file: &mut dyn AppendFile, data: &[u8]) -> Result<()> {
        let path = file.path().to_path_buf();
        at("append", &path, "before");
        tear(file, &path, data)?;
        file.append(data)?;
        at("append", &path, "after");
        Ok(())
    }
}
