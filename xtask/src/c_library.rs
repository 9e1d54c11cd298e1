//! `cargo xtask c-library [DIR]`: the library for C as it is installed: header, shared library with the
//! names that linkers and loaders look for, static library, pkg-config file.

use crate::output::run_shown;
use crate::steps::{cargo, target_dir};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the loader looks for, as `crates/c/build.rs` says.
const SONAME: &str = "libterrace.so.0";

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

/// Copies what cargo left in `built` into `dir`, which the pkg-config file calls `prefix`.
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
    copy(&built.join("libterrace_c.a"), &lib.join("libterrace.a"))?;
    let shared = format!("libterrace.so.{VERSION}");
    copy(&built.join("libterrace_c.so"), &lib.join(&shared))?;
    for (name, to) in [(SONAME, shared.as_str()), ("libterrace.so", SONAME)] {
        let link = lib.join(name);
        // Left by an earlier run.
        let _ = fs::remove_file(&link);
        symlink(to, &link).with_context(|| format!("link {}", link.display()))?;
    }
    fs::write(pkg_config.join("terrace.pc"), pkg_config_file(prefix))
        .context("write the pkg-config file")
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

    #[test]
    fn an_installed_library_has_every_name() {
        let root = std::env::temp_dir().join(format!("xtask-c-{}", std::process::id()));
        let (built, dir) = (root.join("built"), root.join("out"));
        fs::create_dir_all(root.join("crates/c/include")).unwrap();
        fs::create_dir_all(&built).unwrap();
        fs::write(root.join("crates/c/include/terrace.h"), "h").unwrap();
        fs::write(built.join("libterrace_c.a"), "a").unwrap();
        fs::write(built.join("libterrace_c.so"), "so").unwrap();
        for _ in 0..2 {
            install(&root, &built, &dir, RELOCATABLE).unwrap();
        }
        for name in ["libterrace.so", SONAME] {
            assert_eq!(fs::read_to_string(dir.join("lib").join(name)).unwrap(), "so");
        }
        let text = fs::read_to_string(dir.join("lib/pkgconfig/terrace.pc")).unwrap();
        assert!(text.starts_with("prefix=${pcfiledir}/../..\n"), "{text}");
        assert!(text.contains("\nLibs: -L${libdir} -lterrace\n"), "{text}");
        fs::remove_dir_all(&root).unwrap();
    }
}
