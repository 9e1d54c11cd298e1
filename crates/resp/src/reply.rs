//! Replies as values, for clients: what a [`crate::Frame`] decodes to.

use crate::writer::{Aggregate, ReplyWriter};
use std::borrow::Cow;

/// A reply of any kind. Bytes are borrowed from the buffer where they were received.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply<'a> {
    /// `+`: a line of text.
    Simple(Cow<'a, [u8]>),
    /// `-`: a line that says what went wrong, its code first.
    Error(Cow<'a, [u8]>),
    /// `!`: an error that may contain line ends.
    BulkError(Cow<'a, [u8]>),
    /// `:`
    Integer(i64),
    /// `$`: any bytes.
    Bulk(Cow<'a, [u8]>),
    /// `_`, and in RESP2 a bulk string or an array of length -1.
    Null,
    /// `,`
    Double(f64),
    /// `#`
    Boolean(bool),
    /// `(`: an integer of any size, in decimal.
    BigNumber(Cow<'a, [u8]>),
    /// `=`: text for people.
    Verbatim {
        /// Three letters: `txt` or `mkd`.
        format: [u8; 3],
        /// The text.
        text: Cow<'a, [u8]>,
    },
    /// `*`
    Array(Vec<Reply<'a>>),
    /// `%`: pairs as sent.
    Map(Vec<(Reply<'a>, Reply<'a>)>),
    /// `~`: elements as sent.
    Set(Vec<Reply<'a>>),
    /// `>`: answers no command.
    Push(Vec<Reply<'a>>),
    /// `|`: pairs about a reply, in front of it.
    Attribute {
        /// What is said about the reply.
        pairs: Vec<(Reply<'a>, Reply<'a>)>,
        /// The reply itself.
        reply: Box<Reply<'a>>,
    },
}

impl Reply<'_> {
    /// The same reply, borrowing nothing.
    pub fn into_owned(self) -> Reply<'static> {
        fn owned(bytes: Cow<'_, [u8]>) -> Cow<'static, [u8]> {
            Cow::Owned(bytes.into_owned())
        }
        fn all(replies: Vec<Reply<'_>>) -> Vec<Reply<'static>> {
            replies.into_iter().map(Reply::into_owned).collect()
        }
        fn both(pairs: Vec<(Reply<'_>, Reply<'_>)>) -> Vec<(Reply<'static>, Reply<'static>)> {
            pairs.into_iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
        }
        match self {
            Self::Simple(text) => Reply::Simple(owned(text)),
            Self::Error(text) => Reply::Error(owned(text)),
            Self::BulkError(text) => Reply::BulkError(owned(text)),
            Self::Integer(value) => Reply::Integer(value),
            Self::Bulk(bytes) => Reply::Bulk(owned(bytes)),
            Self::Null => Reply::Null,
            Self::Double(value) => Reply::Double(value),
            Self::Boolean(value) => Reply::Boolean(value),
            Self::BigNumber(digits) => Reply::BigNumber(owned(digits)),
            Self::Verbatim { format, text } => Reply::Verbatim { format, text: owned(text) },
            Self::Array(elements) => Reply::Array(all(elements)),
            Self::Map(pairs) => Reply::Map(both(pairs)),
            Self::Set(elements) => Reply::Set(all(elements)),
            Self::Push(elements) => Reply::Push(all(elements)),
            Self::Attribute { pairs, reply } => {
                Reply::Attribute { pairs: both(pairs), reply: Box::new(reply.into_owned()) }
            }
        }
    }

    /// Writes this reply. In RESP3 it is read back as it was; in RESP2 as far as that goes.
    pub fn write(&self, writer: &mut ReplyWriter<'_>) {
        fn all(writer: &mut ReplyWriter<'_>, kind: Aggregate, replies: &[Reply<'_>]) {
            writer.aggregate(kind, replies.len());
            replies.iter().for_each(|reply| reply.write(writer));
        }
        fn both(writer: &mut ReplyWriter<'_>, pairs: &[(Reply<'_>, Reply<'_>)]) {
            for (key, value) in pairs {
                key.write(writer);
                value.write(writer);
            }
        }
        match self {
            Self::Simple(text) => writer.simple(text),
            Self::Error(text) => writer.error(text),
            Self::BulkError(text) => writer.bulk_error(text),
            Self::Integer(value) => writer.integer(*value),
            Self::Bulk(bytes) => writer.bulk(bytes),
            Self::Null => writer.null(),
            Self::Double(value) => writer.double(*value),
            Self::Boolean(value) => writer.boolean(*value),
            Self::BigNumber(digits) => writer.big_number(digits),
            Self::Verbatim { format, text } => writer.verbatim(*format, text),
            Self::Array(elements) => all(writer, Aggregate::Array, elements),
            Self::Set(elements) => all(writer, Aggregate::Set, elements),
            Self::Push(elements) => all(writer, Aggregate::Push, elements),
            Self::Map(pairs) => {
                writer.aggregate(Aggregate::Map, pairs.len());
                both(writer, pairs);
            }
            Self::Attribute { pairs, reply } => {
                writer.attribute(pairs.len(), |writer| both(writer, pairs));
                reply.write(writer);
            }
        }
    }
}
