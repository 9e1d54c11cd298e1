//! classic-level, LevelDB for Node, over Terrace: compiled by the script of `docs/node.md`, with the program of that
//! page, and with the tests that it runs itself, those of abstract-level.

use crate::clients::node_packages;
use crate::output::{run_shown, shown};
use crate::page;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The script, with the packages of Node that it needs.
const FOLDER: &str = "bindings/node";

/// How many checks those tests make.
const CHECKS: usize = 5168;

/// Where the page has a program.
const PAGE: &str = "docs/node.md";

/// What that prints.
const PRINTED: &str = "{ sown: 3 }\nrice/1 { sown: 0 }\nrice/2 { sown: 5 }\n";

/// Builds and runs it over the library in `installed`; `stores` is for its stores.
pub fn classic_level(root: &Path, installed: &Path, stores: &Path) -> Result<()> {
    node_packages(root, FOLDER)?;
    let folder = root.join(FOLDER);
    run_shown(Command::new("sh").arg("build.sh").arg(installed).current_dir(&folder))?;
    let node = |script: &str, name: &str| {
        let store = stores.join(name);
        fs::create_dir_all(&store).with_context(|| format!("create {}", store.display()))?;
        said(Command::new("node").arg(script).arg(store).current_dir(&folder))
    };
    let program = page::code(&root.join(PAGE), "js")?.concat();
    // Beside the packages, where Node looks for them.
    let path = folder.join("node_modules/page.mjs");
    fs::write(&path, program).with_context(|| format!("write {}", path.display()))?;
    let printed = node("node_modules/page.mjs", "node-page")?;
    ensure!(printed == PRINTED, "the program of {PAGE} printed {printed:?}");
    let suite = node("suite.js", "node-suite")?;
    let lines: Vec<&str> = suite.lines().filter(|line| line.starts_with("# ")).collect();
    let expected = format!("# pass  {CHECKS}");
    ensure!(lines.contains(&expected.as_str()), "{expected} was expected: {lines:?}");
    println!("{expected}");
    Ok(())
}

/// What a command prints. Of thousands of checks only those that failed are shown.
fn said(command: &mut Command) -> Result<String> {
    let words = shown(command);
    println!("{words}");
    let output = command.output().with_context(|| format!("start {words}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in text.lines().filter(|line| line.starts_with("not ok")) {
        println!("{line}");
    }
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{words}: {}: {complaints}", output.status);
    Ok(text)
}
