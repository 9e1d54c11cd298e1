//! Splits Rust source into tokens with their lines: enough to tell code from comments and
//! strings, and test code from the rest. Not a parser: it accepts what rustc would refuse.
//!
//! Called by the rules of [`super`].

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A word: identifier or keyword.
    Word,
    /// A number, string, byte string, character or lifetime.
    Literal,
    /// A comment that rustdoc reads: `///`, `//!`, `/**`, `/*!`.
    Doc,
    /// Any other comment.
    Comment,
    /// One character of punctuation.
    Mark,
}

/// A piece of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its bytes.
    pub text: &'a str,
    /// The line it starts on, from 1.
    pub line: usize,
}

/// All tokens of `source`, comments included, white space left out.
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { source, at: 0, line: 1 };
    std::iter::from_fn(|| lexer.token()).collect()
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn token(&mut self) -> Option<Token<'a>> {
        let blank = self.rest().len() - self.rest().trim_start().len();
        self.take(blank);
        let first = self.rest().chars().next()?;
        let line = self.line;
        let (kind, len) = self.measure(first);
        Some(Token { kind, text: self.take(len), line })
    }

    fn take(&mut self, len: usize) -> &'a str {
        let text = &self.rest()[..len];
        self.line += text.bytes().filter(|byte| *byte == b'\n').count();
        self.at += len;
        text
    }

    fn measure(&self, first: char) -> (Kind, usize) {
        let rest = self.rest();
        if rest.starts_with("//") {
            let len = rest.find('\n').unwrap_or(rest.len());
            let doc =
                rest.starts_with("//!") || (rest.starts_with("///") && !rest.starts_with("////"));
            return (if doc { Kind::Doc } else { Kind::Comment }, len);
        }
        if rest.starts_with("/*") {
            let doc = rest.starts_with("/*!") || (rest.starts_with("/**") && rest.len() > 4);
            return (if doc { Kind::Doc } else { Kind::Comment }, block_comment(rest));
        }
        if let Some(len) = string(rest) {
            return (Kind::Literal, len);
        }
        if first == '\'' {
            return (Kind::Literal, quote(rest));
        }
        if first.is_ascii_digit() {
            return (Kind::Literal, number(rest));
        }
        if is_word(first) {
            return (Kind::Word, word(rest));
        }
        (Kind::Mark, first.len_utf8())
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn word(rest: &str) -> usize {
    rest.find(|c| !is_word(c)).unwrap_or(rest.len())
}

fn number(rest: &str) -> usize {
    let whole = word(rest);
    // `1.5` is one number, `1..5` and `1.max(2)` are not.
    match rest[whole..].strip_prefix('.') {
        Some(tail) if tail.starts_with(|c: char| c.is_ascii_digit()) => whole + 1 + word(tail),
        _ => whole,
    }
}

fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a string at the front of `rest`: plain, byte, C or raw.
fn string(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        rest.strip_prefix(prefix).is_some_and(|tail| match prefix.ends_with('r') {
            true => tail.trim_start_matches('#').starts_with('"'),
            false => tail.starts_with('"'),
        })
    })?;
    let body = &rest[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = body.len() - body.trim_start_matches('#').len();
        let close = format!("\"{}", "#".repeat(hashes));
        let inner = &body[hashes + 1..];
        let end = inner.find(&close).map_or(inner.len(), |at| at + close.len());
        return Some(prefix.len() + hashes + 1 + end);
    }
    Some(prefix.len() + 1 + until_quote(&body[1..], '"'))
}

/// The length up to and with the closing quote.
fn until_quote(inner: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    inner.len()
}

/// The length of a character or a lifetime.
fn quote(rest: &str) -> usize {
    let mut chars = rest[1..].chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => 1 + until_quote(&rest[1..], '\''),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 1 + word(&rest[1..]),
    }
}

