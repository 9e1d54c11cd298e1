//! Every text file: clean line ends, no names of machines.

use super::{Finding, Tree};

/// Directories of some machine. In pieces, so that this file passes its own rule.
const MACHINE_DIRS: [&str; 6] = [
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/m", "nt/"),
    concat!("C:", "\\"),
];

/// Hosts of package registries and their mirrors: where packages come from is not part of
/// the project.
const HOSTS: [&str; 10] = [
    concat!("crates", ".io"),
    concat!("doc", "s.rs"),
    concat!("maven", ".org"),
    concat!("maven", ".apache"),
    concat!("pypi", ".org"),
    concat!("npmjs", "."),
    concat!("debian", ".org"),
    concat!("golang", ".org"),
    concat!("local", "host:"),
    concat!("arti", "factory"),
];

/// What `Cargo.lock` calls the public registry, whatever stands in for it.
const LOCK_SOURCE: &str = concat!("registry+https://github.com/rust-lang/crates", ".io-index");

/// How a `Cargo.toml` heads what the public documentation is built with.
const DOCUMENTATION: &str = concat!("[package.metadata.doc", "s.rs]");

/// Turns of phrase that a reader has to read twice, each with what to write instead. In pieces, so that
/// this file passes its own rule.
const TURNS: [(&str, &str); 6] = [
    (concat!("so ", "many"), "say `this many`, or the number"),
    (concat!("who", "ever"), "name the one: the caller, a reader, the leader"),
    (concat!("is t", "old"), "say what is passed, returned or reported"),
    (concat!("are t", "old"), "say what is passed, returned or reported"),
    (concat!("who ", "reads"), "name the one: a reader, the client"),
    (concat!("hears ", "of"), "say what is called, returned or sent"),
];

/// Documents that are records of their day.
const RECORDS: [&str; 2] = ["CHANGELOG.md", "docs/benchmarks/2"];

/// No sentence of Rust files and documents has one of [`TURNS`].
pub fn turns(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust().chain(tree.with_ending(".md"));
    let files = files.filter(|(path, _)| !RECORDS.iter().any(|record| path.starts_with(record)));
    let mut findings = Vec::new();
    for (path, text) in files {
        for (at, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            for (turn, instead) in TURNS.iter().filter(|(turn, _)| lower.contains(turn)) {
                let what = format!("`{turn}`: {instead}");
                findings.push(Finding { path: path.to_string(), line: at + 1, what });
            }
        }
    }
    findings
}

/// Lines end with LF and without white space; the file ends with a line.
pub fn clean(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.files {
        let mut add = |line, what: &str| {
            findings.push(Finding { path: path.clone(), line, what: what.to_string() });
        };
        for (at, line) in text.split('\n').enumerate() {
            if line.ends_with('\r') {
                add(at + 1, "a line that ends with CR");
            } else if line.ends_with([' ', '\t']) {
                add(at + 1, "white space at the end of a line");
            }
            if line.contains('\t') && path.ends_with(".rs") {
                add(at + 1, "a tab");
            }
        }
        let last = text.split('\n').count();
        if !text.is_empty() && !text.ends_with('\n') {
            add(last, "the last line does not end");
        }
        if text.ends_with("\n\n") {
            add(last, "empty lines at the end");
        }
    }
    findings
}

/// No directory of a machine, no host that packages come from.
pub fn machines(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.files {
        for (at, line) in text.lines().enumerate() {
            let line = match path {
                path if path.ends_with(".lock") => line.replace(LOCK_SOURCE, ""),
                path if path.ends_with("Cargo.toml") && line == DOCUMENTATION => continue,
                _ => line.to_string(),
            };
            let named = MACHINE_DIRS.iter().chain(&HOSTS).find(|name| line.contains(**name));
            if let Some(name) = named {
                let what = format!("`{name}` names a machine");
                findings.push(Finding { path: path.clone(), line: at + 1, what });
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    #[test]
    fn line_ends() {
        assert_eq!(found(clean, "x.md", "a\n\nb\n"), [""; 0]);
        assert_eq!(found(clean, "x.md", ""), [""; 0]);
        for text in ["a \n", "a\t\n", "a\r\n", "a", "a\n\n", "  \n"] {
            assert!(!found(clean, "x.md", text).is_empty(), "{text:?}");
        }
        assert_eq!(found(clean, "x.rs", "a\tb\n").len(), 1);
        assert_eq!(found(clean, "run", "a\tb\n").len(), 0);
    }

    #[test]
    fn machines_and_hosts() {
        let fine = "src/work.rs, https://www.rust-lang.org/, a home/run\n";
        assert_eq!(found(machines, "x.md", fine), [""; 0]);
        for name in MACHINE_DIRS.iter().chain(&HOSTS) {
            assert_eq!(found(machines, "x.md", &format!("see {name}x\n")).len(), 1, "{name}");
        }
    }

    #[test]
    fn a_lock_file_names_the_public_registry_only() {
        let line = format!("source = \"{LOCK_SOURCE}\"\n");
        assert_eq!(found(machines, "Cargo.lock", &line), [""; 0]);
        assert_eq!(found(machines, "x.md", &line).len(), 1);
        let mirror = format!("source = \"registry+https://{}/x\"\n", HOSTS[9]);
        assert_eq!(found(machines, "Cargo.lock", &mirror).len(), 1);
    }

    #[test]
    fn a_manifest_may_say_how_its_documentation_is_built() {
        let line = format!("{DOCUMENTATION}\n");
        assert_eq!(found(machines, "crates/a/Cargo.toml", &line), [""; 0]);
        assert_eq!(found(machines, "x.md", &line).len(), 1);
        assert_eq!(found(machines, "Cargo.toml", &format!("# see {line}")).len(), 1);
    }

    #[test]
    fn turns_are_refused_in_code_and_documents_but_not_in_records() {
        let line = format!("// The cache keeps {} entries.\n", TURNS[0].0);
        for path in ["crates/a/src/lib.rs", "docs/a.md"] {
            assert_eq!(found(turns, path, &line).len(), 1, "{path}");
        }
        assert_eq!(found(turns, "docs/benchmarks/2026-01-01.md", &line), [""; 0]);
        assert_eq!(found(turns, "a.md", "The cache keeps this many entries.\n"), [""; 0]);
    }
}
