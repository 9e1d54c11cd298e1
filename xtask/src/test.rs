//! `cargo xtask test`: everything that can fail, in one command. Nothing is skipped: what a step
//! needs and does not find is installed, or fails it.

use crate::steps::Steps;
use crate::{clients, dashboard};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the examples lie that are run, not only compiled.
const EXAMPLES: &str = "crates/terrace/examples";

/// Seconds that each fuzz target is tried for.
const FUZZ_SECONDS: &str = "2";

/// Runs every step; the first that fails ends it.
pub fn run(root: &Path) -> Result<()> {
    let mut steps = Steps::new(root);
    add(&mut steps)?;
    steps.summary();
    Ok(())
}

/// Runs only the steps for which more than cargo is needed.
pub fn run_outside(root: &Path) -> Result<()> {
    let mut steps = Steps::new(root);
    clients::install(&mut steps)?;
    outside(&mut steps)?;
    steps.summary();
    Ok(())
}

/// The server with real clients, and with a real browser.
fn outside(steps: &mut Steps) -> Result<()> {
    // Of the whole workspace, as it was built: for one package alone, features may be others.
    let clients = ["test", "--workspace", "--test", "clients", "--", "--include-ignored"];
    steps.cargo("real clients, and Redis for comparison", &clients)?;
    dashboard::add(steps)
}

/// Adds the steps of the tests to a longer run.
pub fn add(steps: &mut Steps) -> Result<()> {
    clients::install(steps)?;
    let build = ["build", "--workspace", "--all-targets"];
    steps.cargo("build everything, benches and examples too", &build)?;
    steps.cargo("tests", &["test", "--workspace"])?;
    run_examples(steps)?;
    loom(steps)?;
    let target_dir = steps.target_dir();
    let mut fuzz = Command::new(target_dir.join("debug").join("terrace-fuzz"));
    fuzz.args(["--seconds", FUZZ_SECONDS]);
    steps.run("fuzz smoke", &format!("terrace-fuzz --seconds {FUZZ_SECONDS}"), fuzz)?;
    outside(steps)
}

/// Runs the examples that the build has left.
fn run_examples(steps: &mut Steps) -> Result<()> {
    let built = steps.target_dir().join("debug").join("examples");
    let mut names = Vec::new();
    steps.step("list the examples", EXAMPLES, |root| {
        names = example_names(&root.join(EXAMPLES))?;
        println!("{}", names.join(" "));
        Ok(())
    })?;
    for name in names {
        let shown = format!("cargo run -p terrace --example {name}");
        steps.run(&format!("example {name}"), &shown, Command::new(built.join(&name)))?;
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
fn loom(steps: &mut Steps) -> Result<()> {
    let target = steps.target_dir().join("loom");
    let target = target.to_string_lossy();
    let arguments =
        ["test", "-p", "terrace-skiplist", "--release", "--target-dir", &target, "--", "loom"];
    steps.cargo_with("skiplist under loom", &arguments, &[("RUSTFLAGS", "--cfg loom")])
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
}
