//! Targets for the Redis protocol: requests as a server gets them, replies as a client does.
//!
//! Bytes are parsed at once and in pieces whose lengths they say themselves. Both must come to the
//! same, and what is announced must not take memory.

use terrace_resp::{
    Limits, MalformedReply, MalformedRequest, Protocol, Reply, ReplyParser, ReplyStep, ReplyWriter,
    RequestParser, Step, write_request,
};

/// The most that a length and its line end take.
const LENGTH_LINE: usize = 24;

/// Parses the bytes as requests, of a client and of one that has yet to authenticate.
pub fn request(data: &[u8]) -> bool {
    let check = |guest: bool| {
        let whole = requests(data, guest, usize::MAX);
        assert_eq!(requests(data, guest, 1), whole, "byte by byte");
        assert_eq!(requests(data, guest, 40), whole, "in pieces");
        whole.1.is_ok()
    };
    check(true) | check(false)
}

/// Parses the bytes as replies, and what they are written as again.
pub fn reply(data: &[u8]) -> bool {
    let whole = replies(data, usize::MAX);
    // As text: a double that is no number is not equal to itself.
    let shown = format!("{whole:?}");
    assert_eq!(format!("{:?}", replies(data, 1)), shown, "byte by byte");
    assert_eq!(format!("{:?}", replies(data, 40)), shown, "in pieces");
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut again = Vec::new();
        let mut writer = ReplyWriter::new(&mut again, protocol);
        whole.0.iter().for_each(|reply| reply.write(&mut writer));
        let again = replies(&again, usize::MAX);
        assert!(again.1.is_ok(), "{again:?}");
        assert_eq!(again.0.len(), whole.0.len());
        if protocol == Protocol::Resp3 {
            assert_eq!(format!("{:?}", again.0), format!("{:?}", whole.0));
        }
    }
    whole.1.is_ok()
}

/// Where the pieces of `data` end: 1 to `most` bytes each.
fn pieces(data: &[u8], most: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut end = 0;
    while let Some(byte) = data.get(end) {
        let piece = if most < data.len() { 1 + usize::from(*byte) % most } else { data.len() };
        end = data.len().min(end + piece);
        ends.push(end);
    }
    ends
}

type Requests = (Vec<Vec<Vec<u8>>>, Result<(), MalformedRequest>);

fn requests(data: &[u8], guest: bool, piece: usize) -> Requests {
    let (limits, mut parser) = match guest {
        true => (Limits::GUEST, RequestParser::for_guest(Limits::default())),
        false => (Limits::default(), RequestParser::new(Limits::default())),
    };
    // Unquoting changes the buffer: every run has its own.
    let mut buf = data.to_vec();
    let (mut at, mut commands) = (0, Vec::new());
    for end in pieces(data, piece) {
        loop {
            match parser.next(&mut buf[at..end]) {
                Ok(Step::Command(command)) => {
                    assert!(command.bytes() <= end - at && command.count() > 0);
                    assert!(command.count() <= limits.elements);
                    commands.push(command.iter().map(<[u8]>::to_vec).collect());
                    at += command.bytes();
                }
                Ok(Step::Blank { bytes }) => {
                    assert!(0 < bytes && bytes <= end - at);
                    at += bytes;
                }
                Ok(Step::Incomplete { missing }) => {
                    assert!(0 < missing && missing <= limits.bulk_bytes + 2);
                    assert!(end - at + missing <= limits.message_bytes + LENGTH_LINE);
                    break;
                }
                Err(error) => return (commands, Err(error)),
            }
        }
        assert!(parser.held_bytes() <= 8192 + 4 * data.len(), "{} held", parser.held_bytes());
    }
    (commands, Ok(()))
}

type Replies<'a> = (Vec<Reply<'a>>, Result<(), MalformedReply>);

