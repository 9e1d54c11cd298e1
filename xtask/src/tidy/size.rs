//! Sizes: files that fit in a head, functions that fit on a screen. The lists of exceptions are
//! ratchets: their numbers may only go down, and an entry that is no longer needed fails.

use super::lex::{Kind, closing, tokens};
use super::{Finding, Tree};

/// The longest file, in lines, whatever the reason.
const MAX_LINES: usize = 1000;

/// The longest file that needs no reason.
const USUAL_LINES: usize = 600;

/// Files over [`USUAL_LINES`] and how long they may be.
const LONG_FILES: &[(&str, usize)] = &[];

/// The longest function, in lines. About 70 is usual.
const MAX_FUNCTION_LINES: usize = 100;

/// Documents that are read from top to bottom, and how long they may be.
const PAGES: &[(&str, usize)] = &[(super::drawing::DOCUMENT, 300)];

/// Functions over [`MAX_FUNCTION_LINES`]: file, name, lines.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];

/// Files and functions within their limits, and exceptions that are needed.
pub fn sizes(tree: &Tree) -> Vec<Finding> {
    let mut findings = files(tree, LONG_FILES);
    findings.extend(functions(tree, LONG_FUNCTIONS));
    findings.extend(pages(tree));
    findings
}

fn pages(tree: &Tree) -> Vec<Finding> {
    let too_long = PAGES.iter().filter_map(|(path, most)| {
        let lines = tree.text(path)?.lines().count();
        let what =
            format!("{lines} lines, at most {most}: move what few need to a page of its own");
        (lines > *most).then(|| Finding { path: path.to_string(), line: *most, what })
    });
    too_long.collect()
}

fn files(tree: &Tree, exceptions: &[(&str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust() {
        let lines = text.lines().count();
        let allowed = exceptions.iter().find(|(listed, _)| *listed == path);
        let most = allowed.map_or(USUAL_LINES, |(_, lines)| *lines).min(MAX_LINES);
        if lines > most {
            let what = format!("{lines} lines, at most {most}: split it by what it does");
            findings.push(Finding { path: path.into(), line: most, what });
        }
    }
    for (path, _) in exceptions {
        let lines = tree.text(path).map_or(0, |text| text.lines().count());
        if lines <= USUAL_LINES {
            let what = format!("{lines} lines: take it off the list of long files");
            findings.push(Finding { path: path.to_string(), line: 1, what });
        }
    }
    findings
}

fn functions(tree: &Tree, exceptions: &[(&str, &str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = vec![false; exceptions.len()];
    for (path, text) in tree.rust() {
        for (name, line, lines) in function_lines(text) {
            let listed = exceptions.iter().position(|e| (e.0, e.1) == (path, name));
            let most = listed.map_or(MAX_FUNCTION_LINES, |at| exceptions[at].2);
            if lines > MAX_FUNCTION_LINES
                && let Some(at) = listed
            {
                used[at] = true;
            }
            if lines > most {
                let what = format!("`{name}` has {lines} lines, at most {most}");
                findings.push(Finding { path: path.into(), line, what });
            }
        }
    }
    for ((path, name, _), _) in exceptions.iter().zip(used).filter(|(_, used)| !used) {
        let what = format!("take `{name}` off the list of long functions");
        findings.push(Finding { path: path.to_string(), line: 1, what });
    }
    findings
}

/// Name, first line and number of lines of every function with a body.
fn function_lines(text: &str) -> Vec<(&str, usize, usize)> {
    let all = tokens(text).into_iter();
    let code: Vec<_> = all.filter(|t| !matches!(t.kind, Kind::Comment | Kind::Doc)).collect();
    let mut functions = Vec::new();
    for at in 0..code.len().saturating_sub(1) {
        let name = code[at + 1];
        if code[at].text != "fn" || name.kind != Kind::Word {
            continue;
        }
        let mut end = at + 2;
        while end < code.len() && !matches!(code[end].text, "{" | ";" | "}") {
            end =
                if matches!(code[end].text, "(" | "[") { closing(&code, end) + 1 } else { end + 1 };
        }
        if code.get(end).is_some_and(|token| token.text == "{") {
            let last = code[closing(&code, end)].line;
            functions.push((name.text, code[at].line, last + 1 - code[at].line));
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::super::testing::{found, tree};
    use super::*;

    #[test]
    fn files_have_a_limit_and_exceptions_a_reason() {
        let lines = |count: usize| "//! x\n".repeat(count);
        assert!(found(sizes, "x.rs", &lines(USUAL_LINES)).is_empty());
        assert_eq!(found(sizes, "x.rs", &lines(USUAL_LINES + 1)).len(), 1);
        let long = tree(&[("x.rs", &lines(700))]);
        assert!(files(&long, &[("x.rs", 700)]).is_empty());
        assert_eq!(files(&long, &[("x.rs", 699)]).len(), 1);
        assert_eq!(files(&long, &[("x.rs", 700), ("y.rs", 700)]).len(), 1);
        assert_eq!(files(&tree(&[("x.rs", &lines(500))]), &[("x.rs", 700)]).len(), 1);
        let huge = tree(&[("x.rs", &lines(MAX_LINES + 1))]);
        assert_eq!(files(&huge, &[("x.rs", 2000)]).len(), 1);
    }

    #[test]
    fn pages_have_a_limit() {
        let page = |lines: usize| tree(&[("docs/ARCHITECTURE.md", &"x\n".repeat(lines))]);
        assert!(pages(&page(300)).is_empty());
        assert_eq!(pages(&page(301)).len(), 1);
    }

    #[test]
    fn functions_have_a_limit_and_exceptions_a_reason() {
        let function = |lines: usize| {
            format!("trait T {{ fn a(x: [u8; 3]); }}\nfn f() -> u8\n{{{}}}", "\n".repeat(lines - 2))
        };
        assert!(found(sizes, "x.rs", &function(MAX_FUNCTION_LINES)).is_empty());
        assert_eq!(
            found(sizes, "x.rs", &function(MAX_FUNCTION_LINES + 1)),
            ["x.rs:2: `f` has 101 lines, at most 100"]
        );
        let long = tree(&[("x.rs", &function(120))]);
        assert!(functions(&long, &[("x.rs", "f", 120)]).is_empty());
        assert_eq!(functions(&long, &[("x.rs", "f", 119)]).len(), 1);
        assert_eq!(functions(&long, &[("x.rs", "f", 120), ("x.rs", "g", 120)]).len(), 1);
    }
}
