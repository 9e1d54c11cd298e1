//! Requests: the incremental parser that a server runs on every connection's buffer.
//!
//! ```text
//! *3\r\n $3\r\n SET\r\n $1\r\n k\r\n $5\r\n value\r\n
//!  count  bytes  argument …
//! ```
//! An argument is a place in the buffer, 8 bytes, and never copied. What is known of an incomplete
//! request is kept, so a byte is looked at once, but for the line of a length that has not ended.

use crate::inline;
use crate::limits::Limits;
use crate::number::{Line, append_unsigned, integer_line};
use crate::span::Span;
use std::fmt;
use std::ops::Range;

/// Spans for which memory is kept from one command to the next: 8 KiB.
const KEPT_SPANS: usize = 1024;

/// Why bytes are no request. The text is Redis's, to be sent as an error with the code `ERR`;
/// then the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MalformedRequest {
    /// The number of arguments is no number, or over the limit.
    ArgumentCount,
    /// More arguments than before authentication.
    GuestArgumentCount,
    /// The length of an argument is no number, negative, or over the limit.
    BulkLength,
    /// A longer argument than before authentication.
    GuestBulkLength,
    /// An argument does not begin with `$`, but with this.
    ExpectedBulk(u8),
    /// An argument is not followed by a line's end. Redis does not look.
    UnendedBulk,
    /// All arguments together are over the limit. Redis closes without a word.
    TooLong,
    /// A quote of an inline request is not closed, or something sticks to a closed one.
    UnbalancedQuotes,
    /// An inline request has no end within the limit.
    InlineTooLong,
    /// An inline request contains a zero byte. Redis would not see the line's end behind it.
    InlineZero,
}

impl fmt::Display for MalformedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::ArgumentCount => "invalid multibulk length",
            Self::GuestArgumentCount => "unauthenticated multibulk length",
            Self::BulkLength => "invalid bulk length",
            Self::GuestBulkLength => "unauthenticated bulk length",
            Self::ExpectedBulk(byte @ b' '..=b'~') => {
                return write!(f, "Protocol error: expected '$', got '{}'", char::from(*byte));
            }
            // Redis sends the byte as it is; in a log or on a terminal it does harm.
            Self::ExpectedBulk(byte) => {
                return write!(f, "Protocol error: expected '$', got '\\x{byte:02x}'");
            }
            Self::UnendedBulk => "expected line end after bulk",
            Self::TooLong => "too big request",
            Self::UnbalancedQuotes => "unbalanced quotes in request",
            Self::InlineTooLong => "too big inline request",
            Self::InlineZero => "zero byte in inline request",
        };
        write!(f, "Protocol error: {text}")
    }
}

impl std::error::Error for MalformedRequest {}

/// What [`RequestParser::next`] found at the front of the buffer.
#[derive(Debug)]
pub enum Step<'a> {
    /// A command. The next one starts [`Command::bytes`] further on.
    Command(Command<'a>),
    /// A request without arguments, to be passed over and not answered.
    Blank {
        /// How many bytes of the buffer it is.
        bytes: usize,
    },
    /// The beginning of a request. The buffer is kept, more is appended to it.
    Incomplete {
        /// No step comes before this many more bytes have: what an argument whose length is
        /// known lacks, its line end included, or else 1. At most the limits' `bulk_bytes` + 2.
        missing: usize,
    },
}

/// A command: its arguments, the name first, at their places in the buffer.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    buf: &'a [u8],
    spans: &'a [Span],
    bytes: usize,
}

impl<'a> Command<'a> {
    /// How many bytes of the buffer the command is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many arguments there are with the name: one at least.
    pub fn count(&self) -> usize {
        self.spans.len()
    }

