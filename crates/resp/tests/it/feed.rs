//! Streams fed to the parsers in pieces, with every promise about pieces checked on the way.

use terrace_resp::{
    Limits, MalformedReply, MalformedRequest, Reply, ReplyParser, ReplyStep, RequestParser, Step,
};

/// The most a length and its line end take.
const LENGTH_LINE: usize = 24;

/// The arguments of each command, and how the stream ended.
pub type Requests = (Vec<Vec<Vec<u8>>>, Result<(), MalformedRequest>);

/// Feeds `stream`, the pieces ending at `cuts` and where the stream ends.
pub fn requests(
    mut parser: RequestParser,
    limits: Limits,
    stream: &[u8],
    cuts: &[usize],
) -> Requests {
    let (mut buf, mut commands) = (Vec::new(), Vec::new());
    let (mut fed, mut due) = (0, 0);
    for cut in cuts.iter().copied().chain([stream.len()]) {
        let cut = cut.clamp(fed, stream.len());
        buf.extend_from_slice(&stream[fed..cut]);
        let arrived = cut - fed;
        fed = cut;
        let mut at = 0;
        loop {
            let step = match parser.next(&mut buf[at..]) {
                Ok(step) => step,
                Err(error) => {
                    assert!(arrived >= due, "an error {due} bytes early");
                    return (commands, Err(error));
                }
            };
            if let Step::Incomplete { missing } = step {
                if at == 0 && arrived < due {
                    assert_eq!(missing, due - arrived, "what is missing changed");
                }
                assert!(missing > 0);
                let waiting = buf.len() - at;
                assert!(
                    waiting + missing <= limits.message_bytes.max(limits.line_bytes) + LENGTH_LINE
                );
                due = missing;
                break;
            }
            assert!(at > 0 || arrived >= due, "a step {due} bytes early");
            due = 0;
            let bytes = match step {
                Step::Command(command) => {
                    let arguments: Vec<_> = command.iter().map(<[u8]>::to_vec).collect();
                    assert_eq!(command.count(), arguments.len());
                    assert!(command.range(command.count() - 1).unwrap().end < command.bytes());
                    commands.push(arguments);
                    command.bytes()
                }
                Step::Blank { bytes } => bytes,
                Step::Incomplete { .. } => unreachable!(),
            };
            assert!(bytes > 0);
            at += bytes;
        }
        buf.drain(..at);
        let arguments = (buf.len() / 6).max(1).next_power_of_two().max(4);
        assert!(parser.held_bytes() <= 8 * arguments.max(1024), "{}", parser.held_bytes());
    }
    (commands, Ok(()))
}

/// Each reply, and how the stream ended.
pub type Replies = (Vec<Reply<'static>>, Result<(), MalformedReply>);

/// As [`requests`].
pub fn replies(limits: Limits, stream: &[u8], cuts: &[usize]) -> Replies {
    let mut parser = ReplyParser::new(limits);
    let (mut fed, mut at, mut due, mut replies) = (0, 0, 0, Vec::new());
    for cut in cuts.iter().copied().chain([stream.len()]) {
        fed = cut.clamp(fed, stream.len());
        loop {
            match parser.next(&stream[at..fed]) {
                Ok(ReplyStep::Frame(frame)) => {
                    assert!(fed >= due, "a reply {due} bytes early");
                    assert_eq!(frame.bytes(), &stream[at..at + frame.bytes().len()]);
                    let reply = frame.decode().unwrap();
                    let held = held_bytes(&reply);
                    assert!(held <= 14 * frame.bytes().len(), "{held}: {reply:?}");
                    replies.push(reply.into_owned());
                    at += frame.bytes().len();
                }
                Ok(ReplyStep::Incomplete { missing }) => {
                    assert!(missing > 0);
                    assert!(fed >= due || fed + missing == due, "what is missing changed");
                    assert!(
                        fed - at + missing
                            <= limits.message_bytes + limits.line_bytes.max(LENGTH_LINE) + 3
                    );
                    due = fed + missing;
                    break;
                }
                Err(error) => {
                    assert!(fed >= due, "an error {due} bytes early");
                    return (replies, Err(error));
                }
            }
        }
        assert!(parser.held_bytes() <= 8 * limits.depth.next_power_of_two().max(4));
    }
    (replies, Ok(()))
}

/// Memory that `reply` holds beside itself and the bytes it borrows.
pub fn held_bytes(reply: &Reply<'_>) -> usize {
    let pairs = |pairs: &Vec<(Reply<'_>, Reply<'_>)>| {
        let within: usize =
            pairs.iter().map(|(key, value)| held_bytes(key) + held_bytes(value)).sum();
        within + 2 * pairs.capacity() * size_of::<Reply<'_>>()
    };
    match reply {
        Reply::Array(elements) | Reply::Set(elements) | Reply::Push(elements) => {
            let within: usize = elements.iter().map(held_bytes).sum();
            within + elements.capacity() * size_of::<Reply<'_>>()
        }
        Reply::Map(map) => pairs(map),
        Reply::Attribute { pairs: about, reply } => {
            pairs(about) + held_bytes(reply) + size_of::<Reply<'_>>()
        }
        _ => 0,
    }
}
