//! `cargo xtask ci`: all of CI. One profile and one target directory, so that nothing is compiled twice but by the oldest
//! compiler; what fails fastest runs first.

use crate::steps::Steps;
use crate::{dependencies, published, test, tidy};
use anyhow::Result;
use std::path::Path;

/// Every step.
pub fn steps(root: &Path) -> Result<Steps> {
    let mut steps = Steps::new(root, "ci");
    steps.cargo("format", &["fmt", "--all", "--check"]);
    steps.check("tidy", tidy::run);
    steps.check("dependencies", dependencies::run);
    steps.check("crates", published::run);
    let traces = ["--features", "terrace-cli/opentelemetry"];
    let clippy = ["clippy", "--workspace", "--all-targets"];
    steps.cargo("clippy", &[&clippy[..], &traces, &["--", "-D", "warnings"]].concat());
    let simulation = ["clippy", "-p", "terrace", "--features", "simulation", "--test", "sim"];
    steps.cargo("clippy-simulation", &[&simulation[..], &["--", "-D", "warnings"]].concat());
    let plain = ["clippy", "-p", "terrace", "--no-default-features", "--lib", "--test", "features"];
    steps.cargo("clippy-features", &[&plain[..], &["--", "-D", "warnings"]].concat());
    let strict = [("RUSTDOCFLAGS", "-D warnings")];
    // Apart, and the library last: it shares its name with the program. Of the whole workspace with the features of clippy,
    // so that no dependency is looked at anew.
    let programs = ["doc", "--workspace", "--bins", "--no-deps"];
    steps.cargo_with("docs-of-programs", &[&programs[..], &traces].concat(), &strict);
    let libraries = ["doc", "--workspace", "--lib", "--no-deps"];
    steps.cargo_with("docs-of-libraries", &[&libraries[..], &traces].concat(), &strict);
    if test::is_long() {
        steps.check("crates-compile", published::compile);
    }
    test::add(&mut steps)?;
    Ok(steps)
}
