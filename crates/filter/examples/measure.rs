//! Measures every kind of filter, through the public interface, at several numbers of bits per key
//! and sizes of partition, and writes `docs/filters-measured.md`:
//!
//! ```text
//! cargo run --release -p terrace-filter --example measure [-- [--probes MILLIONS] [--out FILE]]
//! ```
//!
//! False positives: lookups of random absent keys in 64 partitions in turn, until there were
//! `--probes` million (default 10) and 10,000 false positives, or 100 times as many lookups.
//! Times: the least of many short runs, in several rounds through all filters, since other programs
//! only ever add to them, and do so for a while.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;
use terrace_base::{Rng, SplitMix64};
use terrace_filter::{FilterBuilder, FilterPolicy, FilterShape};

const COMMAND: &str = "cargo run --release -p terrace-filter --example measure";
const PARTITION_KEYS: [usize; 2] = [16_000, 4_096];
const BITS: [f64; 5] = [4.0, 8.0, 10.0, 16.0, 23.4];
/// Partitions over which the false positive rate is averaged.
const RATE_PARTITIONS: u64 = 64;
const ENOUGH_FALSE_POSITIVES: u64 = 10_000;
const ROUNDS: usize = 10;
const BUILDS: usize = 50;
/// Lookups of one run that is timed, and runs of lookups in hot and in cold partitions.
const RUN: usize = 4096;
const HOT_RUNS: usize = 250;
const COLD_RUNS: usize = 100;
/// Bytes of the partitions among which cold lookups jump about.
const COLD_BYTES: usize = 256 << 20;

struct Row {
    policy: FilterPolicy,
    keys: usize,
    bits_per_key: f64,
    lookups: u64,
    measured: f64,
    expected: f64,
    times: Times,
}

/// Nanoseconds per key built and per lookup.
struct Times {
    build: f64,
    hot_absent: f64,
    hot_present: f64,
    cold_absent: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut probes, mut out) = (10_000_000, String::from("docs/filters-measured.md"));
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or("an option without its value")?;
        match argument.as_str() {
            "--probes" => probes = value.parse::<u64>()? * 1_000_000,
            "--out" => out = value,
            _ => return Err(format!("unknown option {argument}").into()),
        }
    }
    let mut rows = Vec::new();
    for keys in PARTITION_KEYS {
        for bits in BITS {
            for policy in policies(bits)? {
                rows.push(measure(policy, keys, probes));
            }
        }
    }
    for _ in 1..ROUNDS {
        for row in &mut rows {
            let again = time(row.policy, row.keys);
            row.times = row.times.least(&again);
        }
    }
    std::fs::write(&out, page(&rows, probes)?)?;
    println!("{out}");
    Ok(())
}

/// One filter of each kind with this many bits per key; a ribbon of this many whole columns.
fn policies(bits: f64) -> Result<[FilterPolicy; 4], terrace_filter::PolicyError> {
    Ok([
        format!("bloom:{bits}").parse()?,
        format!("blocked:{bits}").parse()?,
        format!("paired:{bits}").parse()?,
        format!("ribbon:{}", bits.floor()).parse()?,
    ])
}

fn measure(policy: FilterPolicy, keys: usize, probes: u64) -> Row {
    let mut rng = SplitMix64::new(1);
    let mut builder = FilterBuilder::new(policy);
    let filters: Vec<Filter> =
        (0..RATE_PARTITIONS).map(|_| build(&mut builder, &random_hashes(keys, &mut rng))).collect();
    let (lookups, measured) = false_positive_rate(&filters, probes, &mut rng);
    let (shape, bytes) = &filters[0];
    Row {
        policy,
        keys,
        bits_per_key: bytes.len() as f64 * 8.0 / keys as f64,
        lookups,
        measured,
        expected: shape.expected_fpr(shape.unit_count, keys as u64),
        times: time(policy, keys),
    }
}

fn time(policy: FilterPolicy, keys: usize) -> Times {
    let mut rng = SplitMix64::new(2);
    let mut builder = FilterBuilder::new(policy);
    let present = random_hashes(keys, &mut rng);
    let filter = build(&mut builder, &present);
    let mut bytes = Vec::new();
    let build_ns = least_ns(BUILDS, keys, |_| {
        bytes.clear();
        black_box(builder.build(black_box(&present), &mut bytes));
    });
    let absent = random_hashes(HOT_RUNS * RUN, &mut rng);
    let present: Vec<u64> = present.into_iter().cycle().take(HOT_RUNS * RUN).collect();
    assert_eq!(found(&filter, &present), present.len());
    let hot_ns = |hashes: &[u64]| {
        least_ns(HOT_RUNS, RUN, |run| {
            black_box(found(black_box(&filter), &hashes[run * RUN..(run + 1) * RUN]));
        })
    };
    Times {
        build: build_ns,
        hot_absent: hot_ns(&absent),
        hot_present: hot_ns(&present),
        cold_absent: cold_ns(&filter, &mut rng),
    }
}

