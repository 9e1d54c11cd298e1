//! Replies, written as a connection's protocol has them. Called by the code that executes commands.
//!
//! What only RESP3 has is written in RESP2 as Redis does: a map as an array of twice its length, a
//! set or a push as an array, a double, a big number or a verbatim string as a bulk string, a
//! boolean as an integer; an attribute is left out.

use crate::Protocol;
use crate::number::{append_double, append_integer, append_unsigned, digit_count};

/// A reply that is made of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aggregate {
    /// A list.
    Array,
    /// Keys and values, one after the other; its length counts pairs.
    Map,
    /// Elements without order, none of them twice.
    Set,
    /// An array that answers no command.
    Push,
}

impl Aggregate {
    /// The first byte, and how many replies make one of its length.
    fn spelling(self, protocol: Protocol) -> (u8, usize) {
        match (self, protocol) {
            (Self::Map, Protocol::Resp2) => (b'*', 2),
            (Self::Array, _) | (_, Protocol::Resp2) => (b'*', 1),
            (Self::Map, Protocol::Resp3) => (b'%', 1),
            (Self::Set, Protocol::Resp3) => (b'~', 1),
            (Self::Push, Protocol::Resp3) => (b'>', 1),
        }
    }
}

/// An aggregate whose length is not known yet, see [`ReplyWriter::begin`].
#[derive(Debug)]
#[must_use = "the reply is not valid before its length is known"]
pub struct Deferred {
    kind: Aggregate,
    /// Where its first line starts.
    start: usize,
    /// How many bytes that line has now.
    room: usize,
}

/// Appends replies to a connection's output.
///
/// Nothing fails. A caller that announces an aggregate of `n` writes `n` replies (`2n` for a map). With a limit
/// ([`Self::within`]) what is beyond it is left out, so that the memory of a reply that is too long is bounded; it is of
/// no use then ([`Self::is_over`]).
///
/// ```
/// use terrace_resp::{Aggregate, Protocol, ReplyWriter};
///
/// let (mut two, mut three) = (Vec::new(), Vec::new());
/// for (out, protocol) in [(&mut two, Protocol::Resp2), (&mut three, Protocol::Resp3)] {
///     let mut reply = ReplyWriter::new(out, protocol);
///     reply.aggregate(Aggregate::Map, 1);
///     reply.bulk(b"score");
///     reply.double(1.5);
/// }
/// assert_eq!(two, b"*2\r\n$5\r\nscore\r\n$3\r\n1.5\r\n");
/// assert_eq!(three, b"%1\r\n$5\r\nscore\r\n,1.5\r\n");
/// ```
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
    limit_bytes: usize,
}

