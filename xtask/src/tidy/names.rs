//! Names say what a thing is: words that say nothing are refused in files and declarations.
//!
//! Only names that the tree declares are looked at; what other crates call their things is theirs.

use super::lex::{Kind, Token, tokens};
use super::{Finding, Tree};

/// Refused wherever they stand in a name.
const EMPTY_WORDS: [&str; 11] = [
    "manager", "managers", "helper", "helpers", "util", "utils", "handler", "handlers", "impl",
    "misc", "v2",
];

/// Refused as the whole of a name: `common_prefix` says something, a module `common` does not.
const EMPTY_NAMES: [&str; 2] = ["common", "commons"];

/// Refused at the front of a name: in a year it is the old one.
const EMPTY_FRONTS: [&str; 1] = ["new"];

/// Words before a declared name.
const DECLARING: [&str; 13] = [
    "fn",
    "struct",
    "enum",
    "union",
    "trait",
    "mod",
    "type",
    "const",
    "static",
    "let",
    "mut",
    "macro_rules",
    "for",
];

/// Names of files, directories and declarations.
pub fn names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in tree.files.keys().chain(&tree.others) {
        let parts = path.split('/').map(|part| part.split('.').next().unwrap_or(part));
        for what in parts.filter_map(complaint) {
            findings.push(Finding { path: path.clone(), line: 1, what });
        }
    }
    for (path, text) in tree.rust() {
        for token in declared(&tokens(text)) {
            if let Some(what) = complaint(token.text) {
                findings.push(Finding { path: path.to_string(), line: token.line, what });
            }
        }
    }
    findings
}

/// The names that code declares: after a declaring word, or before a type.
fn declared<'a>(all: &[Token<'a>]) -> Vec<Token<'a>> {
    let code: Vec<_> =
        all.iter().filter(|t| !matches!(t.kind, Kind::Comment | Kind::Doc)).collect();
    let text = |at: usize| code.get(at).map_or("", |token| token.text);
    let mut declared = Vec::new();
    // A keyword is no name, though it may stand where one would: `for impl Fn()`.
    let is_name = |token: &Token<'_>| token.kind == Kind::Word && token.text != "impl";
    for (at, token) in code.iter().enumerate().filter(|(_, token)| is_name(token)) {
        let before = if at == 0 { "" } else { text(at - 1) };
        let typed = text(at + 1) == ":" && text(at + 2) != ":" && before != ":";
        let after_macro_rules = at >= 2 && text(at - 2) == "macro_rules";
        if DECLARING.contains(&before) || typed || after_macro_rules {
            declared.push(**token);
        }
    }
    declared
}

/// What is wrong with `name`, if anything.
fn complaint(name: &str) -> Option<String> {
    let words = words(name);
    if let Some(word) = words.iter().find(|word| EMPTY_WORDS.contains(&word.as_str())) {
        return Some(format!("`{name}`: `{word}` says nothing; name what it is or does"));
    }
    if EMPTY_NAMES.contains(&name.to_lowercase().as_str()) {
        return Some(format!("`{name}` says nothing; name what it is"));
    }
    if words.len() > 1 && EMPTY_FRONTS.contains(&words[0].as_str()) {
        return Some(format!("`{name}`: what is new today is old tomorrow; say how it differs"));
    }
    None
}

/// The words of a name in any case, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut start_next = true;
    let mut lower_before = false;
    for c in name.chars() {
        if matches!(c, '_' | '-' | ' ') {
            start_next = true;
            continue;
        }
        if start_next || (c.is_uppercase() && lower_before) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
        start_next = false;
        lower_before = c.is_lowercase() || c.is_ascii_digit();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    #[test]
    fn words_in_any_case() {
        assert_eq!(words("TableCache"), ["table", "cache"]);
        assert_eq!(words("table_cache_v2"), ["table", "cache", "v2"]);
        assert_eq!(words("CACHE-utils"), ["cache", "utils"]);
    }

    #[test]
    fn names_that_say_something_pass() {
        let text = "fn common_prefix(a: &[u8]) {} fn new() {} struct Renewal { news: X }
            impl X for Y {} // a manager, a helper
            fn f(x: impl Fn()) { let y = \"utils\"; other::new_handler(x::new_y()); }";
        assert_eq!(found(names, "crates/x/src/table_cache.rs", text), [""; 0]);
    }

    #[test]
    fn empty_names_fail_wherever_they_are_declared() {
        for text in [
            "struct CacheManager;",
            "fn parse_helper() {}",
            "mod utils;",
            "struct X { event_handler: Y }",
            "fn f(handler: Y) {}",
            "let mut util = 1;",
            "struct IterImpl;",
            "fn new_index() {}",
            "let new_len = 1;",
            "mod common;",
            "macro_rules! helper { () => {} }",
            "trait StoreV2 {}",
        ] {
            assert_eq!(found(names, "x.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn files_and_directories_have_names_too() {
        assert_eq!(found(names, "crates/utils/src/x.rs", "").len(), 1);
        assert_eq!(found(names, "crates/x/common.rs", "").len(), 1);
        assert_eq!(found(names, "docs/common-errors.md", "").len(), 0);
    }
}
