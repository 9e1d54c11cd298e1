//! Replies from bytes, for clients: tests, the benchmark's driver, a command line.
//!
//! In two steps. [`ReplyParser`] finds where a reply ends and that it is one, as bytes arrive,
//! without building anything; [`Frame::decode`] then builds it, if it is wanted. Elements that are
//! announced cost nothing until they have arrived.

use crate::limits::Limits;
use crate::number::{Line, integer_line, parse_double};
use crate::reply::Reply;
use crate::writer::Aggregate;
use std::fmt;

/// The fewest bytes an element can have: `_\r\n`.
const MIN_ELEMENT_BYTES: usize = 3;

/// Why bytes are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MalformedReply {
    /// No reply begins with this byte.
    Kind(u8),
    /// A length is no number, negative, or over the limit.
    Length,
    /// An integer is none.
    Integer,
    /// A double is none.
    Double,
    /// A boolean is neither `t` nor `f`.
    Boolean,
    /// A big number is no number.
    BigNumber,
    /// A null has content.
    Null,
    /// A verbatim string does not begin with its format and a colon.
    Verbatim,
    /// A line or a bulk string does not end in `\r\n`.
    Unended,
    /// A line is over the limit.
    LineTooLong,
    /// The whole reply is over the limit.
    TooLong,
    /// More aggregates within each other than the limit.
    TooDeep,
}

impl fmt::Display for MalformedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind(byte) => {
                return write!(f, "malformed reply: no kind '{}'", [*byte].escape_ascii());
            }
            Self::Length => "malformed reply: invalid length",
            Self::Integer => "malformed reply: invalid integer",
            Self::Double => "malformed reply: invalid double",
            Self::Boolean => "malformed reply: invalid boolean",
            Self::BigNumber => "malformed reply: invalid big number",
            Self::Null => "malformed reply: invalid null",
            Self::Verbatim => "malformed reply: verbatim string without format",
            Self::Unended => "malformed reply: expected line end",
            Self::LineTooLong => "malformed reply: line too long",
            Self::TooLong => "malformed reply: too long",
            Self::TooDeep => "malformed reply: nested too deeply",
        })
    }
}

impl std::error::Error for MalformedReply {}

/// What [`ReplyParser::next`] found at the front of the buffer.
#[derive(Debug)]
pub enum ReplyStep<'a> {
    /// A whole reply. The next one starts behind its bytes.
    Frame(Frame<'a>),
    /// The beginning of a reply. The buffer is kept, more is appended to it.
    Incomplete {
        /// No step comes before this many more bytes have.
        missing: usize,
    },
}

/// The bytes of one whole reply.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    bytes: &'a [u8],
    limits: Limits,
}

impl<'a> Frame<'a> {
    /// The bytes as received; the first says what kind of reply it is.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether the reply is an error.
    pub fn is_error(&self) -> bool {
        matches!(self.bytes.first(), Some(b'-' | b'!'))
    }

    /// Builds the reply. Memory is taken for elements that are there: up to 14 bytes for
    /// each of the frame.
    ///
    /// # Errors
    /// None: the parser that gave out the frame has checked it.
    pub fn decode(&self) -> Result<Reply<'a>, MalformedReply> {
        let mut at = 0;
        decode(self.bytes, &mut at, &self.limits, 0)
    }
}

/// Finds replies in the bytes of one connection.
///
/// ```
/// use terrace_resp::{Limits, Reply, ReplyParser, ReplyStep};
///
/// let mut parser = ReplyParser::new(Limits::default());
/// let mut buf = b"*2\r\n:1\r\n$5\r\nwo".to_vec();
/// assert!(matches!(parser.next(&buf)?, ReplyStep::Incomplete { missing: 5 }));
/// buf.extend_from_slice(b"rld\r\n+OK\r\n");
/// let ReplyStep::Frame(frame) = parser.next(&buf)? else { unreachable!() };
/// assert_eq!(frame.bytes().len(), 19);
/// let world = Reply::Bulk(b"world".into());
/// assert_eq!(frame.decode()?, Reply::Array(vec![Reply::Integer(1), world]));
/// # Ok::<(), terrace_resp::MalformedReply>(())
/// ```
#[derive(Debug)]
pub struct ReplyParser {
    limits: Limits,
    /// How far the incomplete reply is known: behind its last whole element.
    at: usize,
    /// How many elements of each aggregate are to come, the outermost first. None is 0.
    open: Vec<usize>,
}

impl ReplyParser {
    /// A parser for a connection.
    pub fn new(limits: Limits) -> Self {
        Self { limits: limits.addressable(), at: 0, open: Vec::new() }
    }