impl<'a> ReplyWriter<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol, limit_bytes: usize::MAX }
    }

    /// The same, with an output of at most about `limit_bytes`, those of earlier writers included.
    pub fn within(self, limit_bytes: usize) -> Self {
        Self { limit_bytes, ..self }
    }

    /// Whether something was left out since it was beyond the limit.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.out.len() > self.limit_bytes
    }

    /// How many bytes may still be written before something is left out.
    pub fn left_bytes(&self) -> usize {
        self.limit_bytes.saturating_sub(self.out.len())
    }

    /// Another writer to the same output.
    pub fn reborrow(&mut self) -> ReplyWriter<'_> {
        ReplyWriter { out: self.out, protocol: self.protocol, limit_bytes: self.limit_bytes }
    }

    /// Takes away what was written after the output had `len_bytes`.
    pub fn truncate(&mut self, len_bytes: usize) {
        self.out.truncate(len_bytes);
    }

    /// Replies are written in another protocol from here on.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// The protocol that replies are written in.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// How many bytes the output has, those of earlier writers included.
    pub fn len_bytes(&self) -> usize {
        self.out.len()
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.put(b"+OK\r\n");
    }

    /// A simple string. Line ends in `text` become blanks.
    pub fn simple(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'+', text.as_ref());
    }

    /// An error: a code in capitals, a blank, a text. Line ends in `text` become blanks.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.line(b'-', text.as_ref());
    }

    /// An integer.
    pub fn integer(&mut self, value: i64) {
        if self.is_over() {
            return;
        }
        self.out.push(b':');
        append_integer(self.out, value);
        self.end();
    }

    /// A bulk string: any bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        if self.fits(bytes.len()) {
            self.out.reserve(bytes.len() + 16);
        }
        self.length(b'$', bytes.len());
        self.put(bytes);
        self.end();
    }

    /// No value.
    pub fn null(&mut self) {
        self.either(b"$-1\r\n", b"_\r\n");
    }

    /// No array: what commands answer that else answer an array.
    pub fn null_array(&mut self) {
        self.either(b"*-1\r\n", b"_\r\n");
    }

    /// The beginning of an array of `count`.
    pub fn array(&mut self, count: usize) {
        self.aggregate(Aggregate::Array, count);
    }

    /// The beginning of an aggregate of `count` elements, or pairs.
    pub fn aggregate(&mut self, kind: Aggregate, count: usize) {
        let (first, factor) = kind.spelling(self.protocol);
        self.length(first, count * factor);
    }

    /// The beginning of an aggregate whose length [`Self::finish`] gives.
    ///
    /// If that has as many digits as `guess`, finishing costs nothing; else what has been written
    /// since is moved once.
    pub fn begin(&mut self, kind: Aggregate, guess: usize) -> Deferred {
        let start = self.out.len();
        self.aggregate(kind, guess);
        Deferred { kind, start, room: self.out.len() - start }
    }

    /// Gives the length of an aggregate, in elements or pairs, after they have been written.
    ///
    /// Those begun within it are finished before it. Nothing has been taken from the output's
    /// front since it was begun.
    pub fn finish(&mut self, deferred: Deferred, count: usize) {
        let Deferred { kind, start, room } = deferred;
        let was_over = self.is_over();
        let (first, factor) = kind.spelling(self.protocol);
        let count = count * factor;
        let mut line = Vec::with_capacity(3 + digit_count(count));
        line.push(first);
        append_unsigned(&mut line, count as u64);
        line.extend_from_slice(b"\r\n");
        match self.out.get_mut(start..start + room) {
            Some(place) if room == line.len() => place.copy_from_slice(&line),
            Some(_) => drop(self.out.splice(start..start + room, line)),
            None => debug_assert!(false, "the output got shorter under a deferred length"),
        }
        // A shorter line makes no whole of it.
        if was_over && !self.is_over() {
            self.out.resize(self.limit_bytes + 1, 0);
        }
    }

    /// A double; in RESP2 a bulk string of the same text, see [`append_double`].
    pub fn double(&mut self, value: f64) {
        let mut text = Vec::with_capacity(25);
        append_double(&mut text, value);
        match self.protocol {
            Protocol::Resp2 => self.bulk(&text),
            Protocol::Resp3 => self.line(b',', &text),
        }
    }

    /// A boolean; in RESP2 the integer 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        match value {
            true => self.either(b":1\r\n", b"#t\r\n"),
            false => self.either(b":0\r\n", b"#f\r\n"),
        }
    }

    /// A string for people to read, whose `format` is `txt` or `mkd`; in RESP2 a bulk string.
    pub fn verbatim(&mut self, format: [u8; 3], text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        if self.protocol == Protocol::Resp2 {
            return self.bulk(text);
        }
        self.length(b'=', text.len() + 4);
        self.put(&format);
        self.put(b":");
        self.put(text);
        self.end();
    }

    /// An integer of any size, in decimal `digits` with or without a sign; in RESP2 a bulk string.
    pub fn big_number(&mut self, digits: impl AsRef<[u8]>) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits),
            Protocol::Resp3 => self.line(b'(', digits.as_ref()),
        }
    }

    /// An error that may be long or contain line ends; in RESP2 an error with blanks for them.
    pub fn bulk_error(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        if self.protocol == Protocol::Resp2 {
            return self.error(text);
        }
        self.length(b'!', text.len());
        self.put(text);
        self.end();
    }

    /// `pairs` of keys and values about the reply that follows. `write` writes them, and is not
    /// called in RESP2, which has no attributes.
    pub fn attribute(&mut self, pairs: usize, write: impl FnOnce(&mut Self)) {
        if self.protocol == Protocol::Resp3 {
            self.length(b'|', pairs);
            write(self);
        }
    }

    #[inline]
    fn length(&mut self, first: u8, length: usize) {
        if length < 10 {
            return self.put(&[first, b'0' + length as u8, b'\r', b'\n']);
        }
        if self.is_over() {
            return;
        }
        self.out.push(first);
        append_unsigned(self.out, length as u64);
        self.end();
    }

    fn line(&mut self, first: u8, text: &[u8]) {
        self.put(&[first]);
        let start = self.out.len();
        self.put(text);
        if memchr::memchr2(b'\r', b'\n', text).is_some() {
            for byte in self.out[start..].iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n')) {
                *byte = b' ';
            }
        }
        self.end();
    }

    fn either(&mut self, two: &[u8], three: &[u8]) {
        self.put(match self.protocol {
            Protocol::Resp2 => two,
            Protocol::Resp3 => three,
        });
    }

    #[inline]
    fn end(&mut self) {
        self.put(b"\r\n");
    }

    /// Whether this many bytes more are within the limit.
    #[inline]
    fn fits(&self, bytes: usize) -> bool {
        bytes <= self.left_bytes()
    }

    /// Appends as much as the limit allows, and one byte more, which says that there was more.
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if self.fits(bytes.len()) {
            return self.out.extend_from_slice(bytes);
        }
        let room = self.limit_bytes.saturating_add(1).saturating_sub(self.out.len());
        self.out.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `write` writes, in RESP2 and in RESP3.
    fn both(write: impl Fn(&mut ReplyWriter<'_>)) -> [String; 2] {
        [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
            let mut out = Vec::new();
            write(&mut ReplyWriter::new(&mut out, protocol));
            String::from_utf8(out).unwrap()
        })
    }

    #[test]
    fn a_reply_beyond_the_limit_takes_no_more_memory() {
        fn whole(reply: &mut ReplyWriter<'_>) {
            reply.array(4);
            reply.bulk("0123456789");
            reply.integer(12_345);
            reply.simple("text");
            reply.double(0.5);
        }
        let [two, three] = both(whole);
        for (text, protocol) in [(two, Protocol::Resp2), (three, Protocol::Resp3)] {
            for limit in 0..=text.len() + 5 {
                let mut out = Vec::new();
                let mut reply = ReplyWriter::new(&mut out, protocol).within(limit);
                whole(&mut reply.reborrow());
                assert_eq!(reply.is_over(), limit < text.len(), "{limit}");
                if !reply.is_over() {
                    assert_eq!(out, text.as_bytes());
                    continue;
                }
                assert!(out.len() > limit && out.len() < limit + 10, "{limit}: {}", out.len());
                let mut reply = ReplyWriter::new(&mut out, protocol).within(limit);
                let deferred = reply.begin(Aggregate::Map, 100);
                (0..1000).for_each(|_| reply.bulk([0; 1000]));
                reply.finish(deferred, 1000);
                assert!(reply.is_over() && reply.len_bytes() < limit + 20, "{limit}");
                reply.truncate(0);
                let deferred = reply.begin(Aggregate::Array, 1_000_000);
                (0..1000).for_each(|_| reply.bulk([0; 1000]));
                reply.finish(deferred, 1);
                assert!(reply.is_over(), "{limit}");
                // What is taken away can be written again.
                reply.truncate(0);
                assert!(!reply.is_over());
            }
        }
    }

    #[test]
    fn what_both_have_is_the_same_in_both() {
        for (written, expected) in [
            (both(|reply| reply.ok()), "+OK\r\n"),
            (both(|reply| reply.simple("a\r\nb")), "+a  b\r\n"),
            (both(|reply| reply.error("ERR no\nway")), "-ERR no way\r\n"),
            (both(|reply| reply.integer(-42)), ":-42\r\n"),
            (both(|reply| reply.bulk(b"")), "$0\r\n\r\n"),
            (both(|reply| reply.bulk("0123456789\r\n")), "$12\r\n0123456789\r\n\r\n"),
            (both(|reply| reply.array(0)), "*0\r\n"),
            (both(|reply| reply.array(1234)), "*1234\r\n"),
        ] {
            assert_eq!(written, [expected, expected]);
        }
    }

    #[test]
    fn what_only_resp3_has_is_downgraded_as_redis_does() {
        for (written, two, three) in [
            (both(|reply| reply.null()), "$-1\r\n", "_\r\n"),
            (both(|reply| reply.null_array()), "*-1\r\n", "_\r\n"),
            (both(|reply| reply.aggregate(Aggregate::Map, 6)), "*12\r\n", "%6\r\n"),
            (both(|reply| reply.aggregate(Aggregate::Set, 3)), "*3\r\n", "~3\r\n"),
            (both(|reply| reply.aggregate(Aggregate::Push, 2)), "*2\r\n", ">2\r\n"),
            (both(|reply| reply.double(-0.5)), "$4\r\n-0.5\r\n", ",-0.5\r\n"),
            (both(|reply| reply.double(f64::INFINITY)), "$3\r\ninf\r\n", ",inf\r\n"),
            (both(|reply| reply.boolean(true)), ":1\r\n", "#t\r\n"),
            (both(|reply| reply.boolean(false)), ":0\r\n", "#f\r\n"),
            (both(|reply| reply.verbatim(*b"txt", "hi")), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (both(|reply| reply.big_number("-12")), "$3\r\n-12\r\n", "(-12\r\n"),
            (both(|reply| reply.bulk_error("ERR a\r\n")), "-ERR a  \r\n", "!7\r\nERR a\r\n\r\n"),
        ] {
            assert_eq!(written, [two, three]);
        }
        let attribute = both(|reply| {
            reply.attribute(1, |reply| {
                reply.simple("ttl");
                reply.integer(9);
            });
            reply.ok();
        });
        assert_eq!(attribute, ["+OK\r\n", "|1\r\n+ttl\r\n:9\r\n+OK\r\n"]);
    }

    #[test]
    fn lengths_known_late_are_what_they_would_have_been_early() {
        for guess in [0, 9, 10, 5000] {
            for inner in [0, 1, 4, 5, 9, 10, 49, 50, 120] {
                let late = both(|reply| {
                    reply.ok();
                    let outer = reply.begin(Aggregate::Array, guess);
                    let map = reply.begin(Aggregate::Map, guess);
                    for at in 0..2 * inner {
                        reply.integer(at);
                    }
                    reply.finish(map, inner as usize);
                    reply.bulk("tail");
                    reply.finish(outer, 2);
                });
                let early = both(|reply| {
                    reply.ok();
                    reply.array(2);
                    reply.aggregate(Aggregate::Map, inner as usize);
                    for at in 0..2 * inner {
                        reply.integer(at);
                    }
                    reply.bulk("tail");
                });
                assert_eq!(late, early, "guess {guess}, {inner} pairs");
            }
        }
    }
}
