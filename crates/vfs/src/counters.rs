//! Counts of what this process asked of its file systems. Relaxed and sharded by thread, so that
//! counting costs no shared cache line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_buf::thread_number;

const SHARDS: usize = 16;

/// Totals since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Read operations.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write operations.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Syncs of files and directories.
    pub syncs: u64,
}

#[repr(align(128))]
struct Shard {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    syncs: AtomicU64,
}

static TOTALS: [Shard; SHARDS] = [const {
    Shard {
        reads: AtomicU64::new(0),
        read_bytes: AtomicU64::new(0),
        writes: AtomicU64::new(0),
        write_bytes: AtomicU64::new(0),
        syncs: AtomicU64::new(0),
    }
}; SHARDS];

fn shard() -> &'static Shard {
    &TOTALS[thread_number() % SHARDS]
}

pub(crate) fn count_read(bytes: usize) {
    let shard = shard();
    shard.reads.fetch_add(1, Relaxed);
    shard.read_bytes.fetch_add(bytes as u64, Relaxed);
}

pub(crate) fn count_write(bytes: usize) {
    let shard = shard();
    shard.writes.fetch_add(1, Relaxed);
    shard.write_bytes.fetch_add(bytes as u64, Relaxed);
}

pub(crate) fn count_sync() {
    shard().syncs.fetch_add(1, Relaxed);
}

/// The totals of all threads. Not one moment in time: each number is exact, their relation is not.
pub fn io_counters() -> IoCounters {
    let mut total = IoCounters::default();
    for shard in &TOTALS {
        total.reads += shard.reads.load(Relaxed);
        total.read_bytes += shard.read_bytes.load(Relaxed);
        total.writes += shard.writes.load(Relaxed);
        total.write_bytes += shard.write_bytes.load(Relaxed);
        total.syncs += shard.syncs.load(Relaxed);
    }
    total
}
