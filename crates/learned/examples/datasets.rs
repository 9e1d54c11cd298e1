//! How hard keys of several kinds are to predict, what a model takes, and how fast it answers:
//!
//! ```text
//! cargo run --release -p terrace-learned --example datasets [-- [--keys N] [--names FILE]]
//! ```
//!
//! Per data set: segments per 1,000 keys, greedy and optimal over the key projection, and optimal
//! over the first eight bytes after the common prefix; stored bytes per key; keys that tie; mean
//! and greatest error; nanoseconds to train one key (pushing included), to project a key, and to
//! get from there to a range, with keys and model in the caches; for comparison, to find the block
//! of a key by halving the first keys of blocks of 32; and segments per 1,000 *blocks* for a model
//! over these first keys with error bound 1. Times are the least of several repeats.
//!
//! `linear`, `segmented` (a gap after 100 and after 10 keys in a row) and `normal` are the
//! synthetic data sets of Bourbon (OSDI 2020), as decimals of 16 bytes. `--names` is a file of
//! lines `name TAB anything`, compressed with zstd; `crates/cli/data/packages.tsv.zst` if it is there.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Instant;
use terrace_base::{Rng, SplitMix64};
use terrace_learned::regression::{Optimal, Point, Regression};
use terrace_learned::{Fit, Model, ModelBuilder, ModelOptions, Training};

const NAMES: &str = "crates/cli/data/packages.tsv.zst";
const KEYS: usize = 500_000;
const KEYS_PER_BLOCK: usize = 32;
/// Keys looked up: few enough to stay in the caches, as the hot ones of a store do.
const LOOKUPS: usize = 4096;
const REPEATS: usize = 100;
const TRAINING_REPEATS: usize = 7;

type Keys = Vec<Vec<u8>>;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut count, mut names) = (KEYS, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or("an option without its value")?;
        match argument.as_str() {
            "--keys" => count = value.parse()?,
            "--names" => names = Some(value),
            _ => return Err(format!("unknown option {argument}").into()),
        }
    }
    println!(
        "| keys | count | greedy | optimal | 8 bytes | bytes/key | ties | error | train | project | range | halving | blocks |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (name, keys) in data_sets(count, names.as_deref())? {
        println!("{}", row(name, &keys)?);
    }
    Ok(())
}

fn data_sets(
    count: usize,
    names: Option<&str>,
) -> Result<Vec<(&'static str, Keys)>, Box<dyn Error>> {
    let mut rng = SplitMix64::new(42);
    let numbers = 0..count as u64;
    let decimal = |number: u64| format!("{number:016}").into_bytes();
    let segmented = |run: u64| {
        let mut rng = SplitMix64::new(run);
        let mut base = 0;
        let gap = |at: u64| if at.is_multiple_of(run) { 1 + rng.below(1 << 20) } else { 1 };
        let gaps: Vec<u64> = numbers.clone().map(gap).collect();
        gaps.iter()
            .map(|gap| {
                base += gap;
                decimal(base)
            })
            .collect::<Keys>()
    };
    let mut normal: BTreeSet<u64> = BTreeSet::new();
    while normal.len() < count {
        let sum: f64 = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
        normal.insert(((sum + 8.0) * 1e14) as u64);
    }
    let mut hash = || rng.next_u64();
    let mut sets: Vec<(&'static str, Keys)> = vec![
        ("linear", numbers.clone().map(decimal).collect()),
        ("segmented 1 %", segmented(100)),
        ("segmented 10 %", segmented(10)),
        ("normal", normal.into_iter().map(decimal).collect()),
        (
            "YCSB: user + hash",
            numbers.clone().map(|_| format!("user{}", hash()).into_bytes()).collect(),
        ),
        ("u64 big-endian", numbers.clone().map(|_| hash().to_be_bytes().to_vec()).collect()),
        (
            "16 random bytes",
            numbers
                .clone()
                .map(|_| [hash().to_be_bytes(), hash().to_be_bytes()].concat())
                .collect(),
        ),
        ("UUID text", numbers.clone().map(|_| uuid(hash(), hash())).collect()),
        (
            "user:<id>:field",
            numbers
                .clone()
                .map(|at| {
                    format!(
                        "user:{:09}:{}",
                        at / 4 * 3,
                        ["age", "city", "mail", "name"][at as usize % 4]
                    )
                    .into_bytes()
                })
                .collect(),
        ),
        (
            "device|timestamp",
            numbers
                .map(|at| {
                    format!("device-{:04}|{}", at / 1000, 1_700_000_000_000 + at % 1000 * 60_000)
                        .into_bytes()
                })
                .collect(),
        ),
    ];
    let given = names.map(Path::new);
    let present = Path::new(NAMES).exists().then_some(Path::new(NAMES));
    if let Some(path) = given.or(present) {
        sets.push(("package names", read_names(path)?));
    }
    for (_, keys) in &mut sets {
        keys.sort();
        keys.dedup();
        // Copies lie in memory as a writer would meet them: in order.
        *keys = keys.clone();
    }
    Ok(sets)
}

