//! Code in documents: what stands between fences.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

/// The code in `language` of the document at `path`, block by block, at least one.
pub fn code(path: &Path, language: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let blocks = blocks(&text, language);
    ensure!(!blocks.is_empty(), "{} has no code in {language}", path.display());
    Ok(blocks)
}

fn blocks(text: &str, language: &str) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), None::<(bool, String)>);
    for line in text.lines() {
        let fence = line.strip_prefix("```");
        match (fence, &mut open) {
            (None, None) => {}
            (None, Some((_, block))) => block.push_str(&format!("{line}\n")),
            (Some(opened), None) => open = Some((opened == language, String::new())),
            (Some(_), Some(_)) => {
                found.extend(open.take().filter(|(is_wanted, _)| *is_wanted).map(|open| open.1));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_language_are_cut_out() {
        let text = "a\n```cpp\nx;\n\n```\n```\ncpp\n```\n```cpp\ny;\n```\n```c\nz;\n```\n";
        assert_eq!(blocks(text, "cpp"), ["x;\n\n", "y;\n"]);
        assert_eq!(blocks(text, ""), ["cpp\n"]);
        assert!(blocks(text, "rust").is_empty());
    }
}
