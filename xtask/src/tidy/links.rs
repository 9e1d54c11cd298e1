//! Documents: links lead to files and headings that exist, and so do paths in backticks.

use super::{Finding, Tree};

/// First parts of the paths that documents name in backticks.
const ROOTS: [&str; 6] = ["crates/", "docs/", "xtask/", "fuzz/", "data/", ".ci/"];

/// Links and paths in every Markdown file.
pub fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_ending(".md") {
        let mut add = |line, what| {
            findings.push(Finding { path: path.to_string(), line, what });
        };
        for (line, prose) in prose(text) {
            for target in link_targets(prose) {
                if let Some(what) = broken_link(tree, path, target) {
                    add(line, what);
                }
            }
            for (name, file, number) in line_links(prose) {
                if let Some(what) = misplaced(tree, path, name, file, number) {
                    add(line, what);
                }
            }
            for named in backticked(prose).filter(|named| is_path(named)) {
                if !tree.exists(named.trim_end_matches('/')) {
                    add(line, format!("`{named}` does not exist"));
                }
            }
        }
    }
    findings
}

/// The lines outside of fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

/// What `[text](target)` and `[name]: target` lead to.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let definition =
        line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|pair| pair.1);
    inline.chain(definition).map(|target| target.split_whitespace().next().unwrap_or_default())
}

fn broken_link(tree: &Tree, from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { from.to_string() } else { resolve(from, file)? };
    if !tree.exists(&path) {
        return Some(format!("the link to `{target}` leads nowhere"));
    }
    let text = tree.text(&path)?;
    if path.ends_with(".rs") {
        // A line of code: see `misplaced`.
        return None;
    }
    let found = heading.is_empty() || headings(text).any(|slug| slug == heading);
    (!found).then(|| format!("`{path}` has no heading `#{heading}`"))
}

/// Links to lines of code, [`name`](file#L12): name, file and line.
fn line_links(prose: &str) -> impl Iterator<Item = (&str, &str, usize)> {
    prose.split("[`").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once("`](")?;
        let (file, number) = rest.split(')').next()?.split_once("#L")?;
        Some((name, file, number.parse().ok()?))
    })
}

/// What is wrong with a link to a line: it must define `name`.
fn misplaced(tree: &Tree, from: &str, name: &str, file: &str, line: usize) -> Option<String> {
    let text = tree.text(&resolve(from, file)?)?;
    match definition(text, name) {
        Some(there) if there == line => None,
        Some(there) => {
            Some(format!("`{name}` is in line {there} of {file}: `cargo xtask lines` mends it"))
        }
        None => Some(format!("{file} defines no `{name}`")),
    }
}

/// The line, from 1, that defines `name`; of a method, `Type::name`, after `impl Type`.
fn definition(text: &str, name: &str) -> Option<usize> {
    let (of, name) = name.split_once("::").map_or((None, name), |(of, name)| (Some(of), name));
    let words = |line: &str| -> Vec<String> {
        let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        words.filter(|word| !word.is_empty()).map(str::to_string).collect()
    };
    let mut is_inside = of.is_none();
    text.lines().enumerate().find_map(|(at, line)| {
        let words = words(line);
        if let Some(of) = of {
            is_inside |=
                words.first().is_some_and(|w| w == "impl") && words.iter().any(|w| w == of);
        }
        let kinds = ["fn", "struct", "enum", "trait", "mod", "const", "type", "static"];
        let defines = words.windows(2).any(|two| kinds.contains(&&*two[0]) && two[1] == name);
        (is_inside && defines && !line.trim_start().starts_with("//")).then_some(at + 1)
    })
}

/// The text of a document with the right lines in its links to code.
pub fn with_right_lines(tree: &Tree, path: &str, text: &str) -> String {
    let mut parts = text.split("[`");
    let mut right = parts.next().unwrap_or_default().to_string();
    for rest in parts {
        right.push_str("[`");
        let link = rest.split_once("`](").and_then(|(name, tail)| {
            let (target, after) = tail.split_once(')')?;
            let (file, _) = target.split_once("#L")?;
            let line = definition(tree.text(&resolve(path, file)?)?, name)?;
            Some(format!("{name}`]({file}#L{line}){after}"))
        });
        right.push_str(link.as_deref().unwrap_or(rest));
    }
    right
}

/// `link` as seen from the file `from`, without `.` and `..`.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match part {
            ".." => {
                // Above the root there is nothing of the project.
                if parts.pop().is_none() {
                    return Some("..".to_string());
                }
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of all headings, as forges make them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let titles = prose(text).filter(|(_, line)| line.starts_with('#'));
    titles.map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// What stands between single backticks.
fn backticked(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a piece of code is a path of the project, and not a pattern.
fn is_path(code: &str) -> bool {
    ROOTS.iter().any(|root| code.starts_with(root))
        && !code.contains(|c: char| c.is_whitespace() || "*{}<>$…".contains(c))
}

#[cfg(test)]
mod tests {
    use super::super::testing::all_found;
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let files = [
            ("docs/a.md", text),
            ("docs/format/log.md", "# The log\n## Bytes, and why\n"),
            ("crates/log/src/lib.rs", ""),
            ("README.md", ""),
        ];
        all_found(links, &files)
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        for text in [
            "# A b\nsee [log](format/log.md), [x](../README.md) and [top](#a-b)",
            "[bytes](format/log.md#bytes-and-why) [out](https://example.com/none)",
            "[dir](format/) [r]\n\n[r]: ../crates/log",
            "`crates/log/src/lib.rs` `crates/*/x.rs` `docs/{a,b}.md` `src/none.rs`",
            "```\n[gone](gone.md) `crates/gone.rs`\n```",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn links_that_lead_nowhere_fail() {
        for text in [
            "see [log](log.md)",
            "[x](format/log.md#gone)",
            "[x](#gone)",
            "[x]: gone.md",
            "[x](../../README.md)",
            "`crates/log/src/gone.rs`",
        ] {
            assert_eq!(found(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn links_to_lines_of_code_name_what_is_defined_there() {
        let code = "//! fn put\nstruct Db;\nimpl Other {\n    fn put() {}\n}\nimpl Db {\n    pub fn put() {}\n}\n";
        let with = |text: &str| {
            let files = [("docs/a.md", text), ("crates/a/src/lib.rs", code)];
            super::super::testing::all_found(links, &files)
        };
        assert_eq!(with("[`put`](../crates/a/src/lib.rs#L4)\n"), [""; 0]);
        assert_eq!(with("[`Db::put`](../crates/a/src/lib.rs#L7)\n"), [""; 0]);
        assert_eq!(with("[`Db::put`](../crates/a/src/lib.rs#L4)\n").len(), 1);
        assert_eq!(with("[`get`](../crates/a/src/lib.rs#L4)\n").len(), 1);
        let tree = super::super::testing::tree(&[("crates/a/src/lib.rs", code)]);
        let text = "See [`Db::put`](../crates/a/src/lib.rs#L0) and [`x`](y).\n";
        assert_eq!(
            with_right_lines(&tree, "docs/a.md", text),
            "See [`Db::put`](../crates/a/src/lib.rs#L7) and [`x`](y).\n"
        );
    }
}