    /// The step at the front of `buf`, which starts with the first byte of a reply. After
    /// [`ReplyStep::Incomplete`] the same bytes are given again, with more behind them.
    ///
    /// # Errors
    /// The bytes are no reply, or over the limits. This is final.
    pub fn next<'a>(&mut self, buf: &'a [u8]) -> Result<ReplyStep<'a>, MalformedReply> {
        loop {
            let (head, end) = match element(buf, self.at, &self.limits)? {
                Element::Whole { head, end } => (head, end),
                Element::Partial { missing } => return Ok(ReplyStep::Incomplete { missing }),
            };
            let elements = head.elements();
            if elements > 0 {
                if self.open.len() >= self.limits.depth {
                    return Err(MalformedReply::TooDeep);
                }
                self.open.push(elements);
                self.at = end;
                continue;
            }
            self.at = end;
            self.close();
            if self.open.is_empty() {
                let bytes = buf.get(..end).unwrap_or_default();
                self.at = 0;
                return Ok(ReplyStep::Frame(Frame { bytes, limits: self.limits }));
            }
        }
    }

    /// Bytes of memory this parser holds beside itself.
    pub fn held_bytes(&self) -> usize {
        self.open.capacity() * size_of::<usize>()
    }

    /// An element is whole, and with it every aggregate that it is the last of.
    fn close(&mut self) {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                break;
            }
            self.open.pop();
        }
    }
}

/// An element without its elements.
#[derive(Clone, Copy)]
enum Head<'a> {
    /// What follows the first byte, `kind`, without lengths and line ends.
    Bytes {
        kind: u8,
        content: &'a [u8],
    },
    Integer(i64),
    Double(f64),
    Boolean(bool),
    Null,
    Aggregate(Aggregate, usize),
    Attribute(usize),
}

impl Head<'_> {
    /// How many elements follow as its own; an attribute has the reply that it is about.
    fn elements(&self) -> usize {
        match self {
            Self::Aggregate(Aggregate::Map, count) => 2 * count,
            Self::Aggregate(_, count) => *count,
            Self::Attribute(count) => 2 * count + 1,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy)]
enum Element<'a> {
    Whole { head: Head<'a>, end: usize },
    Partial { missing: usize },
}

/// The element at `at`, without its elements.
#[inline]
fn element<'a>(buf: &'a [u8], at: usize, limits: &Limits) -> Result<Element<'a>, MalformedReply> {
    let Some(kind) = buf.get(at).copied() else { return Ok(Element::Partial { missing: 1 }) };
    let element = match kind {
        b'$' | b'=' | b'!' => bulk(kind, buf, at, limits)?,
        b'*' | b'%' | b'~' | b'>' | b'|' => aggregate(kind, buf, at, limits)?,
        b':' => match integer_line(buf, at + 1) {
            Line::Whole { value, end } => Element::Whole { head: Head::Integer(value), end },
            Line::Partial => Element::Partial { missing: 1 },
            Line::Invalid => return Err(MalformedReply::Integer),
        },
        b'+' | b'-' | b'_' | b',' | b'#' | b'(' => line(kind, buf, at, limits)?,
        other => return Err(MalformedReply::Kind(other)),
    };
    match element {
        Element::Whole { end, .. } if end > limits.message_bytes => Err(MalformedReply::TooLong),
        element => Ok(element),
    }
}

/// A line that is text, or is read as text first.
fn line<'a>(
    kind: u8,
    buf: &'a [u8],
    at: usize,
    limits: &Limits,
) -> Result<Element<'a>, MalformedReply> {
    let rest = buf.get(at + 1..).unwrap_or_default();
    // One byte more than the longest text: there the line's end must begin.
    let window = rest.get(..=limits.line_bytes).unwrap_or(rest);
    let Some(len) = memchr::memchr2(b'\r', b'\n', window) else {
        return match window.len() > limits.line_bytes {
            true => Err(MalformedReply::LineTooLong),
            false => Ok(Element::Partial { missing: 1 }),
        };
    };
    match &rest[len..] {
        [b'\r'] => return Ok(Element::Partial { missing: 1 }),
        [b'\r', b'\n', ..] => {}
        _ => return Err(MalformedReply::Unended),
    }
    let content = &rest[..len];
    let head = match (kind, content) {
        (b'+' | b'-', _) => Head::Bytes { kind, content },
        (b'_', []) => Head::Null,
        (b'_', _) => return Err(MalformedReply::Null),
        (b',', _) => Head::Double(parse_double(content).ok_or(MalformedReply::Double)?),
        (b'#', [b't']) => Head::Boolean(true),
        (b'#', [b'f']) => Head::Boolean(false),
        (b'#', _) => return Err(MalformedReply::Boolean),
        (_, [b'-' | b'+', digits @ ..] | digits) => {
            if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                return Err(MalformedReply::BigNumber);
            }
            Head::Bytes { kind, content }
        }
    };
    Ok(Element::Whole { head, end: at + 1 + len + 2 })
}

