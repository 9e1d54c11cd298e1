//! `readwhilewriting`: `readrandom` while one more thread overwrites random keys.
//!
//! Only the reads are counted as operations. The writer writes 2 MiB of keys and values a second, as RocksDB's
//! own benchmark script has it (`--set write_rate=BYTES`, 0 unbounded), so that every engine
//! reads beside the same writes. What it wrote is in the row (`writer_bytes`, `writer_bytes_per_s`, and among
//! `user_bytes`). A writer that does not keep up with its rate is noted: those reads had less beside them than others.
//! The reads end when the writer fails.

use super::overwrite::Overwriter;
use super::point_read::{PointReader, READ_SECONDS};
use super::{Bench, Bound, TIME_EVERY_POINT_READ};
use crate::job::Event;
use crate::on_drop::OnDrop;
use crate::report::figures::WriterFigures;
use crate::report::{Row, cells};
use anyhow::{Result, anyhow, ensure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_workload::distribution::Distribution;
use terrace_workload::phase::{Tally, Worker};

const NAME: &str = "readwhilewriting";
/// The writer catches up with its rate this often.
const WRITER_TICK: Duration = Duration::from_millis(5);
/// A writer that writes less than this share of its rate has not kept up with it.
const KEPT_UP_SHARE: f64 = 0.95;

/// Reads beside writes.
pub fn readwhilewriting(bench: &Bench<'_>) -> Result<()> {
    let keys = bench.shape().keys;
    let sampler = bench.sampler(&Distribution::Uniform, keys)?;
    let phase = bench.phase(Bound::ops_or_seconds(keys, READ_SECONDS), TIME_EVERY_POINT_READ);
    let missing = bench.job.missing.unwrap_or(0.0);
    let asked = bench.job.settings.write_rate;
    let (stop, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut outcome, usage, writer) = std::thread::scope(|scope| {
        let writer = Overwriter::new(bench, "writer", 0, sampler.clone());
        let writing = scope.spawn(|| {
            let written = write_until(&stop, asked, writer);
            failed.store(written.is_err(), Ordering::Relaxed);
            written
        });
        let read = {
            let _ending = OnDrop(|| stop.store(true, Ordering::Relaxed));
            bench.timed(NAME, phase, |thread| {
                let reader = PointReader::new(bench, NAME, thread, sampler.clone(), missing);
                Ok(Beside { reader, failed: &failed })
            })
        };
        // The writer's error comes first: it is why the reads ended.
        let writer = writing.join().map_err(|_| anyhow!("the writer panicked"))??;
        let (outcome, usage) = read?;
        anyhow::Ok((outcome, usage, writer))
    })?;
    if let Some(text) = too_slow(&writer) {
        bench.observer.tell(Event::Note(text));
    }
    outcome.tally.user_bytes += writer.writer_bytes;
    let live_bytes = Some(keys * bench.item_bytes());
    let row = bench.row(NAME, phase, &outcome, usage, keys, live_bytes)?;
    bench.tell(Row { writer: Some(writer), ..row });
    bench.calm()
}

/// What to say of a writer that has not kept up with its rate.
fn too_slow(writer: &WriterFigures) -> Option<String> {
    let asked = writer.writer_asked_bytes_per_s;
    let is_slow = writer.writer_bytes_per_s < KEPT_UP_SHARE * asked as f64;
    is_slow.then(|| {
        let rate = cells::bytes(writer.writer_bytes_per_s as u64);
        format!("{NAME}: the writer wrote {rate}/s of the {}/s that it was to", cells::bytes(asked))
    })
}

/// Overwrites until it is to stop, at `bytes_per_s`, or without a bound if that is 0.
fn write_until(
    stop: &AtomicBool,
    bytes_per_s: u64,
    mut writer: Overwriter<'_>,
) -> Result<WriterFigures> {
    let start = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let due = start.elapsed().as_secs_f64() * bytes_per_s as f64;
        if bytes_per_s > 0 && writer.tally().user_bytes as f64 >= due {
            std::thread::sleep(WRITER_TICK);
            continue;
        }
        writer.step(0)?;
    }
    let writer_bytes = writer.tally().user_bytes;
    Ok(WriterFigures {
        writer_bytes,
        writer_bytes_per_s: writer_bytes as f64 / start.elapsed().as_secs_f64(),
        writer_asked_bytes_per_s: bytes_per_s,
    })
}

/// A reader that ends when the writer beside it fails.
struct Beside<'a> {
    reader: PointReader<'a>,
    failed: &'a AtomicBool,
}

impl Worker for Beside<'_> {
    fn step(&mut self, sequence: u64) -> Result<()> {
        ensure!(!self.failed.load(Ordering::Relaxed), "the writer failed");
        self.reader.step(sequence)
    }

    fn tally(&self) -> Tally {
        self.reader.tally()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_does_not_keep_up_is_noted() {
        let note = |rate, asked| {
            too_slow(&WriterFigures {
                writer_bytes: 1,
                writer_bytes_per_s: rate,
                writer_asked_bytes_per_s: asked,
            })
        };
        let text = note(1_048_576.0, 2 << 20).unwrap();
        assert!(text.contains("1.0 MiB/s of the 2.0 MiB/s"), "{text}");
        assert_eq!((note(960.0, 1000), note(5.0, 0)), (None, None));
    }
}
