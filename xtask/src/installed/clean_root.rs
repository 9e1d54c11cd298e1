//! A root of Debian that has its essential packages and what ours depends on, and nothing else. The package is installed
//! there as on a user's machine, its program started as its user, and it is upgraded, removed, brought back and purged.
//!
//! It is made of this machine's own files (`clean_root.sh`), so that nothing is fetched.

use crate::clients::as_root;
use crate::output::{run_shown, shown};
use crate::packages::output;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What makes it.
const SCRIPT: &str = "xtask/src/installed/clean_root.sh";

/// What dpkg is asked of every package: name, whether it is essential, what it depends on, what it stands for.
const FIELDS: &str = "${Package}\t${Essential}\t${Pre-Depends}, ${Depends}\t${Provides}\n";

/// Nothing of the tests' own environment.
const ENVIRONMENT: [&str; 3] =
    ["-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"];

/// The package's user and its home.
const USER: &str = "terrace";
const HOME: &str = "/var/lib/terrace";

const CONFIGURATION: &str = "/etc/terrace/terrace.toml";

/// What says whether a service may be started.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// One that allows nothing, and notes what it was asked in [`ASKED`].
const NOTING_POLICY: &str = "#!/bin/sh\necho \"$@\" >> /tmp/asked\nexit 101\n";

const ASKED: &str = "/tmp/asked";

/// There where systemd runs.
const SYSTEMD_RUNS: &str = "/run/systemd/system";

/// What an administrator adds to it.
const CHANGE: &str = "# kept";

/// The folder, which belongs to root.
pub struct CleanRoot {
    dir: PathBuf,
}

impl CleanRoot {
    /// Makes one in `dir`, with what `package` depends on.
    pub fn make(root: &Path, dir: &Path, package: &Path) -> Result<Self> {
        let script = root.join(SCRIPT);
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let listed = output(Command::new("dpkg-query").args(["--show", "--showformat", FIELDS]))?;
        let depends = output(Command::new("dpkg-deb").arg("--field").arg(package).arg("Depends"))?;
        let depends = String::from_utf8(depends)?;
        let packages = closure(&String::from_utf8(listed)?, &depends)?;
        println!("a root of {} packages", packages.len());
        let mut words = vec!["sh".to_string(), path_text(&script)?, path_text(dir)?];
        words.extend(packages);
        let by_root = "the package is installed in a root of its own, which takes root or sudo";
        run_shown(&mut root_command(&words)?).context(by_root)?;
        let clean = Self { dir: dir.to_path_buf() };
        let audit = clean.says(&["dpkg", "--audit"])?;
        ensure!(audit.is_empty(), "dpkg finds faults in the clean root: {audit}");
        Ok(clean)
    }

    /// Removes what an earlier run has left at `dir`.
    pub fn remove_left(dir: &Path) -> Result<()> {
        if !dir.exists() {
            return Ok(());
        }
        run_shown(&mut root_command(&["rm".to_string(), "-rf".to_string(), path_text(dir)?])?)
    }

    /// The folder, from outside.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A command that runs in it, as `user` or as root.
    pub fn command(&self, user: Option<&str>, words: &[&str]) -> Result<Command> {
        let mut all = vec!["chroot".to_string()];
        all.extend(user.map(|user| format!("--userspec={user}")));
        all.push(path_text(&self.dir)?);
        all.push("/usr/bin/env".to_string());
        all.extend(ENVIRONMENT.iter().chain(words).map(|word| word.to_string()));
        root_command(&all)
    }

    fn run(&self, words: &[&str]) -> Result<()> {
        run_shown(&mut self.command(None, words)?)
    }

    /// What a command in it prints.
    fn says(&self, words: &[&str]) -> Result<String> {
        let mut command = self.command(None, words)?;
        println!("{}", shown(&command));
        let told = output(&mut command)?;
        Ok(String::from_utf8(told)?.trim_end().to_string())
    }

    /// Whether something exists in it.
    fn has(&self, path: &str) -> Result<bool> {
        let status = self.command(None, &["test", "-e", path])?.status()?;
        Ok(status.success())
    }

