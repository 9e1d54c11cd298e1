//! The packages as a user gets them, made of what the tests have built: archives and the wheel are unpacked and
//! compiled against, the package for Debian is installed in a clean root, where its server is started by the command of its
//! service and by that of the image, upgraded, removed, brought back and purged.

mod archives;
mod clean_root;
mod image;
mod service;

use crate::clients::TOOLS_STEP;
use crate::dist::{self, MANYLINUX, SUMS, UNIT, VERSION};
use crate::output::{run_shown, shown};
use crate::steps::{BUILD, Steps};
use crate::wheel;
use anyhow::{Context, Result, ensure};
use clean_root::CleanRoot;
use image::Image;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The step that makes the packages and tries them.
pub const STEP: &str = "packages";

/// Adds the step.
pub fn add(steps: &mut Steps) {
    let target = steps.target_dir();
    let step = steps.check(STEP, move |root| {
        let dir = target.join("packages-test");
        let clean = dir.join("clean-root");
        CleanRoot::remove_left(&clean)?;
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        let out = dir.join("out");
        let names = dist::packages(root, &out)?;
        run_shown(Command::new("sha256sum").args(["--check", SUMS]).current_dir(&out))?;
        let made = |start: &str, ending: &str| made(&out, &names, start, ending);
        archives::program(&made(&format!("terrace-{VERSION}"), "linux.tar.gz")?)?;
        archives::c_library(root, &made(&format!("libterrace-{VERSION}"), "linux.tar.gz")?)?;
        archives::leveldb_library(root, &made("libterrace-leveldb-", "linux.tar.gz")?)?;
        let python = wheel::venv(&target).join("bin/python");
        archives::wheel(&python, &made("terracedb-", ".whl")?, MANYLINUX, &dir)?;
        list(&made("terrace-", ".cdx.json")?)?;
        let image =
            fs::read_to_string(out.join(image::NAME)).context("read what makes the image")?;
        let image = Image::read(&image)?;
        let package = made("terrace_", ".deb")?;
        let unpacked = dir.join("unpacked");
        let newer = newer_package(&package, &unpacked, &dir.join("newer.deb"))?;
        image.check(&names, &unpacked)?;
        debian_package(root, [&package, &newer], &unpacked, &image, &dir)
    });
    step.needs(&[BUILD, TOOLS_STEP]);
}

/// The one file that was made whose name begins and ends so.
fn made(out: &Path, names: &[String], start: &str, ending: &str) -> Result<PathBuf> {
    let mut found = names.iter().filter(|name| name.starts_with(start) && name.ends_with(ending));
    let name = found.next().with_context(|| format!("no {start}*{ending} among {names:?}"))?;
    ensure!(found.next().is_none(), "more than one {start}*{ending} among {names:?}");
    Ok(out.join(name))
}

/// The list of what the program is built from names the engine.
fn list(path: &Path) -> Result<()> {
    let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let list: serde_json::Value = serde_json::from_slice(&text).context("understand the list")?;
    let components = list["components"].as_array().context("a list without components")?;
    let has_engine = components.iter().any(|one| one["name"] == "terrace");
    ensure!(has_engine, "{} has no terrace", path.display());
    Ok(())
}

/// dpkg installs the first of the packages in a clean root, upgrades it to the second, removes it, brings it back and purges it; its server
/// runs meanwhile. It is unpacked in `unpacked`.
fn debian_package(
    root: &Path,
    [package, newer]: [&Path; 2],
    unpacked: &Path,
    image: &Image,
    dir: &Path,
) -> Result<()> {
    run_shown(Command::new("dpkg-deb").arg("--info").arg(package))?;
    let clean_dir = dir.join("clean-root");
    let text = fs::read_to_string(unpacked.join(UNIT)).with_context(|| format!("read {UNIT}"))?;
    unit(unpacked, &text, dir)?;
    let clean = CleanRoot::make(root, &clean_dir, package)?;
    clean.install(package, VERSION)?;
    service::serves(&clean, &text, image)?;
    clean.upgrade(newer, &later_version())?;
    clean.remove()?;
    clean.bring_back(newer, &later_version())?;
    clean.remove()?;
    clean.purge()?;
    CleanRoot::remove_left(&clean_dir)
}

fn later_version() -> String {
    format!("{VERSION}+1")
}

/// Unpacks the package into `unpacked`, and packs it again as one of a later version.
fn newer_package(package: &Path, unpacked: &Path, to: &Path) -> Result<PathBuf> {
    run_shown(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(unpacked))?;
    let control = unpacked.join("DEBIAN/control");
    let text = fs::read_to_string(&control).context("read the package's control")?;
    let newer = text
        .replace(&format!("\nVersion: {VERSION}\n"), &format!("\nVersion: {}\n", later_version()));
    ensure!(newer != text, "the package has another version: {text}");
    fs::write(&control, newer).context("write the package's control")?;
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Znone", "--build"]).arg(unpacked).arg(to);
    run_shown(&mut build)?;
    Ok(to.to_path_buf())
}

/// systemd finds nothing to complain about in the service, once its program is where it was unpacked.
fn unit(root: &Path, text: &str, dir: &Path) -> Result<()> {
    let program = root.join("usr/bin/terrace");
    let text = text.replace("/usr/bin/terrace", &program.to_string_lossy());
    let path = dir.join("terrace.service");
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    let mut verify = Command::new("systemd-analyze");
    let output = verify.args(["verify", "--man=no"]).arg(&path).output();
    let output = output.with_context(|| format!("start {}", shown(&verify)))?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    let of_ours = complaints.lines().find(|line| line.contains("terrace"));
    ensure!(of_ours.is_none(), "{}: {complaints}", shown(&verify));
    ensure!(output.status.success(), "{}: {complaints}", shown(&verify));
    Ok(())
}
