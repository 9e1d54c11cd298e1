//! What stands, or must not stand, in every Rust file: head comments, unfinished code, assertions
//! that assert nothing, code in comments.

use super::lex::{Kind, Token, closing, tokens};
use super::{Finding, Tree};

/// Macros that mean unfinished code.
const UNFINISHED: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Every file starts with what it is.
pub fn head_comments(tree: &Tree) -> Vec<Finding> {
    let headless = tree.rust().filter(|(_, text)| {
        let said = text.lines().next().and_then(|line| line.strip_prefix("//!"));
        said.is_none_or(|said| said.trim().is_empty())
    });
    let what = "the first line should say what this is: //! …";
    headless.map(|(path, _)| Finding { path: path.into(), line: 1, what: what.into() }).collect()
}

/// No unfinished code, and no assertion that cannot fail.
pub fn macros(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        let code = code(text);
        for at in 0..code.len() {
            if let Some(what) = macro_complaint(&code, at) {
                findings.push(Finding { path: path.into(), line: code[at].line, what });
            }
        }
    }
    findings
}

fn code(text: &str) -> Vec<Token<'_>> {
    let all = tokens(text).into_iter();
    all.filter(|token| !matches!(token.kind, Kind::Comment | Kind::Doc)).collect()
}

fn macro_complaint(code: &[Token<'_>], at: usize) -> Option<String> {
    let text = |at: usize| code.get(at).map_or("", |token| token.text);
    let name = text(at);
    if code[at].kind != Kind::Word || text(at + 1) != "!" {
        return None;
    }
    if UNFINISHED.contains(&name) {
        return Some(format!("`{name}!` is unfinished code"));
    }
    let first = text(at + 3);
    let alone = matches!(text(at + 4), ")" | ",");
    if matches!(name, "assert" | "debug_assert") && first == "true" && alone {
        return Some(format!("`{name}!(true)` cannot fail"));
    }
    let statement = at == 0 || matches!(text(at - 1), ";" | "{" | "}");
    if name == "matches" && statement && text(closing(code, at + 2) + 1) == ";" {
        return Some("`matches!` whose answer nobody looks at".into());
    }
    None
}

/// No code kept in comments.
pub fn dead_code(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        let comments: Vec<_> =
            tokens(text).into_iter().filter(|token| token.kind == Kind::Comment).collect();
        for comment in comments.iter().filter(|comment| is_statement(comment.text)) {
            let what = format!("code in a comment: `{}`; version control keeps it", comment.text);
            findings.push(Finding { path: path.into(), line: comment.line, what });
        }
    }
    findings
}

/// Whether a line comment reads like a statement: it starts like one and ends like one.
fn is_statement(comment: &str) -> bool {
    const DECLARING: [&str; 11] = [
        "let ", "use ", "pub ", "pub(", "fn ", "mod ", "struct ", "enum ", "impl ", "return ",
        "self.",
    ];
    const BRANCHING: [&str; 4] = ["if ", "for ", "while ", "match "];
    let Some(text) = comment.strip_prefix("//") else { return false };
    let text = text.trim();
    let starts = |words: &[&str]| words.iter().any(|word| text.starts_with(word));
    let called =
        |at: usize| text[..at].ends_with(|c: char| c.is_alphanumeric() || "_!>".contains(c));
    let call = text.ends_with(");") && !text.contains(". ") && text.find('(').is_some_and(called);
    let declaration = starts(&DECLARING) && text.ends_with([';', '{']) && !text.contains(". ");
    let branch = starts(&BRANCHING) && text.ends_with('{');
    let attribute = text.starts_with("#[") && text.ends_with(']');
    call || declaration || branch || attribute || matches!(text, "}" | "});" | "})" | "};")
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    #[test]
    fn files_start_with_what_they_are() {
        assert!(found(head_comments, "x.rs", "//! The footer.\n").is_empty());
        for text in ["", "use x;\n", "// The footer.\n", "//!\n", "\n//! The footer.\n"] {
            assert_eq!(found(head_comments, "x.rs", text).len(), 1, "{text:?}");
        }
    }

    #[test]
    fn unfinished_code_fails() {
        let fine = "let todo = 1; // todo!()\n assert!(true_story); assert!(x, \"true\");
            let y = matches!(a, b); f(matches!(a, b)); if matches!(a, b) {} matches!(a, b)";
        assert_eq!(found(macros, "x.rs", fine), [""; 0]);
        for text in [
            "todo!()",
            "fn f() { unimplemented!(\"later\") }",
            "let x = dbg!(y);",
            "assert!(true);",
            "assert!(true, \"why\");",
            "f(); matches!(a, B { .. });",
        ] {
            assert_eq!(found(macros, "x.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn code_in_comments_fails() {
        let fine = "// If the list is empty, nothing is done; that is safe.\n// for example (this);\n\
            // use the smaller one.\n// if there is one;\n/// let x = 1;\n// see `f();`";
        assert_eq!(found(dead_code, "x.rs", fine), [""; 0]);
        for text in
            ["// let x = f(y);", "// if x {", "// }", "//self.x = 1;", "// x.call(y);", "// #[x]"]
        {
            assert_eq!(found(dead_code, "x.rs", text).len(), 1, "{text}");
        }
    }
}