fn replies(data: &[u8], piece: usize) -> Replies<'_> {
    let mut parser = ReplyParser::new(Limits::default());
    let (mut at, mut replies) = (0, Vec::new());
    for end in pieces(data, piece) {
        loop {
            match parser.next(&data[at..end]) {
                Ok(ReplyStep::Frame(frame)) => {
                    at += frame.bytes().len();
                    replies.push(frame.decode().expect("a frame that is none"));
                }
                Ok(ReplyStep::Incomplete { missing }) => {
                    assert!(0 < missing && missing <= Limits::default().bulk_bytes + 2);
                    break;
                }
                Err(error) => return (replies, Err(error)),
            }
        }
        assert!(parser.held_bytes() <= 512);
    }
    (replies, Ok(()))
}

/// Pipelines, inline requests, and requests that ask for nothing.
pub fn request_seeds() -> Vec<Vec<u8>> {
    let mut pipeline = Vec::new();
    write_request(&mut pipeline, &["SET", "key", "value"]);
    write_request(&mut pipeline, &["GET", ""]);
    write_request(&mut pipeline, &["MSET", "a", "1", "b", "2", "c", "3"]);
    let mut large = Vec::new();
    write_request(&mut large, &["SET", "key", &"x".repeat(3000)]);
    let mut many = Vec::new();
    write_request(&mut many, &["DEL"; 300]);
    vec![
        pipeline,
        large,
        many,
        b"PING\r\n\r\n  \nset \"a \\x00\\n\\\"\" 'it\\'s' pre\"fix\"\n*0\r\n*-1\r\n*1\r\n$4\r\nQUIT\r\n".to_vec(),
        b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$536870912\r\nfirst".to_vec(),
    ]
}

/// Every kind of reply, alone and within others.
pub fn reply_seeds() -> Vec<Vec<u8>> {
    let leaves =
        b"+OK\r\n-ERR no\r\n:-42\r\n$5\r\nhello\r\n$0\r\n\r\n$-1\r\n*-1\r\n_\r\n,1.5e-7\r\n\
        ,-inf\r\n,nan\r\n#t\r\n#f\r\n(-3492890328409238509324850943850943825024385\r\n\
        !8\r\nERR a\r\nb\r\n=8\r\ntxt:text\r\n";
    vec![
        leaves.to_vec(),
        b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n*0\r\n%1\r\n+k\r\n~2\r\n:1\r\n:2\r\n".to_vec(),
        b"|1\r\n+ttl\r\n:9\r\n*1\r\n|1\r\n+x\r\n_\r\n+y\r\n>2\r\n$7\r\nmessage\r\n,3\r\n".to_vec(),
        b"*1\r\n".repeat(31),
        [&b"*1000\r\n$536870912\r\n"[..], &[b'x'; 500]].concat(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::mutant;
    use terrace_base::SplitMix64;

    /// Who sends it, the bytes, the error: see the head of the file.
    const MALFORMED: &str = include_str!("../../crates/resp/tests/malformed.txt");

    #[test]
    fn malformed_inputs_are_refused_and_their_mutants_do_no_harm() {
        let mut lines: Vec<_> = MALFORMED.lines().map(|line| format!("{line}\n")).collect();
        lines.retain(|line| !line.starts_with(['#', '\n']));
        assert!(lines.len() > 80);
        for (at, line) in lines.into_iter().enumerate() {
            let (entries, end) = requests(line.as_bytes(), false, usize::MAX);
            assert!(end.is_ok(), "{line}");
            let [who, bytes, _] = &entries[0][..] else { panic!("{line}") };
            let target = match &who[..] {
                b"server" => reply,
                b"client" => request,
                _ => |data: &[u8]| requests(data, true, usize::MAX).1.is_ok(),
            };
            assert!(!target(bytes), "{line}");
            for seed in 0..30 {
                let input = mutant(
                    &mut SplitMix64::new(at as u64 * 100 + seed),
                    std::slice::from_ref(bytes),
                );
                target(&input);
            }
        }
    }
}
