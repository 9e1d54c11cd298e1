//! The steps of the dashboard: its tests, its committed build, and the page of a running server.

use crate::clients::TOOLS_STEP;
use crate::steps::BUILD;
use crate::steps::Steps;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The step that builds the page from its sources.
const BUILD_PAGE: &str = "dashboard-build";

/// Adds the steps. They need the packages, the last also `terrace`.
pub fn add(steps: &mut Steps) {
    let root = steps.root().to_path_buf();
    let npm = |arguments: &[&str]| {
        let mut npm = Command::new("npm");
        npm.args(["--prefix", "dashboard"]).args(arguments);
        npm
    };
    let shown = "npm --prefix dashboard";
    let alone = steps.command("dashboard", &format!("{shown} test"), npm(&["test"]));
    alone.needs(&[TOOLS_STEP]);

    let built = steps.target_dir().join("dashboard");
    let out = built.to_string_lossy();
    let build = ["run", "build", "--", "--emptyOutDir", "--outDir", &out];
    let words = format!("{shown} {}", build.join(" "));
    steps.command(BUILD_PAGE, &words, npm(&build)).needs(&[TOOLS_STEP]);
    let same = move |root: &Path| same_files(&root.join("crates/server/dashboard"), &built);
    steps.check("dashboard-committed", same).needs(&[BUILD_PAGE]);

    let program = steps.target_dir().join("debug").join("terrace");
    let program = program.to_string_lossy();
    let real = ["run", "test:real", "--", &program];
    let mut command = npm(&real);
    if let Some(folder) = std::env::var_os(SHOTS) {
        command.env(SHOTS, root.join(folder));
    }
    let served = steps.command("dashboard-served", &format!("{shown} {}", real.join(" ")), command);
    served.needs(&[TOOLS_STEP, BUILD]);
}

/// The folder that screenshots are put in, if they are wanted: `docs/images` for those of the
/// README.
const SHOTS: &str = "TERRACE_SCREENSHOTS";

/// The same names with the same bytes.
fn same_files(committed: &Path, built: &Path) -> Result<()> {
    let (before, now) = (files(committed)?, files(built)?);
    let names = before.keys().chain(now.keys());
    let mut other: Vec<_> = names.filter(|name| before.get(*name) != now.get(*name)).collect();
    other.sort_unstable();
    other.dedup();
    let how = "run `npm run build` in dashboard/ and commit crates/server/dashboard/";
    ensure!(
        other.is_empty(),
        "{} does not hold what the sources give: {other:?}; {how}",
        committed.display()
    );
    println!("{} files, byte for byte", now.len());
    Ok(())
}

/// The files of a folder without folders in it.
fn files(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.insert(name, fs::read(&path).with_context(|| format!("read {}", path.display()))?);
    }
    ensure!(!found.is_empty(), "{} is empty", dir.display());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_or_a_file_more_is_seen() {
        let dir = std::env::temp_dir().join(format!("xtask-dist-{}", std::process::id()));
        let (a, b) = (dir.join("a"), dir.join("b"));
        for side in [&a, &b] {
            fs::create_dir_all(side).unwrap();
            fs::write(side.join("app.js"), "1").unwrap();
        }
        assert!(same_files(&a, &b).is_ok());
        fs::write(b.join("more"), "").unwrap();
        assert!(same_files(&a, &b).is_err());
        fs::remove_file(b.join("more")).unwrap();
        fs::write(b.join("app.js"), "2").unwrap();
        let error = same_files(&a, &b).unwrap_err().to_string();
        fs::remove_dir_all(&dir).unwrap();
        assert!(error.contains("app.js"), "{error}");
    }
}
