//! What the project is built from, and what it says about itself, held against `deny.toml` and the rules of
//! `docs/policies.md`: licences, sources, banned packages, two versions of one package in the library, compilers that
//! dependencies ask for, and what a registry wants to know. It needs no network and no other program.

mod licence;

use crate::packages::{Package, Packages};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use toml_edit::{Array, DocumentMut, Item, Value};

/// The crate that must be built from one version of each package.
const LIBRARY: &str = "terrace";

/// How cargo names the public registry.
const REGISTRY: &str = concat!("registry+https://github.com/rust-lang/crates", ".io-index");

/// What the file of rules says.
#[derive(Debug, Default)]
struct Rules {
    licenses: Vec<String>,
    /// Licences that are allowed for one package, by its name.
    exceptions: BTreeMap<String, Vec<String>>,
    banned: Vec<String>,
    /// Packages of which there may be two versions.
    twice: Vec<String>,
}

/// Checks everything; prints what it found.
pub fn run(root: &Path) -> Result<()> {
    let path = root.join("deny.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let rules = Rules::parse(&text)?;
    let packages = Packages::read(root)?;
    let mut findings = Vec::new();
    for package in packages.all() {
        findings.extend(foreign(package, &rules));
        findings.extend(published(package));
    }
    findings.extend(duplicates(&packages, LIBRARY, &rules)?);
    findings.extend(compilers(&packages));
    findings.iter().for_each(|finding| println!("{finding}"));
    ensure!(findings.is_empty(), "{} to mend", findings.len());
    println!("{} packages, nothing to mend", packages.all().count());
    Ok(())
}

impl Rules {
    fn parse(text: &str) -> Result<Self> {
        let rules: DocumentMut = text.parse().context("understand deny.toml")?;
        let list = |table: &str, key: &str| {
            let found = rules.get(table).and_then(|table| table.get(key)).and_then(Item::as_array);
            found.with_context(|| format!("deny.toml has no list {table}.{key}"))
        };
        let names = |table: &str, key: &str| {
            let names: Option<Vec<String>> = list(table, key)?.iter().map(name_of).collect();
            names.with_context(|| format!("{table}.{key} is a list of {{ crate = \"name\" }}"))
        };
        let exceptions: Option<_> = list("licenses", "exceptions")?
            .iter()
            .map(|value| {
                let allowed = value.as_inline_table()?.get("allow")?.as_array()?;
                Some((name_of(value)?, texts(allowed)?))
            })
            .collect();
        Ok(Self {
            licenses: texts(list("licenses", "allow")?).context("a licence is a text")?,
            exceptions: exceptions.context("an exception has a crate and what to allow")?,
            banned: names("bans", "deny")?,
            twice: names("bans", "skip")?,
        })
    }

    /// Whether `package` may be used, whose licence is `expression`.
    fn allows(&self, package: &Package, expression: &str) -> Result<bool> {
        let mut allowed = self.licenses.clone();
        allowed.extend(self.exceptions.get(&package.name).into_iter().flatten().cloned());
        licence::is_allowed(expression, &allowed)
    }
}

fn texts(list: &Array) -> Option<Vec<String>> {
    list.iter().map(|value| Some(value.as_str()?.to_string())).collect()
}

fn name_of(value: &Value) -> Option<String> {
    Some(value.as_inline_table()?.get("crate")?.as_str()?.to_string())
}

/// What is wrong with a package of others.
fn foreign(package: &Package, rules: &Rules) -> Vec<String> {
    let mut findings = Vec::new();
    let Some(source) = &package.source else { return findings };
    let name = package.shown();
    if source != REGISTRY {
        findings.push(format!("{name} comes from {source}, not from the public registry"));
    } else if package.checksum.is_none() {
        findings.push(format!("{name} has no checksum in Cargo.lock"));
    }
    if rules.banned.contains(&package.name) {
        findings.push(format!("{name} is banned by deny.toml"));
    }
    match &package.license {
        None => findings.push(format!("{name} names no licence")),
        Some(text) => match rules.allows(package, text) {
            Ok(true) => {}
            Ok(false) => findings.push(format!("{name}: deny.toml does not allow {text}")),
            Err(error) => findings.push(format!("{name}: {text}: {error}")),
        },
    }
    findings
}

/// Whether `package` is one of ours that goes to a registry.
pub fn is_published(package: &Package) -> bool {
    package.is_ours() && package.publish.as_ref().is_none_or(|to| !to.is_empty())
}

/// What is missing in a package that we publish.
fn published(package: &Package) -> Vec<String> {
    if !is_published(package) {
        return Vec::new();
    }
    let there = [
        ("description", package.description.is_some()),
        ("license", package.license.is_some()),
        ("repository", package.repository.is_some()),
        ("readme", package.readme.is_some()),
        ("rust-version", package.rust_version.is_some()),
        ("keywords", (1..=5).contains(&package.keywords.len())),
        ("categories", (1..=5).contains(&package.categories.len())),
    ];
    let missing = there.iter().filter(|(_, is_there)| !is_there);
    missing.map(|(what, _)| format!("{}: {what} is missing", package.shown())).collect()
}

/// Packages that `library` is built from in more than one version.
fn duplicates(packages: &Packages, library: &str, rules: &Rules) -> Result<Vec<String>> {
    let used = packages.closure(packages.ours(library)?);
    let pairs = used
        .windows(2)
        .filter(|pair| pair[0].name == pair[1].name && !rules.twice.contains(&pair[0].name));
    Ok(pairs
        .map(|pair| format!("{library} uses {} and {}", pair[0].shown(), pair[1].version))
        .collect())
}

/// Dependencies of published packages that want a younger compiler than they promise.
fn compilers(packages: &Packages) -> Vec<String> {
    let mut findings = Vec::new();
    for ours in packages.all().filter(|package| is_published(package)) {
        let Some(promised) = &ours.rust_version else { continue };
        for used in packages.closure(ours).into_iter().filter(|used| !used.is_ours()) {
            if let Some(asked) = &used.rust_version
                && numbers(asked) > numbers(promised)
            {
                let name = used.shown();
                findings
                    .push(format!("{name} asks for Rust {asked}, {} for {promised}", ours.name));
            }
        }
    }
    findings.sort();
    findings
}

/// `1.93` or `1.93.0` as numbers that compare.
fn numbers(version: &str) -> Vec<u64> {
    let mut numbers: Vec<u64> =
        version.split('.').map(|part| part.parse().unwrap_or_default()).collect();
    numbers.resize(3, 0);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::testing;

    fn rules() -> Rules {
        let text = "[licenses]\nallow = [\"MIT\"]\n\
            exceptions = [{ crate = \"tool\", allow = [\"MPL-2.0\"] }]\n\
            [bans]\ndeny = [{ crate = \"evil\" }]\nskip = []\n";
        Rules::parse(text).unwrap()
    }

    fn package(license: &str) -> Package {
        Package {
            name: "fine".into(),
            version: "1.0.0".into(),
            license: Some(license.into()),
            source: Some(REGISTRY.into()),
            checksum: Some("c0ffee".into()),
            ..Package::default()
        }
    }

    #[test]
    fn packages_of_others_keep_the_rules() {
        assert_eq!(foreign(&package("MIT"), &rules()), [""; 0]);
        let tool = Package { name: "tool".into(), ..package("MPL-2.0 OR GPL-3.0") };
        assert_eq!(foreign(&tool, &rules()), [""; 0]);
        let bad = [
            package("GPL-3.0"),
            package("MPL-2.0"),
            package("("),
            Package { license: None, ..package("") },
            Package { name: "evil".into(), ..package("MIT") },
            Package { source: Some("git+https://example.org/x".into()), ..package("MIT") },
            Package { checksum: None, ..package("MIT") },
        ];
        for bad in bad {
            assert_eq!(foreign(&bad, &rules()).len(), 1, "{bad:?}");
        }
        assert_eq!(foreign(&Package { source: None, ..package("ours") }, &rules()), [""; 0]);
    }

    #[test]
    fn rules_that_are_missing_are_an_error() {
        let licenses = "[licenses]\nallow = []\nexceptions = []\n";
        assert!(Rules::parse(&format!("{licenses}[bans]\ndeny = []\nskip = []\n")).is_ok());
        for text in [
            "".to_string(),
            licenses.to_string(),
            format!("{licenses}[bans]\ndeny = [\"x\"]\nskip = []\n"),
            format!("{licenses}[bans]\ndeny = []\n"),
            "[licenses]\nallow = [1]\nexceptions = []\n[bans]\ndeny = []\nskip = []\n".to_string(),
        ] {
            assert!(Rules::parse(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_published_says_what_it_is() {
        let ours = Package { source: None, ..package("MIT") };
        let missing = published(&ours);
        assert_eq!(missing.len(), 6, "{missing:?}");
        assert_eq!(published(&Package { publish: Some(vec![]), ..ours }), [""; 0]);
        assert_eq!(published(&package("MIT")), [""; 0], "of others");
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(numbers("1.100") > numbers("1.93.1") && numbers("1.93") == numbers("1.93.0"));
        assert!(numbers("1.93.1") > numbers("1.93"));
    }

    #[test]
    fn duplicates_and_compilers_of_a_small_workspace() {
        let packages = testing::packages();
        assert_eq!(duplicates(&packages, "program", &rules()).unwrap(), [""; 0]);
        let twice = testing::with_second_version();
        let found = duplicates(&twice, "program", &rules()).unwrap();
        assert_eq!(found, ["program uses b 2.0.0 and 2.1.0"]);
        let skips = Rules { twice: vec!["b".into()], ..rules() };
        assert_eq!(duplicates(&twice, "program", &skips).unwrap(), [""; 0]);
        assert_eq!(compilers(&twice), ["b 2.1.0 asks for Rust 1.94, program for 1.93"]);
    }
}