/// A bulk string, a verbatim string or a bulk error.
#[inline]
fn bulk<'a>(
    kind: u8,
    buf: &'a [u8],
    at: usize,
    limits: &Limits,
) -> Result<Element<'a>, MalformedReply> {
    let (value, start) = match integer_line(buf, at + 1) {
        Line::Whole { value: -1, end } if kind == b'$' => {
            return Ok(Element::Whole { head: Head::Null, end });
        }
        Line::Whole { value, end } => (value, end),
        Line::Partial => return Ok(Element::Partial { missing: 1 }),
        Line::Invalid => return Err(MalformedReply::Length),
    };
    let end = start + allowed(value, limits.bulk_bytes)? + 2;
    if end > limits.message_bytes {
        return Err(MalformedReply::TooLong);
    }
    let content = match buf.get(start..end) {
        Some([content @ .., b'\r', b'\n']) => content,
        Some(_) => return Err(MalformedReply::Unended),
        None => return Ok(Element::Partial { missing: end - buf.len() }),
    };
    if kind == b'=' && content.get(3) != Some(&b':') {
        return Err(MalformedReply::Verbatim);
    }
    Ok(Element::Whole { head: Head::Bytes { kind, content }, end })
}

fn aggregate<'a>(
    kind: u8,
    buf: &'a [u8],
    at: usize,
    limits: &Limits,
) -> Result<Element<'a>, MalformedReply> {
    let (value, end) = match integer_line(buf, at + 1) {
        Line::Whole { value: -1, end } if kind == b'*' => {
            return Ok(Element::Whole { head: Head::Null, end });
        }
        Line::Whole { value, end } => (value, end),
        Line::Partial => return Ok(Element::Partial { missing: 1 }),
        Line::Invalid => return Err(MalformedReply::Length),
    };
    let count = allowed(value, limits.elements)?;
    let head = match kind {
        b'%' => Head::Aggregate(Aggregate::Map, count),
        b'~' => Head::Aggregate(Aggregate::Set, count),
        b'>' => Head::Aggregate(Aggregate::Push, count),
        b'|' => Head::Attribute(count),
        _ => Head::Aggregate(Aggregate::Array, count),
    };
    Ok(Element::Whole { head, end })
}

/// A declared length that is at most `most`, which is far below what doubling overflows.
fn allowed(value: i64, most: usize) -> Result<usize, MalformedReply> {
    let most = most.min(u32::MAX as usize);
    usize::try_from(value).ok().filter(|len| *len <= most).ok_or(MalformedReply::Length)
}

/// Builds the reply at `at` and moves `at` behind it. What is cut off is [`MalformedReply::Unended`].
fn decode<'a>(
    buf: &'a [u8],
    at: &mut usize,
    limits: &Limits,
    depth: usize,
) -> Result<Reply<'a>, MalformedReply> {
    let Element::Whole { head, end } = element(buf, *at, limits)? else {
        return Err(MalformedReply::Unended);
    };
    *at = end;
    if head.elements() > 0 && depth >= limits.depth {
        return Err(MalformedReply::TooDeep);
    }
    // No more than can be there.
    let room = (buf.len() - end.min(buf.len())) / MIN_ELEMENT_BYTES;
    let mut next = || decode(buf, at, limits, depth + 1);
    let mut pairs = |count: usize| {
        let mut pairs = Vec::with_capacity(count.min(room));
        for _ in 0..count {
            pairs.push((next()?, next()?));
        }
        Ok(pairs)
    };
    let (kind, count) = match head {
        Head::Bytes { kind, content } => return text(kind, content),
        Head::Integer(value) => return Ok(Reply::Integer(value)),
        Head::Double(value) => return Ok(Reply::Double(value)),
        Head::Boolean(value) => return Ok(Reply::Boolean(value)),
        Head::Null => return Ok(Reply::Null),
        Head::Aggregate(Aggregate::Map, count) => return pairs(count).map(Reply::Map),
        Head::Attribute(count) => {
            let pairs = pairs(count)?;
            return Ok(Reply::Attribute { pairs, reply: Box::new(next()?) });
        }
        Head::Aggregate(kind, count) => (kind, count),
    };
    let mut elements = Vec::with_capacity(count.min(room));
    for _ in 0..count {
        elements.push(next()?);
    }
    Ok(match kind {
        Aggregate::Set => Reply::Set(elements),
        Aggregate::Push => Reply::Push(elements),
        Aggregate::Array | Aggregate::Map => Reply::Array(elements),
    })
}

/// The reply whose first byte is `kind` and that is bytes.
fn text(kind: u8, content: &[u8]) -> Result<Reply<'_>, MalformedReply> {
    Ok(match (kind, content) {
        (b'$', bytes) => Reply::Bulk(bytes.into()),
        (b'+', text) => Reply::Simple(text.into()),
        (b'-', text) => Reply::Error(text.into()),
        (b'!', text) => Reply::BulkError(text.into()),
        (b'(', digits) => Reply::BigNumber(digits.into()),
        (_, [a, b, c, _, text @ ..]) => Reply::Verbatim { format: [*a, *b, *c], text: text.into() },
        _ => return Err(MalformedReply::Verbatim),
    })
}
