//! Floors between the modules of the engine crate, and no circles among the files of one module.
//!
//! A file may name only modules that stand before its own in [`FLOORS`], which is the list of
//! `docs/ARCHITECTURE.md`. Test code is exempt.

use super::lex::{Kind, Token, test_code, tokens};
use super::{Finding, Tree, is_test_path};
use std::collections::{BTreeMap, BTreeSet};

/// Where the engine's modules lie.
const ENGINE: &str = "crates/terrace/src/";

/// The modules of the engine, lowest first.
pub const FLOORS: [(&str, &[&str]); 7] = [
    ("vocabulary", &["error", "options", "event", "metrics", "kill_point"]),
    (
        "nouns",
        &[
            "batch",
            "memtable",
            "reader_pins",
            "rate_limit",
            "live",
            "filter_budget",
            "models",
            "table_cache",
            "trends",
            "level_model",
            "read_state",
            "scheduler",
            "job_list",
            "health",
            "background_errors",
            "reserve",
            "file_numbers",
            "evidence",
            "iter",
            "value_log",
            "snapshots",
            "garbage",
            "family",
            "read_set",
            "write_queue",
        ],
    ),
    ("inner", &["inner"]),
    ("verbs 1", &["stall", "retain", "output", "install", "orphans"]),
    (
        "verbs 2",
        &[
            "validate",
            "commit",
            "get",
            "scan",
            "compaction",
            "gc",
            "flush",
            "compact",
            "collect",
            "learn",
            "families",
            "checkpoint",
            "recover",
            "verify",
            "estimate",
            "shape",
            "memory",
        ],
    ),
    ("loop", &["worker"]),
    ("top", &["open", "read_only", "db", "repair", "transaction"]),
];

/// The rank of a top-level module; `None` if it is not listed.
fn rank(module: &str) -> Option<usize> {
    FLOORS.iter().flat_map(|(_, modules)| *modules).position(|listed| *listed == module)
}

/// A path that a file names, from the crate's root, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Use {
    line: usize,
    path: Vec<String>,
}

/// An engine file that is not test code.
#[derive(Debug)]
struct Module {
    file: String,
    path: Vec<String>,
    uses: Vec<Use>,
    children: Vec<String>,
}

/// Every module names only modules below it, and the list is complete and not stale.
pub fn floors(tree: &Tree) -> Vec<Finding> {
    let modules = modules(tree);
    let mut findings = Vec::new();
    for module in &modules {
        match module.path.first() {
            None => findings.extend(against_list(module)),
            Some(own) => findings.extend(module.uses.iter().filter_map(|used| {
                let what = breach(own, used.path.first()?)?;
                Some(Finding { path: module.file.clone(), line: used.line, what })
            })),
        }
    }
    findings
}

fn against_list(root: &Module) -> Vec<Finding> {
    let listed = FLOORS.iter().flat_map(|(_, modules)| *modules);
    let stale = listed.filter(|listed| !root.children.iter().any(|child| child == *listed));
    let unknown = root.children.iter().filter(|child| rank(child).is_none());
    let finding = |what| Finding { path: root.file.clone(), line: 1, what };
    let stale = stale.map(|name| finding(format!("module `{name}` is on a floor, not in lib.rs")));
    let unknown = unknown.map(|name| {
        finding(format!("module `{name}` has no floor: list it in xtask and ARCHITECTURE.md"))
    });
    stale.chain(unknown).collect()
}

fn breach(own: &str, used: &str) -> Option<String> {
    let Some(floor) = rank(used) else {
        return Some(format!("`crate::{used}` goes through lib.rs, the top: name its module"));
    };
    let own_floor = rank(own)?;
    (floor > own_floor).then(|| format!("`{own}` uses `{used}`, which is above it"))
}

