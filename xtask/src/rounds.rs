//! `cargo xtask rounds`: the test binaries again and again, alone, beside threads that keep all cores busy, and on one core.
//! At the end stands which tests failed in how many of the rounds: one that fails once in twenty times is as
//! good as broken, and no single run shows it.

use crate::failing::Failing;
use crate::steps::{cargo, target_dir};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Where the outputs of what failed are kept, below the target directory.
const OUTPUTS: &str = "rounds";

/// What the machine does beside the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    /// Nothing.
    Alone,
    /// Every core has a thread that never waits.
    Busy,
    /// There is one core for all threads of the tests.
    OneCore,
}

const LOADS: [Load; 3] = [Load::Alone, Load::Busy, Load::OneCore];

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alone => "alone",
            Self::Busy => "busy",
            Self::OneCore => "one-core",
        })
    }
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    rounds: u32,
    loads: Vec<Load>,
    /// Of `cargo test`: which targets.
    select: Vec<String>,
}

/// A test binary, and the directory in which cargo runs it.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    name: String,
    path: PathBuf,
    dir: PathBuf,
}

/// Test by load, binary and name, and in how many rounds it failed.
type Failures = BTreeMap<(Load, String, String), u32>;

/// `N [alone] [busy] [one-core] [-- ARGUMENTS]`.
pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let wanted = parse(arguments)?;
    let binaries = build(root, &wanted.select)?;
    let outputs = target_dir(root).join(OUTPUTS);
    let mut failures = Failures::new();
    for load in &wanted.loads {
        beside(*load, || {
            for round in 1..=wanted.rounds {
                let start = Instant::now();
                let mut failed = 0;
                for binary in &binaries {
                    let output = execute(binary, *load)?;
                    let names = failed_tests(&output);
                    if !names.is_empty() {
                        keep(&outputs, &format!("{load}-{round}-{}.txt", binary.name), &output)?;
                    }
                    failed += names.len();
                    for name in names {
                        *failures.entry((*load, binary.name.clone(), name)).or_default() += 1;
                    }
                }
                let (of, seconds) = (wanted.rounds, start.elapsed().as_secs());
                println!("{load}, round {round} of {of}: {failed} failed, {seconds} s");
            }
            Ok::<(), anyhow::Error>(())
        })?;
    }
    println!("\n{}", summary(&failures, &wanted));
    match failures.is_empty() {
        true => Ok(()),
        false => bail!("{} tests failed; see {}", failures.len(), outputs.display()),
    }
}

fn parse(arguments: &[String]) -> Result<Wanted> {
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let (own, select) = arguments.split_at(end);
    let (rounds, loads) = own.split_first().context("how many rounds?")?;
    let rounds: u32 =
        rounds.parse().with_context(|| format!("`{rounds}` is no number of rounds"))?;
    ensure!(rounds > 0, "at least one round");
    let known = |word: &String| LOADS.into_iter().find(|load| load.to_string() == *word);
    let named = |word| known(word).with_context(|| format!("`{word}` is not one of {LOADS:?}"));
    let mut loads = loads.iter().map(named).collect::<Result<Vec<Load>>>()?;
    if loads.is_empty() {
        loads = LOADS.to_vec();
    }
    let mut select: Vec<String> = select.iter().skip(1).cloned().collect();
    if select.is_empty() {
        select.push("--workspace".to_string());
    }
    Ok(Wanted { rounds, loads, select })
}

/// Compiles the test binaries; gives those.
fn build(root: &Path, select: &[String]) -> Result<Vec<Binary>> {
    let mut command = cargo(&["test", "--no-run", "--message-format=json"]);
    command.args(select).current_dir(root).stderr(Stdio::inherit());
    let output = command.output().context("start cargo")?;
    ensure!(output.status.success(), "the tests do not compile");
    let lines = String::from_utf8_lossy(&output.stdout);
    let binaries: Vec<Binary> = lines.lines().filter_map(binary_of).collect();
    ensure!(!binaries.is_empty(), "{} selects no test binary", select.join(" "));
    Ok(binaries)
}

/// The test binary that a message of cargo is about.
fn binary_of(line: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let dir = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let package = dir.file_name()?.to_string_lossy().into_owned();
    let name = format!("{package}-{}", message["target"]["name"].as_str()?);
    Some(Binary { name, path, dir })
}