/// Which of `code` (tokens without comments) are test code: items under `#[cfg(test)]`.
pub fn test_code(code: &[Token<'_>]) -> Vec<bool> {
    let mut marked = vec![false; code.len()];
    let mut at = 0;
    while at < code.len() {
        let Some(end) = attribute_end(code, at) else {
            at += 1;
            continue;
        };
        if !is_test_attribute(&code[at..end]) {
            at = end;
            continue;
        }
        let end = item_end(code, end);
        marked[at..end].fill(true);
        at = end;
    }
    marked
}

/// The token after the attribute that starts at `at`, if one does.
fn attribute_end(code: &[Token<'_>], at: usize) -> Option<usize> {
    let open = match (code.get(at)?.text, code.get(at + 1)?.text) {
        ("#", "[") => at + 1,
        _ => return None,
    };
    Some(closing(code, open) + 1)
}

fn is_test_attribute(attribute: &[Token<'_>]) -> bool {
    let texts: Vec<_> = attribute.iter().map(|token| token.text).collect();
    let conditional = texts.get(2) == Some(&"cfg") && !texts.contains(&"not");
    texts.get(2..4) == Some(&["test", "]"]) || (conditional && texts.contains(&"test"))
}

/// The token after the item that starts at `at`, its further attributes included.
fn item_end(code: &[Token<'_>], mut at: usize) -> usize {
    while let Some(end) = attribute_end(code, at) {
        at = end;
    }
    while at < code.len() {
        match code[at].text {
            ";" => return at + 1,
            "{" => return closing(code, at) + 1,
            "(" | "[" => at = closing(code, at) + 1,
            _ => at += 1,
        }
    }
    code.len()
}

/// The index of the mark that closes the bracket at `open`; the last token if none does.
pub fn closing(code: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in code.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" if token.kind == Kind::Mark => depth += 1,
            ")" | "]" | "}" if token.kind == Kind::Mark => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    code.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<(Kind, &str)> {
        tokens(source).into_iter().map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn strings_comments_and_lifetimes_are_told_apart() {
        use Kind::*;
        assert_eq!(
            kinds("a /* b /* c */ d */ \"e // \\\" f\" // g\n'h' 'i: &'static r#\"j\"k\"# 1.5..2"),
            [
                (Word, "a"),
                (Comment, "/* b /* c */ d */"),
                (Literal, "\"e // \\\" f\""),
                (Comment, "// g"),
                (Literal, "'h'"),
                (Literal, "'i"),
                (Mark, ":"),
                (Mark, "&"),
                (Literal, "'static"),
                (Literal, "r#\"j\"k\"#"),
                (Literal, "1.5"),
                (Mark, "."),
                (Mark, "."),
                (Literal, "2"),
            ]
        );
        assert_eq!(kinds("//! x\n/// y\n//// z").map_kinds(), [Doc, Doc, Comment]);
        assert_eq!(kinds(r"'\'' b'\\' b").map_kinds(), [Literal, Word, Literal, Word]);
    }

    trait MapKinds {
        fn map_kinds(self) -> Vec<Kind>;
    }

    impl MapKinds for Vec<(Kind, &str)> {
        fn map_kinds(self) -> Vec<Kind> {
            self.into_iter().map(|(kind, _)| kind).collect()
        }
    }

    #[test]
    fn lines_count_through_strings_and_comments() {
        let lines: Vec<_> = tokens("a\n\"x\ny\"\n/*\n*/ b").iter().map(|t| t.line).collect();
        assert_eq!(lines, [1, 2, 4, 5]);
    }

    #[test]
    fn test_code_ends_with_its_item() {
        let source = "#[cfg(test)] #[allow(x)] mod t { fn a() {} } fn b() {}
            #[cfg(test)] mod u; #[cfg(not(test))] fn c() {} #[test] fn d(x: [u8; 3]) { e }";
        let code = tokens(source);
        let marks = test_code(&code);
        let in_tests =
            |name: &str| code.iter().zip(&marks).any(|(token, mark)| token.text == name && *mark);
        let seen: Vec<_> = ["t", "a", "b", "u", "c", "d", "e"].map(in_tests).to_vec();
        assert_eq!(seen, [true, true, false, true, false, true, true]);
    }
}
