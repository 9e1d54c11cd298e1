//! No circles: no file needs itself through others of its crate, and no folder itself through
//! its neighbours. There is no list of exceptions.
//!
//! A module's own file and the files below it are one unit: its children use what it defines, and it is
//! made of them. So what a file names of modules below its own is not counted; its children must stand on each
//! other without circles.

use super::module_tree::{CrateModules, Use, crates};
use super::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Edges from node to node, each with an example.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, &'a Use>>;

/// Every circle of files, and of neighbours in a folder, in every crate.
pub fn circles(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for modules in crates(tree) {
        for (path, why) in &modules.broken {
            findings.push(Finding { path: path.clone(), line: 1, what: why.clone() });
        }
        findings.extend(of_files(&modules));
        findings.extend(of_neighbours(&modules));
    }
    findings
}

fn of_files(modules: &CrateModules) -> Vec<Finding> {
    let module_of: BTreeMap<&str, &[String]> =
        modules.files.iter().map(|(path, file)| (file.as_str(), &path[..])).collect();
    let is_below = |used: &&Use| match (module_of.get(&*used.from), module_of.get(&*used.to)) {
        (Some(from), Some(to)) => to.starts_with(from),
        _ => false,
    };
    let mut graph = Graph::new();
    for used in modules.uses.iter().filter(|used| !is_below(used)) {
        graph.entry(&used.from).or_default().entry(&used.to).or_insert(used);
    }
    circles_of(&graph, "files")
}

/// Circles between the modules that one module declares, each with everything below it.
fn of_neighbours(modules: &CrateModules) -> Vec<Finding> {
    let paths: BTreeMap<&str, &[String]> =
        modules.files.iter().map(|(path, file)| (file.as_str(), &path[..])).collect();
    let mut graphs: BTreeMap<&[String], Graph<'_>> = BTreeMap::new();
    for used in &modules.uses {
        let (Some(from), Some(to)) = (paths.get(used.from.as_str()), paths.get(used.to.as_str()))
        else {
            continue;
        };
        let depth = from.iter().zip(*to).take_while(|(a, b)| a == b).count();
        // If there is none, one of them is below the other.
        let (Some(a), Some(b)) = (from.get(depth), to.get(depth)) else { continue };
        let graph = graphs.entry(&from[..depth]).or_default();
        graph.entry(a).or_default().entry(b).or_insert(used);
    }
    graphs.values().flat_map(|graph| circles_of(graph, "folders")).collect()
}

/// The shortest circle through each node that is in one; of circles with the same nodes, one.
fn circles_of(graph: &Graph<'_>, what: &str) -> Vec<Finding> {
    let mut told: BTreeSet<&str> = BTreeSet::new();
    let mut findings = Vec::new();
    for start in graph.keys() {
        if told.contains(start) {
            continue;
        }
        let Some(circle) = circle_from(start, graph) else { continue };
        told.extend(&circle);
        let steps = circle.iter().zip(circle.iter().cycle().skip(1));
        let steps = steps.filter_map(|(a, b)| graph.get(a)?.get(b).map(|used| (a, b, used)));
        let words: Vec<String> = steps
            .map(|(a, b, used)| format!("{a} -> {b} (line {}: {})", used.line, used.path))
            .collect();
        let first = graph.get(start).and_then(|edges| edges.values().next());
        findings.push(Finding {
            path: first.map_or_else(String::new, |used| used.from.clone()),
            line: 1,
            what: format!("a circle of {what}: {}", words.join(", ")),
        });
    }
    findings
}

/// The nodes of the shortest way from `start` back to it.
fn circle_from<'a>(start: &'a str, graph: &Graph<'a>) -> Option<Vec<&'a str>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for next in graph.get(at).into_iter().flat_map(|edges| edges.keys()) {
            if *next == start {
                let mut way = vec![at];
                while let Some(before) = way.last().and_then(|last| came_from.get(last)) {
                    way.push(before);
                }
                way.reverse();
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

#[cfg(test)]
mod tests {
    use super::super::testing::all_found;
    use super::*;

    #[test]
    fn files_that_need_each_other_are_found_also_through_their_parent() {
        let with = |back: &'static str| {
            [
                ("a/src/lib.rs", "mod iter;"),
                ("a/src/iter/mod.rs", "mod merge; mod level; pub use merge::M; pub struct S;"),
                ("a/src/iter/merge.rs", "use super::level::L; pub struct M(L);"),
                ("a/src/iter/level.rs", back),
            ]
        };
        assert!(all_found(circles, &with("pub struct L;")).is_empty());
        assert!(all_found(circles, &with("use super::S; pub struct L(S);")).is_empty());
        let found = all_found(circles, &with("use super::M; pub struct L(M);"));
        assert_eq!(
            found,
            [
                "a/src/iter/level.rs:1: a circle of files: a/src/iter/level.rs -> \
                 a/src/iter/merge.rs (line 1: super::M), a/src/iter/merge.rs -> \
                 a/src/iter/level.rs (line 1: super::level::L)",
                "a/src/iter/level.rs:1: a circle of folders: level -> merge (line 1: super::M), \
                 merge -> level (line 1: super::level::L)"
            ]
        );
    }

    #[test]
    fn a_module_is_one_unit_with_what_is_below_it() {
        let with = |user: &'static str| {
            [
                ("a/src/lib.rs", "mod x; mod z; struct Root;"),
                ("a/src/x.rs", "mod y; fn f() { y::g() } pub struct X;"),
                ("a/src/x/y.rs", "pub fn g(_: super::X) { crate::z::h() }"),
                ("a/src/z.rs", user),
            ]
        };
        assert!(all_found(circles, &with("pub fn h() {}")).is_empty());
        let found = all_found(circles, &with("pub fn h() { crate::x::f() }"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("a circle of folders: x -> z"), "{found:?}");
    }

    #[test]
    fn folders_that_need_each_other_are_found_though_no_file_does() {
        let files = [
            ("a/src/lib.rs", "mod read; mod write;"),
            ("a/src/read/mod.rs", "mod get; mod env;"),
            ("a/src/read/get.rs", "use crate::write::queue::Queue; fn f(_: Queue) {}"),
            ("a/src/read/env.rs", "pub struct Env;"),
            ("a/src/write/mod.rs", "pub mod queue; mod commit;"),
            ("a/src/write/queue.rs", "pub struct Queue;"),
            ("a/src/write/commit.rs", "use crate::read::env::Env; fn f(_: Env) {}"),
        ];
        let found = all_found(circles, &files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("a circle of folders: read -> write"), "{found:?}");
    }

    #[test]
    fn a_file_that_is_not_rust_is_a_finding() {
        assert_eq!(all_found(circles, &[("a/src/lib.rs", "fn {")]).len(), 1);
    }
}
