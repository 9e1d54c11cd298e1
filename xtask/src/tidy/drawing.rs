//! `docs/ARCHITECTURE.md` draws the floors that [`super::crates`] and [`super::modules`] check.

use super::{Finding, Tree, crates, modules};

const DOCUMENT: &str = "docs/ARCHITECTURE.md";

/// The drawings and the lists agree.
pub fn floors(tree: &Tree) -> Vec<Finding> {
    let text = tree.text(DOCUMENT).unwrap_or_default();
    let listed: Vec<_> =
        modules::FLOORS.iter().flat_map(|(_, modules)| *modules).copied().collect();
    let complaints = [crates_differ(text), modules_differ(text, &listed)];
    let complaints = complaints.into_iter().flatten();
    complaints.map(|what| Finding { path: DOCUMENT.to_string(), line: 1, what }).collect()
}

fn crates_differ(text: &str) -> Option<String> {
    let Some(block) = fenced(text, "0  terrace-base") else {
        return Some("no drawing of the crates' floors".into());
    };
    let mut drawn = Vec::new();
    let mut floor = 0;
    for line in block.lines() {
        let mut words = line.split_whitespace();
        let mut first = words.next().unwrap_or_default();
        if let Ok(number) = first.parse() {
            floor = number;
            first = words.next().unwrap_or_default();
        }
        drawn.push((first, floor));
    }
    (drawn != crates::FLOORS)
        .then(|| format!("the drawing has the crates {drawn:?}, xtask {:?}", crates::FLOORS))
}

fn modules_differ(text: &str, listed: &[&str]) -> Option<String> {
    let Some(block) = fenced(text, "vocabulary") else {
        return Some("no drawing of the engine's floors".into());
    };
    let words = block.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let drawn: Vec<_> = words.filter(|word| listed.contains(word)).collect();
    (drawn != listed).then(|| format!("the drawing has the modules {drawn:?}, xtask {listed:?}"))
}

/// The fenced block whose first line starts with `start`.
fn fenced<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.split("```\n").skip(1).step_by(2).find(|block| block.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    fn document() -> String {
        let mut text = "```\n".to_string();
        for (name, floor) in crates::FLOORS {
            text.push_str(&format!("{floor}  {name}   what it is\n"));
        }
        text.push_str("```\n\n```\nvocabulary\n");
        for (floor, modules) in modules::FLOORS {
            text.push_str(&format!("{}: {}\n", floor.to_uppercase(), modules.join(", ")));
        }
        text + "```\n"
    }

    #[test]
    fn a_true_drawing_passes() {
        assert_eq!(found(floors, DOCUMENT, &document()), [""; 0]);
    }

    #[test]
    fn a_false_drawing_fails() {
        for (from, to) in [
            ("2  terrace-log", "1  terrace-log"),
            ("5  terrace-inspect", "5  terrace-inspector"),
            ("stall, retain", "retain, stall"),
            ("commit, ", ""),
        ] {
            let text = document().replace(from, to);
            assert_ne!(text, document(), "{from}");
            assert_eq!(found(floors, DOCUMENT, &text).len(), 1, "{from}");
        }
        assert_eq!(found(floors, DOCUMENT, "").len(), 2);
    }
}