fn uuid(high: u64, low: u64) -> Vec<u8> {
    let digits = format!("{high:016x}{low:016x}");
    let fields = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    fields.join("-").into_bytes()
}

fn read_names(path: &Path) -> Result<Keys, Box<dyn Error>> {
    let reader = BufReader::new(zstd::Decoder::new(File::open(path)?)?);
    let mut names = Keys::new();
    for line in reader.split(b'\n') {
        let line = line?;
        names.push(line.split(|byte| *byte == b'\t').next().unwrap_or(&line).to_vec());
    }
    Ok(names)
}

fn train<'a>(keys: impl Iterator<Item = &'a Vec<u8>>, options: ModelOptions) -> Training {
    let mut builder = ModelBuilder::new(options);
    for (position, key) in (0..).zip(keys) {
        builder.push(key, position);
    }
    builder.finish()
}

fn row(name: &str, keys: &Keys) -> Result<String, Box<dyn Error>> {
    let any = ModelOptions {
        max_segments_per_1000_keys: 1000,
        max_run_percent: 100,
        ..ModelOptions::default()
    };
    let greedy = train(keys.iter(), ModelOptions { fit: Fit::Greedy, ..any }).stats;
    let optimal = train(keys.iter(), any);
    let stats = optimal.stats;
    let blocks = train(keys.iter().step_by(KEYS_PER_BLOCK), ModelOptions { delta: 1, ..any }).stats;
    let model = Model::decode(&optimal.model?)?;
    let train_ns = least_ns(TRAINING_REPEATS, keys.len(), || {
        black_box(train(keys.iter(), ModelOptions::default()));
    });
    let (project_ns, range_ns, halving_ns) = lookup_ns(&model, keys);
    let mut row = format!(
        "| {name} | {} | {:.2} | {:.2} | {:.2} | {:.3} | {:.2} % | {:.1}, {} | {train_ns:.0} ns | {project_ns:.1} ns | {range_ns:.1} ns | {halving_ns:.1} ns | {:.0} |",
        keys.len(),
        greedy.segments_per_1000_keys(),
        stats.segments_per_1000_keys(),
        first_bytes_segments(keys),
        stats.bytes_per_key(),
        100.0 * stats.tie_count as f64 / keys.len() as f64,
        stats.errors.mean(),
        stats.errors.max,
        blocks.segments_per_1000_keys(),
    );
    if let Err(why) = train(keys.iter(), ModelOptions::default()).model {
        row.push_str(&format!(" does not pay: {why} |"));
    }
    Ok(row)
}

/// Segments per 1,000 keys over the eight bytes after the common prefix.
fn first_bytes_segments(keys: &Keys) -> f64 {
    let (first, last) = (&keys[0], &keys[keys.len() - 1]);
    let prefix = terrace_base::key::common_prefix(first, last);
    let mut points: Vec<Point> = Vec::new();
    for (position, key) in (0..).zip(keys) {
        let x = terrace_base::key::head(&key[prefix..]);
        match points.last_mut() {
            Some(point) if point.x == x => point.last = position,
            _ => points.push(Point { x, first: position, last: position }),
        }
    }
    let mut regression = Optimal::new(8);
    let finished = points.iter().filter_map(|point| regression.push(*point)).count();
    1000.0 * (finished + 1) as f64 / keys.len() as f64
}

/// Nanoseconds to project a key, from there to a range, and to find its block by halving.
fn lookup_ns(model: &Model, keys: &Keys) -> (f64, f64, f64) {
    let mut rng = SplitMix64::new(1);
    let probes: Keys =
        (0..LOOKUPS).map(|_| keys[rng.below(keys.len() as u64) as usize].clone()).collect();
    let numbers: Vec<u64> = probes.iter().map(|key| model.project(key)).collect();
    let project_ns = least_ns(REPEATS, LOOKUPS, || {
        for key in &probes {
            black_box(model.project(key));
        }
    });
    let range_ns = least_ns(REPEATS, LOOKUPS, || {
        for x in &numbers {
            black_box(model.search_range(*x));
        }
    });
    let firsts: Keys = keys.iter().step_by(KEYS_PER_BLOCK).cloned().collect();
    let halving_ns = least_ns(REPEATS, LOOKUPS, || {
        for key in &probes {
            black_box(firsts.partition_point(|first| first <= key));
        }
    });
    (project_ns, range_ns, halving_ns)
}

/// Nanoseconds per unit of the fastest of some runs.
fn least_ns(repeats: usize, units: usize, mut run: impl FnMut()) -> f64 {
    let once = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_nanos() as f64 / units as f64
    };
    (0..repeats).map(once).fold(f64::INFINITY, f64::min)
}
