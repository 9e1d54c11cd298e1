//! What `cargo xtask test` needs beside cargo: Redis's own programs, redis-py, rq, Node, ioredis,
//! Go, go-redis, porcupine, Java, Jedis, etcd, pkg-config, Valgrind, systemd's checker of units and Chromium. What is missing
//! is installed: Debian's packages by apt-get, the rest below the target directory and in `node_modules` of the dashboard and of the tests. What cannot be installed fails
//! the run and says what a person should do; nothing is skipped.

use crate::network;
use crate::output::shown;
use crate::steps::Steps;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Pinned packages of Python.
const REQUIREMENTS: &str = "crates/cli/tests/clients/requirements.txt";

/// The packages of Node that the tests use, in the lock file of this folder.
const NODE_CLIENTS: &str = "crates/cli/tests/clients/node";

/// The modules of Go that the tests use.
const GO_CLIENTS: &str = "crates/cli/tests/clients/go";

/// The program in Go that checks histories, with porcupine.
const PORCUPINE: &str = "crates/server/tests/porcupine";

/// The packages of Java that the tests use.
const JAVA_CLIENTS: &str = "crates/cli/tests/clients/java/pom.xml";

/// What copies them; pinned.
const COPY_PACKAGES: &str =
    "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// The oldest Node that the dashboard is built with, as in its `package.json`.
const OLDEST_NODE: (u32, u32) = (20, 19);

/// Something that the tests start, and the packages of Debian that have it.
struct Tool {
    name: &'static str,
    packages: &'static [&'static str],
    /// Ends well if it is there.
    probe: &'static [&'static str],
}

const TOOLS: &[Tool] = &[
    Tool { name: "Redis", packages: &["redis-server"], probe: &["redis-server", "--version"] },
    Tool { name: "redis-cli", packages: &["redis-tools"], probe: &["redis-cli", "--version"] },
    Tool {
        name: "redis-benchmark",
        packages: &["redis-tools"],
        probe: &["redis-benchmark", "--version"],
    },
    Tool {
        name: "Chromium",
        packages: &["chromium", "fonts-liberation"],
        probe: &["chromium", "--version"],
    },
    Tool {
        name: "Python with venv",
        packages: &["python3", "python3-venv"],
        probe: &["python3", "-c", "import ensurepip, venv"],
    },
    Tool { name: "Node", packages: &["nodejs"], probe: &["node", "--version"] },
    Tool { name: "npm", packages: &["npm"], probe: &["npm", "--version"] },
    Tool { name: "Go", packages: &["golang-go"], probe: &["go", "version"] },
    Tool { name: "pkg-config", packages: &["pkg-config"], probe: &["pkg-config", "--version"] },
    Tool { name: "Valgrind", packages: &["valgrind"], probe: &["valgrind", "--version"] },
    Tool { name: "C++ compiler", packages: &["g++"], probe: &["c++", "--version"] },
    Tool { name: "Java", packages: &["default-jdk-headless"], probe: &["javac", "--version"] },
    Tool { name: "Maven", packages: &["maven"], probe: &["mvn", "--version"] },
    Tool { name: "systemd", packages: &["systemd"], probe: &["systemd-analyze", "--version"] },
    Tool { name: "etcd", packages: &["etcd-server"], probe: &["etcd", "--version"] },
    Tool { name: "etcdctl", packages: &["etcd-client"], probe: &["etcdctl", "version"] },
];

/// Packages with a service, and its name.
const SERVICES: [(&str, &str); 2] = [("redis-server", "redis-server"), ("etcd-server", "etcd")];

/// The step that [`install`] adds.
pub const TOOLS_STEP: &str = "tools";

