//! `cargo xtask peers`: fetches the engines that `terrace-bench` measures beside Terrace.
//!
//! RocksDB and Speedb lie as ready shared libraries inside public Maven artifacts; they are copied
//! by `mvn`, unpacked into `target/peers/`, and loaded once to see that they export the C API.
//! LevelDB comes from the system's packages. Nothing is built.

use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A library inside a Maven artifact.
struct Artifact {
    engine: &'static str,
    /// `group:name:version[:packaging:classifier]`.
    coordinates: &'static str,
    /// The library's file name before the platform.
    stem: &'static str,
}

const ARTIFACTS: [Artifact; 2] = [
    Artifact {
        engine: "rocksdb",
        coordinates: "org.rocksdb:rocksdbjni:10.10.1:jar:linux64",
        stem: "librocksdbjni",
    },
    Artifact {
        engine: "speedb",
        coordinates: "io.github.speedb-io:speedbjni:2.8.0:jar",
        stem: "libspeedbjni",
    },
];

const ROCKSDB_PROBE: &str = "rocksdb_get_options_from_string";
const LEVELDB_NAMES: [&str; 3] = ["libleveldb.so.1d", "libleveldb.so.1", "libleveldb.so"];
const LEVELDB_PACKAGE: &str = "libleveldb1d";

/// Fetches what is missing and checks what is there. An error names every engine that is not
/// usable afterwards; the others are.
pub fn run(root: &Path) -> Result<()> {
    let peers = root.join("target/peers");
    std::fs::create_dir_all(&peers)?;
    let mut missing = Vec::new();
    for artifact in &ARTIFACTS {
        match fetch(artifact, &peers) {
            Ok(path) => println!("{:8} {}", artifact.engine, path.display()),
            Err(error) => missing.push(format!("{}: {error:#}", artifact.engine)),
        }
    }
    match leveldb() {
        Ok(name) => println!("{:8} {name}, of the system", "leveldb"),
        Err(error) => missing.push(format!("leveldb: {error:#}")),
    }
    println!("{:8} built in as a crate", "fjall");
    ensure!(missing.is_empty(), "not every peer is usable:\n  {}", missing.join("\n  "));
    Ok(())
}

/// The library of `artifact` in `peers`, fetched if it is not there or does not load.
fn fetch(artifact: &Artifact, peers: &Path) -> Result<PathBuf> {
    let name = format!("{}-{}.so", artifact.stem, platform()?);
    let path = peers.join(&name);
    if path.is_file() && check_rocksdb(&path).is_ok() {
        return Ok(path);
    }
    let jars = peers.join("jars");
    std::fs::create_dir_all(&jars)?;
    let mut copy = Command::new("mvn");
    copy.args(["--batch-mode", "--quiet", "dependency:copy", "-Dmdep.overWriteReleases=true"])
        .arg(format!("-Dartifact={}", artifact.coordinates))
        .arg(format!("-DoutputDirectory={}", jars.display()));
    quietly(&mut copy).context("fetching it needs Maven (`apt-get install maven`)")?;
    let jar = std::fs::read_dir(&jars)?
        .flatten()
        .map(|entry| entry.path())
        .find(|jar| {
            let file = jar.file_name().unwrap_or_default().to_string_lossy();
            file.starts_with(&artifact.stem["lib".len()..])
        })
        .context("mvn copied no artifact")?;
    let mut unzip = Command::new("unzip");
    unzip.args(["-o", "-q"]).arg(&jar).arg(&name).arg("-d").arg(peers);
    let mut unjar = Command::new("jar");
    unjar.arg("xf").arg(&jar).arg(&name).current_dir(peers);
    quietly(&mut unzip)
        .or_else(|_| quietly(&mut unjar))
        .with_context(|| format!("unpacking {name} needs `unzip` or a JDK's `jar`"))?;
    std::fs::remove_dir_all(&jars)?;
    check_rocksdb(&path)?;
    Ok(path)
}

/// The platform's part of the file names.
fn platform() -> Result<&'static str> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Ok("linux64"),
        ("linux", "aarch64") => Ok("linux-aarch64"),
        (os, arch) => bail!("there is no ready library for {os} on {arch}"),
    }
}

/// LevelDB of the system, installed if it is missing and this user may.
fn leveldb() -> Result<&'static str> {
    let usable = || LEVELDB_NAMES.into_iter().find(|name| check(name.as_ref()).is_ok());
    if let Some(name) = usable() {
        return Ok(name);
    }
    let advice = format!("`apt-get install {LEVELDB_PACKAGE}` as root");
    let install =
        || quietly(Command::new("apt-get").args(["install", "-y", "-q", LEVELDB_PACKAGE]));
    if install().is_err() {
        quietly(Command::new("apt-get").args(["update", "-q"]))
            .and_then(|()| install())
            .with_context(|| format!("it is not installed; {advice}"))?;
    }
    usable().with_context(|| format!("it does not load; {advice}"))
}

/// Runs a command; its output is only shown if it fails.
fn quietly(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("starting {program}"))?;
    ensure!(
        output.status.success(),
        "{program} failed: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Has the system's loader load a library into a process that does nothing else. RocksDB and
/// Speedb do not go together into one process, and this needs no unsafe code.
fn check(library: &OsStr) -> Result<()> {
    let output = Command::new("true")
        .env("LD_PRELOAD", library)
        .env("LD_BIND_NOW", "1")
        .stdin(Stdio::null())
        .output()
        .context("starting a process to load it")?;
    // The loader only warns of a library that it cannot preload.
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && complaint.is_empty(), "it does not load: {complaint}");
    Ok(())
}

/// Checks that a library loads, and that it names a function of the C API that is needed.
fn check_rocksdb(library: &Path) -> Result<()> {
    check(library.as_os_str())?;
    let bytes = std::fs::read(library)?;
    let exports = bytes.windows(ROCKSDB_PROBE.len()).any(|name| name == ROCKSDB_PROBE.as_bytes());
    ensure!(exports, "it does not export {ROCKSDB_PROBE}");
    Ok(())
}
