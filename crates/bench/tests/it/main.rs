//! The program as it is run from a shell.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::process::{Command, Output};
use tempfile::TempDir;

fn run(dir: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace-bench"));
    command.args(arguments).current_dir(dir.path()).output().unwrap()
}

#[test]
fn every_engine_is_measured_in_processes_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["fillseq", "readrandom", "--keys", "2000", "--repeat", "1"];
    let more = ["--duration", "0.2", "--dir", ".", "--json", "rows.json"];
    let ran = run(&dir, &[&arguments[..], &more].concat());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let table = String::from_utf8_lossy(&ran.stdout);
    assert!(table.contains("readrandom") && table.contains("terrace"), "{table}");
    let rows = std::fs::read(dir.path().join("rows.json")).unwrap();
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&rows).unwrap();
    assert!(rows.iter().any(|row| row["workload"] == "readrandom"));
}

/// A fill is measured, then the law of the lookups cannot be read.
#[test]
fn what_a_job_measured_before_it_failed_is_marked_and_is_no_result() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("bad.tsv"), b"a name without a count\n").unwrap();
    let arguments = ["fillrandom", "readrandom", "--keys", "2000", "--repeat", "1", "--dir", "."];
    let more = ["--distribution", "real:bad.tsv", "--json", "rows.json"];
    let ran = run(&dir, &[&arguments[..], &more].concat());
    assert_eq!(ran.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&ran.stderr);
    assert!(
        complaint.contains("1 of 1 runs failed") && complaint.contains("bad.tsv"),
        "{complaint}"
    );
    assert!(ran.stdout.is_empty(), "{}", String::from_utf8_lossy(&ran.stdout));
    let rows = std::fs::read(dir.path().join("rows.json")).unwrap();
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&rows).unwrap();
    assert!(rows.len() == 2 && rows.iter().all(|row| row["failed"] == true), "{rows:?}");
}

#[test]
fn a_workload_that_there_is_not_is_an_error() {
    let refused = run(&tempfile::tempdir().unwrap(), &["no-such-workload"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no-such-workload"));
}

/// A process that embeds the engine has at most the budget and 64 MiB in memory, whatever it writes.
#[test]
fn an_embedded_engine_keeps_to_its_budget_under_writes_of_many_threads() {
    const PROCESS_BYTES: u64 = 64 << 20;
    let effort = std::env::var("TERRACE_TEST_EFFORT").ok().and_then(|text| text.parse().ok());
    let keys = (100_000 * effort.unwrap_or(1_u64)).to_string();
    let dir = tempfile::tempdir().unwrap();
    let arguments = "fillrandom --engine terrace --memory 8MiB --threads 16 --value-size 900 --repeat 1 \
                     --dir . --json rows.json --keys";
    let arguments: Vec<&str> = arguments.split_whitespace().chain([keys.as_str()]).collect();
    let ran = run(&dir, &arguments);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let rows = std::fs::read(dir.path().join("rows.json")).unwrap();
    let rows: serde_json::Value = serde_json::from_slice(&rows).unwrap();
    let peak = rows[0]["rss_bytes"].as_u64().unwrap();
    println!("{} MiB at most", peak >> 20);
    assert!(peak > 4 << 20 && peak <= (8 << 20) + PROCESS_BYTES, "{peak} bytes");
}
