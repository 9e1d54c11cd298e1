//! `cargo xtask test`: everything that can fail, in one command. Nothing is skipped: what a step
//! needs and does not find is installed, or fails it.

use crate::failing::Failing;
use crate::output::run_watched;
use crate::steps::BUILD;
use crate::steps::{Failure, Steps, cargo};
use crate::{clients, dashboard, installed, leveldb, wheel};
use anyhow::{Context, Result, anyhow, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the examples lie that are run, not only compiled.
const EXAMPLES: &str = "crates/terrace/examples";

/// Seconds that each fuzz target is tried for.
const FUZZ_SECONDS: &str = "2";

/// How many tests of one binary run at the same time.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Whether what takes long runs too: faults of processes under load, plans of thousands of keys.
pub fn is_long() -> bool {
    let effort = std::env::var("TERRACE_TEST_EFFORT").ok().and_then(|text| text.parse().ok());
    effort.unwrap_or(1_u64) > 1
}

/// Every step.
pub fn steps(root: &Path) -> Result<Steps> {
    let mut steps = Steps::new(root, "test");
    add(&mut steps)?;
    Ok(steps)
}

/// Only the steps for which more than cargo is needed, and what they need.
pub fn steps_outside(root: &Path) -> Steps {
    let mut steps = Steps::new(root, "clients");
    clients::install(&mut steps);
    build(&mut steps);
    outside(&mut steps);
    steps
}

/// Benches and examples too. Of the whole workspace, as all later steps: for one package alone,
/// features may be others.
fn build(steps: &mut Steps) {
    steps.cargo(BUILD, &["build", "--workspace", "--all-targets"]);
}

/// The server with real clients and Redis for comparison, and with a real browser.
fn outside(steps: &mut Steps) {
    let select = ["--workspace", "--test", "clients"];
    let needs = [BUILD, clients::TOOLS_STEP];
    let soaks: &[&str] = &["--include-ignored", "--skip", "faults::", "--skip", "repartition::"];
    let extra = if is_long() { &["--include-ignored"] } else { soaks };
    cargo_test(steps, "clients", &select, extra, &needs);
    let programs = ["--workspace", "--test", "c_programs"];
    cargo_test(steps, "c-programs", &programs, &["--include-ignored"], &needs);
    // Of the whole workspace, since for one package alone much would be compiled anew.
    let histories = ["--workspace", "--test", "it"];
    let extra: &[&str] = &["--include-ignored", "nodes::history"];
    cargo_test(steps, "histories", &histories, extra, &needs);
    wheel::add(steps, &needs);
    leveldb::add(steps, &needs);
    installed::add(steps);
    dashboard::add(steps);
}

/// Adds the steps of the tests to a longer run.
pub fn add(steps: &mut Steps) -> Result<()> {
    clients::install(steps);
    build(steps);
    cargo_test(steps, "tests", &["--workspace"], &[], &[BUILD]);
    simulation(steps);
    features(steps);
    run_examples(steps)?;
    loom(steps);
    let mut fuzz = Command::new(steps.target_dir().join("debug").join("terrace-fuzz"));
    fuzz.args(["--seconds", FUZZ_SECONDS]);
    let shown = format!("cargo run -p terrace-fuzz -- --seconds {FUZZ_SECONDS}");
    steps.command("fuzz", &shown, fuzz).needs(&[BUILD]);
    outside(steps);
    traces(steps);
    Ok(())
}

/// Adds tests that go on after a failure, and name what failed.
fn cargo_test(
    steps: &mut Steps,
    name: &str,
    select: &[&str],
    extra: &'static [&str],
    needs: &[&str],
) {
    let mut arguments = [&["test"], select, &["--no-fail-fast"]].concat();
    if !extra.is_empty() {
        arguments.extend([&["--"], extra].concat());
    }
    let mut command = cargo(&arguments);
    // Many tests wait for pauses that the engine makes: more of them at a time than there are cores.
    if std::env::var_os(TEST_THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        command.env(TEST_THREADS, (2 * cores).to_string());
    }
    let shown = format!("cargo {}", arguments.join(" "));
    let step = steps.add(name, &shown, move |root| {
        command.current_dir(root);
        let mut failing = Failing::default();
        let status = run_watched(command, |line| failing.look(line, extra))?;
        let commands = failing.commands();
        let error = || match commands.len() {
            0 => anyhow!("{status}"),
            count => anyhow!("tests of {count} targets failed"),
        };
        if status.success() { Ok(()) } else { Err(Failure::of_part(error(), commands.clone())) }
    });
    step.needs(needs);
}

/// The engine on a seeded scheduler, and the scheduler: the feature is in no other build.
fn simulation(steps: &mut Steps) {
    let feature = ["--features", "simulation"];
    let scheduler = [&["-p", "terrace-base"], &feature[..], &["--lib"]].concat();
    cargo_test(steps, "scheduler", &scheduler, &["sync"], &[BUILD]);
    let engine = [&["-p", "terrace"], &feature[..], &["--test", "sim"]].concat();
    cargo_test(steps, "simulation", &engine, &[], &[BUILD]);
}

/// The library without any of its features, and so without a C compiler; other builds have all of them.
fn features(steps: &mut Steps) {
    let no_compiler = [("CC", "false")];
    let codecs = ["test", "-p", "terrace-compression", "--no-default-features"];
    steps.cargo_with("codecs", &codecs, &no_compiler);
    let engine = ["test", "-p", "terrace", "--no-default-features", "--test", "features"];
    steps.cargo_with("features", &engine, &no_compiler);
}

/// The program with traces, against a collector. Last: it takes the place of the program without them.
fn traces(steps: &mut Steps) {
    let select = ["--workspace", "--features", "terrace-cli/opentelemetry", "--test", "telemetry"];
    cargo_test(steps, "traces", &select, &[], &[BUILD]);
}

/// Runs the examples that the build has left.
fn run_examples(steps: &mut Steps) -> Result<()> {
    let built = steps.target_dir().join("debug").join("examples");
    for name in example_names(&steps.root().join(EXAMPLES))? {
        let shown = format!("cargo run -p terrace --example {name}");
        let example = Command::new(built.join(&name));
        steps.command(&format!("example-{name}"), &shown, example).needs(&[BUILD]);
    }
    Ok(())
}

/// The names of the examples in `dir`, at least one.
fn example_names(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".rs").map(str::to_string));
    }
    ensure!(!names.is_empty(), "{} holds no example", dir.display());
    names.sort();
    Ok(names)
}

/// The skiplist under loom. Its `cfg` changes every crate, so it has a target directory of its own.
fn loom(steps: &mut Steps) {
    let target = steps.target_dir().join("loom");
    let target = target.to_string_lossy();
    let arguments =
        ["test", "-p", "terrace-skiplist", "--release", "--target-dir", &target, "--", "loom"];
    steps.cargo_with("loom", &arguments, &[("RUSTFLAGS", "--cfg loom")]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_examples_is_a_failure() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(example_names(&here.join("src/tidy")).is_ok());
        assert!(example_names(here).is_err());
        assert!(example_names(&here.join("gone")).is_err());
    }

    #[test]
    fn all_commands_have_steps_whose_needs_come_before_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let all = [steps(root).unwrap(), steps_outside(root), crate::ci::steps(root).unwrap()];
        for steps in all {
            // Nothing is run: no step has this name.
            let error = steps.run(&["no such step".to_string()]).unwrap_err().to_string();
            assert!(error.contains("there is no step"), "{error}");
            assert!(error.contains("dashboard-served"), "{error}");
        }
    }
}
