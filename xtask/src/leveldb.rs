//! Programs for LevelDB over Terrace: ours in C++, plyvel with its own tests, once compiled against our headers and once
//! as Debian has compiled it for LevelDB, LevelDB's `db_bench`, and classic-level of Node. What is fetched stays below the
//! target directory, and in `node_modules` of `bindings/node`.

mod node;

use crate::clients::python_packages;
use crate::leveldb_library;
use crate::network;
use crate::output::{run_shown, run_watched, shown};
use crate::steps::Steps;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TESTS: &str = "crates/leveldb/tests/programs";

/// Pinned packages of Python, for plyvel's tests.
const REQUIREMENTS: &str = "crates/leveldb/tests/programs/requirements.txt";

const PLYVEL: &str = "plyvel-1.5.1";

/// How many tests plyvel has.
const PLYVEL_TESTS: usize = 54;

/// The one that Debian's plyvel, which may be 1.5.0, does not have: it is about plyvel itself.
const TEST_OF_1_5_1: &str = "test_context_manager";

/// Says which libleveldb is loaded with plyvel.
const LOADED: &str = "import plyvel\nfor line in open('/proc/self/maps'):\n  \
                      if 'libleveldb' in line: print(line.split()[-1])";

/// What `db_bench` is asked to do. It ends with a failure if a call does, and says how many keys it found.
const BENCHMARKS: &str = "fillseq,fillsync,fillrandom,overwrite,readrandom,readseq,readreverse,\
                          seekrandom,compact,readrandom,readmissing,deleterandom,stats,sstables,fill100K";
const BENCHMARK_KEYS: u32 = 5000;

/// The step that builds and runs them.
pub const STEP: &str = "leveldb";

/// Adds the step; `needs` are to come before it.
pub fn add(steps: &mut Steps, needs: &[&str]) {
    let target = steps.target_dir();
    let step = steps.check(STEP, move |root| {
        let places = Places::new(root, target.join("leveldb-programs"))?;
        let prefix = places.installed.to_string_lossy();
        leveldb_library::install(root, &target.join("debug"), &places.installed, &prefix)?;
        our_program(&places)?;
        python_packages(&root.join(REQUIREMENTS), &places.venv, "pytest for plyvel")?;
        plyvel_compiled(&places)?;
        plyvel_of_debian(&places)?;
        db_bench(&places)?;
        node::classic_level(root, &places.installed, &places.stores)
    });
    step.needs(needs);
}

/// Where things lie.
struct Places {
    tests: PathBuf,
    dir: PathBuf,
    /// The library, as a user would install it.
    installed: PathBuf,
    venv: PathBuf,
    /// Stores of the programs; empty.
    stores: PathBuf,
}

impl Places {
    fn new(root: &Path, dir: PathBuf) -> Result<Self> {
        let stores = dir.join("stores");
        if stores.exists() {
            fs::remove_dir_all(&stores).with_context(|| format!("empty {}", stores.display()))?;
        }
        fs::create_dir_all(&stores).with_context(|| format!("create {}", stores.display()))?;
        let (installed, venv) = (dir.join("installed"), dir.join("venv"));
        Ok(Self { tests: root.join(TESTS), dir, installed, venv, stores })
    }

    fn include(&self) -> PathBuf {
        self.installed.join("include")
    }

    fn lib(&self) -> PathBuf {
        self.installed.join("lib")
    }
}

/// Our program in C++, in the oldest C++ that LevelDB's headers are for: as usual, and without type information, as many
/// programs are compiled and LevelDB itself.
fn our_program(places: &Places) -> Result<()> {
    let builds: [(&str, &[&str]); 2] = [("own", &[]), ("own-no-rtti", &["-fno-rtti"])];
    for (name, flags) in builds {
        our_program_with(places, name, flags)?;
    }
    Ok(())
}