/// Adds the step that installs what is missing.
pub fn install(steps: &mut Steps) {
    let target = steps.target_dir();
    steps.check(TOOLS_STEP, move |root| {
        debian_packages()?;
        node_is_new_enough()?;
        let venv = target.join("client-tools").join("venv");
        python_packages(&root.join(REQUIREMENTS), &venv, "redis-py and rq")?;
        node_packages(root, "dashboard")?;
        node_packages(root, NODE_CLIENTS)?;
        let tools = target.join("client-tools");
        go_modules(&root.join(GO_CLIENTS), &tools.join("go.sum"), "go-redis")?;
        go_modules(&root.join(PORCUPINE), &tools.join("porcupine.sum"), "porcupine")?;
        java_packages(root, &target.join("client-tools").join("jedis"))
    });
}

/// Installs the packages of tools that are not there.
fn debian_packages() -> Result<()> {
    let missing: Vec<&Tool> = TOOLS.iter().filter(|tool| !is_there(tool)).collect();
    for tool in TOOLS {
        let is_missing = missing.iter().any(|one| one.name == tool.name);
        let state = if is_missing { "missing, to be installed" } else { "there" };
        println!("{}: {state}", tool.name);
    }
    let packages = packages_of(&missing);
    if packages.is_empty() {
        return Ok(());
    }
    let by_hand = format!("sudo apt-get install {}", packages.join(" "));
    let by_hand = format!("install it by hand: {by_hand}");
    let update = as_root(&["apt-get", "update", "--quiet"])?;
    network::run(update).with_context(|| by_hand.clone())?;
    let install = ["apt-get", "install", "--quiet", "--yes", "--no-install-recommends"];
    let install = as_root(&[&install[..], &packages].concat())?;
    network::run(install).with_context(|| by_hand.clone())?;
    for (package, service) in SERVICES {
        if packages.contains(&package) {
            stop_service(service)?;
        }
    }
    let still: Vec<_> = missing.iter().filter(|tool| !is_there(tool)).map(|t| t.name).collect();
    ensure!(
        still.is_empty(),
        "{} cannot be started although installed; {by_hand}",
        still.join(", ")
    );
    Ok(())
}

/// The packages of `tools`, each once.
fn packages_of(tools: &[&Tool]) -> Vec<&'static str> {
    let mut packages: Vec<_> = tools.iter().flat_map(|tool| tool.packages).copied().collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn is_there(tool: &Tool) -> bool {
    let mut probe = Command::new(tool.probe[0]);
    probe.args(&tool.probe[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Debian starts the service of a package that is installed; the tests start servers of their own.
fn stop_service(name: &str) -> Result<()> {
    let script = format!("/etc/init.d/{name}");
    if Path::new("/run/systemd/system").exists() {
        run(&mut as_root(&["systemctl", "disable", "--now", name])?())
    } else if Path::new(&script).exists() {
        run(&mut as_root(&[&script, "stop"])?())
    } else {
        Ok(())
    }
}

/// Makes a command that runs as root, by sudo if need be.
pub fn as_root(words: &[&str]) -> Result<impl Fn() -> Command + use<>> {
    let id = Command::new("id").arg("-u").output().context("start id")?;
    let sudo: &[&str] = if id.stdout.trim_ascii() == b"0" { &[] } else { &["sudo"] };
    let words: Vec<String> = [sudo, words].concat().iter().map(|word| word.to_string()).collect();
    Ok(move || {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive");
        command
    })
}

fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    println!("{shown}");
    let status = command.status().with_context(|| format!("start {shown}"))?;
    if status.success() { Ok(()) } else { bail!("{shown}: {status}") }
}

fn node_is_new_enough() -> Result<()> {
    let output = Command::new("node").arg("--version").output().context("start node")?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_string();
    let (major, minor) = OLDEST_NODE;
    ensure!(
        parse_version(&version).is_some_and(|version| version >= OLDEST_NODE),
        "Node is {version}, and {major}.{minor} or later is needed: Debian 13 has it \
         (sudo apt-get install nodejs npm), elsewhere https://nodejs.org/en/download does"
    );
    println!("Node: {version}");
    Ok(())
}

/// `v20.19.2` as (20, 19).
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix('v')?.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// The packages that the file `requirements` pins, in an environment of their own.
pub fn python_packages(requirements: &Path, venv: &Path, name: &str) -> Result<()> {
    once(requirements, &venv.join("installed.txt"), name, || {
        // The folder may be left from a run that did not end.
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))
            .context("do it by hand: sudo apt-get install python3-venv")?;
        let python = venv.join("bin").join("python");
        let install = ["install", "--quiet", "--disable-pip-version-check", "--requirement"];
        let pip = || {
            let mut pip = Command::new(&python);
            pip.args(["-m", "pip"]).args(install).arg(requirements);
            pip
        };
        network::run(pip).with_context(|| {
            let (python, file) = (python.display(), requirements.display());
            format!("do it by hand: {python} -m pip install --requirement {file}")
        })
    })
}

