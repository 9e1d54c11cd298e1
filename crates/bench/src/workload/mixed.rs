//! `readwhilewriting`: `readrandom` while one more thread overwrites random keys.
//!
//! Only the reads are counted. The writer writes 2 MiB of keys and values a second, as RocksDB's
//! own benchmark script has it (`--set write_rate=BYTES`, 0 unbounded), so that every engine
//! reads beside the same writes.

use super::overwrite::Overwriter;
use super::point_read::{PointReader, READ_SECONDS};
use super::{Bench, Bound, TIME_EVERY_POINT_READ};
use anyhow::{Result, anyhow};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_workload::distribution::Distribution;
use terrace_workload::phase::Worker;

/// The writer catches up with its rate this often.
const WRITER_TICK: Duration = Duration::from_millis(5);

/// Reads beside writes.
pub fn readwhilewriting(bench: &Bench<'_>) -> Result<()> {
    let keys = bench.shape().keys;
    let sampler = bench.sampler(&Distribution::Uniform, keys)?;
    let phase = bench.phase(Bound::ops_or_seconds(keys, READ_SECONDS), TIME_EVERY_POINT_READ);
    let missing = bench.job.missing.unwrap_or(0.0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = Overwriter::new(bench, "writer", 0, sampler.clone());
        let writing = scope.spawn(|| write_until(&stop, bench.job.settings.write_rate, writer));
        let reading = bench.measure("readwhilewriting", phase, keys, |thread| {
            Ok(PointReader::new(bench, "readwhilewriting", thread, sampler.clone(), missing))
        });
        stop.store(true, Ordering::Relaxed);
        writing.join().map_err(|_| anyhow!("the writer panicked"))??;
        reading
    })?;
    bench.calm()
}

fn write_until(stop: &AtomicBool, bytes_per_s: u64, mut writer: Overwriter<'_>) -> Result<()> {
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let due = start.elapsed().as_secs_f64() * bytes_per_s as f64;
        if bytes_per_s > 0 && writer.tally().user_bytes as f64 >= due {
            std::thread::sleep(WRITER_TICK);
            continue;
        }
        writer.step(0)?;
    }
    Ok(())
}