    fn dpkg_install(&self, package: &Path) -> Result<()> {
        let to = self.dir.join("tmp/terrace.deb");
        run_shown(&mut root_command(&["cp".to_string(), path_text(package)?, path_text(&to)?])?)?;
        self.run(&["dpkg", "--install", "/tmp/terrace.deb"])
    }

    /// Installs the package for the first time, and looks at what its scripts did.
    pub fn install(&self, package: &Path, version: &str) -> Result<()> {
        self.dpkg_install(package)?;
        self.expect_installed(version)?;
        let user = self.says(&["getent", "passwd", USER])?;
        let fields: Vec<&str> = user.split(':').collect();
        let [name, _, number, _, _, home, shell] = fields[..] else { bail!("what is {user:?}?") };
        let number: u32 = number.parse().with_context(|| user.clone())?;
        ensure!((name, home) == (USER, HOME) && (1..1000).contains(&number), "a user {user:?}");
        ensure!(shell.ends_with("/nologin"), "a user who may log in: {user:?}");
        self.expect_owner("/etc/terrace", "root:terrace 750")?;
        self.expect_owner(CONFIGURATION, "root:terrace 640")?;
        let enabled = "/etc/systemd/system/multi-user.target.wants/terrace.service";
        let unit = self.says(&["readlink", enabled])?;
        ensure!(unit.ends_with("/systemd/system/terrace.service"), "the service is {unit:?}");
        let conffiles =
            self.says(&["dpkg-query", "--show", "--showformat", "${Conffiles}", USER])?;
        ensure!(conffiles.trim().starts_with(CONFIGURATION), "conffiles are {conffiles:?}");
        let changed = self.says(&["dpkg", "--verify", USER])?;
        ensure!(changed.is_empty(), "files are not those of the package: {changed}");
        Ok(())
    }

    /// Makes the service's folder, as systemd does from its `StateDirectory`.
    pub fn make_home(&self, mode: &str) -> Result<()> {
        self.run(&["install", "-d", "-m", mode, "-o", USER, "-g", USER, HOME])
    }

    /// The server has left a store of its user's there.
    pub fn expect_store(&self) -> Result<()> {
        let owner = self.says(&["stat", "--format=%U:%G", &format!("{HOME}/data/CURRENT")])?;
        ensure!(owner == format!("{USER}:{USER}"), "the store belongs to {owner}");
        Ok(())
    }

    /// An upgrade keeps the administrator's changes, of the configuration and of its mode, and the user.
    pub fn upgrade(&self, package: &Path, version: &str) -> Result<()> {
        let user = self.says(&["getent", "passwd", USER])?;
        self.run(&["sh", "-c", &format!("echo '{CHANGE}' >> {CONFIGURATION}")])?;
        self.run(&["chmod", "0600", CONFIGURATION])?;
        self.dpkg_install(package)?;
        self.expect_installed(version)?;
        ensure!(self.says(&["tail", "-n", "1", CONFIGURATION])? == CHANGE, "a change was lost");
        self.expect_owner(CONFIGURATION, "root:terrace 600")?;
        ensure!(self.says(&["getent", "passwd", USER])? == user, "another user");
        self.expect_store()
    }

    /// Its program goes; configuration, data and user stay.
    pub fn remove(&self) -> Result<()> {
        self.run(&["dpkg", "--remove", USER])?;
        ensure!(!self.has("/usr/bin/terrace")?, "the program is left");
        ensure!(self.has(CONFIGURATION)?, "the configuration is gone");
        self.says(&["getent", "passwd", USER])?;
        self.expect_store()
    }

    /// Back after its removal, its scripts have the service started again. There is no systemd here: what would be asked of
    /// it, the policy of the machine is asked first.
    pub fn bring_back(&self, package: &Path, version: &str) -> Result<()> {
        let write = "printf '%s' \"$1\" > \"$2\" && chmod 755 \"$2\"";
        self.run(&["sh", "-c", write, "sh", NOTING_POLICY, POLICY])?;
        self.run(&["mkdir", "-p", SYSTEMD_RUNS])?;
        self.dpkg_install(package)?;
        self.expect_installed(version)?;
        let asked = self.says(&["cat", ASKED])?;
        ensure!(asked == "terrace.service restart", "the service: {asked:?}");
        self.run(&["rm", "-r", ASKED, POLICY, SYSTEMD_RUNS])
    }

