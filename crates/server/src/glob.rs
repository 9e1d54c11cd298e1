//! Patterns as KEYS, SCAN MATCH, CONFIG GET and ACL rules use them. Works on bytes.
//!
//! ```text
//! *        any bytes, also none          [abc]   one of these      [a-z]   one of a range
//! ?        any one byte                  [^a-z]  any other byte    \x      x itself
//! ```
//! Read as Redis 7.2 reads them, odd corners included: `]` ends a class even right after `[`, a
//! class may lack its `]`, the ends of a range may be swapped, a `\` at the end is itself. The
//! empty text matches the empty pattern and a single `*`, but not `**`.
//!
//! Every part but `*` takes exactly one byte, so the shortest text for all stars before the last
//! one is always good enough, and only the last star is ever extended. The cost is at most
//! pattern × text steps for any pattern, without memory or recursion (Redis before CVE-2022-36021
//! took exponential time).

#[cfg(test)]
mod tests;

/// Steps after which it is asked whether to go on: less than a millisecond.
const STEPS: usize = 1 << 16;

/// Whether all of `text` matches `pattern`. Cost: at most `pattern.len() * text.len()` steps.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_while(pattern, text, || true)
}

/// As [`matches()`], but false as soon as `goes_on` says no. That is asked now and then if it takes many steps.
pub fn matches_while(pattern: &[u8], text: &[u8], goes_on: impl Fn() -> bool) -> bool {
    if text.is_empty() {
        return pattern.is_empty() || pattern == b"*";
    }
    let (mut p, mut t, mut steps) = (0, 0, 0);
    // The last star: the pattern after it, and where in the text that is tried.
    let mut star = None;
    loop {
        if steps >= STEPS {
            steps = 0;
            if !goes_on() {
                return false;
            }
        }
        if pattern.get(p) == Some(&b'*') {
            p += pattern[p..].iter().take_while(|byte| **byte == b'*').count();
            let Some(skipped) = first_candidate(&pattern[p..], &text[t..]) else { return false };
            t += skipped;
            star = Some((p, t));
        }
        match (p < pattern.len(), t < text.len()) {
            (false, false) => return true,
            (true, false) => return false,
            (true, true) => {
                let (is_match, len) = part(&pattern[p..], text[t]);
                steps += len;
                if is_match {
                    p += len;
                    t += 1;
                    continue;
                }
            }
            (false, true) => {}
        }
        let Some((after, tried)) = star else { return false };
        let from = tried + 1;
        let Some(skipped) =
            text.get(from..).and_then(|rest| first_candidate(&pattern[after..], rest))
        else {
            return false;
        };
        (p, t) = (after, from + skipped);
        star = Some((p, t));
    }
}

/// How many bytes of `text` a star may pass over before `pattern` can match at all; `None` if it
/// never can.
fn first_candidate(pattern: &[u8], text: &[u8]) -> Option<usize> {
    match pattern.first() {
        None => Some(text.len()),
        Some(b'?' | b'[' | b'\\' | b'*') => Some(0),
        Some(wanted) => text.iter().position(|byte| byte == wanted),
    }
}

/// Whether the first part of `pattern` (no star) matches `byte`, and its length.
fn part(pattern: &[u8], byte: u8) -> (bool, usize) {
    match pattern {
        [b'?', ..] => (true, 1),
        [b'[', class @ ..] => {
            let (is_match, len) = in_class(class, byte);
            (is_match, 1 + len)
        }
        [b'\\', escaped, ..] => (*escaped == byte, 2),
        [literal, ..] => (*literal == byte, 1),
        [] => (false, 0),
    }
}

/// Whether `byte` is in the class that starts after `[`, and the class's length with its `]`.
fn in_class(class: &[u8], byte: u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        let (low, high, len) = match &class[at..] {
            [] => return (found != negated, at),
            [b'\\', escaped, ..] => (*escaped, *escaped, 2),
            [b']', ..] => return (found != negated, at + 1),
            [low, b'-', high, ..] => (*low.min(high), *low.max(high), 3),
            [single, ..] => (*single, *single, 1),
        };
        found |= (low..=high).contains(&byte);
        at += len;
    }
}

/// The bytes that every match of `pattern` starts with: the pattern up to its first `*`, `?` or
/// class, without escapes. A scan for the pattern needs to look at no other keys.
pub fn literal_prefix(pattern: &[u8]) -> Vec<u8> {
    unescaped(pattern).0
}

/// The only text that `pattern` matches, if it has no `*`, `?` or class: a scan for it is a lookup.
pub fn literal(pattern: &[u8]) -> Option<Vec<u8>> {
    let (text, whole) = unescaped(pattern);
    whole.then_some(text)
}

/// The literal start of `pattern`, and whether that is all of it.
fn unescaped(pattern: &[u8]) -> (Vec<u8>, bool) {
    let mut text = Vec::new();
    let mut rest = pattern;
    loop {
        let (byte, len) = match rest {
            [] => return (text, true),
            [b'*' | b'?' | b'[', ..] => return (text, false),
            [b'\\', escaped, ..] => (*escaped, 2),
            [byte, ..] => (*byte, 1),
        };
        text.push(byte);
        rest = &rest[len..];
    }
}
