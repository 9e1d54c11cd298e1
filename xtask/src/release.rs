//! `cargo xtask release`: the program for others, small, with its debug information in a file beside it.
//!
//! `target/dist/terrace` is stripped of it and names `terrace.debug`, which debuggers and profilers
//! then find by themselves if it lies beside the program.

use crate::output::run_shown;
use crate::steps::{cargo, target_dir};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The profile in `Cargo.toml`: that of releases, with debug information.
pub const PROFILE: &str = "dist";

/// File of the program.
pub const PROGRAM: &str = "terrace";

/// File of its debug information.
pub const DEBUG: &str = "terrace.debug";

/// Builds the program and splits it.
pub fn run(root: &Path) -> Result<()> {
    let build = ["build", "--profile", PROFILE, "-p", "terrace-cli"];
    run_shown(cargo(&build).current_dir(root))?;
    let dir = target_dir(root).join(PROFILE);
    split(&dir.join(PROGRAM), &dir)?;
    for name in [PROGRAM, DEBUG] {
        let path = dir.join(name);
        let bytes = fs::metadata(&path).with_context(|| path.display().to_string())?.len();
        println!("{:>6.1} MB  {}", bytes as f64 / 1e6, path.display());
    }
    Ok(())
}

/// Puts the program `built` without its debug information, and that information, into `dir`, which may be the
/// folder that it is in.
pub fn split(built: &Path, dir: &Path) -> Result<()> {
    let built = fs::canonicalize(built).with_context(|| format!("find {}", built.display()))?;
    let objcopy = |arguments: &[&str], to: &str| {
        let mut command = Command::new("objcopy");
        command.args(arguments).arg(&built).arg(to);
        // The link is by name, so both are named from where they lie.
        run_shown(command.current_dir(dir))
    };
    objcopy(&["--only-keep-debug"], DEBUG)?;
    objcopy(&["--strip-debug", &format!("--add-gnu-debuglink={DEBUG}")], PROGRAM)
}
