//! Decisions from text, `testdata/*.txt`: cases divided by lines `====`, each a script, a line `----`,
//! and what it must print. `UPDATE=1` rewrites the expectations.
//!
//! ```text
//! budget 100                           MiB; forgets everything
//! blocks bytes=50 gain=10 floor=4 ceiling=96 noise=0.1 grain=1 full=no     a pool, or what changes of it
//! step 5                               takes steps and carries out their moves
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use terrace_arbiter::{Arbiter, Decision, PoolReading};

const NAMES: [&str; 6] = ["memtables", "blocks", "filters", "hot", "models", "buffers"];

fn apply(pool: &mut PoolReading, word: &str) {
    let (name, value) = word.split_once('=').unwrap();
    let number = || value.parse::<f64>().unwrap();
    let mib = || (number() * 1048576.0) as u64;
    match name {
        "bytes" => pool.bytes = mib(),
        "floor" => pool.floor_bytes = mib(),
        "ceiling" => pool.ceiling_bytes = mib(),
        "grain" => pool.grain_bytes = mib(),
        "noise" => pool.noise = number(),
        "full" => pool.is_full = value == "yes",
        "gain" => pool.gain = (value != "unknown").then(number),
        _ => panic!("{word}"),
    }
}

fn fresh(name: &'static str) -> PoolReading {
    PoolReading {
        name,
        bytes: 0,
        floor_bytes: 0,
        ceiling_bytes: u64::MAX,
        gain: Some(0.0),
        noise: 0.0,
        is_full: true,
        grain_bytes: 1024,
    }
}

fn run(script: &str) -> String {
    let (mut arbiter, mut budget, mut out) = (Arbiter::new(), 0, String::new());
    let mut pools: Vec<PoolReading> = Vec::new();
    let mut said: BTreeMap<u64, String> = BTreeMap::new();
    let mut step = 0;
    for line in script.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        match words.next().unwrap() {
            "budget" => budget = words.next().unwrap().parse::<u64>().unwrap() << 20,
            "step" => {
                for _ in 0..words.next().unwrap().parse().unwrap() {
                    step += 1;
                    let text = match arbiter.step(budget, &pools) {
                        Decision::Stay(why) => why.to_string(),
                        Decision::Move(moved) => {
                            pools[moved.from].bytes -= moved.bytes;
                            pools[moved.to].bytes += moved.bytes;
                            moved.to_string()
                        }
                    };
                    if said.insert(step, text.clone()).is_none() {
                        writeln!(out, "{step}: {text}").unwrap();
                    }
                }
                let split = pools.iter().map(|p| format!("{} {}", p.name, p.bytes >> 10));
                writeln!(out, "   KiB: {}", split.collect::<Vec<_>>().join(", ")).unwrap();
            }
            name => {
                let name = NAMES.into_iter().find(|known| *known == name).unwrap();
                let at = pools.iter().position(|pool| pool.name == name).unwrap_or_else(|| {
                    pools.push(fresh(name));
                    pools.len() - 1
                });
                words.for_each(|word| apply(&mut pools[at], word));
            }
        }
    }
    out
}

#[test]
fn scripts_say_what_they_said() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let case = |case: &str| {
            let (script, _) = case.split_once("----\n").unwrap_or((case, ""));
            format!("{}\n----\n{}", script.trim_end(), run(script))
        };
        let got = text.split("====\n").map(case).collect::<Vec<_>>().join("====\n");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, got).unwrap();
        } else {
            assert_eq!(got, text, "{} (UPDATE=1 rewrites it)", path.display());
        }
    }
}