    /// The name, as sent.
    pub fn name(&self) -> &'a [u8] {
        self.get(0).unwrap_or_default()
    }

    /// Argument number `at`; the name is number 0.
    #[inline]
    pub fn get(&self, at: usize) -> Option<&'a [u8]> {
        self.spans.get(at).and_then(|span| self.buf.get(span.range()))
    }

    /// Where in the buffer argument number `at` stands.
    pub fn range(&self, at: usize) -> Option<Range<usize>> {
        self.spans.get(at).map(|span| span.range())
    }

    /// All arguments, the name first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let buf = self.buf;
        self.spans.iter().map(move |span| buf.get(span.range()).unwrap_or_default())
    }
}

impl Command<'_> {
    /// Whether it was a line of words, or was made of words: its bytes are not to be parsed again, since quoted words are
    /// unquoted in their places.
    pub fn is_line(&self) -> bool {
        let starts_behind = |name: &Span| name.range().start > 0;
        self.buf.first() != Some(&b'*') || !self.spans.first().is_some_and(starts_behind)
    }

    /// Appends the command as a request: its bytes as they came, unless it was a line of words.
    pub fn append_request(&self, out: &mut Vec<u8>) {
        match self.buf.get(..self.bytes) {
            Some(bytes) if !self.is_line() => out.extend_from_slice(bytes),
            _ => write_request(out, &self.iter().collect::<Vec<_>>()),
        }
    }

    /// A copy that outlives the buffer.
    pub fn to_owned(&self) -> OwnedCommand {
        let spans: Vec<Span> = self.spans.to_vec();
        OwnedCommand { buf: self.buf.get(..self.bytes).unwrap_or_default().to_vec(), spans }
    }
}

/// A command with a buffer of its own: for what is queued, or executed elsewhere.
#[derive(Debug, Clone)]
pub struct OwnedCommand {
    buf: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedCommand {
    /// The command.
    pub fn as_command(&self) -> Command<'_> {
        Command { buf: &self.buf, spans: &self.spans, bytes: self.buf.len() }
    }

    /// A command of these arguments, the name first.
    pub fn of<A: AsRef<[u8]>>(arguments: &[A]) -> Self {
        let (mut buf, mut spans) = (Vec::new(), Vec::with_capacity(arguments.len()));
        for argument in arguments.iter().map(AsRef::as_ref) {
            spans.push(Span::of(buf.len(), argument.len()));
            buf.extend_from_slice(argument);
        }
        Self { buf, spans }
    }

    /// Bytes of memory it holds.
    pub fn held_bytes(&self) -> usize {
        self.buf.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}

/// Finds commands in the bytes of one connection.
///
/// Costs some 7 ns an argument, whatever its length (`examples/parse_cost.rs`). Memory: one
/// allocation, 8 bytes an argument, that grows as arguments arrive, not as they are announced.
///
/// Stricter than Redis: the `\r\n` behind lengths and arguments is looked at; what cannot become a
/// length is refused before its line has ended (as a wrong length, where Redis waits for 64 KiB and
/// says `too big mbulk count string`); zero bytes in inline requests are refused at their line's
/// end.
///
/// ```
/// use terrace_resp::{Limits, RequestParser, Step};
///
/// let mut parser = RequestParser::new(Limits::default());
/// let mut buf = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n*2\r\n$3\r\nGET\r\n$100\r\nlong".to_vec();
/// let (mut at, mut names) = (0, Vec::new());
/// loop {
///     match parser.next(&mut buf[at..])? {
///         Step::Command(command) => {
///             names.push(command.name().to_vec());
///             at += command.bytes();
///         }
///         Step::Blank { bytes } => at += bytes,
///         Step::Incomplete { missing } => {
///             buf.drain(..at);
///             buf.reserve(missing);
///             assert_eq!(missing, 98);
///             break;
///         }
///     }
/// }
/// assert_eq!(names, [&b"GET"[..], b"PING"]);
/// # Ok::<(), terrace_resp::MalformedRequest>(())
/// ```
#[derive(Debug)]
pub struct RequestParser {
    /// What holds now: `configured`, or that [`Limits::for_guests`].
    limits: Limits,
    configured: Limits,
    guest: bool,
    /// How far the incomplete request is known: behind its last whole argument, or, inline, where
    /// there is no line's end yet.
    at: usize,
    /// How many arguments of the incomplete request are to come; 0 before their number is known.
    left: usize,
    spans: Vec<Span>,
}

impl RequestParser {
    /// A parser for a connection that needs no authentication.
    pub fn new(limits: Limits) -> Self {
        let limits = limits.addressable();
        Self { limits, configured: limits, guest: false, at: 0, left: 0, spans: Vec::new() }
    }

