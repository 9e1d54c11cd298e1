//! `cargo xtask leveldb-library [DIR]`: LevelDB's interfaces for C and C++ as they are installed: headers, a shared
//! library with the names under which programs look for LevelDB's, pkg-config file. Needs a C++ compiler.

use crate::output::run_shown;
use crate::steps::{cargo, target_dir};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const CRATE: &str = "crates/leveldb";

/// The version of LevelDB whose interfaces these are.
const VERSION: &str = "1.23.0";

/// The file of the library.
pub const SHARED: &str = "libleveldb.so.1.23.0";

/// What the loader looks for: as LevelDB's own build names it, and as Debian does.
const SONAME: &str = "libleveldb.so.1";
const LINKS: [(&str, &str); 3] =
    [(SONAME, SHARED), ("libleveldb.so.1d", SONAME), ("libleveldb.so", SONAME)];

/// Builds the library and installs it below the directory that `arguments` name.
pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let dir = arguments.first().map_or_else(|| root.join("target/leveldb"), PathBuf::from);
    run_shown(cargo(&["build", "--release", "-p", "terrace-leveldb"]).current_dir(root))?;
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let prefix = fs::canonicalize(&dir).with_context(|| format!("find {}", dir.display()))?;
    install(root, &target_dir(root).join("release"), &dir, &prefix.to_string_lossy())?;
    let shown = dir.display();
    println!("{shown}: c++ program.cc -I {shown}/include -L {shown}/lib -lleveldb");
    println!("{shown}: LD_LIBRARY_PATH={shown}/lib PROGRAM, for one that is there");
    Ok(())
}

/// Links what cargo left in `built` with the sources for C++, and puts all into `dir`, which the pkg-config file calls
/// `prefix`.
pub fn install(root: &Path, built: &Path, dir: &Path, prefix: &str) -> Result<()> {
    let (include, lib) = (dir.join("include/leveldb"), dir.join("lib"));
    let pkg_config = lib.join("pkgconfig");
    for made in [&include, &pkg_config] {
        fs::create_dir_all(made).with_context(|| format!("create {}", made.display()))?;
    }
    for header in files(&root.join(CRATE).join("include/leveldb"), "h")? {
        let to = include.join(header.file_name().context("a header without a name")?);
        fs::copy(&header, &to).with_context(|| format!("copy {}", header.display()))?;
    }
    link(root, built, &lib.join(SHARED))?;
    for (name, to) in LINKS {
        let link = lib.join(name);
        // Left by an earlier run.
        let _ = fs::remove_file(&link);
        symlink(to, &link).with_context(|| format!("link {}", link.display()))?;
    }
    let text = format!(
        "prefix={prefix}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: leveldb\n\
         Description: LevelDB's interfaces over Terrace\nVersion: {VERSION}\n\
         Libs: -L${{libdir}} -lleveldb\nCflags: -I${{includedir}}\n"
    );
    fs::write(pkg_config.join("leveldb.pc"), text).context("write the pkg-config file")
}

/// Makes the shared library: all of the static one, and the sources for C++ over it; without debug information.
fn link(root: &Path, built: &Path, shared: &Path) -> Result<()> {
    let folder = root.join(CRATE);
    let archive = built.join("libterrace_leveldb.a");
    ensure!(archive.exists(), "{} is not there: cargo build -p terrace-leveldb", archive.display());
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]);
    compiler.arg("-I").arg(folder.join("include")).args(files(&folder.join("cxx"), "cc")?);
    compiler.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    let names = folder.join("cxx/leveldb.map");
    compiler.arg(format!("-Wl,-soname,{SONAME},-z,defs,--gc-sections,-Bsymbolic-functions"));
    compiler.arg(format!("-Wl,--strip-debug,--version-script,{}", names.display()));
    run_shown(compiler.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(shared))
}

/// The files in `dir` whose names end so, in the order of their names.
fn files(dir: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|there| there == ending) {
            found.push(path);
        }
    }
    ensure!(!found.is_empty(), "{} has no .{ending}", dir.display());
    found.sort();
    Ok(found)
}
