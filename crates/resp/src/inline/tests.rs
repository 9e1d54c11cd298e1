//! Words as Redis splits them.

use super::*;

fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
    let (mut line, mut spans) = (line.to_vec(), Vec::new());
    split(&mut line, 100, &mut spans)?;
    Ok(spans.iter().map(|span| line[span.range()].to_vec()).collect())
}

#[test]
fn words_are_split_and_unquoted_as_redis_does() {
    for (line, expected) in [
        (&b""[..], &[][..]),
        (b" \t\x0b ", &[]),
        (b"set a b", &[&b"set"[..], b"a", b"b"]),
        (b"  set  a\tb  ", &[b"set", b"a", b"b"]),
        (b"a\x0bb c", &[b"a\x0bb", b"c"]),
        (b"\"\" ''", &[b"", b""]),
        (br#""a b" 'c d'"#, &[b"a b", b"c d"]),
        (br#""\x41\n\r\t\b\a\q\"\\" x"#, &[b"A\n\r\t\x08\x07q\"\\", b"x"]),
        (br#""\x4g\xfF""#, &[b"x4g\xff"]),
        (br#"'it\'s' '\n' '"'"#, &[b"it's", br"\n", b"\""]),
        (br#"pre"fix ed" 'a'"#, &[b"prefix ed", b"a"]),
        (b"\xff\x80 \x01", &[b"\xff\x80", b"\x01"]),
    ] {
        assert_eq!(words(line).unwrap(), expected, "{:?}", line.escape_ascii().to_string());
    }
}

#[test]
fn quotes_are_balanced_and_stand_alone() {
    for line in [
        &b"\""[..],
        b"set \"a b",
        b"set 'a b",
        br#""a"b"#,
        br#"'a'b"#,
        br#""a\"#,
        br#""a\""#,
        br#"'a\'"#,
        b"\"a\"\"b\"",
    ] {
        assert_eq!(words(line), Err(Fault::Quotes), "{:?}", line.escape_ascii().to_string());
    }
}

#[test]
fn words_are_counted_before_they_are_kept() {
    let (mut line, mut spans) = (b"a b c".to_vec(), Vec::new());
    assert_eq!(split(&mut line, 2, &mut spans), Err(Fault::TooMany));
    assert_eq!(spans.len(), 2);
    spans.clear();
    assert_eq!(split(&mut line, 3, &mut spans), Ok(()));
}
