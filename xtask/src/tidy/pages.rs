//! The code of documents compiles: a page that has code in Rust is a documentation test of some crate.

use super::{Finding, Tree};

/// Begins such code.
const FENCE: &str = "```rust";

/// How a page becomes documentation of an item.
const INCLUDE: &str = "#[doc = include_str!(\"";

/// Every document with code in Rust is included.
pub fn pages(tree: &Tree) -> Vec<Finding> {
    let lines = tree.rust().flat_map(|(_, text)| text.lines());
    let included: Vec<&str> = lines.filter_map(|line| line.strip_prefix(INCLUDE)).collect();
    let mut findings = Vec::new();
    for (path, text) in tree.with_ending(".md") {
        let Some(at) = text.lines().position(|line| line.starts_with(FENCE)) else { continue };
        let end = format!("../{path}\")]");
        if !included.iter().any(|line| line.ends_with(&end)) {
            let what = format!("its code is not compiled: `{INCLUDE}...` it under cfg(doctest)");
            findings.push(Finding { path: path.to_string(), line: at + 1, what });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::all_found;
    use super::*;

    #[test]
    fn pages_with_code_are_documentation_tests() {
        let page = ("docs/a.md", "# A\n```rust,no_run\nfn main() {}\n```\n");
        let test = "#[cfg(doctest)]\n#[doc = include_str!(\"../../../docs/a.md\")]\nstruct Page;\n";
        assert_eq!(all_found(pages, &[page, ("crates/a/src/lib.rs", test)]), [""; 0]);
        assert_eq!(all_found(pages, &[("docs/b.md", "```\nsh\n```\n")]), [""; 0]);
        let other = test.replace("docs/a.md", "docs/aa.md");
        let found = all_found(pages, &[page, ("crates/a/src/lib.rs", &other)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/a.md:2: its code is not compiled"), "{found:?}");
    }
}