impl Times {
    fn least(&self, other: &Times) -> Times {
        Times {
            build: self.build.min(other.build),
            hot_absent: self.hot_absent.min(other.hot_absent),
            hot_present: self.hot_present.min(other.hot_present),
            cold_absent: self.cold_absent.min(other.cold_absent),
        }
    }
}

type Filter = (FilterShape, Vec<u8>);

fn build(builder: &mut FilterBuilder, hashes: &[u64]) -> Filter {
    let mut bytes = Vec::new();
    let shape = builder.build(hashes, &mut bytes);
    (shape, bytes)
}

/// How many of the keys the filter lets through.
fn found((shape, bytes): &Filter, hashes: &[u64]) -> usize {
    let units = shape.unit_count;
    hashes.iter().filter(|hash| shape.may_contain(bytes, units, **hash)).count()
}

fn random_hashes(count: usize, rng: &mut SplitMix64) -> Vec<u64> {
    (0..count).map(|_| rng.next_u64()).collect()
}

/// Lookups done, and the share of them that the filters let through.
fn false_positive_rate(filters: &[Filter], probes: u64, rng: &mut SplitMix64) -> (u64, f64) {
    let turn = probes.div_ceil(RATE_PARTITIONS);
    let (mut lookups, mut found) = (0, 0);
    while lookups < probes || (found < ENOUGH_FALSE_POSITIVES && lookups < 100 * probes) {
        for (shape, bytes) in filters {
            let hits = (0..turn)
                .filter(|_| shape.may_contain(bytes, shape.unit_count, rng.next_u64()))
                .count();
            found += hits as u64;
        }
        lookups += turn * RATE_PARTITIONS;
    }
    (lookups, found as f64 / lookups as f64)
}

/// Lookups of absent keys, each in some of many partitions, whose address waits for the answer of
/// the one before; the processor may guess that answer.
fn cold_ns((shape, bytes): &Filter, rng: &mut SplitMix64) -> f64 {
    let copies = COLD_BYTES / bytes.len();
    let many: Vec<u8> = bytes.repeat(copies);
    let hashes = random_hashes(COLD_RUNS * RUN, rng);
    let mut last = 0;
    least_ns(COLD_RUNS, RUN, |run| {
        for hash in &hashes[run * RUN..(run + 1) * RUN] {
            let at = ((hash.rotate_left(17) + last) % copies as u64) as usize * bytes.len();
            let loaded = &many[at..at + bytes.len()];
            last = u64::from(shape.may_contain(loaded, shape.unit_count, *hash));
        }
        black_box(last);
    })
}

/// Nanoseconds for one of the `count` things that a run of `work` does, in the best of the runs.
fn least_ns(runs: usize, count: usize, mut work: impl FnMut(usize)) -> f64 {
    let mut least = f64::INFINITY;
    for run in 0..runs {
        let start = Instant::now();
        work(run);
        least = least.min(start.elapsed().as_nanos() as f64);
    }
    least / count as f64
}

fn page(rows: &[Row], probes: u64) -> Result<String, std::fmt::Error> {
    let mut page = String::from("# Filters, measured\n\n");
    writeln!(
        page,
        "Generated by `{COMMAND}`{}; do not edit. What it measures and how is at the top of\n\
         `crates/filter/examples/measure.rs`. Bits per key are those of the bytes written, so\n\
         a ribbon's contain its free slots, and rounding to whole blocks is in all.\n",
        if probes == 10_000_000 {
            String::new()
        } else {
            format!(" (`--probes {}`)", probes / 1_000_000)
        }
    )?;
    for keys in PARTITION_KEYS {
        writeln!(page, "## Partitions of {keys} keys\n")?;
        page.push_str(
            "| filter | bits/key | false positives | model | ratio | lookups (M) | build, ns/key \
             | hot absent, ns | hot present, ns | cold absent, ns |\n\
             |---|---|---|---|---|---|---|---|---|---|\n",
        );
        for row in rows.iter().filter(|row| row.keys == keys) {
            writeln!(page, "{}", table_row(row))?;
        }
        page.push('\n');
    }
    page.push_str(
        "*hot*: one partition, in the nearest caches, lookups independent of each other. *cold*: \
         partitions of\n256 MiB together, a random one for each lookup, whose address waits for the \
         answer of the one\nbefore (which the processor may guess). *ratio*: measured by model; a rate from fewer than 10,000 false \
         positives is uncertain by more than 1 %.\n",
    );
    Ok(page)
}

fn table_row(row: &Row) -> String {
    format!(
        "| {} | {:.2} | 1 in {:.1} | 1 in {:.1} | {:.3} | {} | {:.1} | {:.1} | {:.1} | {:.1} |",
        row.policy,
        row.bits_per_key,
        1.0 / row.measured,
        1.0 / row.expected,
        row.measured / row.expected,
        row.lookups / 1_000_000,
        row.times.build,
        row.times.hot_absent,
        row.times.hot_present,
        row.times.cold_absent,
    )
}
