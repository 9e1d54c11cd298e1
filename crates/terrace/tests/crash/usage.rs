//! What a process and a store take, and whether calls return: the oracles beside the answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace::Db;

/// A call that takes longer is taken to hang. No call of these tests does a second's work.
const HANGS_AFTER: Duration = Duration::from_secs(180);

/// Memory beyond the budget that a process may take: the program itself, the models of the test,
/// buffers of running jobs, and what iterators hold.
const BESIDE_THE_BUDGET: u64 = 64 << 20;

static CALLS: Mutex<BTreeMap<u64, (String, Instant)>> = Mutex::new(BTreeMap::new());
static NEXT_CALL: AtomicU64 = AtomicU64::new(0);

/// A call of the engine that is under way.
pub struct Call(u64);

impl Call {
    pub fn of(name: impl Into<String>) -> Self {
        let id = NEXT_CALL.fetch_add(1, Ordering::Relaxed);
        CALLS.lock().unwrap().insert(id, (name.into(), Instant::now()));
        Self(id)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.lock().unwrap().remove(&self.0);
    }
}

/// The calls under way, if one of them hangs.
pub fn hanging() -> Option<String> {
    let calls = CALLS.lock().unwrap();
    calls.values().find(|(_, since)| since.elapsed() > HANGS_AFTER)?;
    let line = |(name, since): &(String, Instant)| format!("{name} for {:?}\n", since.elapsed());
    Some(calls.values().map(line).collect())
}

/// What an open store is busy with, for the report of what a call waits for.
pub fn busy_with(db: &Db) -> String {
    let (m, shape) = (db.metrics(), db.shape());
    format!(
        "jobs {:?}\nstalls {:?}\ndisk full {}, poisoned {}, background errors {}, memtables {} bytes",
        shape.jobs, m.stalls, m.disk_full, m.poisoned, m.background_errors, m.memtable_bytes
    )
}

/// Resident bytes of this process.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Most memory seen, for the report of a run.
pub static MAX_RESIDENT_OVER: AtomicU64 = AtomicU64::new(0);

/// Checks the memory of the process and of the store's pools.
pub fn check_memory(db: &Db) -> Result<(), String> {
    let memory = db.memory();
    let budget = memory.budget_bytes;
    if let Some(resident) = resident_bytes() {
        MAX_RESIDENT_OVER.fetch_max(resident.saturating_sub(budget), Ordering::Relaxed);
        if resident > budget + BESIDE_THE_BUDGET {
            return Err(format!(
                "{resident} bytes are resident, the budget is {budget}: {memory:?}"
            ));
        }
    }
    Ok(())
}

/// Bytes of all files below `dir`.
pub fn directory_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .filter_map(Result::ok)
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

/// How many files there are in `dir`.
pub fn directory_files(dir: &Path) -> u64 {
    std::fs::read_dir(dir).map_or(0, |entries| entries.count() as u64)
}
