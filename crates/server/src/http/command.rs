//! A command line that changes nothing: for `/api/v1/command`. A line of words becomes a command, and its reply JSON, bounded in
//! elements and bytes.

use super::json::{CommandAnswer, CommandReply, Key};
use terrace_resp::{
    Limits, OwnedCommand, Reply, ReplyParser, ReplyStep, RequestParser, Step, append_double,
};

/// Bytes of a line.
const MAX_LINE_BYTES: usize = 4096;
/// Elements of a reply that are shown, those within others among them.
pub(super) const MAX_ELEMENTS: usize = 1000;
/// Bytes of one string that are shown.
pub(super) const MAX_STRING_BYTES: usize = 4096;
/// Bytes of all strings that are shown.
const MAX_BYTES: usize = 256 << 10;

const UNREADABLE: &str = "the reply is none of the protocol";

/// The command of a line, which is split and unquoted as redis-cli does it.
///
/// # Errors
/// What is wrong with the line.
pub(super) fn parsed(line: &str) -> Result<OwnedCommand, &'static str> {
    if line.len() > MAX_LINE_BYTES {
        return Err("a command line has at most 4096 bytes");
    }
    // What redis-cli takes for blanks: others, as U+00A0, are bytes of a key.
    let line = line.trim_ascii();
    if line.contains('\n') {
        return Err("a command line is one line");
    }
    if line.contains('\0') {
        return Err("a zero byte is written as \"\\x00\"");
    }
    // A request of the protocol begins so, and no command does.
    if line.is_empty() || line.starts_with('*') {
        return Err("a command is needed");
    }
    let mut request = [line.as_bytes(), b"\r\n"].concat();
    match RequestParser::new(Limits::default()).next(&mut request) {
        Ok(Step::Command(command)) => Ok(command.to_owned()),
        Ok(Step::Blank { .. } | Step::Incomplete { .. }) => Err("a command is needed"),
        Err(_) => Err("a quote is not closed, or something follows a closed one without a blank"),
    }
}

/// What is left to be shown.
struct Rest {
    elements: usize,
    bytes: usize,
    is_cut: bool,
}

/// The answer with a reply in RESP3.
///
/// # Errors
/// The bytes are no reply.
pub(super) fn answer(db: u8, reply: &[u8]) -> Result<CommandAnswer, &'static str> {
    let most = usize::MAX;
    let limits =
        Limits { bulk_bytes: most, message_bytes: most, elements: most, ..Limits::default() };
    let parsed = match ReplyParser::new(limits).next(reply) {
        Ok(ReplyStep::Frame(frame)) => frame.decode().map_err(|_| UNREADABLE)?,
        Ok(ReplyStep::Incomplete { .. }) | Err(_) => return Err(UNREADABLE),
    };
    let mut rest = Rest { elements: MAX_ELEMENTS, bytes: MAX_BYTES, is_cut: false };
    let reply = shown(&parsed, &mut rest);
    Ok(CommandAnswer { db, reply, is_cut: rest.is_cut })
}

fn shown(reply: &Reply<'_>, rest: &mut Rest) -> CommandReply {
    let number = |kind, text: String, rest: &mut Rest| scalar(kind, text.as_bytes(), rest);
    match reply {
        Reply::Simple(text) => scalar("simple", text, rest),
        Reply::Error(text) | Reply::BulkError(text) => scalar("error", text, rest),
        Reply::Integer(value) => number("integer", value.to_string(), rest),
        Reply::Bulk(bytes) => scalar("string", bytes, rest),
        Reply::Null => CommandReply { kind: "null", text: None, elements: Vec::new(), size: 0 },
        Reply::Double(value) => {
            let mut text = Vec::new();
            append_double(&mut text, *value);
            scalar("double", &text, rest)
        }
        Reply::Boolean(value) => number("boolean", value.to_string(), rest),
        Reply::BigNumber(digits) => scalar("big_number", digits, rest),
        Reply::Verbatim { text, .. } => scalar("verbatim", text, rest),
        Reply::Array(elements) | Reply::Push(elements) => {
            several("array", elements.iter(), 1, rest)
        }
        Reply::Set(elements) => several("set", elements.iter(), 1, rest),
        Reply::Map(pairs) => {
            let parts = pairs.iter().flat_map(|(key, value)| [key, value]);
            several("map", parts, 2, rest)
        }
        Reply::Attribute { reply, .. } => shown(reply, rest),
    }
}

fn scalar(kind: &'static str, bytes: &[u8], rest: &mut Rest) -> CommandReply {
    let most = MAX_STRING_BYTES.min(rest.bytes);
    rest.bytes -= bytes.len().min(most);
    rest.is_cut |= bytes.len() > most;
    CommandReply { kind, text: Some(Key::cut(bytes, most)), elements: Vec::new(), size: 0 }
}

