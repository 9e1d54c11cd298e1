//! A published parser (`redis-protocol`) agrees: on what is written, on what is read, and, for
//! requests, on which bytes are one. It is laxer in places, which are named where they matter.

use crate::feed;
use crate::replies::{replies, written};
use crate::requests::{commands, near_misses};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use redis_protocol::resp2;
use redis_protocol::resp3::decode::complete;
use redis_protocol::resp3::types::{OwnedFrame, VerbatimStringFormat};
use terrace_resp::{Limits, Protocol, Reply, RequestParser, Step, write_request};

/// The arguments, if the frame is a request.
fn arguments(frame: &resp2::types::OwnedFrame) -> Option<Vec<Vec<u8>>> {
    let resp2::types::OwnedFrame::Array(elements) = frame else { return None };
    let argument = |element: &resp2::types::OwnedFrame| match element {
        resp2::types::OwnedFrame::BulkString(bytes) => Some(bytes.clone()),
        _ => None,
    };
    elements.iter().map(argument).collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
}

/// The bytes that the frame would be sent as.
fn encoded(frame: &resp2::types::OwnedFrame) -> Vec<u8> {
    let mut buf = vec![0; 1 << 16];
    let len = resp2::encode::encode(&mut buf, frame, false).unwrap();
    buf.truncate(len);
    buf
}

/// Whether the two are the same reply.
fn same(reply: &Reply<'_>, frame: &OwnedFrame) -> bool {
    let all = |replies: &[Reply<'_>], frames: &[OwnedFrame]| {
        replies.len() == frames.len() && replies.iter().zip(frames).all(|(a, b)| same(a, b))
    };
    match (reply, frame) {
        (Reply::Simple(text), OwnedFrame::SimpleString { data, .. }) => text[..] == data[..],
        (Reply::Error(text), OwnedFrame::SimpleError { data, .. }) => text[..] == *data.as_bytes(),
        (Reply::BulkError(text), OwnedFrame::BlobError { data, .. }) => text[..] == data[..],
        (Reply::Integer(value), OwnedFrame::Number { data, .. }) => value == data,
        (Reply::Bulk(bytes), OwnedFrame::BlobString { data, .. }) => bytes[..] == data[..],
        (Reply::Null, OwnedFrame::Null) => true,
        (Reply::Double(value), OwnedFrame::Double { data, .. }) => {
            value.to_bits() == data.to_bits() || value.is_nan() && data.is_nan()
        }
        (Reply::Boolean(value), OwnedFrame::Boolean { data, .. }) => value == data,
        (Reply::BigNumber(digits), OwnedFrame::BigNumber { data, .. }) => digits[..] == data[..],
        (
            Reply::Verbatim { format, text },
            OwnedFrame::VerbatimString { data, format: theirs, .. },
        ) => {
            let theirs = if *theirs == VerbatimStringFormat::Text { b"txt" } else { b"mkd" };
            format == theirs && text[..] == data[..]
        }
        (Reply::Array(elements), OwnedFrame::Array { data, .. })
        | (Reply::Push(elements), OwnedFrame::Push { data, .. }) => all(elements, data),
        // It keeps one of equal keys and elements.
        (Reply::Set(elements), OwnedFrame::Set { data, .. }) => {
            data.len() <= elements.len()
                && elements.iter().all(|element| data.iter().any(|frame| same_key(element, frame)))
        }
        (Reply::Map(pairs), OwnedFrame::Map { data, .. }) => {
            data.len() <= pairs.len()
                && pairs.iter().all(|(key, _)| data.iter().any(|(frame, _)| same_key(key, frame)))
                && data.iter().all(|(theirs, value)| {
                    pairs.iter().any(|(ours, reply)| same_key(ours, theirs) && same(reply, value))
                })
        }
        _ => false,
    }
}

/// Whether the two are the same key of a map, or element of a set: the two zeros are equal there, and it keeps one of
/// them where its hashes of them fall together.
fn same_key(reply: &Reply<'_>, frame: &OwnedFrame) -> bool {
    match (reply, frame) {
        (Reply::Double(value), OwnedFrame::Double { data, .. }) if *value == 0.0 => *data == 0.0,
        _ => same(reply, frame),
    }
}

/// Whether the oracle has no word for it: attributes (it drops them), aggregates as keys, errors
/// that are no UTF-8, formats but two.
fn beyond_oracle(reply: &Reply<'_>) -> bool {
    let key = |key: &Reply<'_>| {
        matches!(key, Reply::Array(_) | Reply::Map(_) | Reply::Set(_) | Reply::Push(_))
    };
    match reply {
        Reply::Attribute { .. } => true,
        Reply::Error(text) => std::str::from_utf8(text).is_err(),
        Reply::Verbatim { format, .. } => !matches!(format, b"txt" | b"mkd"),
        Reply::Array(elements) | Reply::Push(elements) => elements.iter().any(beyond_oracle),
        Reply::Set(elements) => {
            elements.iter().any(|element| key(element) || beyond_oracle(element))
        }
        Reply::Map(pairs) => {
            pairs.iter().any(|(k, value)| key(k) || beyond_oracle(k) || beyond_oracle(value))
        }
        _ => false,
    }
}

