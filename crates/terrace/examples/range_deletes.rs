//! What many overlapping range deletes cost: time of a point read between them, of a flush, a scan and
//! a reopening, and memory. Prints one JSON object.
//!
//! `cargo run --release -p terrace --example range_deletes [shape] [deletes]`, where the shape is
//! `nested` (each delete inside the one before), `growing` (each around the one before), `trim` (a queue
//! that forgets everything below a watermark), `random` (a third of the key space each), or `apart` (none
//! touches another). Between two deletes stand a put and a timed get; `batch` writes the nested deletes
//! as one batch before the gets. The store lies in the directory for temporary files.

use std::time::Instant;
use terrace::{Db, Options, WriteBatch};
use terrace_base::{Rng, SplitMix64};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:012}").into_bytes()
}

/// Memory of the process that is in use and the most that was, in KiB.
fn memory_kib() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    (field("VmRSS:").unwrap_or(0), field("VmHWM:").unwrap_or(0))
}

/// The range that delete `n` of `count` covers.
fn range(shape: &str, n: u64, count: u64, rng: &mut SplitMix64) -> Outcome<(u64, u64)> {
    Ok(match shape {
        "nested" | "batch" => (n, 3 * count - n),
        "growing" => (count - n, count + n + 1),
        "trim" => (0, n + 1),
        "random" => {
            let start = rng.below(2 * count);
            (start, start + count)
        }
        "apart" => {
            let at = n * 7919 % count;
            (2 * at, 2 * at + 1)
        }
        _ => return Err(format!("unknown shape {shape}").into()),
    })
}

fn millis(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 1e6).round() / 1e3
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let shape = arguments.next().unwrap_or("nested".into());
    let count: u64 = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    let options = Options { memory_budget: 64 << 20, ..Options::default() };
    let db = Db::open(dir.path(), options.clone())?;
    db.put(key(0), [0; 100])?;
    let (before_kib, _) = memory_kib();
    let mut rng = SplitMix64::new(1);
    let mut get_ns: Vec<u64> = Vec::with_capacity(count as usize);
    let mut get = |rng: &mut SplitMix64| -> Outcome<()> {
        let wanted = key(rng.below(3 * count));
        let start = Instant::now();
        std::hint::black_box(db.get(&wanted)?);
        get_ns.push(start.elapsed().as_nanos() as u64);
        Ok(())
    };
    let writing = Instant::now();
    let mut batch = WriteBatch::new();
    for n in 0..count {
        let (start, end) = range(&shape, n, count, &mut rng)?;
        if shape == "batch" {
            batch.delete_range(key(start), key(end));
            continue;
        }
        db.delete_range(key(start), key(end))?;
        get(&mut rng)?;
        db.put(key(rng.below(3 * count)), [7; 100])?;
    }
    if shape == "batch" {
        db.write(batch)?;
        (0..100).try_for_each(|_| get(&mut rng))?;
    }
    let writing_ms = millis(writing);
    let (written_kib, _) = memory_kib();
    let memtable_bytes = db.metrics().memtable_bytes;
    let flushing = Instant::now();
    db.flush()?;
    let flush_ms = millis(flushing);
    let scan = |backward: bool| -> Outcome<(f64, u64)> {
        let scanning = Instant::now();
        let mut iter = db.iter()?;
        let mut shown = 0;
        if backward {
            iter.seek_to_last()?
        } else {
            iter.seek_to_first()?
        };
        while iter.valid() {
            shown += 1;
            if backward {
                iter.prev()?
            } else {
                iter.next()?
            };
        }
        Ok((millis(scanning), shown))
    };
    let (forward_ms, shown) = scan(false)?;
    let (backward_ms, shown_back) = scan(true)?;
    if shown != shown_back {
        return Err("the two directions disagree".into());
    }
    let (_, most_kib) = memory_kib();
    get_ns.sort_unstable();
    let percentile = |percent: usize| get_ns[(get_ns.len() - 1) * percent / 100] as f64 / 1e3;
    println!(
        "{{\"shape\": \"{shape}\", \"deletes\": {count}, \"writing_ms\": {writing_ms}, \
         \"get_us_p50\": {}, \"get_us_p99\": {}, \"memtable_bytes\": {memtable_bytes}, \
         \"rss_growth_kib_written\": {}, \"rss_growth_kib_most\": {}, \"flush_ms\": {flush_ms}, \
         \"scan_ms\": {forward_ms}, \"scan_back_ms\": {backward_ms}, \"shown\": {shown}}}",
        percentile(50),
        percentile(99),
        written_kib.saturating_sub(before_kib),
        most_kib.saturating_sub(before_kib),
    );
    db.close()?;
    Ok(())
}
