//! `cargo xtask`: the project's own commands. What CI runs is what a laptop runs.

mod c_library;
mod ci;
mod clients;
mod dashboard;
mod dependencies;
mod dist;
mod failing;
mod installed;
mod leveldb;
mod leveldb_library;
mod network;
mod output;
mod packages;
mod page;
mod peers;
mod plant;
mod published;
mod release;
mod rounds;
mod steps;
mod test;
mod tidy;
mod wheel;

use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask COMMAND

  tidy            check the style guide: floors, names, sizes, unsafe code, links
  lines           write the right line numbers into the documents' links to code
  test [STEP...]  run everything that can fail: unit, model, crash and doc tests, loom, examples,
                  fuzzers, real clients, the dashboard in Chromium; installs what that needs
  rounds N [alone] [busy] [one-core] [-- ARGUMENTS]
                  run the test binaries, of the workspace or those that `cargo test ARGUMENTS` would,
                  N times each alone, with all cores kept busy, and on one core (with `taskset`); the
                  end of the output says which tests failed and how often
  clients         only the last two: real clients, and the dashboard in Chromium
  ci [STEP...]    all of CI: fmt, tidy, clippy, docs, then test
  c-library [DIR] build the library for C and put it, its header and its pkg-config file into DIR
                  (target/c), to be compiled against or copied to /usr/local
  leveldb-library [DIR]
                  the same for LevelDB's interfaces for C and C++ (target/leveldb): programs for
                  libleveldb.so.1 run with it unchanged
  dist [--profile NAME] [--no-wheel] [--any-glibc] [DIR]
                  what is given to users, into DIR (target/packages): archives of the program and of
                  the libraries for C and C++, packages for Debian and Python, lists of what is in them,
                  checksums; refused if they need a newer C library than promised, but for --any-glibc
  release         build the program for others: stripped, its debug information in a file beside it
  plant [NAME...] plant faults one at a time in a copy of the project, and run the simulation and the
                  crash test on each; names of either suite, or of faults, choose
  peers           fetch the engines that `terrace-bench` measures beside Terrace

A step that fails does not stop those after it that can do without; the end of the output says
what failed and how to run just that. With names of steps only these are run.
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
    let rest = arguments.get(1..).unwrap_or_default();
    match arguments.first().map(String::as_str) {
        Some("tidy") => tidy::run(&root),
        Some("lines") => tidy::renumber(&root),
        Some("test") => test::steps(&root)?.run(rest),
        Some("clients") => test::steps_outside(&root).run(rest),
        Some("ci") => ci::steps(&root)?.run(rest),
        Some("peers") => peers::run(&root),
        Some("rounds") => rounds::run(&root, rest),
        Some("plant") => plant::run(&root, rest),
        Some("dist") => dist::run(&root, rest),
        Some("release") => release::run(&root),
        Some("c-library") => c_library::run(&root, rest),
        Some("leveldb-library") => leveldb_library::run(&root, rest),
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
