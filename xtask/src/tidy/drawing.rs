//! The floors as `docs/ARCHITECTURE.md` draws them, in two fenced blocks: crates by floor, and
//! the engine's modules, lowest first.

use super::Tree;

/// Where they are drawn.
pub const DOCUMENT: &str = "docs/ARCHITECTURE.md";

/// Every crate with its floor: lines of a number (that of the line above, if there is none), a name, and what
/// it is.
pub fn crates(tree: &Tree) -> Vec<(String, u32)> {
    let mut drawn = Vec::new();
    let mut floor = 0;
    for line in fenced(tree, "0  ").lines() {
        let (own, rest) = match line.split_once("  ") {
            Some((number, rest)) if number.parse::<u32>().is_ok() => (number.parse().ok(), rest),
            _ => (None, line.strip_prefix("   ").unwrap_or(line)),
        };
        floor = own.unwrap_or(floor);
        // What continues the line above is set in further.
        if let Some(name) = rest.split_whitespace().next().filter(|_| !rest.starts_with(' ')) {
            drawn.push((name.to_string(), floor));
        }
    }
    drawn
}

/// The engine's modules, lowest first: lines of names with commas, two spaces, and what they are.
pub fn modules(tree: &Tree) -> Vec<String> {
    let lines = fenced(tree, "error").lines();
    let names = lines.filter(|line| !line.starts_with(' ')).flat_map(|line| {
        line.split("  ").next().unwrap_or_default().split(',').map(|name| name.trim().to_string())
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// The fenced block whose first line starts with `start`; nothing if there is none.
fn fenced<'a>(tree: &'a Tree, start: &str) -> &'a str {
    let text = tree.text(DOCUMENT).unwrap_or_default();
    let mut blocks = text.split("```\n").skip(1).step_by(2);
    blocks.find(|block| block.starts_with(start)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    #[test]
    fn drawings_are_read() {
        let text = "# Floors\n```\n0  a-base   keys\n1  a-log    segments\n   a-sst    blocks,\n\
                    \x20           and readers\n```\nInside:\n```\nerror, event  words\nread  get\n\
                    \x20     and scan\n```\n";
        let tree = tree(&[(DOCUMENT, text)]);
        let expected = [("a-base", 0), ("a-log", 1), ("a-sst", 1)];
        assert_eq!(crates(&tree), expected.map(|(name, floor)| (name.to_string(), floor)));
        assert_eq!(modules(&tree), ["error", "event", "read"]);
    }

    #[test]
    fn without_a_document_there_is_nothing() {
        assert!(crates(&tree(&[])).is_empty() && modules(&tree(&[])).is_empty());
    }
}
