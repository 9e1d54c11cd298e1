//! Requests: any command in any pieces is itself; limits change when a connection is admitted.

use crate::feed;
use proptest::collection::vec;
use proptest::prelude::*;
use terrace_resp::{Limits, RequestParser, Step, write_request};

fn parser() -> RequestParser {
    RequestParser::new(Limits::default())
}

/// Commands of arguments that look like the protocol often enough.
pub fn commands() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let argument = prop_oneof![
        4 => vec(any::<u8>(), 0..20),
        1 => vec(prop::sample::select(&b"*$\r\n0123-\"' "[..]), 0..8),
        1 => vec(any::<u8>(), 90..1200),
    ];
    vec(vec(argument, 1..8), 1..12)
}

/// Where a stream is cut: anywhere, in order.
pub fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![vec(0..400usize, 0..30), vec(0..6000usize, 0..30), Just((0..3000).collect())]
        .prop_map(|mut cuts: Vec<usize>| {
            cuts.sort_unstable();
            cuts
        })
}

/// Bytes that are nearly requests, or nearly replies.
pub fn near_misses(sound: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let alphabet = &b"*$+-:_,#(!=%~>|\r\n0123456789\"'\\x \0tf"[..];
    let edit = (any::<prop::sample::Index>(), 0..4u8, prop::sample::select(alphabet));
    let edited = (sound, vec(edit, 0..4)).prop_map(|(mut bytes, edits)| {
        for (place, what, byte) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = place.index(bytes.len());
            match what {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes.truncate(at),
            }
        }
        bytes
    });
    prop_oneof![
        4 => edited,
        1 => vec(any::<u8>(), 0..200),
        2 => vec(prop::sample::select(alphabet), 0..40),
    ]
}

proptest! {
    #[test]
    fn commands_in_any_pieces_are_themselves(commands in commands(), cuts in cuts()) {
        let mut stream = Vec::new();
        for command in &commands {
            write_request(&mut stream, command);
        }
        let limits = Limits::default();
        prop_assert_eq!(feed::requests(parser(), limits, &stream, &cuts), (commands, Ok(())));
    }

    #[test]
    fn quoted_words_in_any_pieces_are_themselves(
        words in vec(vec(any::<u8>(), 0..12), 1..6), double in any::<bool>(), cuts in cuts(),
    ) {
        let mut line = Vec::new();
        for word in &words {
            line.extend_from_slice(if double { b" \"" } else { b"\t'" });
            for byte in word {
                match (double, byte) {
                    (true, _) => line.extend(format!("\\x{byte:02X}").bytes()),
                    (false, b'\'') => line.extend_from_slice(b"\\'"),
                    // Single quotes have no escape for these.
                    (false, 0 | b'\n' | b'\\') => line.push(b'.'),
                    (false, _) => line.push(*byte),
                }
            }
            line.push(if double { b'"' } else { b'\'' });
        }
        line.extend_from_slice(b" \r\nPING\n");
        let mut words = words;
        if !double {
            for byte in words.iter_mut().flatten().filter(|byte| matches!(byte, 0 | b'\n' | b'\\')) {
                *byte = b'.';
            }
        }
        let expected = vec![words, vec![b"PING".to_vec()]];
        prop_assert_eq!(feed::requests(parser(), Limits::default(), &line, &cuts), (expected, Ok(())));
    }

    #[test]
    fn pieces_change_nothing_whatever_the_bytes(
        stream in near_misses(commands().prop_map(|commands| {
            let mut stream = b"PING \"a\\x41\"\r\n\r\n*0\r\n".to_vec();
            commands.iter().for_each(|command| write_request(&mut stream, command));
            stream
        })),
        cuts in cuts(),
        guest in any::<bool>(),
    ) {
        let (limits, make): (_, fn(Limits) -> RequestParser) = match guest {
            true => (Limits::GUEST, RequestParser::for_guest),
            false => (Limits::default(), RequestParser::new),
        };
        let whole = feed::requests(make(Limits::default()), limits, &stream, &[]);
        prop_assert_eq!(feed::requests(make(Limits::default()), limits, &stream, &cuts), whole);
    }
}

#[test]
fn what_is_missing_of_an_argument_is_known_exactly() {
    let mut parser = parser();
    let mut missing = |bytes: &[u8]| match parser.next(&mut bytes.to_vec()) {
        Ok(Step::Incomplete { missing }) => missing,
        other => panic!("{other:?}"),
    };
    assert_eq!(missing(b""), 1);
    assert_eq!(missing(b"*2\r\n$3\r\nGET\r\n$536870912"), 1);
    assert_eq!(missing(b"*2\r\n$3\r\nGET\r\n$536870912\r\n"), 536870914);
    assert_eq!(missing(b"*2\r\n$3\r\nGET\r\n$536870912\r\nabc"), 536870911);
}

#[test]
fn blank_requests_are_passed_over() {
    let stream = b"\r\n\n*0\r\n*-1\r\n*-9223372036854775808\r\n \t \r\nPING\r\n";
    let (commands, end) = feed::requests(parser(), Limits::default(), stream, &[]);
    assert_eq!((commands, end), (vec![vec![b"PING".to_vec()]], Ok(())));
}

#[test]
fn a_guest_that_is_admitted_may_send_more_in_the_same_buffer() {
    let mut parser = RequestParser::for_guest(Limits::default());
    let mut buf = b"AUTH secret\r\n*2\r\n$4\r\nECHO\r\n$20000\r\n".to_vec();
    let Ok(Step::Command(auth)) = parser.next(&mut buf) else { panic!() };
    assert_eq!((auth.name(), auth.get(1), auth.get(2)), (&b"AUTH"[..], Some(&b"secret"[..]), None));
    let at = auth.bytes();
    let before = parser.next(&mut buf[at..]).unwrap_err().to_string();
    assert_eq!(before, "Protocol error: unauthenticated bulk length");
    parser.admit();
    assert!(matches!(parser.next(&mut buf[at..]), Ok(Step::Incomplete { missing: 20002 })));
}

#[test]
fn limits_change_while_a_connection_lives() {
    let ask = |limits: Limits, guest: bool, bytes: &[u8]| {
        let mut parser = RequestParser::for_guest(Limits::default());
        parser.set_limits(limits);
        if !guest {
            parser.admit();
        }
        parser.next(&mut bytes.to_vec()).map(|_| ()).map_err(|error| error.to_string())
    };
    let wide = Limits { elements: 100, ..Limits::default() };
    let narrow = Limits { elements: 2, bulk_bytes: 3, ..wide };
    assert!(ask(wide, true, b"*10\r\n").is_ok());
    assert!(ask(wide, true, b"*11\r\n").is_err(), "still a guest");
    assert!(ask(wide, false, b"*100\r\n").is_ok());
    assert!(ask(wide, false, b"*101\r\n").is_err());
    for guest in [true, false] {
        let count = ask(narrow, guest, b"*3\r\n").unwrap_err();
        assert!(count.ends_with("invalid multibulk length"));
        let len = ask(narrow, guest, b"*2\r\n$4\r\n").unwrap_err();
        assert!(len.ends_with("invalid bulk length"));
    }
}
