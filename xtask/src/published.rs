//! The crates that go to a registry: packed as for one, and compiled out of their packages with the oldest compiler that
//! they promise.

use crate::dependencies::is_published;
use crate::network;
use crate::output::run_shown;
use crate::packages::Packages;
use crate::steps::{cargo, target_dir};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

const PACK: [&str; 3] = ["package", "--allow-dirty", "--locked"];

/// Packs them all, without compiling them.
pub fn run(root: &Path) -> Result<()> {
    let names = names(&Packages::read(root)?)?;
    run_shown(cargo(&PACK).arg("--no-verify").args(names).current_dir(root))
}

/// Packs them all, and compiles each as cargo does before it publishes: only what is in the packages is there. One target
/// directory for all of them, so that what they use is compiled once.
pub fn compile(root: &Path) -> Result<()> {
    let packages = Packages::read(root)?;
    let oldest = packages.ours("terrace")?.rust_version.clone();
    let oldest = oldest.context("terrace names no rust-version")?;
    let install = || {
        let mut rustup = Command::new("rustup");
        rustup.args(["toolchain", "install", &oldest, "--profile", "minimal", "--no-self-update"]);
        rustup
    };
    let by_hand = || format!("Rust {oldest} is needed, which rustup installs: https://rustup.rs");
    network::run(install).with_context(by_hand)?;
    let mut rustup = Command::new("rustup");
    rustup.args(["run", &oldest, "cargo"]).args(PACK).args(names(&packages)?);
    rustup.env("CARGO_TARGET_DIR", target_dir(root).join("published")).current_dir(root);
    run_shown(&mut rustup)
}

/// `-p NAME` for each.
fn names(packages: &Packages) -> Result<Vec<String>> {
    let ours = packages.all().filter(|package| is_published(package));
    let names: Vec<_> = ours.flat_map(|one| ["-p".to_string(), one.name.clone()]).collect();
    ensure!(!names.is_empty(), "no crate is published");
    Ok(names)
}
