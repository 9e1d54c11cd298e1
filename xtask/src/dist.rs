//! `cargo xtask dist [--profile NAME] [--no-wheel] [--any-glibc] [DIR]`: what is given to users, in one folder.
//!
//! ```text
//! terrace-VERSION-ARCH-linux.tar.gz             the program, completions, manual pages, the service, this list of packages
//! terrace-VERSION-ARCH-linux-debug.tar.gz       its debug information
//! terrace_VERSION_ARCH.deb                      the same for Debian, with its service
//! libterrace-VERSION-ARCH-linux.tar.gz          the library for C
//! libterrace-leveldb-VERSION-ARCH-linux.tar.gz  LevelDB's interfaces for C and C++
//! terracedb-VERSION-...-manylinux_2_34_ARCH.whl the package for Python, for which pip fetches maturin
//! terrace-VERSION.cdx.json                      what the program is built from (CycloneDX)
//! Containerfile                                 an image of the Debian package
//! SHA256SUMS                                    of all of them
//! ```
//! Packages of the same program are the same bytes: all times in them are that of the commit, or `SOURCE_DATE_EPOCH`.
//! What needs a newer C library than is promised is refused, but for `--any-glibc`.

mod deb;
mod files;
mod glibc;
mod program;
mod sbom;

use crate::c_library::{self, RELOCATABLE};
use crate::leveldb_library;
use crate::output::run_shown;
use crate::packages::{Packages, output};
use crate::release::{DEBUG, PROFILE, PROGRAM};
use crate::steps::{cargo, target_dir};
use crate::wheel;
use anyhow::{Context, Result, bail, ensure};
use deb::Deb;
use files::{Files, gzip, read};
pub use glibc::MANYLINUX;
use program::Program;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of everything.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The crates of the program, of the library for C, and of LevelDB's interfaces.
const CRATE: &str = "terrace-cli";
const C_CRATE: &str = "terrace-c";
const LEVELDB_CRATE: &str = "terrace-leveldb";

/// Sources of what is packaged beside the program.
const PACKAGING: &str = "packaging";

/// The configuration of the service; dpkg keeps the administrator's changes.
const CONFIGURATION: &str = "etc/terrace/terrace.toml";

/// Where the service is installed.
pub const UNIT: &str = "usr/lib/systemd/system/terrace.service";

/// What the Containerfile calls the package for Debian.
const ANY_PACKAGE: &str = "terrace_*.deb";

/// The file of checksums.
pub const SUMS: &str = "SHA256SUMS";

/// Documents that go with the program.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// What to make, and where.
struct Wanted {
    profile: String,
    dir: PathBuf,
    has_wheel: bool,
    /// Whether it may need any C library.
    any_glibc: bool,
}

impl Wanted {
    fn of(root: &Path, arguments: &[String]) -> Result<Self> {
        let dir = target_dir(root).join("packages");
        let mut wanted =
            Self { profile: PROFILE.to_string(), dir, has_wheel: true, any_glibc: false };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--profile" => wanted.profile = rest.next().context("which profile?")?.clone(),
                "--no-wheel" => wanted.has_wheel = false,
                "--any-glibc" => wanted.any_glibc = true,
                option if option.starts_with('-') => bail!("there is no option {option}"),
                name => wanted.dir = PathBuf::from(name),
            }
        }
        Ok(wanted)
    }
}

/// Builds everything, and packages it.
pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let wanted = Wanted::of(root, arguments)?;
    let build = ["build", "--locked", "--profile", wanted.profile.as_str()];
    let packages = ["-p", CRATE, "-p", C_CRATE, "-p", LEVELDB_CRATE];
    run_shown(cargo(&build).args(packages).current_dir(root))?;
    make(root, &wanted).map(drop)
}

/// Packages what the tests have built, into `dir`; gives the names. For the test.
pub fn packages(root: &Path, dir: &Path) -> Result<Vec<String>> {
    let (profile, dir) = ("dev".to_string(), dir.to_path_buf());
    make(root, &Wanted { profile, dir, has_wheel: true, any_glibc: false })
}

/// Packages what was built; gives the names of what it wrote.
fn make(root: &Path, wanted: &Wanted) -> Result<Vec<String>> {
    let profile = wanted.profile.as_str();
    let built = target_dir(root).join(if profile == "dev" { "debug" } else { profile });
    let mut out = Out::new(root, wanted)?;
    let program = out.program(&built)?;
    let mut debug = Files::default();
    debug.add(DEBUG, 0o644, program.debug);
    out.archive(&archive_name("terrace", "-debug"), &debug)?;
    out.c_library(&built)?;
    out.leveldb_library(&built)?;
    if wanted.has_wheel {
        out.wheel(profile)?;
    }
    out.sums()?;
    Ok(out.names)
}

/// The folder that packages are written to.
struct Out<'a> {
    root: &'a Path,
    dir: &'a Path,
    any_glibc: bool,
    /// Of all files in packages, in seconds since 1970.
    time_s: u64,
    /// What the project's packages are built from.
    packages: Packages,
    /// What was written.
    names: Vec<String>,
}

