//! The archives and the package for Python as a user gets them: unpacked, compiled against by pkg-config, run.

use crate::c_library::SYMBOL_VERSION;
use crate::output::run_shown;
use crate::packages::output;
use crate::page;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program in C that is compiled against the library.
const EXAMPLE: &str = "crates/c/examples/sessions.c";

/// The page with a program in C++, and what that prints.
const LEVELDB_PAGE: &str = "docs/leveldb.md";
const LEVELDB_PRINTED: &str = "rice is ripe\nwheat is sown\n";

/// As a user types it, with the source as `$1` and the program as `$2`.
const SHARED: &str = r#"cc "$1" -o "$2" $(pkg-config --cflags --libs terrace)"#;
const STATIC: &str =
    r#"cc "$1" -o "$2" $(pkg-config --cflags terrace) "$3/libterrace.a" -lpthread -ldl -lm"#;
const CXX: &str = r#"c++ -std=c++11 "$1" -o "$2" $(pkg-config --cflags --libs leveldb)"#;

/// Opens a store with the package in the folder that is the first argument.
const PYTHON: &str = "import sys, terracedb\n\
    assert terracedb.__file__.startswith(sys.argv[1]), terracedb.__file__\n\
    with terracedb.Db(sys.argv[2]) as db:\n    \
        db[b'rice'] = b'ripe'\n    \
        assert db[b'rice'] == b'ripe'\n";

/// Unpacks an archive beside itself; gives the folder that was in it.
fn unpack(archive: &Path) -> Result<PathBuf> {
    let dir = archive.parent().context("no folder")?;
    run_shown(Command::new("tar").arg("-xzf").arg(archive).current_dir(dir))?;
    let name = archive.file_name().context("no name")?.to_string_lossy();
    Ok(dir.join(name.trim_end_matches(".tar.gz")))
}

/// The archive is unpacked, its program runs, and the shell takes its completions.
pub fn program(archive: &Path) -> Result<()> {
    let unpacked = unpack(archive)?;
    run_shown(Command::new(unpacked.join("bin/terrace")).arg("--version"))?;
    let complete = ". completions/bash/terrace && complete -p terrace";
    run_shown(Command::new("bash").args(["-c", complete]).current_dir(&unpacked))?;
    for page in ["terrace.1.gz", "terrace-serve.1.gz"] {
        run_shown(Command::new("gzip").arg("-t").arg(unpacked.join("man/man1").join(page)))?;
    }
    Ok(())
}

/// The example is compiled against the library, shared and static, and run.
pub fn c_library(root: &Path, archive: &Path) -> Result<()> {
    let unpacked = unpack(archive)?;
    let lib = unpacked.join("lib");
    for (name, line) in [("shared", SHARED), ("static", STATIC)] {
        let program = unpacked.join(name);
        compile(line, &root.join(EXAMPLE), &program, &lib)?;
        // On no store, and on the one that it left.
        for _ in 0..2 {
            let mut example = Command::new(&program);
            example.arg(unpacked.join(format!("{name}-store"))).env("LD_LIBRARY_PATH", &lib);
            run_shown(&mut example)?;
        }
    }
    let versions =
        output(Command::new("readelf").arg("--version-info").arg(unpacked.join("shared")))?;
    let versions = String::from_utf8_lossy(&versions);
    ensure!(
        versions.contains(SYMBOL_VERSION),
        "the program asks for no {SYMBOL_VERSION}: {versions}"
    );
    Ok(())
}

/// The program of the page is compiled against LevelDB's interface, and run.
pub fn leveldb_library(root: &Path, archive: &Path) -> Result<()> {
    let unpacked = unpack(archive)?;
    let (lib, source) = (unpacked.join("lib"), unpacked.join("page.cc"));
    let code = page::code(&root.join(LEVELDB_PAGE), "cpp")?.concat();
    fs::write(&source, code).with_context(|| format!("write {}", source.display()))?;
    let program = unpacked.join("page");
    compile(CXX, &source, &program, &lib)?;
    let mut command = Command::new(program);
    let printed = output(command.current_dir(&unpacked).env("LD_LIBRARY_PATH", &lib))?;
    let printed = String::from_utf8_lossy(&printed);
    ensure!(printed == LEVELDB_PRINTED, "the program of {LEVELDB_PAGE} printed {printed:?}");
    Ok(())
}

fn compile(line: &str, source: &Path, program: &Path, lib: &Path) -> Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", line, "sh"]).arg(source).arg(program).arg(lib);
    run_shown(shell.env("PKG_CONFIG_PATH", lib.join("pkgconfig")))
}

/// The wheel is for the systems that are promised, and installs; `dir` is empty.
pub fn wheel(python: &Path, wheel: &Path, platform: &str, dir: &Path) -> Result<()> {
    let name = wheel.file_name().context("no name")?.to_string_lossy();
    ensure!(name.contains(platform), "{name} is not for {platform}");
    let packages = dir.join("packages");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]);
    run_shown(pip.args(["--no-deps", "--target"]).arg(&packages).arg(wheel))?;
    let mut program = Command::new(python);
    program.args(["-c", PYTHON]).arg(&packages).arg(dir.join("store"));
    run_shown(program.env("PYTHONPATH", &packages).current_dir(dir))
}
