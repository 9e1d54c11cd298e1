//! Patterns beside a plain recursive reading of the same rules, and patterns made to be slow.

use super::*;
use proptest::prelude::*;
use std::cell::Cell;

/// The rules as a definition, with Redis's exception of the empty text.
fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
    let is_of_stars = pattern.len() > 1 && pattern.iter().all(|byte| *byte == b'*');
    !(text.is_empty() && is_of_stars) && from_here(pattern, text)
}

/// Recursive: obviously right, exponential.
fn from_here(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|skipped| from_here(rest, &text[skipped..])),
        [b'[', rest @ ..] => {
            let mut members = std::collections::BTreeSet::new();
            let mut at = 0;
            let negated = rest.first() == Some(&b'^');
            at += usize::from(negated);
            while at < rest.len() && rest[at] != b']' {
                let (mut low, mut high, mut len) = (rest[at], rest[at], 1);
                if rest[at] == b'\\' && at + 1 < rest.len() {
                    (low, high, len) = (rest[at + 1], rest[at + 1], 2);
                } else if at + 2 < rest.len() && rest[at + 1] == b'-' {
                    (high, len) = (rest[at + 2], 3);
                }
                members.extend(low.min(high)..=low.max(high));
                at += len;
            }
            let after = &rest[(at + 1).min(rest.len())..];
            let [byte, text @ ..] = text else { return false };
            members.contains(byte) != negated && from_here(after, text)
        }
        [b'?', rest @ ..] => !text.is_empty() && from_here(rest, &text[1..]),
        [b'\\', escaped, rest @ ..] => text.first() == Some(escaped) && from_here(rest, &text[1..]),
        [byte, rest @ ..] => text.first() == Some(byte) && from_here(rest, &text[1..]),
    }
}

#[test]
fn patterns_match_as_in_redis() {
    let yes: &[(&str, &str)] = &[
        ("", ""),
        ("*", ""),
        ("*", "anything"),
        ("h?llo", "hello"),
        ("h*llo", "hllo"),
        ("h*llo", "heeeello"),
        ("h[ae]llo", "hallo"),
        ("h[^e]llo", "hallo"),
        ("h[a-b]llo", "hbllo"),
        ("h[b-a]llo", "hallo"),
        ("\\*", "*"),
        ("a\\", "a\\"),
        ("[\\]]", "]"),
        ("[a-]", "a"),
        ("[a-]", "_"),
        ("[abc", "c"),
        ("[^]", "x"),
        ("a**", "a"),
        ("*?*", "x"),
        ("a*b*c", "a-b-b-c"),
        ("user:*:name", "user:1:2:name"),
        ("*.log", "x.log.log"),
    ];
    for (pattern, text) in yes {
        assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
    }
    let no: &[(&str, &str)] = &[
        ("", "a"),
        ("?", ""),
        ("a", ""),
        ("**", ""),
        ("***", ""),
        ("h[^e]llo", "hello"),
        ("h[a-b]llo", "hcllo"),
        ("[]", "x"),
        ("[", "["),
        ("a*b", "ab "),
        ("\\*", "a"),
        ("*a", "ab"),
        ("a?", "a"),
        ("A", "a"),
    ];
    for (pattern, text) in no {
        assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
    }
}

#[test]
fn bytes_need_not_be_text() {
    assert!(matches(b"\xff*\0", b"\xff\xfe\0"));
    assert!(matches(b"[\x80-\xff]?", b"\x90\0"));
}

#[test]
fn hostile_patterns_take_no_exponential_time() {
    let text = vec![b'a'; 1024];
    // By its steps: a clock counts what else the machine does.
    let matches = |pattern: &[u8]| {
        let (asked, most) = (Cell::new(0), pattern.len() * text.len() / STEPS);
        let goes_on = || {
            asked.set(asked.get() + 1);
            asked.get() <= most
        };
        let is_match = matches_while(pattern, &text, goes_on);
        assert!(asked.get() <= most, "more steps than the pattern times the text");
        is_match
    };
    for unit in ["a*", "*a", "*?", "[a-z]*", "*[^b]", "\\a*", "*a*a"] {
        let mut pattern = unit.repeat(250);
        pattern.push_str("*b");
        assert!(!matches(pattern.as_bytes()), "{unit}");
    }
    assert!(matches(&b"*".repeat(1 << 20)));
    let class = [b"*[".as_slice(), &b"a-".repeat(1 << 9), b"]b"].concat();
    assert!(!matches(&class));
}

/// Of what takes billions of steps.
#[test]
fn a_match_that_takes_long_ends_when_it_is_to() {
    let text = vec![b'a'; 1 << 16];
    let class = [b"*[".as_slice(), &b"a-".repeat(1 << 15), b"]b"].concat();
    for pattern in [format!("*{}b", "a".repeat(1 << 15)).into_bytes(), class] {
        let asked = Cell::new(0);
        let goes_on = || {
            asked.set(asked.get() + 1);
            asked.get() < 10
        };
        assert!(!matches_while(&pattern, &text, goes_on));
        assert_eq!(asked.get(), 10);
    }
    // It is the same for who goes on, and not asked of what is short.
    assert!(matches_while(b"*a[a-c]b", b"aaab", || unreachable!()));
    let (pattern, asked) = ("a".repeat(1000) + "*" + &"a".repeat(100), Cell::new(0));
    let goes_on = || {
        asked.set(asked.get() + 1);
        true
    };
    assert!(!matches_while(pattern.as_bytes(), &[&text[..2000], b"b"].concat(), goes_on));
    assert!(asked.get() > 0);
}

#[test]
fn the_literal_start_bounds_a_scan() {
    assert_eq!(literal_prefix(b"user:*"), b"user:");
    assert_eq!(literal_prefix(b"a\\*b?c"), b"a*b");
    assert_eq!(literal_prefix(b"[a]b"), b"");
    assert_eq!(literal_prefix(b"x\\"), b"x\\");
    assert_eq!(literal(b"a\\[b"), Some(b"a[b".to_vec()));
    assert_eq!(literal(b"a*"), None);
    assert_eq!(literal(b""), Some(vec![]));
}

/// Few letters, so that patterns match now and then.
fn pattern() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop::sample::select(b"*?[]^-\\abc".to_vec()), 0..10)
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop::sample::select(b"abc]-\\*".to_vec()), 0..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn any_pattern_matches_what_its_definition_says(pattern in pattern(), text in text()) {
        prop_assert_eq!(matches(&pattern, &text), by_definition(&pattern, &text));
    }

    #[test]
    fn every_match_starts_with_the_literal_prefix(pattern in pattern(), text in text()) {
        if matches(&pattern, &text) {
            prop_assert!(text.starts_with(&literal_prefix(&pattern)));
        }
        if let Some(only) = literal(&pattern) {
            prop_assert!(matches(&pattern, &only));
            prop_assert_eq!(matches(&pattern, &text), text == only);
        }
    }
}
