//! The Redis serialization protocol, RESP2 and RESP3: requests and replies, both directions, pure.
//!
//! ```text
//! request   *<count>\r\n then <count> times $<bytes>\r\n…\r\n    or one line of words (inline)
//! reply     + simple   - error   : integer   $ bulk   * array           RESP2 and RESP3
//!           _ null   , double   # boolean   ( big number   ! bulk error
//!           = verbatim   % map   ~ set   > push   | attribute            RESP3 only
//! ```
//! A server feeds [`RequestParser`] with whatever has arrived and answers through [`ReplyWriter`]; a
//! client writes with [`write_request`] and reads with [`ReplyParser`].
//!
//! Bytes from the network are not trusted. Both parsers take any split of a stream and give the
//! same commands, replies and errors for every split; a declared length is compared with [`Limits`]
//! before anybody may reserve memory for it; an error is final, the connection ends with it.
//!
//! The specification is Redis's "RESP protocol spec"; texts of errors, the rules of inline requests
//! and the format of doubles are those of Redis 7.2. Where this crate is stricter, [`RequestParser`]
//! says so.
//!
//! Floor 1: uses no other crate of the workspace, does no I/O but for the client of the feature
//! `test-client`.

#![forbid(unsafe_code)]

mod inline;
mod limits;
mod number;
mod reply;
mod reply_parser;
mod request;
mod span;
#[cfg(feature = "test-client")]
pub mod test_client;
mod writer;

pub use limits::Limits;
pub use number::{append_double, append_integer, parse_integer};
pub use reply::Reply;
pub use reply_parser::{Frame, MalformedReply, ReplyParser, ReplyStep};
pub use request::{Command, MalformedRequest, OwnedCommand, RequestParser, Step, write_request};
pub use writer::{Aggregate, Deferred, ReplyWriter};

/// Which version of the protocol replies are written in. Requests are the same in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// What a connection starts with.
    #[default]
    Resp2,
    /// What `HELLO 3` changes to.
    Resp3,
}
