//! Bytes that may be anything, as text that is for people; and Base64.

use percent_encoding::percent_decode_str;
use std::fmt::Write as _;

/// `bytes` as UTF-8 where that is printable, else as `\xNN`; a backslash is doubled.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                c if is_printable(c) => out.push(c),
                c => escape(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        escape(&mut out, chunk.invalid());
    }
    out
}

fn escape(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "\\x{byte:02x}");
    }
}

/// Neither a control character nor one that cannot be seen or only changes how others look: the separators of lines,
/// annotations, and what Unicode calls `Default_Ignorable_Code_Point`.
fn is_printable(c: char) -> bool {
    let unseen = matches!(c,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}'
        | '\u{FFF0}'..='\u{FFFB}' | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}'
        | '\u{E0000}'..='\u{E0FFF}');
    !c.is_control() && !unseen
}

/// Whether a query of a URL is UTF-8 when its `%XX` are bytes. The reader of queries would put U+FFFD
/// where it is not.
pub(super) fn is_utf8_unescaped(query: &str) -> bool {
    percent_decode_str(query).decode_utf8().is_ok()
}

/// The bytes of Base64 (RFC 4648, section 4) with its padding; `None` if that is none.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text);
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.chunks(4) {
        let mut word = 0u32;
        for at in 0..4 {
            let value = group.get(at).map_or(Some(0), |c| value(*c))?;
            word = word << 6 | u32::from(value);
        }
        let [_, bytes @ ..] = word.to_be_bytes();
        out.extend_from_slice(&bytes[..group.len().saturating_sub(1)]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_printable_stays() {
        assert_eq!(text(b"user:42"), "user:42");
        assert_eq!(text("größe 火".as_bytes()), "größe 火");
        assert_eq!(text(b"a\\b"), "a\\\\b");
        assert_eq!(text(b"\x00a\n\x7f"), "\\x00a\\x0a\\x7f");
        assert_eq!(text(b"ok\xff\xc3"), "ok\\xff\\xc3");
        // Would turn around what follows.
        assert_eq!(text("a\u{202E}b".as_bytes()), "a\\xe2\\x80\\xaeb");
        // Two keys that would look like `a`, and one that would look like nothing.
        assert_eq!(text("a\u{E0062}".as_bytes()), "a\\xf3\\xa0\\x81\\xa2");
        assert_eq!(text("a\u{FE0F}".as_bytes()), "a\\xef\\xb8\\x8f");
        assert_eq!(text("\u{3164}".as_bytes()), "\\xe3\\x85\\xa4");
    }

    #[test]
    fn a_query_is_utf8_or_not_when_its_bytes_are_unescaped() {
        for query in [
            "",
            "key=a",
            "key=%c3%b6&db=0",
            "key=%C3%B6",
            "key=\u{f6}",
            "%",
            "%c",
            "%zz",
            "a%2",
            "%25ff",
        ] {
            assert!(is_utf8_unescaped(query), "{query}");
        }
        for query in ["key=%ff", "key=%FF%00", "key=%c3", "db=0&key=%c3a", "%%ff"] {
            assert!(!is_utf8_unescaped(query), "{query}");
        }
    }

    #[test]
    fn base64_of_the_rfc() {
        for (encoded, plain) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYmFy", "foobar"),
            ("QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Aladdin:open sesame"),
        ] {
            assert_eq!(base64(encoded).as_deref(), Some(plain.as_bytes()), "{encoded}");
        }
        for wrong in ["Zg", "Zg=", "Z===", "Zm9v!", "Z g=", "====", "Zm=v"] {
            assert_eq!(base64(wrong).filter(|bytes| !bytes.is_empty()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(any in ".*") {
            let _ = (base64(&any), is_utf8_unescaped(&any));
            prop_assert!(text(any.as_bytes()).chars().all(is_printable));
        }
    }
}
