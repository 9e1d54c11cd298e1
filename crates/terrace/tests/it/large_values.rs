//! What a large value costs in memory while it is written: a bound on copies, not on time.
#![cfg(target_os = "linux")]

use terrace::{CfOptions, Compression, Db, Options, WriteBatch};

const VALUE_BYTES: usize = 96 << 20;

/// Which case a child process runs.
const CASE: &str = "TERRACE_LARGE_VALUE_CASE";

/// The most memory that this process has had, in bytes.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Bytes without a pattern.
fn noise() -> Vec<u8> {
    let mut state = 1u64;
    let mut value = Vec::with_capacity(VALUE_BYTES);
    while value.len() < VALUE_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        value.extend_from_slice(&state.to_be_bytes());
    }
    value
}

/// Run by the test below, in a process of its own. Prints the copies of the value that the write took
/// beyond the caller's.
#[test]
#[ignore = "a part of another test"]
fn child() {
    let Ok(case) = std::env::var(CASE) else { return };
    let dir = tempfile::tempdir().unwrap();
    // So much that nothing is flushed while the memory is measured.
    let mut options = Options { memory_budget: 1 << 30, ..Options::default() };
    let family = &mut options.default_family;
    match case.as_str() {
        "inline" | "batch inline" => family.value_separation_threshold = usize::MAX,
        "compressed" => family.value_compression = Compression::Lz4,
        _ => {}
    }
    let db = Db::open(dir.path(), options).unwrap();
    let other = db.create_column_family("other", CfOptions::default()).unwrap();
    let value = noise();
    let before = peak_bytes();
    match case.as_str() {
        "batch" | "batch inline" => {
            let mut batch = WriteBatch::new();
            batch.put(b"k", &value);
            db.write(batch).unwrap();
        }
        "transaction" => {
            let mut transaction = db.transaction();
            transaction.put_cf(&other, b"k", &value);
            transaction.commit().unwrap();
        }
        _ => db.put(b"k", &value).unwrap(),
    }
    let copies = (peak_bytes() - before) as f64 / VALUE_BYTES as f64;
    println!("copies: {copies:.2}");
}

fn copies(case: &str) -> f64 {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "large_values::child", "--ignored", "--nocapture"])
        .env(CASE, case)
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&child.stdout).into_owned();
    let line = out.lines().find_map(|line| line.split("copies: ").nth(1));
    let line =
        line.unwrap_or_else(|| panic!("{case}: {out}{}", String::from_utf8_lossy(&child.stderr)));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_large_value_is_copied_once_into_the_batch_and_once_more_only_into_a_memtable() {
    let cases = [
        ("separated", 1.0),
        ("batch", 1.0),
        ("transaction", 1.0),
        ("inline", 2.0),
        ("batch inline", 2.0),
        ("compressed", 3.0),
    ];
    let measured = cases.map(|(case, most)| (case, most, copies(case)));
    println!("{measured:.2?}");
    for (case, most, copies) in measured {
        assert!(copies > 0.5 * most, "{case}: {copies} copies, nothing was measured");
        assert!(copies < most + 0.4, "{case}: {copies} copies, not about {most}");
    }
}
