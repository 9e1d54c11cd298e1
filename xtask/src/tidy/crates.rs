//! Floors between crates: each names only crates of lower floors in its `[dependencies]`.
//!
//! The floors are drawn in `docs/ARCHITECTURE.md` and nowhere else. A crate of floor 5 stands beside the engine
//! or above it, see [`BESIDE_THE_ENGINE`]. Dependencies of tests and examples are exempt: Cargo itself refuses
//! those that matter.

use super::drawing::{self, DOCUMENT};
use super::{Finding, Tree};

/// Reads files without the engine, so that it works when the engine does not.
const BESIDE_THE_ENGINE: &str = "terrace-inspect";

/// The highest floor that [`BESIDE_THE_ENGINE`] may use.
const BELOW_THE_ENGINE: u32 = 3;

/// Every crate uses only crates of lower floors; every crate has a floor.
pub fn floors(tree: &Tree) -> Vec<Finding> {
    let drawn = drawing::crates(tree);
    let floor = |name: &str| drawn.iter().find(|(listed, _)| listed == name).map(|(_, n)| *n);
    let mut findings = Vec::new();
    let mut seen = Vec::new();
    for (path, text) in tree.with_ending("Cargo.toml").filter(|(path, _)| path.contains('/')) {
        let manifest = Manifest::parse(text);
        let finding = |line, what| Finding { path: path.to_string(), line, what };
        let Some(own) = floor(&manifest.name) else {
            findings
                .push(finding(1, format!("crate `{}` has no floor in the drawing", manifest.name)));
            continue;
        };
        let most = match manifest.name == BESIDE_THE_ENGINE {
            true => BELOW_THE_ENGINE + 1,
            false => own,
        };
        for (line, used) in manifest.dependencies {
            if floor(&used).is_some_and(|floor| floor >= most) {
                let what = format!("`{}` (floor {own}) uses `{used}`, not below it", manifest.name);
                findings.push(finding(line, what));
            }
        }
        seen.push(manifest.name);
    }
    for (name, _) in drawn.iter().filter(|(name, _)| !seen.contains(name)) {
        let what = format!("crate `{name}` has a floor and does not exist");
        findings.push(Finding { path: DOCUMENT.into(), line: 1, what });
    }
    if drawn.is_empty() {
        let what = "no drawing of the crates' floors".into();
        findings.push(Finding { path: DOCUMENT.into(), line: 1, what });
    }
    findings
}

/// What matters of a `Cargo.toml`.
#[derive(Debug, Default, PartialEq)]
struct Manifest {
    name: String,
    /// Line and name of each dependency that ships.
    dependencies: Vec<(usize, String)>,
}

impl Manifest {
    fn parse(text: &str) -> Self {
        let mut manifest = Self::default();
        let mut table = String::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if let Some(header) = line.strip_prefix('[') {
                table = header.trim_matches(['[', ']']).to_string();
                let (parent, name) = table.rsplit_once('.').unwrap_or(("", &table));
                if ships(parent) {
                    manifest.dependencies.push((at + 1, name.to_string()));
                }
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let key = key.split('.').next().unwrap_or_default().trim().trim_matches('"');
            if table == "package" && key == "name" {
                manifest.name = value.trim().trim_matches('"').to_string();
            }
            if ships(&table) {
                manifest.dependencies.push((at + 1, key.to_string()));
            }
        }
        manifest
    }
}

/// Whether a table of this name lists dependencies that ship.
fn ships(table: &str) -> bool {
    let kind = table.rsplit('.').next().unwrap_or(table);
    matches!(kind, "dependencies" | "build-dependencies")
        && (table == kind || table.starts_with("target."))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{all_found, tree};
    use super::*;

    const DRAWING: &str = "```\n\
        0  terrace-base     keys\n\
        1  terrace-vfs      files\n\
        2  terrace-log      segments\n   terrace-sst      blocks,\n                    and readers\n\
        3  terrace-manifest  versions\n\
        4  terrace          the engine\n\
        5  terrace-inspect  dumps\n   terrace-bench    workloads\n```\n";

    /// A tree with every crate of the drawing, of which `name` has `tail` in its manifest.
    fn found(name: &str, tail: &str) -> Vec<String> {
        let drawn = drawing::crates(&tree(&[(DOCUMENT, DRAWING)]));
        assert_eq!(drawn.len(), 8);
        let mut files: Vec<(String, String)> = drawn
            .iter()
            .map(|(listed, _)| {
                let tail = if *listed == name { tail } else { "" };
                (format!("{listed}/Cargo.toml"), format!("[package]\nname = \"{listed}\"\n{tail}"))
            })
            .collect();
        files.push((DOCUMENT.into(), DRAWING.into()));
        let files: Vec<_> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        all_found(floors, &files)
    }

    #[test]
    fn lower_floors_and_foreign_crates_pass() {
        assert!(found("terrace-sst", "[dependencies]\nterrace-vfs.workspace = true\n").is_empty());
        assert!(found("terrace", "[dependencies]\nserde = \"1\" # terrace-cli\n").is_empty());
        assert!(found("terrace-base", "[dev-dependencies]\nterrace.workspace = true\n").is_empty());
    }

    #[test]
    fn equal_and_higher_floors_fail_in_every_spelling() {
        for tail in [
            "[dependencies]\nterrace-sst.workspace = true\n",
            "[dependencies]\nterrace-sst = { path = \"../sst\" }\n",
            "[dependencies.terrace-sst]\npath = \"../sst\"\n",
            "[target.'cfg(loom)'.dependencies]\nterrace-sst.workspace = true\n",
            "[build-dependencies]\nterrace-sst.workspace = true\n",
        ] {
            assert_eq!(found("terrace-log", tail).len(), 1, "{tail}");
        }
        assert_eq!(
            found("terrace-log", "[dependencies]\nterrace.workspace = true\n"),
            ["terrace-log/Cargo.toml:4: `terrace-log` (floor 2) uses `terrace`, not below it"]
        );
    }

    #[test]
    fn inspect_does_not_use_the_engine() {
        let uses = |name: &str| format!("[dependencies]\n{name}.workspace = true\n");
        assert!(found("terrace-inspect", &uses("terrace-manifest")).is_empty());
        assert_eq!(found("terrace-inspect", &uses("terrace")).len(), 1);
        assert!(found("terrace-bench", &uses("terrace")).is_empty());
    }

    #[test]
    fn every_crate_has_a_floor_and_every_floor_its_crate() {
        let x = ("x/Cargo.toml", "[package]\nname = \"x\"\n");
        let found = all_found(floors, &[x, (DOCUMENT, "```\n0  terrace-base  keys\n```\n")]);
        assert_eq!(
            found,
            [
                "x/Cargo.toml:1: crate `x` has no floor in the drawing",
                "docs/ARCHITECTURE.md:1: crate `terrace-base` has a floor and does not exist"
            ]
        );
        assert_eq!(all_found(floors, &[x]).len(), 2, "no drawing");
    }
}