impl<'a> Out<'a> {
    fn new(root: &'a Path, wanted: &'a Wanted) -> Result<Self> {
        let (dir, any_glibc) = (wanted.dir.as_path(), wanted.any_glibc);
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let (time_s, packages) = (time_s(root)?, Packages::read(root)?);
        Ok(Self { root, dir, any_glibc, time_s, packages, names: Vec::new() })
    }

    /// Whether a program or library runs where it is said to.
    fn check_glibc(&self, name: &str, bytes: &[u8]) -> Result<()> {
        if self.any_glibc { Ok(()) } else { glibc::check(name, bytes) }
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.dir.join(name);
        fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
        println!("{:>8.1} MB  {}", bytes.len() as f64 / 1e6, path.display());
        self.names.push(name.to_string());
        Ok(())
    }

    /// An archive whose files lie in a folder of its own name.
    fn archive(&mut self, name: &str, files: &Files) -> Result<()> {
        let packed = files.tar_gz(&format!("{name}/"), self.time_s)?;
        self.write(&format!("{name}.tar.gz"), &packed)
    }

    /// Everything that has the program in it.
    fn program(&mut self, built: &Path) -> Result<Program> {
        let work = Work::new(self.dir)?;
        let program = Program::of(&built.join(PROGRAM), &work.0)?;
        self.check_glibc(PROGRAM, &program.stripped)?;
        let list = sbom::cyclone_dx(&self.packages, CRATE, "application")?;
        self.archive(&archive_name("terrace", ""), &portable(self.root, &program, &list)?)?;
        let package = self.debian(&program, &list)?;
        self.write(&format!("terrace-{VERSION}.cdx.json"), list.as_bytes())?;
        let path = self.root.join(PACKAGING).join("Containerfile");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        self.write("Containerfile", containerfile(&text, &package)?.as_bytes())?;
        Ok(program)
    }

    /// The package for Debian; gives its name.
    fn debian(&mut self, program: &Program, list: &str) -> Result<String> {
        let scripts = ["postinst", "prerm", "postrm"].map(|name| {
            let path = self.root.join(PACKAGING).join("debian").join(name);
            let text = fs::read_to_string(&path);
            Ok((name, text.with_context(|| format!("read {}", path.display()))?))
        });
        let scripts: Vec<_> = scripts.into_iter().collect::<Result<_>>()?;
        let deb = Deb {
            version: VERSION,
            files: &installed(self.root, program, list)?,
            conffiles: &[&format!("/{CONFIGURATION}")],
            scripts: &scripts,
            program: &program.stripped,
            time_s: self.time_s,
        };
        let name = format!("terrace_{VERSION}_{}.deb", deb::architecture()?);
        self.write(&name, &deb.build()?)?;
        Ok(name)
    }

    fn c_library(&mut self, built: &Path) -> Result<()> {
        let work = Work::new(self.dir)?;
        c_library::install(self.root, built, &work.0, RELOCATABLE)?;
        self.library("libterrace", C_CRATE, &work.0, &c_library::shared())
    }

    fn leveldb_library(&mut self, built: &Path) -> Result<()> {
        let work = Work::new(self.dir)?;
        leveldb_library::install(self.root, built, &work.0, RELOCATABLE)?;
        self.library("libterrace-leveldb", LEVELDB_CRATE, &work.0, leveldb_library::SHARED)
    }

    /// The archive `name` of a library of the package `of`, which is installed in `dir` with the file `shared`.
    fn library(&mut self, name: &str, of: &str, dir: &Path, shared: &str) -> Result<()> {
        self.check_glibc(shared, &read(&dir.join("lib").join(shared))?)?;
        let mut files = Files::default();
        for folder in ["include", "lib"] {
            files.add_folder(folder, &dir.join(folder))?;
        }
        for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
            files.add(name, 0o644, read(&self.root.join(name))?);
        }
        let list = sbom::cyclone_dx(&self.packages, of, "library")?;
        files.add(&format!("{name}.cdx.json"), 0o644, list);
        self.archive(&archive_name(name, ""), &files)
    }

    fn wheel(&mut self, profile: &str) -> Result<()> {
        let platform = if self.any_glibc { wheel::ANY_LINUX } else { MANYLINUX };
        let wheels = wheel::build(self.root, &target_dir(self.root), profile, platform)?;
        for entry in fs::read_dir(&wheels).with_context(|| format!("list {}", wheels.display()))? {
            let entry = entry?;
            self.write(&entry.file_name().to_string_lossy(), &read(&entry.path())?)?;
        }
        Ok(())
    }

    /// Checksums of all that was written, as `sha256sum -c` reads them.
    fn sums(&mut self) -> Result<()> {
        self.names.sort();
        let mut lines = String::new();
        for name in &self.names {
            let sum = Sha256::digest(read(&self.dir.join(name))?);
            let hex: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
            lines.push_str(&format!("{hex}  {name}\n"));
        }
        self.write(SUMS, lines.as_bytes())
    }
}