/// Our program, called `name`, compiled with further `flags`.
fn our_program_with(places: &Places, name: &str, flags: &[&str]) -> Result<()> {
    let program = places.dir.join(name);
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"]);
    compiler.args(flags).arg("-I").arg(places.include());
    compiler.arg(places.tests.join("program.cc")).arg("-L");
    compiler.arg(places.lib()).args(["-lleveldb", "-lpthread", "-o"]).arg(&program);
    run_shown(&mut compiler)?;
    let mut command = Command::new(program);
    run_shown(command.arg(places.stores.join(name)).env("LD_LIBRARY_PATH", places.lib()))
}

/// The sources of plyvel, with its tests.
fn plyvel_sources(places: &Places) -> Result<PathBuf> {
    let archive = places.dir.join(format!("{PLYVEL}.tar.gz"));
    if !archive.exists() {
        let pinned = PLYVEL.replace('-', "==");
        let pip = || {
            let mut pip = Command::new(places.venv.join("bin/python"));
            pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
            pip.args(["--no-deps", "--no-build-isolation", "--no-binary", "plyvel", "--dest"]);
            pip.arg(&places.dir).arg(&pinned);
            pip
        };
        network::run(pip).context("fetching plyvel")?;
    }
    let mut tar = Command::new("tar");
    run_shown(tar.arg("xzf").arg(&archive).arg("-C").arg(&places.dir))?;
    Ok(archive)
}

/// plyvel, compiled against our headers and linked with our library.
fn plyvel_compiled(places: &Places) -> Result<()> {
    let archive = plyvel_sources(places)?;
    let python = places.venv.join("bin/python");
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--no-build-isolation", "--no-cache-dir", "--force-reinstall"]).arg(archive);
    // Some versions of setuptools take no flags for C++ from the environment; compilers do.
    pip.env("CPLUS_INCLUDE_PATH", places.include()).env("LIBRARY_PATH", places.lib());
    run_shown(&mut pip)?;
    plyvel_tests(places, &python, &[], true)
}

/// plyvel as Debian has compiled it for its libleveldb, with our library in the place of that.
fn plyvel_of_debian(places: &Places) -> Result<()> {
    let folder = places.dir.join("debian");
    let package = match package_in(&places.dir) {
        Some(package) => package,
        None => {
            let fetch = || {
                let mut apt = Command::new("apt-get");
                apt.args(["download", "python3-plyvel"]).current_dir(&places.dir);
                apt
            };
            network::run(fetch).context("do it by hand: apt-get update")?;
            package_in(&places.dir).context("apt-get left no package")?
        }
    };
    run_shown(Command::new("dpkg").arg("-x").arg(package).arg(&folder))?;
    let modules = folder.join("usr/lib/python3/dist-packages");
    let python = python_for(&modules.join("plyvel"))?;
    // The tests' packages are the same for all versions.
    let packages = fs::read_dir(places.venv.join("lib"))?.next().context("an empty venv")??;
    plyvel_tests(places, &python, &[modules, packages.path().join("site-packages")], false)
}

fn package_in(dir: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    entries.find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("python3-plyvel_") && name.ends_with(".deb")
    })
}

/// A Python of the version that the compiled module in `dir` is for.
fn python_for(dir: &Path) -> Result<PathBuf> {
    let ask = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))";
    for python in ["python3", "/usr/bin/python3"] {
        let Ok(output) = Command::new(python).args(["-c", ask]).output() else { continue };
        let suffix = String::from_utf8_lossy(&output.stdout).trim().to_string();
        if dir.join(format!("_plyvel{suffix}")).exists() {
            return Ok(python.into());
        }
    }
    bail!("no Python of the version that Debian's plyvel is for; sudo apt-get install python3")
}