    /// A parser for a connection that has yet to authenticate: [`Limits::GUEST`] hold until
    /// [`Self::admit`].
    pub fn for_guest(limits: Limits) -> Self {
        let mut parser = Self::new(limits);
        parser.dismiss();
        parser
    }

    /// The connection has authenticated: from the next request on the full limits hold.
    pub fn admit(&mut self) {
        self.guest = false;
        self.limits = self.configured;
    }

    /// The connection has to authenticate once more: from the next request on [`Limits::GUEST`] hold.
    pub fn dismiss(&mut self) {
        self.guest = true;
        self.limits = self.configured.for_guests();
    }

    /// Changes the limits, from the next argument on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.configured = limits.addressable();
        self.limits = if self.guest { self.configured.for_guests() } else { self.configured };
    }

    /// The step at the front of `buf`, which starts with the first byte of a request. After
    /// [`Step::Incomplete`] the same bytes are given again, with more behind them.
    ///
    /// The buffer is changed only within an inline request with quotes, whose words are unquoted
    /// in their places; such a request is not to be parsed twice.
    ///
    /// # Errors
    /// The bytes are no request, or over the limits. This is final.
    #[inline]
    pub fn next<'a>(&'a mut self, buf: &'a mut [u8]) -> Result<Step<'a>, MalformedRequest> {
        match buf.first() {
            Some(b'*') => self.arguments(buf),
            Some(_) => self.line(buf),
            None => Ok(Step::Incomplete { missing: 1 }),
        }
    }

    /// The command that is all of `buf`, from its first byte to its last, if that is one that is not inline. Nothing
    /// is kept for the next call.
    pub fn whole<'a>(&'a mut self, buf: &'a [u8]) -> Option<Command<'a>> {
        let is_whole = buf.first() == Some(&b'*')
            && match self.arguments(buf) {
                Ok(Step::Command(command)) => command.bytes() == buf.len(),
                Ok(Step::Blank { .. } | Step::Incomplete { .. }) | Err(_) => false,
            };
        (self.at, self.left) = (0, 0);
        is_whole.then_some(Command { buf, spans: &self.spans, bytes: buf.len() })
    }

