//! Splits Rust source into tokens with their lines, by rustc's own lexer: enough to tell code from
//! comments and strings. Not a parser: it accepts what rustc would refuse.
//!
//! Called by the rules of [`super`].

use ra_ap_rustc_lexer::{FrontmatterAllowed, TokenKind, tokenize};

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
    let (mut at, mut line) = (0, 1);
    let mut found = Vec::new();
    for token in tokenize(source, FrontmatterAllowed::No) {
        let text = &source[at..at + token.len as usize];
        if let Some(kind) = kind(token.kind) {
            found.push(Token { kind, text, line });
        }
        at += text.len();
        line += text.bytes().filter(|byte| *byte == b'\n').count();
    }
    found
}

fn kind(kind: TokenKind) -> Option<Kind> {
    Some(match kind {
        TokenKind::Whitespace => return None,
        TokenKind::LineComment { doc_style: Some(_) }
        | TokenKind::BlockComment { doc_style: Some(_), .. } => Kind::Doc,
        TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => Kind::Comment,
        TokenKind::Ident | TokenKind::RawIdent => Kind::Word,
        TokenKind::Literal { .. } | TokenKind::Lifetime { .. } => Kind::Literal,
        _ => Kind::Mark,
    })
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
        assert_eq!(kinds(r"'\'' b'\\' b").map_kinds(), [Literal, Literal, Word]);
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
}