/// What consists of `elements`; `step` of them are shown together or not at all.
fn several<'a>(
    kind: &'static str,
    elements: impl Iterator<Item = &'a Reply<'a>>,
    step: usize,
    rest: &mut Rest,
) -> CommandReply {
    let (mut list, mut size) = (Vec::new(), 0);
    let mut has_room = true;
    for element in elements {
        if size % step == 0 {
            has_room &= rest.elements >= step && rest.bytes > 0;
            rest.elements -= if has_room { step } else { 0 };
        }
        size += 1;
        if has_room {
            list.push(shown(element, rest));
        }
    }
    rest.is_cut |= list.len() < size;
    CommandReply { kind, text: None, elements: list, size: size as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<Vec<u8>>, &'static str> {
        parsed(line).map(|command| command.as_command().iter().map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn lines_are_split_and_unquoted_as_by_redis_cli() {
        let all = words(r#"  GET "a\xff\n\"b" 'it\'s' plain ä "#).unwrap();
        assert_eq!(all, [&b"GET"[..], b"a\xff\n\"b", b"it's", b"plain", "ä".as_bytes()]);
        let all = words("\tGET a\u{a0}\r\n").unwrap();
        assert_eq!(all, [&b"GET"[..], "a\u{a0}".as_bytes()]);
        for (line, why) in [
            ("", "a command is needed"),
            ("   ", "a command is needed"),
            ("*1", "a command is needed"),
            ("GET \"a", "a quote is not closed"),
            ("GET 'a'b", "a quote is not closed, or something follows"),
            ("GET a\nSET a b", "one line"),
            ("GET a\0b", "a zero byte"),
            (&"x".repeat(MAX_LINE_BYTES + 1), "at most 4096 bytes"),
        ] {
            let refused = words(line).unwrap_err();
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }

    fn shown_of(reply: &[u8]) -> CommandAnswer {
        answer(3, reply).unwrap()
    }

    #[test]
    fn replies_keep_their_types_and_bytes() {
        for (reply, kind, text) in [
            (&b"+OK\r\n"[..], "simple", Some("OK")),
            (b"-ERR no\r\n", "error", Some("ERR no")),
            (b":-9223372036854775808\r\n", "integer", Some("-9223372036854775808")),
            (b"$3\r\na\xff\n\r\n", "string", Some("a\\xff\\x0a")),
            (b"_\r\n", "null", None),
            (b",1.5\r\n", "double", Some("1.5")),
            (b",inf\r\n", "double", Some("inf")),
            // As it came, and as redis-cli prints it: without 308 zeros.
            (b",5e-309\r\n", "double", Some("4.9999999999999995e-309")),
            (b",1.2676506002282294e+30\r\n", "double", Some("1.2676506002282294e+30")),
            (b",-0\r\n", "double", Some("-0")),
            (b"#t\r\n", "boolean", Some("true")),
            (
                b"(123456789012345678901234567890\r\n",
                "big_number",
                Some("123456789012345678901234567890"),
            ),
            (b"=7\r\ntxt:abc\r\n", "verbatim", Some("abc")),
        ] {
            let told = shown_of(reply);
            let found = told.reply.text.as_ref().map(|text| &text.text[..]);
            assert_eq!((told.reply.kind, found, told.is_cut), (kind, text, false));
        }
        let told = shown_of(b"%2\r\n$1\r\na\r\n*2\r\n:1\r\n_\r\n$1\r\nb\r\n~1\r\n:2\r\n").reply;
        let kinds: Vec<_> = told.elements.iter().map(|one| (one.kind, one.size)).collect();
        assert_eq!((told.kind, told.size), ("map", 4));
        assert_eq!(kinds, [("string", 0), ("array", 2), ("string", 0), ("set", 1)]);
        assert!(answer(0, b"*2\r\n:1\r\n").is_err() && answer(0, b"?").is_err());
    }

    #[test]
    fn a_long_reply_is_cut_and_says_so() {
        let text = vec![b'x'; MAX_STRING_BYTES + 1];
        let bulk =
            |bytes: &[u8]| [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        let told = shown_of(&bulk(&text));
        let shown = told.reply.text.unwrap();
        assert_eq!((shown.len, shown.hex.len(), told.is_cut), (4097, 2 * 4096, true));
        assert!(!shown_of(&bulk(&text[1..])).is_cut);

        let many =
            [format!("*{}\r\n", MAX_ELEMENTS + 7).into_bytes(), b":1\r\n".repeat(MAX_ELEMENTS + 7)];
        let told = shown_of(&many.concat());
        assert_eq!((told.reply.elements.len(), told.reply.size, told.is_cut), (1000, 1007, true));
        // A pair of a map is there as a whole.
        let pairs = [&b"*2\r\n:0\r\n%600\r\n"[..], &b":1\r\n:2\r\n".repeat(600)].concat();
        let told = shown_of(&pairs);
        let map = &told.reply.elements[1];
        assert_eq!((map.elements.len(), map.size, told.is_cut), (998, 1200, true));

        let large = [&b"*900\r\n"[..], &bulk(&text[..1000]).repeat(900)].concat();
        let told = shown_of(&large);
        let bytes: usize =
            told.reply.elements.iter().map(|one| one.text.as_ref().unwrap().hex.len() / 2).sum();
        assert_eq!((bytes, told.is_cut, told.reply.size), (MAX_BYTES, true, 900));
    }
}