/// plyvel's own tests, with [`TEST_OF_1_5_1`] or without. `paths` are where Python looks first.
fn plyvel_tests(places: &Places, python: &Path, paths: &[PathBuf], with_new: bool) -> Result<()> {
    // Apart from the sources, which are no compiled package.
    let file = places.dir.join("test_plyvel.py");
    let from = places.dir.join(PLYVEL).join("test/test_plyvel.py");
    fs::copy(&from, &file).with_context(|| format!("copy {}", from.display()))?;
    let paths = std::env::join_paths(paths)?;
    let with_ours = |command: &mut Command| {
        command.env("PYTHONPATH", &paths).env("LD_LIBRARY_PATH", places.lib());
        command.env("TMPDIR", &places.stores).current_dir(&places.dir);
    };
    let mut loaded = Command::new(python);
    with_ours(loaded.args(["-c", LOADED]));
    let loaded = output_of(loaded)?;
    let ours = places.lib().join(leveldb_library::SHARED);
    let is_ours = |line: &str| Path::new(line) == ours;
    ensure!(
        loaded.lines().count() > 0 && loaded.lines().all(is_ours),
        "another libleveldb is used"
    );

    let mut command = without_override()?;
    command.arg(python).args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(&file);
    if !with_new {
        command.arg(format!("--deselect=test_plyvel.py::{TEST_OF_1_5_1}"));
    }
    with_ours(&mut command);
    let expected = format!("{} passed", PLYVEL_TESTS - usize::from(!with_new));
    let told = output_of(command)?;
    ensure!(told.contains(&expected), "{expected} was expected of plyvel's tests");
    Ok(())
}

/// The start of a command for which the modes of files count, even if root runs it: a test of plyvel's wants a
/// directory that cannot be written.
fn without_override() -> Result<Command> {
    let id = Command::new("id").arg("-u").output().context("start id")?;
    if id.stdout.trim_ascii() != b"0" {
        return Ok(Command::new("env"));
    }
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=-dac_override", "--bounding-set=-dac_override"]);
    Ok(command)
}

/// LevelDB's benchmark, of its own sources but for our library. It checks nothing itself but that calls succeed.
fn db_bench(places: &Places) -> Result<()> {
    let sources = leveldb_sources(places)?;
    let program = places.dir.join("db_bench");
    let stand_in = places.dir.join("stand-in");
    fs::create_dir_all(stand_in.join("util")).context("create a folder for headers")?;
    fs::copy(places.tests.join("db_bench_testutil.h"), stand_in.join("util/testutil.h"))
        .context("copy db_bench_testutil.h")?;
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++11", "-O2", "-DLEVELDB_PLATFORM_POSIX=1", "-I"]);
    compiler.arg(stand_in).arg("-I").arg(places.include()).arg("-I");
    compiler.arg(&sources);
    for file in
        ["benchmarks/db_bench", "util/coding", "util/crc32c", "util/histogram", "util/testutil"]
    {
        compiler.arg(sources.join(file).with_extension("cc"));
    }
    compiler.arg("-L").arg(places.lib()).args(["-lleveldb", "-lpthread", "-o"]).arg(&program);
    run_shown(&mut compiler)?;
    for more in [&["--compression_ratio=0.5"][..], &["--bloom_bits=10", "--comparisons=1"]] {
        let mut bench = Command::new(&program);
        bench.arg(format!("--db={}", places.stores.join("db_bench").display()));
        bench.arg(format!("--benchmarks={BENCHMARKS}")).arg(format!("--num={BENCHMARK_KEYS}"));
        bench.args(more).env("LD_LIBRARY_PATH", places.lib());
        let told = output_of(bench)?;
        check_found(&told)?;
    }
    Ok(())
}

/// What `db_bench` says that it found: twice as many random keys as there are were written, so that a key is there with
/// probability 0.865, before a compaction and after it.
fn check_found(told: &str) -> Result<()> {
    // Its progress is written over itself.
    let lines = told.lines().filter_map(|line| line.rsplit('\r').next());
    let lines: Vec<_> = lines.filter(|line| line.contains(" found)")).collect();
    let count = |line: &str| line.split_once('(')?.1.split(' ').next()?.parse::<u32>().ok();
    let counts: Vec<_> = lines.iter().filter_map(|line| count(line)).collect();
    ensure!(
        counts.len() == 3,
        "two readrandom and a seekrandom were expected of db_bench: {lines:?}"
    );
    for count in counts {
        let share = f64::from(count) / f64::from(BENCHMARK_KEYS);
        ensure!((0.82..0.91).contains(&share), "{count} of {BENCHMARK_KEYS} keys were found");
    }
    Ok(())
}