/// Does `work` beside what `load` is.
fn beside<T>(load: Load, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let spinning = match load {
        Load::Busy => thread::available_parallelism().map_or(1, usize::from),
        Load::Alone | Load::OneCore => 0,
    };
    thread::scope(|scope| {
        for _ in 0..spinning {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

fn execute(binary: &Binary, load: Load) -> Result<Output> {
    let mut command = match load {
        Load::Alone | Load::Busy => Command::new(&binary.path),
        Load::OneCore => {
            let mut command = Command::new("taskset");
            command.args(["-c", "0"]).arg(&binary.path);
            command
        }
    };
    command.current_dir(&binary.dir).env("CARGO_MANIFEST_DIR", &binary.dir).stdin(Stdio::null());
    command.output().with_context(|| format!("run {} {load}", binary.path.display()))
}

/// The tests that failed; the process itself if it does not say which.
fn failed_tests(output: &Output) -> Vec<String> {
    if output.status.success() {
        return Vec::new();
    }
    let mut failing = Failing::default();
    String::from_utf8_lossy(&output.stdout).lines().for_each(|line| failing.look(line, &[]));
    let names = failing.names();
    if names.is_empty() { vec![format!("the process: {}", output.status)] } else { names }
}

/// Keeps what a binary said.
fn keep(dir: &Path, name: &str, output: &Output) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    fs::write(dir.join(name), text).with_context(|| format!("write {name}"))
}

fn summary(failures: &Failures, wanted: &Wanted) -> String {
    let loads: Vec<String> = wanted.loads.iter().map(ToString::to_string).collect();
    let mut lines = vec![format!(
        "{} rounds each of {}: {} tests failed",
        wanted.rounds,
        loads.join(", "),
        failures.len()
    )];
    for ((load, binary, name), count) in failures {
        lines.push(format!("  {load}: {binary}: {name}: {count} of {}", wanted.rounds));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn rounds_loads_and_targets_are_named() {
        let workspace = words("--workspace");
        let all = Wanted { rounds: 20, loads: LOADS.to_vec(), select: workspace.clone() };
        assert_eq!(parse(&words("20")).unwrap(), all);
        let loads = vec![Load::OneCore, Load::Busy];
        let some = Wanted { rounds: 3, loads, select: words("-p terrace --test it") };
        assert_eq!(parse(&words("3 one-core busy -- -p terrace --test it")).unwrap(), some);
        for wrong in ["", "busy", "0", "3 idle", "-- -p terrace"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn test_binaries_are_found_among_the_messages_of_cargo() {
        let line = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/p/crates/log/Cargo.toml",
                "target":{{"name":"it"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let found = binary_of(&line(true, r#""/t/it-01""#)).unwrap();
        let (path, dir) = (PathBuf::from("/t/it-01"), PathBuf::from("/p/crates/log"));
        assert_eq!(found, Binary { name: "log-it".to_string(), path, dir });
        assert_eq!(binary_of(&line(false, r#""/t/log""#)), None);
        assert_eq!(binary_of(&line(true, "null")), None);
        assert_eq!(binary_of("   Compiling log"), None);
    }

    #[test]
    fn what_failed_is_named_and_counted() {
        let script = |text: &str| Command::new("sh").args(["-c", text]).output().unwrap();
        assert!(failed_tests(&script("echo test a ... ok")).is_empty());
        let text = "printf 'failures:\n\n---- b stdout ----\nno\n\nfailures:\n    b\n    c::d\n'; exit 101";
        assert_eq!(failed_tests(&script(text)), ["b", "c::d"]);
        assert!(failed_tests(&script("exit 3"))[0].starts_with("the process: "));
        let key = (Load::Busy, "log-it".to_string(), "c::d".to_string());
        let wanted = parse(&words("20 busy")).unwrap();
        let text = summary(&Failures::from([(key, 2)]), &wanted);
        assert!(text.contains("20 rounds each of busy: 1 tests failed"), "{text}");
        assert!(text.contains("busy: log-it: c::d: 2 of 20"), "{text}");
    }

    #[test]
    fn threads_that_keep_cores_busy_end_with_the_work() {
        for load in LOADS {
            assert_eq!(beside(load, || 7), 7);
        }
    }
}