#[test]
fn the_two_zeros_are_one_key_of_the_oracle() {
    let zero = |data| OwnedFrame::Double { data, attributes: None };
    // Whether it keeps both depends on its hashes, which differ from process to process.
    assert!(zero(0.0) == zero(-0.0));
    let elements = vec![Reply::Double(0.0), Reply::Double(-0.0)];
    let kept = |data: Vec<OwnedFrame>| OwnedFrame::Set {
        data: data.into_iter().collect(),
        attributes: None,
    };
    for frame in [kept(vec![zero(0.0)]), kept(vec![zero(-0.0)]), kept(vec![zero(0.0), zero(-0.0)])]
    {
        assert!(same(&Reply::Set(elements.clone()), &frame));
    }
    assert!(!same(&Reply::Set(elements), &kept(vec![zero(1.0)])));
    assert!(!same(&Reply::Double(0.0), &zero(-0.0)));
}

proptest! {
    #[test]
    fn requests_are_written_alike(commands in commands()) {
        for command in commands {
            let frame = command.iter().cloned().map(resp2::types::OwnedFrame::BulkString);
            let frame = resp2::types::OwnedFrame::Array(frame.collect());
            let mut ours = Vec::new();
            write_request(&mut ours, &command);
            prop_assert_eq!(ours, encoded(&frame));
        }
    }

    /// What is a request here is one there; and what is one there, as it would be written, is one
    /// here.
    #[test]
    fn requests_are_read_alike(bytes in near_misses(commands().prop_map(|commands| {
        let mut bytes = Vec::new();
        write_request(&mut bytes, &commands[0]);
        bytes
    }))) {
        prop_assume!(bytes.starts_with(b"*"));
        let theirs = resp2::decode::decode(&bytes).ok().flatten();
        let theirs = theirs.and_then(|(frame, len)| Some((arguments(&frame)?, len, encoded(&frame))));
        let mut buf = bytes.clone();
        let mut parser = RequestParser::new(Limits::default());
        match parser.next(&mut buf) {
            Ok(Step::Command(command)) => {
                let (arguments, len, _) = theirs.expect("a request here and none there");
                prop_assert_eq!(command.bytes(), len);
                prop_assert!(command.iter().eq(arguments.iter().map(Vec::as_slice)));
            }
            _ => {
                if let Some((_, len, canonical)) = theirs {
                    prop_assert_ne!(&bytes[..len], &canonical[..], "a request there and none here");
                }
            }
        }
    }

    #[test]
    fn replies_are_read_alike(bytes in near_replies()) {
        let Some(reply) = comparable(&bytes) else { return Ok(()) };
        let frame = complete::decode(&bytes).ok().flatten();
        let (frame, _) = frame.expect("a reply here and none there");
        prop_assert!(same(&reply, &frame), "{:?} {:?}", reply, frame);
    }
}

/// The reply at the front of `bytes`, if there is one that the oracle has words for.
fn comparable(bytes: &[u8]) -> Option<Reply<'static>> {
    // It takes a length of -1 for a stream.
    let old_null = bytes.windows(3).any(|three| three == b"$-1" || three == b"*-1");
    let reply = feed::replies(Limits::default(), bytes, &[]).0.into_iter().next()?;
    (!old_null && !beyond_oracle(&reply)).then_some(reply)
}

fn near_replies() -> impl Strategy<Value = Vec<u8>> {
    let sound = || replies().prop_map(|reply| written(&[within_oracle(reply)], Protocol::Resp3));
    prop_oneof![sound(), near_misses(sound())]
}

/// The reply without what [`beyond_oracle`] finds.
fn within_oracle(reply: Reply<'static>) -> Reply<'static> {
    let all = |replies: Vec<Reply<'static>>| -> Vec<Reply<'static>> {
        replies.into_iter().map(within_oracle).collect()
    };
    let key = |key: Reply<'static>| match key {
        Reply::Array(_) | Reply::Map(_) | Reply::Set(_) | Reply::Push(_) => Reply::Boolean(true),
        key => key,
    };
    match reply {
        Reply::Attribute { reply, .. } => within_oracle(*reply),
        Reply::Error(text) => Reply::Error(text.escape_ascii().to_string().into_bytes().into()),
        Reply::Array(elements) => Reply::Array(all(elements)),
        Reply::Push(elements) => Reply::Push(all(elements)),
        Reply::Set(elements) => Reply::Set(all(elements).into_iter().map(key).collect()),
        Reply::Map(pairs) => {
            let pairs = pairs.into_iter();
            Reply::Map(pairs.map(|(k, v)| (key(within_oracle(k)), within_oracle(v))).collect())
        }
        leaf => leaf,
    }
}

#[test]
fn the_oracle_is_asked_often_enough() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = near_replies();
    let mut bytes = || strategy.new_tree(&mut runner).unwrap().current();
    let asked = (0..500).filter(|_| comparable(&bytes()).is_some()).count();
    assert!(asked > 200, "{asked} of 500");
}
