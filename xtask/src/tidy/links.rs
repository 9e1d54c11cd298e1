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
    let found = heading.is_empty() || headings(text).any(|slug| slug == heading);
    (!found).then(|| format!("`{path}` has no heading `#{heading}`"))
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
}
