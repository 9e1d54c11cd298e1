//! The engine's modules stand on each other as `docs/ARCHITECTURE.md` draws them: each uses only
//! those that are drawn before it.

use super::drawing::{self, DOCUMENT};
use super::module_tree::crates;
use super::{Finding, Tree};

/// Where the engine's modules lie.
const ENGINE: &str = "crates/terrace/src/";

/// Every module of the engine is drawn, and uses only those before it.
pub fn rooms(tree: &Tree) -> Vec<Finding> {
    let drawn = drawing::modules(tree);
    let Some(engine) = crates(tree).into_iter().find(|modules| modules.dir == ENGINE) else {
        return Vec::new();
    };
    let rank = |name: &str| drawn.iter().position(|drawn| drawn == name);
    let of_file = |file: &str| {
        let (path, _) = engine.files.iter().find(|(_, of)| *of == file)?;
        path.first().cloned()
    };
    let mut findings = Vec::new();
    for used in &engine.uses {
        let Some(own) = of_file(&used.from) else { continue };
        let mut finding = |what| {
            findings.push(Finding { path: used.from.clone(), line: used.line, what });
        };
        match of_file(&used.to) {
            None => finding(format!("`{}` is defined in the root, which is above", used.path)),
            Some(other) if rank(&other) > rank(&own) => {
                finding(format!("`{own}` uses `{}`; `{other}` is above it", used.path));
            }
            Some(_) => {}
        }
    }
    let there: Vec<&String> =
        engine.files.keys().filter(|path| path.len() == 1).flatten().collect();
    let complaint = |what| Finding { path: DOCUMENT.into(), line: 1, what };
    let missing = there.iter().filter(|name| rank(name).is_none());
    findings.extend(missing.map(|name| complaint(format!("module `{name}` is not drawn"))));
    let stale = drawn.iter().filter(|name| !there.contains(name));
    findings.extend(stale.map(|name| complaint(format!("there is no module `{name}`"))));
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::all_found;
    use super::*;

    fn found(low: &str, high: &str) -> Vec<String> {
        let files = [
            (DOCUMENT, "```\nerror  words\nlow  nouns\nhigh  verbs\n```\n"),
            ("crates/terrace/src/lib.rs", "mod error; mod high; mod low; pub struct Root;"),
            ("crates/terrace/src/error.rs", "pub struct Error;"),
            ("crates/terrace/src/low.rs", low),
            ("crates/terrace/src/high.rs", high),
        ];
        all_found(rooms, &files)
    }

    #[test]
    fn a_module_uses_only_what_is_below_it() {
        assert!(found("use crate::error::Error; pub struct L;", "use crate::low::L;").is_empty());
        let up = found("use crate::high::H;", "pub struct H;");
        assert_eq!(
            up,
            ["crates/terrace/src/low.rs:1: `low` uses `crate::high::H`; `high` is above it"]
        );
        assert_eq!(found("use crate::Root;", "").len(), 1, "the root is above all");
    }

    #[test]
    fn the_drawing_is_complete_and_not_stale() {
        let files = [
            (DOCUMENT, "```\nerror, attic  words\n```\n"),
            ("crates/terrace/src/lib.rs", "mod error; mod low;"),
            ("crates/terrace/src/error.rs", ""),
            ("crates/terrace/src/low.rs", ""),
        ];
        assert_eq!(
            all_found(rooms, &files),
            [
                "docs/ARCHITECTURE.md:1: module `low` is not drawn",
                "docs/ARCHITECTURE.md:1: there is no module `attic`"
            ]
        );
    }
}
