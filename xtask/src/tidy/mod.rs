//! `cargo xtask tidy`: the style guide as a check over the tree.
//!
//! Each rule is a function from the tree to findings, in a file of its own, and each has tests
//! with a snippet that passes and one that fails. Limits only get tighter: a list of exceptions
//! that names more than it needs is a finding itself.

mod assets;
mod circles;
mod crates;
mod drawing;
mod lex;
mod links;
mod module_tree;
mod names;
mod pages;
mod rooms;
mod safety;
mod size;
mod source;
mod text;

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

/// Directories that hold no source: version control, build results, fuzzer findings.
const SKIPPED_DIRS: [&str; 5] = [".git", "target", "corpus", "artifacts", "node_modules"];

/// Endings of the files that are text; others are not read.
const TEXT_ENDINGS: [&str; 10] =
    ["rs", "toml", "md", "txt", "sh", "yml", "yaml", "json", "lock", "svg"];

/// Text files without an ending.
const TEXT_NAMES: [&str; 4] = ["LICENSE-MIT", "LICENSE-APACHE", "run", ".gitignore"];

/// A breach of the style guide.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// The text files of the project, and the names of all others, by path from the root.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
    others: Vec<String>,
}

impl Tree {
    /// Reads the tree under `root`.
    fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.add_dir(root, "")?;
        Ok(tree)
    }

    fn add_dir(&mut self, dir: &Path, prefix: &str) -> Result<()> {
        let entries = fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                if !SKIPPED_DIRS.contains(&name.as_str()) {
                    self.add_dir(&entry.path(), &format!("{path}/"))?;
                }
                continue;
            }
            let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
            if TEXT_ENDINGS.contains(&ending) || TEXT_NAMES.contains(&name.as_str()) {
                let text = fs::read_to_string(entry.path())
                    .with_context(|| format!("{path} should be text in UTF-8"))?;
                self.files.insert(path, text);
            } else {
                self.others.push(path);
            }
        }
        Ok(())
    }

    /// The text at `path`.
    fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Every Rust file: path and text.
    fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.with_ending(".rs")
    }

    /// Every text file whose name ends with `ending`: path and text.
    fn with_ending<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        all.filter(move |(path, _)| path.ends_with(ending))
    }

    /// Whether `path` names a file or a directory.
    fn exists(&self, path: &str) -> bool {
        let dir = format!("{path}/");
        let within = |file: &str| file == path || file.starts_with(&dir);
        path.is_empty()
            || self.files.keys().any(|file| within(file))
            || self.others.iter().any(|file| within(file))
    }
}

/// A rule over the whole tree.
type Rule = fn(&Tree) -> Vec<Finding>;

/// Every rule, by the name it is reported under.
const RULES: [(&str, Rule); 15] = [
    ("floors between crates", crates::floors),
    ("rooms of the engine", rooms::rooms),
    ("no circles", circles::circles),
    ("a head comment in every file", source::head_comments),
    ("no unfinished code", source::macros),
    ("no commented-out code", source::dead_code),
    ("file and function sizes", size::sizes),
    ("names", names::names),
    ("unsafe code", safety::blocks),
    ("clean text", text::clean),
    ("assets inside their crates", assets::assets),
    ("no machines or hosts", text::machines),
    ("plain sentences", text::turns),
    ("links in documents", links::links),
    ("code in documents", pages::pages),
];

/// Checks the tree under `root`; prints what it found.
pub fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    ensure!(tree.rust().count() > 50, "{} does not hold the project", root.display());
    let mut count = 0;
    for (name, rule) in RULES {
        let mut findings = rule(&tree);
        findings.sort();
        findings.dedup();
        for finding in &findings {
            println!("{finding}");
        }
        if !findings.is_empty() {
            println!("  ^ {name}: {} found\n", findings.len());
        }
        count += findings.len();
    }
    ensure!(count == 0, "tidy: {count} to mend in {} files", tree.files.len());
    println!("tidy: {} files, {} rules, nothing to mend", tree.files.len(), RULES.len());
    Ok(())
}

/// Writes the right lines into the links of documents to code.
pub fn renumber(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    for (path, text) in tree.with_ending(".md") {
        let right = links::with_right_lines(&tree, path, text);
        if right != text {
            fs::write(root.join(path), right).with_context(|| format!("write {path}"))?;
            println!("{path}");
        }
    }
    Ok(())
}

/// Whether the file is test code as a whole: its name or its directory says so.
fn is_test_path(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == "tests.rs" || path.split('/').any(|part| part == "tests")
}

#[cfg(test)]
mod testing {
    //! Trees made of snippets.

    use super::{Rule, Tree};

    /// A tree of `files`.
    pub fn tree(files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|(path, text)| (path.to_string(), text.to_string()));
        Tree { files: files.collect(), others: Vec::new() }
    }

    /// What `rule` says about one file.
    pub fn found(rule: Rule, path: &str, text: &str) -> Vec<String> {
        all_found(rule, &[(path, text)])
    }

    /// What `rule` says about `files`.
    pub fn all_found(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
        let mut found = rule(&tree(files));
        found.dedup();
        found.iter().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_exists_if_a_file_or_directory_has_it() {
        let tree = testing::tree(&[("docs/a.md", "")]);
        assert!(tree.exists("docs/a.md") && tree.exists("docs") && tree.exists(""));
        assert!(!tree.exists("doc") && !tree.exists("docs/b.md"));
    }

    #[test]
    fn test_paths() {
        for path in ["crates/log/src/recover/tests.rs", "crates/log/tests/it/main.rs"] {
            assert!(is_test_path(path), "{path}");
        }
        assert!(!is_test_path("crates/log/src/testing.rs"));
    }
}