/// The packages of a folder, as its lock file has them.
pub fn node_packages(root: &Path, folder: &str) -> Result<()> {
    let path = root.join(folder);
    let installed = path.join("node_modules").join(".installed-lock.json");
    once(&path.join("package-lock.json"), &installed, &format!("packages of {folder}"), || {
        let npm = || {
            let mut npm = Command::new("npm");
            npm.arg("ci").current_dir(&path);
            npm
        };
        network::run(npm).with_context(|| format!("do it by hand: npm ci --prefix {folder}"))
    })
}

/// The modules of a folder, with what its `go.sum` says that they are.
fn go_modules(folder: &Path, installed: &Path, name: &str) -> Result<()> {
    once(&folder.join("go.sum"), installed, name, || {
        let go = || {
            let mut go = Command::new("go");
            go.args(["mod", "download"]).current_dir(folder);
            go
        };
        network::run(go)
            .with_context(|| format!("do it by hand: cd {} && go mod download", folder.display()))
    })
}

/// The packages of [`JAVA_CLIENTS`], all in one folder.
fn java_packages(root: &Path, folder: &Path) -> Result<()> {
    let wanted = root.join(JAVA_CLIENTS);
    once(&wanted, &folder.join("installed.xml"), "Jedis", || {
        let maven = || {
            let mut maven = Command::new("mvn");
            maven.args(["--quiet", "--batch-mode", "--file"]).arg(&wanted).arg(COPY_PACKAGES);
            maven.arg(format!("-DoutputDirectory={}", folder.display()));
            maven
        };
        network::run(maven).context("do it by hand: install Maven, and see that it has a network")
    })
}

/// Does `work` unless `done` says that it was done for what `wanted` now has.
fn once(wanted: &Path, done: &Path, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let text = fs::read(wanted).with_context(|| format!("read {}", wanted.display()))?;
    if fs::read(done).is_ok_and(|before| before == text) {
        println!("{name}: there");
        return Ok(());
    }
    println!("{name}: missing or of other versions, to be installed");
    work()?;
    fs::write(done, text).with_context(|| format!("write {}", done.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_node_are_compared_by_number() {
        assert_eq!(parse_version("v20.19.2"), Some((20, 19)));
        assert!(parse_version("v22.1.0") > Some(OLDEST_NODE));
        assert!(parse_version("v9.99.0") < Some(OLDEST_NODE));
        assert_eq!(parse_version("20"), None);
    }

    #[test]
    fn each_package_is_named_once() {
        let all: Vec<&Tool> = TOOLS.iter().collect();
        let packages = packages_of(&all);
        assert_eq!(packages.iter().filter(|name| **name == "redis-tools").count(), 1);
        assert_eq!(packages_of(&[]), Vec::<&str>::new());
    }

    #[test]
    fn work_is_done_again_when_what_is_wanted_changes_or_it_failed() {
        let dir = std::env::temp_dir().join(format!("xtask-once-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (wanted, done) = (dir.join("wanted"), dir.join("done"));
        fs::write(&wanted, "1").unwrap();
        let mut times = 0;
        assert!(once(&wanted, &done, "x", || bail!("no")).is_err());
        for _ in 0..2 {
            once(&wanted, &done, "x", || {
                times += 1;
                Ok(())
            })
            .unwrap();
        }
        fs::write(&wanted, "2").unwrap();
        once(&wanted, &done, "x", || {
            times += 1;
            Ok(())
        })
        .unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(times, 2);
    }
}