/// LevelDB's sources, from Debian's archive.
fn leveldb_sources(places: &Places) -> Result<PathBuf> {
    let folder = places.dir.join("leveldb-sources");
    let find = || {
        let mut entries = fs::read_dir(&folder).ok()?.flatten().map(|entry| entry.path());
        entries.find(|path| path.join("benchmarks/db_bench.cc").exists())
    };
    if let Some(there) = find() {
        return Ok(there);
    }
    let lists = places.dir.join("apt");
    for made in [&folder, &lists.join("sources.d"), &lists.join("lists/partial")] {
        fs::create_dir_all(made).with_context(|| format!("create {}", made.display()))?;
    }
    source_lists(&lists.join("sources.d"))?;
    let apt = |words: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args(["--quiet", "-o", "Dir::Etc::SourceList=/dev/null", "-o"]);
        apt.arg(format!("Dir::Etc::SourceParts={}", lists.join("sources.d").display()));
        apt.arg("-o").arg(format!("Dir::State::Lists={}", lists.join("lists").display()));
        apt.args(["-o", "APT::Sandbox::User="]).args(words).current_dir(&folder);
        apt
    };
    network::run(|| apt(&["update"]))?;
    network::run(|| apt(&["source", "--download-only", "leveldb"]))?;
    // Without Debian's patches, which are for its build: `apt-get source` would need dpkg-dev to apply them.
    let mut names = fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
    let archive = names.find(|path| path.to_string_lossy().contains(".orig.tar."));
    let archive = archive.context("apt-get left no sources")?;
    run_shown(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(&folder))?;
    find().context("the sources have no db_bench")
}

/// Debian's own package lists, asked for sources instead of programs.
fn source_lists(to: &Path) -> Result<()> {
    let mut count = 0;
    for name in ["sources.list", "sources.list.d/debian.sources"] {
        let Ok(text) = fs::read_to_string(Path::new("/etc/apt").join(name)) else { continue };
        let text = as_source_list(&text);
        if text.contains("deb-src") {
            let ending = name.rsplit('.').next().unwrap_or_default();
            let file = to.join(format!("leveldb.{ending}"));
            fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
            count += 1;
        }
    }
    ensure!(count > 0, "/etc/apt has neither sources.list nor sources.list.d/debian.sources");
    Ok(())
}

/// A list of package sources in either format, for sources of programs.
fn as_source_list(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(char::is_whitespace) {
        Some(("deb", rest)) => format!("deb-src {rest}\n"),
        Some(("Types:", _)) => "Types: deb-src\n".to_string(),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

/// Runs a command, which is shown first; what it says, line by line.
fn output_of(command: Command) -> Result<String> {
    let words = shown(&command);
    println!("{words}");
    let mut told = String::new();
    let status = run_watched(command, |line| {
        told.push_str(line);
        told.push('\n');
    })?;
    ensure!(status.success(), "{words}: {status}");
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_lists_become_lists_of_sources() {
        let new = "Types: deb\nURIs: x\nSuites: y\n";
        assert_eq!(as_source_list(new), "Types: deb-src\nURIs: x\nSuites: y\n");
        let old = "# deb no\ndeb x y main\ndeb-src x y main\n";
        assert_eq!(as_source_list(old), "# deb no\ndeb-src x y main\ndeb-src x y main\n");
    }

    #[test]
    fn what_the_benchmark_found_is_checked() {
        let told = |first: u32, last: u32| {
            format!(
                "... 7 ops \rreadrandom : 2 micros/op; ({first} of 5000 found)\n\
                 seekrandom : 1; (4300 of 5000 found)\nreadrandom : 2; ({last} of 5000 found)\n"
            )
        };
        check_found(&told(4320, 4330)).unwrap();
        for wrong in [told(4320, 4000), told(5000, 4320)] {
            assert!(check_found(&wrong).is_err());
        }
        assert!(check_found("").is_err());
    }
}
