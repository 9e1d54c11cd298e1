//! Replies: written and read back, in RESP3 as they were, in RESP2 as far as that goes.

use crate::feed;
use crate::requests::{cuts, near_misses};
use proptest::collection::vec;
use proptest::prelude::*;
use terrace_resp::{Limits, Protocol, Reply, ReplyWriter};

pub fn line() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>().prop_filter("a line", |byte| !matches!(byte, b'\r' | b'\n')), 0..30)
}

fn leaf() -> impl Strategy<Value = Reply<'static>> {
    prop_oneof![
        line().prop_map(|text| Reply::Simple(text.into())),
        line().prop_map(|text| Reply::Error(text.into())),
        vec(any::<u8>(), 0..200).prop_map(|text| Reply::BulkError(text.into())),
        any::<i64>().prop_map(Reply::Integer),
        vec(any::<u8>(), 0..200).prop_map(|bytes| Reply::Bulk(bytes.into())),
        Just(Reply::Null),
        any::<f64>()
            .prop_filter("equal to itself", |value| !value.is_nan())
            .prop_map(Reply::Double),
        Just(Reply::Double(f64::INFINITY)),
        any::<bool>().prop_map(Reply::Boolean),
        "[-+]?[0-9]{1,40}".prop_map(|digits| Reply::BigNumber(digits.into_bytes().into())),
        (prop_oneof![Just(*b"txt"), Just(*b"mkd")], vec(any::<u8>(), 0..40))
            .prop_map(|(format, text)| Reply::Verbatim { format, text: text.into() }),
    ]
}

/// Replies of every kind, up to five deep.
pub fn replies() -> impl Strategy<Value = Reply<'static>> {
    leaf().prop_recursive(4, 60, 8, |inner| {
        let pairs = || vec((inner.clone(), inner.clone()), 0..12);
        prop_oneof![
            vec(inner.clone(), 0..12).prop_map(Reply::Array),
            vec(inner.clone(), 0..12).prop_map(Reply::Set),
            vec(inner.clone(), 0..12).prop_map(Reply::Push),
            pairs().prop_map(Reply::Map),
            (pairs(), inner.clone())
                .prop_map(|(pairs, reply)| Reply::Attribute { pairs, reply: Box::new(reply) }),
        ]
    })
}

pub fn written(replies: &[Reply<'_>], protocol: Protocol) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = ReplyWriter::new(&mut out, protocol);
    replies.iter().for_each(|reply| reply.write(&mut writer));
    out
}

/// What is left of a reply in RESP2.
fn downgraded(reply: Reply<'static>) -> Reply<'static> {
    let all = |replies: Vec<Reply<'static>>| replies.into_iter().map(downgraded).collect();
    match reply {
        Reply::BulkError(text) => {
            let blank = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
            Reply::Error(text.iter().map(blank).collect())
        }
        Reply::Double(value) => {
            let mut text = Vec::new();
            terrace_resp::append_double(&mut text, value);
            Reply::Bulk(text.into())
        }
        Reply::Boolean(value) => Reply::Integer(value.into()),
        Reply::BigNumber(digits) => Reply::Bulk(digits),
        Reply::Verbatim { text, .. } => Reply::Bulk(text),
        Reply::Array(elements) | Reply::Set(elements) | Reply::Push(elements) => {
            Reply::Array(all(elements))
        }
        Reply::Map(pairs) => {
            Reply::Array(all(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()))
        }
        Reply::Attribute { reply, .. } => downgraded(*reply),
        same => same,
    }
}

proptest! {
    #[test]
    fn replies_in_any_pieces_are_themselves(replies in vec(replies(), 1..4), cuts in cuts()) {
        let stream = written(&replies, Protocol::Resp3);
        prop_assert_eq!(feed::replies(Limits::default(), &stream, &cuts), (replies, Ok(())));
    }

    #[test]
    fn replies_in_resp2_keep_their_content(replies in vec(replies(), 1..4)) {
        let stream = written(&replies, Protocol::Resp2);
        let expected: Vec<_> = replies.into_iter().map(downgraded).collect();
        prop_assert_eq!(feed::replies(Limits::default(), &stream, &[]), (expected, Ok(())));
    }

    #[test]
    fn pieces_change_nothing_whatever_the_bytes(
        stream in near_misses(vec(replies(), 1..3).prop_map(|replies| written(&replies, Protocol::Resp3))),
        cuts in cuts(),
        tight in any::<bool>(),
    ) {
        let limits = match tight {
            true => Limits { elements: 5, bulk_bytes: 50, message_bytes: 120, line_bytes: 20, depth: 2 },
            false => Limits::default(),
        };
        // Compared as text: a double that is no number is not equal to itself.
        let (whole, pieces) = (feed::replies(limits, &stream, &[]), feed::replies(limits, &stream, &cuts));
        prop_assert_eq!(format!("{pieces:?}"), format!("{whole:?}"));
    }
}

#[test]
fn both_spellings_of_nothing_are_null() {
    let (replies, end) = feed::replies(Limits::default(), b"$-1\r\n*-1\r\n_\r\n*1\r\n$-1\r\n", &[]);
    let null = || Reply::Null;
    assert_eq!((replies, end), (vec![null(), null(), null(), Reply::Array(vec![null()])], Ok(())));
}

#[test]
fn errors_are_known_before_they_are_decoded() {
    for (bytes, is_error) in
        [(&b"-ERR no\r\n"[..], true), (b"!2\r\nno\r\n", true), (b"+OK\r\n", false)]
    {
        let mut parser = terrace_resp::ReplyParser::new(Limits::default());
        let Ok(terrace_resp::ReplyStep::Frame(frame)) = parser.next(bytes) else { panic!() };
        assert_eq!(frame.is_error(), is_error);
    }
}
