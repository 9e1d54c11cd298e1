//! `cargo xtask`: the project's own commands. What CI runs is what a laptop runs.

mod ci;
mod clients;
mod dashboard;
mod peers;
mod steps;
mod test;
mod tidy;

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask COMMAND

  tidy     check the style guide: floors, names, sizes, unsafe code, links
  test     run everything that can fail: unit, model, crash and doc tests, loom, examples, fuzzers,
           real clients, the dashboard in Chromium; installs what that needs
  clients  only the last two: real clients, and the dashboard in Chromium
  ci       all of CI: fmt, tidy, clippy, docs, then test
  peers    fetch the engines that `terrace bench` measures beside Terrace
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let root = root()?;
    match arguments.first().map(String::as_str) {
        Some("tidy") => tidy::run(&root),
        Some("test") => test::run(&root),
        Some("clients") => test::run_outside(&root),
        Some("ci") => ci::run(&root),
        Some("peers") => peers::run(&root),
        Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            Ok(())
        }
        Some(other) => bail!("there is no command `{other}`\n\n{USAGE}"),
        None => bail!("which command?\n\n{USAGE}"),
    }
}

/// The root of the project.
fn root() -> Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).context("xtask lies outside of the project")
}
