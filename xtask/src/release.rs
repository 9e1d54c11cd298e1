//! `cargo xtask release`: the program for others, small, with its debug information in a file beside it.
//!
//! `target/dist/terrace` is stripped of it and names `terrace.debug`, which debuggers and profilers
//! then find by themselves if it lies beside the program.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The profile in `Cargo.toml`: that of releases, with debug information.
const PROFILE: &str = "dist";
const PROGRAM: &str = "terrace";

/// Builds the program and splits it.
pub fn run(root: &Path) -> Result<()> {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--profile", PROFILE, "-p", "terrace-cli"]);
    succeed(build.current_dir(root))?;
    let dir = root.join("target").join(PROFILE);
    let debug = format!("{PROGRAM}.debug");
    let objcopy = |arguments: &[&str]| {
        let mut command = Command::new("objcopy");
        // The link is by name, so both are named from where they lie.
        succeed(command.args(arguments).current_dir(&dir))
    };
    objcopy(&["--only-keep-debug", PROGRAM, &debug])?;
    objcopy(&["--strip-debug", &format!("--add-gnu-debuglink={debug}"), PROGRAM])?;
    for name in [PROGRAM, &debug] {
        let path = dir.join(name);
        let bytes = fs::metadata(&path).with_context(|| path.display().to_string())?.len();
        println!("{:>6.1} MB  {}", bytes as f64 / 1e6, path.display());
    }
    Ok(())
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