/// No file of a module needs, through others of it, itself.
pub fn circles(tree: &Tree) -> Vec<Finding> {
    let modules = modules(tree);
    let by_path: BTreeMap<&[String], &Module> =
        modules.iter().map(|module| (&module.path[..], module)).collect();
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for module in &modules {
        let below = module.uses.iter().filter_map(|used| {
            let lengths = (1..=used.path.len()).rev();
            let longest = lengths.map(|len| &used.path[..len]).find_map(|path| by_path.get(path));
            longest.map(|module| module.file.as_str())
        });
        // A parent may show what its children make, and children use what it defines.
        let facade = |file: &str| {
            by_path.iter().any(|(path, child)| {
                child.file == file
                    && path.len() > module.path.len()
                    && path.starts_with(&module.path)
            })
        };
        let others = below.filter(|file| *file != module.file && !facade(file));
        edges.entry(&module.file).or_default().extend(others);
    }
    let mut findings = Vec::new();
    for start in edges.keys() {
        if let Some(circle) = circle_from(start, &edges) {
            let least = circle.iter().min();
            if least == Some(start) {
                let what = format!("a circle: {}", circle.join(" -> "));
                findings.push(Finding { path: start.to_string(), line: 1, what });
            }
        }
    }
    findings
}

/// The shortest way from `start` back to it.
fn circle_from<'a>(
    start: &'a str,
    edges: &BTreeMap<&'a str, BTreeSet<&'a str>>,
) -> Option<Vec<&'a str>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = std::collections::VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for next in edges.get(at).into_iter().flatten() {
            if *next == start {
                let mut way = vec![start];
                let mut step = at;
                while step != start {
                    way.insert(1, step);
                    step = came_from.get(step)?;
                }
                return Some(way);
            }
            if !came_from.contains_key(next) {
                came_from.insert(next, at);
                queue.push_back(next);
            }
        }
    }
    None
}

/// The engine's files without test code.
fn modules(tree: &Tree) -> Vec<Module> {
    let files =
        tree.rust().filter_map(|(path, text)| Some((path, path.strip_prefix(ENGINE)?, text)));
    let files: Vec<_> = files.filter(|(_, path, _)| !is_test_path(path)).collect();
    let mut tests = Vec::new();
    for (_, path, text) in &files {
        let own = module_path(path);
        for child in children(text, true) {
            tests.push([own.clone(), vec![child]].concat());
        }
    }
    let parsed = files.iter().map(|(file, path, text)| Module {
        file: file.to_string(),
        path: module_path(path),
        uses: uses(text, &module_path(path)),
        children: children(text, false),
    });
    parsed.filter(|module| !tests.iter().any(|test| module.path.starts_with(test))).collect()
}

fn module_path(path: &str) -> Vec<String> {
    let path = path.trim_end_matches(".rs");
    let parts = path.split('/').filter(|part| !matches!(*part, "mod" | "lib"));
    parts.map(str::to_string).collect()
}

/// The modules that a file declares to lie in files of their own, in or out of test code.
fn children(text: &str, in_tests: bool) -> Vec<String> {
    let code = code(text);
    let marks = test_code(&code);
    let declared = code.windows(3).zip(&marks).filter(|(window, mark)| {
        window[0].text == "mod" && window[2].text == ";" && **mark == in_tests
    });
    declared.map(|(window, _)| window[1].text.to_string()).collect()
}

fn code(text: &str) -> Vec<Token<'_>> {
    let all = tokens(text).into_iter();
    all.filter(|token| !matches!(token.kind, Kind::Comment | Kind::Doc)).collect()
}

/// Every path of the crate that a file names outside test code.
fn uses(text: &str, own: &[String]) -> Vec<Use> {
    let all = code(text);
    let marks = test_code(&all);
    let code: Vec<_> = all.iter().zip(marks).filter(|(_, mark)| !mark).map(|(t, _)| *t).collect();
    let children = children(text, false);
    let mut uses = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let token = code[at];
        let starts = is_path_next(&code, at + 1) && (at == 0 || !ends_path(&code, at));
        let from = match token.text {
            _ if !starts => None,
            "crate" => Some(Vec::new()),
            "self" => Some(own.to_vec()),
            "super" => Some(own[..own.len().saturating_sub(1)].to_vec()),
            child if children.iter().any(|name| name == child) => {
                Some([own, &[child.to_string()]].concat())
            }
            _ => None,
        };
        if let Some(from) = from {
            at = branch(&code, at + 3, from, token.line, &mut uses);
        } else {
            at += 1;
        }
    }
    uses
}

