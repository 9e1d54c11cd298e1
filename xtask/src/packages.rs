//! Which packages programs of the project are built from, as `cargo metadata` and `Cargo.lock` say. Used for
//! the list of what is in a release, and for the checks of licences and sources.

use crate::steps::cargo;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use toml_edit::{DocumentMut, Item, Table};

/// One version of a package.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Package {
    /// How cargo refers to it.
    pub id: String,
    pub name: String,
    pub version: String,
    pub description: Option<String>,
    /// An SPDX expression.
    pub license: Option<String>,
    pub repository: Option<String>,
    pub readme: Option<String>,
    pub keywords: Vec<String>,
    pub categories: Vec<String>,
    /// Where it comes from; none if it is part of the project.
    pub source: Option<String>,
    /// The oldest Rust that it says it builds with.
    pub rust_version: Option<String>,
    /// Empty if it is never published.
    pub publish: Option<Vec<String>>,
    /// SHA-256 of its archive; none if it is part of the project.
    #[serde(skip)]
    pub checksum: Option<String>,
}

impl Package {
    /// Whether it is part of the project.
    pub fn is_ours(&self) -> bool {
        self.source.is_none()
    }

    /// Name and version, for people.
    pub fn shown(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    /// `dev` or `build`; none for those of the library or program itself.
    kind: Option<String>,
}

/// All packages of the workspace on this platform, and what each is built from.
#[derive(Debug, Default)]
pub struct Packages {
    by_id: BTreeMap<String, Package>,
    /// Without those that only tests or build scripts use.
    uses: BTreeMap<String, Vec<String>>,
}

impl Packages {
    /// Asks cargo; nothing is downloaded that a build has not downloaded.
    pub fn read(root: &Path) -> Result<Self> {
        let host = host()?;
        let arguments =
            ["metadata", "--format-version", "1", "--locked", "--filter-platform", &host];
        let metadata = output(cargo(&arguments).current_dir(root))?;
        let lock = root.join("Cargo.lock");
        let lock = fs::read_to_string(&lock).with_context(|| format!("read {}", lock.display()))?;
        Self::parse(&metadata, &lock)
    }

    fn parse(metadata: &[u8], lock: &str) -> Result<Self> {
        let metadata: Metadata =
            serde_json::from_slice(metadata).context("understand cargo metadata")?;
        let sums = checksums(lock)?;
        let mut packages = Self::default();
        for mut package in metadata.packages {
            let key = (package.name.clone(), package.version.clone());
            package.checksum = sums.get(&key).cloned();
            packages.by_id.insert(package.id.clone(), package);
        }
        let is_shipped = |edge: &&Edge| {
            edge.dep_kinds.is_empty() || edge.dep_kinds.iter().any(|d| d.kind.is_none())
        };
        for node in metadata.resolve.nodes {
            let used = node.deps.iter().filter(is_shipped).map(|edge| edge.pkg.clone());
            packages.uses.insert(node.id, used.collect());
        }
        Ok(packages)
    }

    /// All of them, by their ids.
    pub fn all(&self) -> impl Iterator<Item = &Package> {
        self.by_id.values()
    }

    /// The package of the project called `name`.
    pub fn ours(&self, name: &str) -> Result<&Package> {
        let found = self.all().find(|package| package.is_ours() && package.name == name);
        found.with_context(|| format!("the project has no package {name}"))
    }

    /// What `package` names as its dependencies and is built from.
    pub fn used_by(&self, package: &Package) -> impl Iterator<Item = &Package> {
        let ids = self.uses.get(&package.id).map_or(&[][..], Vec::as_slice);
        ids.iter().filter_map(|id| self.by_id.get(id))
    }

    /// `package` and everything that it is built from, through others too, by name and version.
    pub fn closure<'a>(&'a self, package: &'a Package) -> Vec<&'a Package> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![package]);
        let mut found = Vec::new();
        while let Some(next) = open.pop() {
            if seen.insert(next.id.as_str()) {
                found.push(next);
                open.extend(self.used_by(next));
            }
        }
        found.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        found
    }
}

/// Checksums by name and version, from the text of `Cargo.lock`.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: DocumentMut = lock.parse().context("understand Cargo.lock")?;
    let locked = lock.get("package").and_then(Item::as_array_of_tables);
    let locked = locked.context("Cargo.lock lists no packages")?.iter();
    let text = |table: &Table, key: &str| Some(table.get(key)?.as_str()?.to_string());
    let of = |table: &Table| {
        Some(((text(table, "name")?, text(table, "version")?), text(table, "checksum")?))
    };
    Ok(locked.filter_map(of).collect())
}

/// The platform that rustc builds for if no other is named.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let text = output(Command::new(rustc).arg("-vV"))?;
    let text = String::from_utf8_lossy(&text);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_string())
}

/// What a command prints; its errors are shown as they come.
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.with_context(|| format!("start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(output.stdout)
}

#[cfg(test)]
pub mod testing {
    //! A small workspace.

    use super::{Package, Packages};

    const METADATA: &str = r#"{
        "packages": [
            {"id": "p", "name": "program", "version": "0.1.0", "license": "MIT", "source": null},
            {"id": "a", "name": "a", "version": "1.0.0", "license": "MIT/Apache-2.0", "source": "registry"},
            {"id": "b", "name": "b", "version": "2.0.0", "license": "Zlib", "source": "registry"},
            {"id": "t", "name": "t", "version": "3.0.0", "license": "GPL-3.0", "source": "registry"}
        ],
        "resolve": {"nodes": [
            {"id": "p", "deps": [
                {"pkg": "a", "dep_kinds": [{"kind": "dev"}, {"kind": null}]},
                {"pkg": "t", "dep_kinds": [{"kind": "dev"}, {"kind": "build"}]}
            ]},
            {"id": "a", "deps": [{"pkg": "b", "dep_kinds": [{"kind": null}]}]},
            {"id": "b", "deps": []},
            {"id": "t", "deps": []}
        ]}
    }"#;

    const LOCK: &str = "version = 4\n\
        [[package]]\nname = \"program\"\nversion = \"0.1.0\"\n\
        [[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry\"\nchecksum = \"c0ffee\"\n";

    /// A program of `a`, which uses `b`; its tests use `t`.
    pub fn packages() -> Packages {
        Packages::parse(METADATA.as_bytes(), LOCK).unwrap()
    }

    /// As [`packages`]; the program promises Rust 1.93 and uses also a `b` that asks for 1.94.
    pub fn with_second_version() -> Packages {
        let mut packages = packages();
        let second = Package {
            id: "b2".into(),
            name: "b".into(),
            version: "2.1.0".into(),
            source: Some("registry".into()),
            rust_version: Some("1.94".into()),
            ..Package::default()
        };
        packages.by_id.insert(second.id.clone(), second);
        packages.by_id.get_mut("p").unwrap().rust_version = Some("1.93".into());
        packages.uses.get_mut("p").unwrap().push("b2".into());
        packages
    }
}

#[cfg(test)]
mod tests {
    use super::testing::packages;

    #[test]
    fn a_program_is_built_from_what_it_uses_but_for_its_tests() {
        let packages = packages();
        let program = packages.ours("program").unwrap();
        let names: Vec<_> = packages.closure(program).iter().map(|p| p.shown()).collect();
        assert_eq!(names, ["a 1.0.0", "b 2.0.0", "program 0.1.0"]);
        let sums: Vec<_> = packages.used_by(program).map(|used| used.checksum.as_deref()).collect();
        assert_eq!(sums, [Some("c0ffee")]);
        assert!(packages.ours("a").is_err(), "it is not part of the project");
    }
}