/// A folder for what is made on the way, gone in the end.
struct Work(PathBuf);

impl Work {
    fn new(dir: &Path) -> Result<Self> {
        let path = dir.join("work");
        // Left by a run that was cut short.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What stays is only in the way.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The `Containerfile` of one package: others, of earlier versions, may lie beside it.
fn containerfile(text: &str, package: &str) -> Result<String> {
    ensure!(text.matches(ANY_PACKAGE).count() == 1, "the Containerfile has no {ANY_PACKAGE}");
    Ok(text.replace(ANY_PACKAGE, package))
}

/// `NAME-VERSION-ARCH-linux`, and `what`.
fn archive_name(name: &str, what: &str) -> String {
    format!("{name}-{VERSION}-{}-linux{what}", std::env::consts::ARCH)
}

/// What is unpacked anywhere.
fn portable(root: &Path, program: &Program, list: &str) -> Result<Files> {
    let mut files = Files::default();
    files.add("bin/terrace", 0o755, program.stripped.clone());
    for (shell, name, script) in &program.completions {
        files.add(&format!("completions/{shell}/{name}"), 0o644, script.clone());
    }
    for (name, page) in &program.pages {
        files.add(&format!("man/man1/{name}"), 0o644, page.clone());
    }
    for name in ["terrace.service", "terrace.toml"] {
        files.add(&format!("service/{name}"), 0o644, read(&root.join(PACKAGING).join(name))?);
    }
    for name in DOCUMENTS {
        files.add(name, 0o644, read(&root.join(name))?);
    }
    files.add("terrace.cdx.json", 0o644, list);
    Ok(files)
}

/// What the Debian package installs.
fn installed(root: &Path, program: &Program, list: &str) -> Result<Files> {
    let mut files = Files::default();
    files.add("usr/bin/terrace", 0o755, program.stripped.clone());
    for (shell, name, script) in &program.completions {
        let folder = match *shell {
            "bash" => "bash-completion/completions",
            "zsh" => "zsh/vendor-completions",
            "fish" => "fish/vendor_completions.d",
            other => bail!("where does {other} look for completions?"),
        };
        files.add(&format!("usr/share/{folder}/{name}"), 0o644, script.clone());
    }
    for (name, page) in &program.pages {
        files.add(&format!("usr/share/man/man1/{name}"), 0o644, page.clone());
    }
    let packaging = root.join(PACKAGING);
    files.add(UNIT, 0o644, read(&packaging.join("terrace.service"))?);
    // It may get a password: the script that runs after the installation lets the service read it.
    files.add(CONFIGURATION, 0o640, read(&packaging.join("terrace.toml"))?);
    let folder = "usr/share/doc/terrace";
    let changes = gzip(&read(&root.join("CHANGELOG.md"))?)?;
    files.add(&format!("{folder}/changelog.gz"), 0o644, changes);
    let copyright = [
        b"Terrace may be used under either of two licences, as you like.\n\n".to_vec(),
        read(&root.join("LICENSE-MIT"))?,
        b"\nThe Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.\n\
          Licences of what the program is built from: terrace.cdx.json beside this file.\n"
            .to_vec(),
    ];
    files.add(&format!("{folder}/copyright"), 0o644, copyright.concat());
    files.add(&format!("{folder}/terrace.cdx.json"), 0o644, list);
    Ok(files)
}

/// `SOURCE_DATE_EPOCH`, or the time of the last commit.
fn time_s(root: &Path) -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            let mut git = Command::new("git");
            git.args(["log", "-1", "--format=%ct"]).current_dir(root);
            String::from_utf8(output(&mut git)?)?
        }
    };
    text.trim().parse().with_context(|| format!("{text:?} is no time in seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_the_package_are_scripts() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/debian");
        for name in ["postinst", "prerm", "postrm"] {
            let output = Command::new("sh").arg("-n").arg(dir.join(name)).output().unwrap();
            assert!(output.status.success(), "{name}: {output:?}");
        }
    }

    #[test]
    fn the_image_is_of_the_package_that_was_made() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/Containerfile");
        let text = fs::read_to_string(path).unwrap();
        let of_one = containerfile(&text, "terrace_1.2.3_amd64.deb").unwrap();
        assert!(of_one.contains("\nCOPY terrace_1.2.3_amd64.deb /terrace.deb\n"), "{of_one}");
        assert!(containerfile("FROM scratch\n", "a.deb").is_err());
    }

    #[test]
    fn arguments_that_mean_nothing_are_refused() {
        let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert!(Wanted::of(root, &[]).unwrap().has_wheel);
        let wanted =
            Wanted::of(root, &words(&["--no-wheel", "there", "--profile", "dev"])).unwrap();
        assert_eq!((wanted.dir, wanted.profile), (PathBuf::from("there"), "dev".to_string()));
        assert!(!wanted.has_wheel && !wanted.any_glibc);
        for arguments in [&["--fast"][..], &["--profile"]] {
            assert!(Wanted::of(root, &words(arguments)).is_err(), "{arguments:?}");
        }
    }
}