    /// The configuration and the service's links go too.
    pub fn purge(&self) -> Result<()> {
        let told = self.says(&["dpkg", "--purge", USER])?;
        ensure!(told.contains("/var/lib/terrace and the user terrace are left"), "{told}");
        let links =
            self.says(&["find", "/etc/systemd", "/var/lib/systemd", "-name", "terrace*"])?;
        ensure!(links.is_empty(), "links are left: {links}");
        ensure!(!self.has("/etc/terrace")?, "the configuration is left");
        self.says(&["getent", "passwd", USER])?;
        self.expect_store()
    }

    fn expect_installed(&self, version: &str) -> Result<()> {
        let format = "${db:Status-Abbrev}${Version}";
        let state = self.says(&["dpkg-query", "--show", "--showformat", format, USER])?;
        ensure!(state == format!("ii {version}"), "the package is {state:?}");
        Ok(())
    }

    fn expect_owner(&self, path: &str, wanted: &str) -> Result<()> {
        let owner = self.says(&["stat", "--format=%U:%G %a", path])?;
        ensure!(owner == wanted, "{path} is {owner}, not {wanted}");
        Ok(())
    }
}

/// A command that root runs, by sudo if need be: as in all of the tests, what is missing fails the run.
fn root_command(words: &[String]) -> Result<Command> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(as_root(&words)?())
}

fn path_text(path: &Path) -> Result<String> {
    Ok(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_string())
}

/// The names of the essential packages among `listed` and of those in `depends`, and all that these depend on. Of
/// alternatives it is the first that is installed.
fn closure(listed: &str, depends: &str) -> Result<BTreeSet<String>> {
    let (mut needs, mut provided, mut open) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for line in listed.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, essential, needed, provides] = fields[..] else { continue };
        needs.insert(name, needed);
        provided.extend(alternatives(provides, ',').map(|other| (other, name)));
        open.extend((essential == "yes").then_some(name));
    }
    ensure!(!open.is_empty(), "dpkg knows no essential package: is this Debian?");
    let installed = |group: &str| {
        let names = || alternatives(group, '|');
        let own = names().find_map(|name| needs.get_key_value(name).map(|(name, _)| *name));
        own.or_else(|| names().find_map(|name| provided.get(name).copied()))
    };
    for group in depends.split(',').map(str::trim) {
        let missing = || format!("{group} is not installed here: sudo apt-get install {group}");
        open.push(installed(group).with_context(missing)?);
    }
    let mut found = BTreeSet::new();
    while let Some(name) = open.pop() {
        if found.insert(name.to_string()) {
            let groups = needs.get(name).into_iter().flat_map(|needed| needed.split(','));
            open.extend(groups.filter_map(installed));
        }
    }
    Ok(found)
}

/// Names of packages in a list, without versions and architectures.
fn alternatives(list: &str, separator: char) -> impl Iterator<Item = &str> {
    let names = list.split(separator).map(|part| part.trim().split([' ', '(', ':']).next());
    names.flatten().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "base\tyes\tlibc (>= 2), \t\n\
        libc\tno\t, gcc-base (= 12)\t\n\
        gcc-base\tno\t, \t\n\
        adduser\tno\t, passwd | shadow, missing | awk\t\n\
        passwd\tno\t, libc:any (>= 2)\t\n\
        mawk\tno\t, \tawk\n\
        other\tno\t, \t\n";

    #[test]
    fn a_root_has_what_is_essential_and_what_is_needed() {
        let found = closure(LISTED, "adduser, libc (>= 2.34)\n").unwrap();
        let names: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(names, ["adduser", "base", "gcc-base", "libc", "mawk", "passwd"]);
        let refused = closure(LISTED, "adduser, systemd").unwrap_err().to_string();
        assert!(refused.contains("systemd is not installed here"), "{refused}");
        assert!(closure("", "base").is_err());
    }
}