/// Whether `::` stands at `at`.
fn is_path_next(code: &[Token<'_>], at: usize) -> bool {
    let mark = |at: usize| code.get(at).is_some_and(|token| token.text == ":");
    mark(at) && mark(at + 1)
}

/// Whether the word at `at` continues a path, as `b` in `a::b`.
fn ends_path(code: &[Token<'_>], at: usize) -> bool {
    at >= 2 && is_path_next(code, at - 2)
}

/// Reads what follows `from::` at `at`: a name, or a group in braces. Returns where it ends.
fn branch(
    code: &[Token<'_>],
    mut at: usize,
    mut from: Vec<String>,
    line: usize,
    uses: &mut Vec<Use>,
) -> usize {
    while let Some(token) = code.get(at) {
        match (token.kind, token.text) {
            (Kind::Word, "super") => {
                from.pop();
            }
            (Kind::Word, "self") => {}
            (Kind::Word, name) => from.push(name.to_string()),
            (_, "{") => {
                at += 1;
                while code.get(at).is_some_and(|token| token.text != "}") {
                    at = branch(code, at, from.clone(), code[at].line, uses);
                    while code.get(at).is_some_and(|token| !matches!(token.text, "," | "}")) {
                        at += 1;
                    }
                    if code.get(at).is_some_and(|token| token.text == ",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            _ => break,
        }
        at += 1;
        if !is_path_next(code, at) {
            break;
        }
        at += 2;
    }
    uses.push(Use { line, path: from });
    at
}

#[cfg(test)]
mod tests {
    use super::super::testing::all_found;
    use super::*;

    fn lib() -> String {
        let all = FLOORS.iter().flat_map(|(_, modules)| *modules);
        all.map(|name| format!("mod {name};\n")).collect()
    }

    fn with(path: &str, text: &str) -> Vec<String> {
        all_found(
            floors,
            &[(&format!("{ENGINE}lib.rs"), &lib()), (&format!("{ENGINE}{path}"), text)],
        )
    }

    #[test]
    fn a_module_names_only_what_is_below_it() {
        assert!(with("inner.rs", "use crate::error::{Error, Result};").is_empty());
        assert!(with("iter/level.rs", "use crate::iter::merge::M; use super::x;").is_empty());
        let found =
            with("options.rs", "use crate::{\n    error::Error,\n    inner::{Inner, X as Y},\n};");
        assert_eq!(
            found,
            ["crates/terrace/src/options.rs:3: `options` uses `inner`, which is above it"]
        );
        assert_eq!(with("error.rs", "fn f() { crate::db::g(); }").len(), 1);
        assert_eq!(with("error.rs", "use super::db::Db;").len(), 1);
        assert_eq!(with("iter/level.rs", "use super::super::db::Db;").len(), 1);
    }

    #[test]
    fn the_root_is_above_every_module() {
        let found = with("commit.rs", "use crate::Error;");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("goes through lib.rs"), "{found:?}");
    }

    #[test]
    fn test_code_may_name_anything() {
        assert!(with("error.rs", "#[cfg(test)] mod tests { use crate::db::Db; }").is_empty());
        assert!(with("error/tests.rs", "use crate::db::Db;").is_empty());
        let files = [
            (format!("{ENGINE}lib.rs"), lib()),
            (format!("{ENGINE}error.rs"), "#[cfg(test)]\nmod script;".to_string()),
            (format!("{ENGINE}error/script.rs"), "use crate::db::Db;".to_string()),
        ];
        let files: Vec<_> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        assert!(all_found(floors, &files).is_empty());
    }

    #[test]
    fn the_list_and_lib_agree() {
        let mut lib = lib();
        assert!(all_found(floors, &[(&format!("{ENGINE}lib.rs"), &lib)]).is_empty());
        lib = lib.replace("mod db;", "mod attic;");
        let found = all_found(floors, &[(&format!("{ENGINE}lib.rs"), &lib)]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn circles_are_found() {
        let files = |back: &'static str| {
            [
                (
                    "crates/terrace/src/iter/mod.rs",
                    "mod merge; mod level; pub use merge::M; struct S;",
                ),
                ("crates/terrace/src/iter/merge.rs", "use super::{S, level::L};"),
                ("crates/terrace/src/iter/level.rs", back),
            ]
        };
        assert!(all_found(circles, &files("use std::fmt;")).is_empty());
        let found = all_found(circles, &files("use crate::iter::merge::M;"));
        assert_eq!(
            found,
            ["crates/terrace/src/iter/level.rs:1: a circle: crates/terrace/src/iter/level.rs -> \
             crates/terrace/src/iter/merge.rs"]
        );
    }
}
