//! The commit that the bench is built from, for its reports: of the checkout, `-dirty` if a source that the bench is made
//! of differs from it, and `unknown` where git tells nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the names of the workspace's crates begin with; what follows is the name of the directory.
const PREFIX: &str = "terrace-";

fn main() {
    let own = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let sources = sources(&own);
    println!("cargo::rerun-if-changed=build.rs");
    for source in &sources {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    // It grows with every commit and checkout.
    let log = git(&own, &["rev-parse", "--git-path", "logs/HEAD"]).map(|path| own.join(path));
    if let Some(log) = log.filter(|log| log.is_file()) {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    println!("cargo::rustc-env=TERRACE_BENCH_COMMIT={}", commit(&own, &sources));
}

fn commit(own: &Path, sources: &[PathBuf]) -> String {
    let Some(hash) = git(own, &["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let paths = sources.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    let mut status = vec!["status", "--porcelain", "--untracked-files=no", "--"];
    status.extend(paths.iter().map(String::as_str));
    match git(own, &status) {
        Some(changes) if changes.is_empty() => hash,
        _ => format!("{hash}-dirty"),
    }
}

/// What git prints, if there is git and it succeeds.
fn git(dir: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(["--no-optional-locks", "-C"]).arg(dir).args(arguments);
    let output = command.output().ok()?;
    let text = output.status.success().then_some(output.stdout)?;
    Some(String::from_utf8_lossy(&text).trim().to_owned())
}

/// The sources and manifests of this crate and of all crates of the workspace that it is built of, and what pins the
/// others.
fn sources(own: &Path) -> Vec<PathBuf> {
    let crates = own.parent().unwrap_or(own);
    let mut seen = BTreeSet::new();
    let mut next = vec![own.to_path_buf()];
    while let Some(dir) = next.pop() {
        let manifest = std::fs::read_to_string(dir.join("Cargo.toml"));
        if seen.insert(dir) {
            next.extend(manifest.iter().flat_map(|text| used(text)).map(|name| crates.join(name)));
        }
    }
    let workspace = crates.parent().unwrap_or(crates);
    let pins = ["Cargo.toml", "Cargo.lock"].map(|name| workspace.join(name));
    let parts = seen.iter().flat_map(|dir| ["src", "Cargo.toml"].map(|name| dir.join(name)));
    parts.chain(pins).filter(|path| path.exists()).collect()
}

/// The directories of the workspace's crates that lines of a manifest name.
fn used(manifest: &str) -> impl Iterator<Item = &str> {
    manifest.lines().filter_map(|line| {
        let name = line.split(['.', ' ', '=']).next()?;
        if name == "terrace" { Some(name) } else { name.strip_prefix(PREFIX) }
    })
}
