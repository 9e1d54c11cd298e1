//! The Python package: its wheel is built by maturin, installed into an environment of its own, and tested
//! there by pytest. What that needs is installed by pip, pinned, below the target directory.

use crate::clients::python_packages;
use crate::output::run_shown;
use crate::steps::Steps;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CRATE: &str = "crates/python";

/// Pinned packages of Python.
const REQUIREMENTS: &str = "crates/python/tests/requirements.txt";

/// What the package is called.
const PACKAGE: &str = "terracedb";

/// The platform of a wheel that is for systems like this one.
pub const ANY_LINUX: &str = "linux";

/// The step that builds and tests the wheel.
pub const STEP: &str = "wheel";

/// Adds the step; `needs` are to come before it.
pub fn add(steps: &mut Steps, needs: &[&str]) {
    let target = steps.target_dir();
    let step = steps.check(STEP, move |root| {
        let (dir, venv) = (target.join("python"), venv(&target));
        let wheels = build(root, &target, "dev", ANY_LINUX)?;
        install(&venv, &wheels)?;
        // From elsewhere, so that the installed package is found and not the sources.
        let mut pytest = Command::new(venv.join("bin/python"));
        pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
        pytest.arg(root.join(CRATE).join("tests")).current_dir(&dir);
        run_shown(&mut pytest)
    });
    step.needs(needs);
}

/// Builds the wheel with a profile, for a platform: one of the manylinux is checked by maturin. Gives the folder that
/// it is in, alone.
pub fn build(root: &Path, target: &Path, profile: &str, platform: &str) -> Result<PathBuf> {
    let dir = target.join("python");
    python_packages(&root.join(REQUIREMENTS), &venv(target), "maturin and pytest")?;
    let wheels = dir.join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels).with_context(|| format!("remove {}", wheels.display()))?;
    }
    let mut maturin = Command::new(venv(target).join("bin/maturin"));
    maturin.args(["build", "--profile", profile, "--locked", "--compatibility", platform, "--out"]);
    maturin.arg(&wheels).arg("--manifest-path").arg(root.join(CRATE).join("Cargo.toml"));
    run_shown(maturin.arg("--target-dir").arg(target).current_dir(root))?;
    Ok(wheels)
}

/// The environment that maturin and pytest are in.
pub fn venv(target: &Path) -> PathBuf {
    target.join("python/venv")
}

/// Installs the wheel that is in `wheels`, whatever of it was there.
fn install(venv: &Path, wheels: &Path) -> Result<()> {
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip.args(["--force-reinstall", "--no-deps", "--no-index", "--find-links"]);
    run_shown(pip.arg(wheels).arg(PACKAGE))
}
