//! `cargo xtask c-library [DIR]`: the library for C as it is installed: header, shared library with the
//! names that linkers and loaders look for and versions of its functions, static library, pkg-config file.
//!
//! The shared library is linked of the static one. Cargo's own has no versions: rustc passes a list of its own to
//! the linker, which takes only one.

use crate::output::run_shown;
use crate::steps::{cargo, target_dir};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the loader looks for, as `crates/c/build.rs` says.
const SONAME: &str = "libterrace.so.0";

/// Which functions the shared library has, and their version: for the linker.
const VERSIONS: &str = "crates/c/libterrace.map";

/// The version that they have in this library: its number is that of [`SONAME`].
pub const SYMBOL_VERSION: &str = "TERRACE_0";

/// Builds the library and installs it below the directory that `arguments` name.
pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let dir = arguments.first().map_or_else(|| root.join("target/c"), PathBuf::from);
    run_shown(cargo(&["build", "--release", "-p", "terrace-c"]).current_dir(root))?;
    fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let prefix = fs::canonicalize(&dir).with_context(|| format!("find {}", dir.display()))?;
    install(root, &target_dir(root).join("release"), &dir, &prefix.to_string_lossy())?;
    let shown = dir.display();
    println!("{shown}: cc program.c -I {shown}/include -L {shown}/lib -lterrace");
    Ok(())
}

/// The prefix of a pkg-config file that is found wherever the library is unpacked.
pub const RELOCATABLE: &str = "${pcfiledir}/../..";

/// The file of the shared library.
pub fn shared() -> String {
    format!("libterrace.so.{VERSION}")
}

/// Puts what is made of what cargo left in `built` into `dir`, which the pkg-config file calls `prefix`.
pub fn install(root: &Path, built: &Path, dir: &Path, prefix: &str) -> Result<()> {
    let (include, lib) = (dir.join("include"), dir.join("lib"));
    let pkg_config = lib.join("pkgconfig");
    for made in [&include, &pkg_config] {
        fs::create_dir_all(made).with_context(|| format!("create {}", made.display()))?;
    }
    let copy = |from: &Path, to: &Path| {
        fs::copy(from, to)
            .with_context(|| format!("copy {} to {}", from.display(), to.display()))
            .map(drop)
    };
    copy(&root.join("crates/c/include/terrace.h"), &include.join("terrace.h"))?;
    let archive = built.join("libterrace_c.a");
    copy(&archive, &lib.join("libterrace.a"))?;
    let shared = shared();
    link(root, &archive, &lib.join(&shared))?;
    for (name, to) in [(SONAME, shared.as_str()), ("libterrace.so", SONAME)] {
        let link = lib.join(name);
        // Left by an earlier run.
        let _ = fs::remove_file(&link);
        symlink(to, &link).with_context(|| format!("link {}", link.display()))?;
    }
    fs::write(pkg_config.join("terrace.pc"), pkg_config_file(prefix))
        .context("write the pkg-config file")
}

/// Makes the shared library of all of the static one, without debug information.
fn link(root: &Path, archive: &Path, shared: &Path) -> Result<()> {
    let versions = root.join(VERSIONS);
    ensure!(versions.exists(), "{} is not there", versions.display());
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-Wl,--whole-archive"]).arg(archive).arg("-Wl,--no-whole-archive");
    compiler.arg(format!("-Wl,-soname,{SONAME},-z,defs,--gc-sections,-Bsymbolic-functions"));
    compiler.arg(format!("-Wl,--strip-debug,--version-script,{}", versions.display()));
    run_shown(compiler.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(shared))
}

fn pkg_config_file(prefix: &str) -> String {
    format!(
        "prefix={prefix}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: terrace\n\
         Description: An embeddable LSM-tree key-value store\nVersion: {VERSION}\n\
         Libs: -L${{libdir}} -lterrace\nLibs.private: -lpthread -ldl -lm\nCflags: -I${{includedir}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::output;

    /// A function of the interface, and one that is not.
    const SOURCE: &str = "int terrace_a(void) { return 7; }\nint inner(void) { return 8; }\n";

    fn archive(built: &Path) {
        let (source, object) = (built.join("c.c"), built.join("c.o"));
        fs::write(&source, SOURCE).unwrap();
        let mut compiler = Command::new("cc");
        run_shown(compiler.args(["-fPIC", "-c"]).arg(source).arg("-o").arg(&object)).unwrap();
        let archive = built.join("libterrace_c.a");
        run_shown(Command::new("ar").arg("rcs").arg(archive).arg(object)).unwrap();
    }

    #[test]
    fn an_installed_library_has_every_name_and_versions_of_its_functions() {
        let root = std::env::temp_dir().join(format!("xtask-c-{}", std::process::id()));
        let (built, dir) = (root.join("built"), root.join("out"));
        fs::create_dir_all(root.join("crates/c/include")).unwrap();
        fs::create_dir_all(&built).unwrap();
        fs::write(root.join("crates/c/include/terrace.h"), "h").unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        fs::copy(here.join(VERSIONS), root.join(VERSIONS)).unwrap();
        archive(&built);
        for _ in 0..2 {
            install(&root, &built, &dir, RELOCATABLE).unwrap();
        }
        let library = fs::read(dir.join("lib").join(shared())).unwrap();
        for name in ["libterrace.so", SONAME] {
            assert!(fs::read(dir.join("lib").join(name)).unwrap() == library, "{name}");
        }
        let mut symbols = Command::new("nm");
        symbols.args(["--dynamic", "--defined-only"]).arg(dir.join("lib/libterrace.so"));
        let listed = output(&mut symbols).unwrap();
        let listed = String::from_utf8(listed).unwrap();
        assert!(listed.contains(&format!(" terrace_a@@{SYMBOL_VERSION}\n")), "{listed}");
        assert!(!listed.contains("inner"), "{listed}");
        let text = fs::read_to_string(dir.join("lib/pkgconfig/terrace.pc")).unwrap();
        assert!(text.starts_with("prefix=${pcfiledir}/../..\n"), "{text}");
        assert!(text.contains("\nLibs: -L${libdir} -lterrace\n"), "{text}");
        fs::remove_dir_all(&root).unwrap();
    }
}
