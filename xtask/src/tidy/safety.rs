//! Where unsafe code may stand, and that every piece of it says why it is sound.

use super::lex::{Kind, Token, tokens};
use super::{Finding, Tree};

/// Where unsafe code may stand. The peers are C libraries, which cannot be loaded or called without.
const PLACES: [&str; 11] = [
    "crates/skiplist/",
    "crates/filter/",
    "crates/buf/",
    "crates/vfs/",
    "crates/sst/src/block/",
    "crates/bench/src/engine/",
    "crates/binding/src/fork.rs",
    "crates/c/src/",
    "crates/leveldb/src/",
    "crates/cli/src/allocator.rs",
    "xtask/src/peers.rs",
];

/// How many lines above the `unsafe` its statement may start.
const STATEMENT_LINES: usize = 5;

/// Unsafe code only in its places, each block and implementation with its `// SAFETY:`.
pub fn blocks(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        let all = tokens(text);
        let code: Vec<_> =
            all.iter().filter(|t| !matches!(t.kind, Kind::Comment | Kind::Doc)).collect();
        let reasons = reason_lines(&all);
        for pair in code.windows(2).filter(|pair| pair[0].text == "unsafe") {
            let finding = |what: &str| Finding {
                path: path.into(),
                line: pair[0].line,
                what: what.to_string(),
            };
            if !PLACES.iter().any(|place| path.starts_with(place)) {
                findings.push(finding("unsafe code has no place here"));
            }
            let line = pair[0].line;
            let near = line.saturating_sub(STATEMENT_LINES)..=line;
            let explained = reasons.iter().any(|reason| near.contains(reason));
            if matches!(pair[1].text, "{" | "impl") && !explained {
                findings.push(finding("unsafe without a `// SAFETY:` above it"));
            }
        }
    }
    findings
}

/// The last line of every run of comments that holds a `SAFETY:`.
fn reason_lines(all: &[Token<'_>]) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut in_reason = false;
    for token in all {
        match token.kind {
            Kind::Comment | Kind::Doc => {
                in_reason |= token.text.contains("SAFETY:");
                if in_reason {
                    lines.push(token.line);
                }
            }
            _ => in_reason = false,
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    const PLACE: &str = "crates/vfs/src/buf.rs";

    #[test]
    fn explained_unsafe_code_in_its_place_passes() {
        let text = "// SAFETY: the pointer is ours,\n// and so on,\nlet x = unsafe { f() };
            /// # Safety\nunsafe fn f() {}\n// SAFETY: no state.\nunsafe impl Send for X {}
            type F = unsafe extern \"C\" fn(); // unsafe { }";
        assert_eq!(found(blocks, PLACE, text), [""; 0]);
    }

    #[test]
    fn a_reason_may_stand_above_the_statement() {
        let text = "// SAFETY: ours.\nlet x = call(\n    a,\n    unsafe { f() },\n);";
        assert_eq!(found(blocks, PLACE, text), [""; 0]);
        let far = format!("// SAFETY: ours.\n{}unsafe {{ f() }}", "g();\n".repeat(STATEMENT_LINES));
        assert_eq!(found(blocks, PLACE, &far).len(), 1);
    }

    #[test]
    fn unexplained_unsafe_code_fails() {
        assert_eq!(found(blocks, PLACE, "unsafe { f() }").len(), 1);
        assert_eq!(found(blocks, PLACE, "// It is safe.\nunsafe impl Send for X {}").len(), 1);
    }

    #[test]
    fn unsafe_code_elsewhere_fails() {
        let text = "// SAFETY: ours.\nunsafe { f() }";
        for path in
            ["crates/terrace/src/read/get.rs", "crates/sst/src/reader.rs", "fuzz/src/lib.rs"]
        {
            assert_eq!(found(blocks, path, text).len(), 1, "{path}");
        }
        assert_eq!(found(blocks, "crates/log/src/lib.rs", "#![forbid(unsafe_code)]"), [""; 0]);
    }
}