    /// Bytes of memory this parser holds beside itself.
    pub fn held_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
    }

    /// Gives back the memory kept for the next command, unless a request is incomplete. For
    /// connections that have become idle.
    pub fn release(&mut self) {
        if self.left == 0 {
            self.spans = Vec::new();
        }
    }

    fn arguments<'a>(&'a mut self, buf: &'a [u8]) -> Result<Step<'a>, MalformedRequest> {
        let (mut at, mut left) = (self.at, self.left);
        if left == 0 {
            let (count, end) = match integer_line(buf, 1) {
                Line::Whole { value, end } => (value, end),
                Line::Partial => return Ok(Step::Incomplete { missing: 1 }),
                Line::Invalid => return Err(MalformedRequest::ArgumentCount),
            };
            if count <= 0 {
                return Ok(Step::Blank { bytes: end });
            }
            left = self.allowed_count(count)?;
            at = end;
            self.clear_spans();
        }
        while left > 0 {
            let missing = match buf.get(at) {
                Some(b'$') => match integer_line(buf, at + 1) {
                    Line::Whole { value, end: start } => {
                        let len = self.allowed_len(value, start)?;
                        let end = start + len;
                        match buf.get(end..end + 2) {
                            Some(b"\r\n") => {
                                self.spans.push(Span::of(start, len));
                                at = end + 2;
                                left -= 1;
                                continue;
                            }
                            Some(_) => return Err(MalformedRequest::UnendedBulk),
                            None => end + 2 - buf.len(),
                        }
                    }
                    Line::Partial => 1,
                    Line::Invalid => return Err(MalformedRequest::BulkLength),
                },
                Some(other) => return Err(MalformedRequest::ExpectedBulk(*other)),
                None => 1,
            };
            (self.at, self.left) = (at, left);
            return Ok(Step::Incomplete { missing });
        }
        (self.at, self.left) = (0, 0);
        Ok(Step::Command(Command { buf, spans: &self.spans, bytes: at }))
    }

    fn line<'a>(&'a mut self, buf: &'a mut [u8]) -> Result<Step<'a>, MalformedRequest> {
        let most = self.limits.line_bytes.min(self.limits.message_bytes);
        let window = &buf[..buf.len().min(most.saturating_add(1))];
        let known = self.at.min(window.len());
        let Some(newline) = memchr::memchr(b'\n', &window[known..]).map(|found| known + found)
        else {
            if window.len() > most {
                return Err(MalformedRequest::InlineTooLong);
            }
            self.at = window.len();
            return Ok(Step::Incomplete { missing: 1 });
        };
        self.at = 0;
        self.clear_spans();
        let line = &mut buf[..newline];
        if memchr::memchr(0, line).is_some() {
            return Err(MalformedRequest::InlineZero);
        }
        inline::split(line, self.limits.elements, &mut self.spans).map_err(
            |fault| match fault {
                inline::Fault::Quotes => MalformedRequest::UnbalancedQuotes,
                inline::Fault::TooMany if self.guest => MalformedRequest::GuestArgumentCount,
                inline::Fault::TooMany => MalformedRequest::ArgumentCount,
            },
        )?;
        let bytes = newline + 1;
        if self.spans.is_empty() {
            return Ok(Step::Blank { bytes });
        }
        Ok(Step::Command(Command { buf, spans: &self.spans, bytes }))
    }

    #[inline]
    fn clear_spans(&mut self) {
        self.spans.clear();
        if self.spans.capacity() > KEPT_SPANS {
            self.spans.shrink_to(KEPT_SPANS);
        }
    }

    fn allowed_count(&self, count: i64) -> Result<usize, MalformedRequest> {
        match usize::try_from(count) {
            Ok(count) if count <= self.limits.elements => Ok(count),
            Ok(count) if count <= self.configured.elements => {
                Err(MalformedRequest::GuestArgumentCount)
            }
            _ => Err(MalformedRequest::ArgumentCount),
        }
    }

    /// The length of an argument that starts at `start`.
    #[inline]
    fn allowed_len(&self, len: i64, start: usize) -> Result<usize, MalformedRequest> {
        match usize::try_from(len) {
            Ok(len) if len <= self.limits.bulk_bytes => {
                let end = start.saturating_add(len).saturating_add(2);
                if end <= self.limits.message_bytes {
                    Ok(len)
                } else {
                    Err(MalformedRequest::TooLong)
                }
            }
            Ok(len) if len <= self.configured.bulk_bytes => Err(MalformedRequest::GuestBulkLength),
            _ => Err(MalformedRequest::BulkLength),
        }
    }
}

/// Appends a request of `arguments`, the name first, as clients send them.
pub fn write_request<A: AsRef<[u8]>>(out: &mut Vec<u8>, arguments: &[A]) {
    let line = |out: &mut Vec<u8>, kind, number: usize| {
        out.push(kind);
        append_unsigned(out, number as u64);
        out.extend_from_slice(b"\r\n");
    };
    line(out, b'*', arguments.len());
    for argument in arguments.iter().map(AsRef::as_ref) {
        line(out, b'$', argument.len());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}
