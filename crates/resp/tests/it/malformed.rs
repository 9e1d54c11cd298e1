//! Every error has its text, and every split of the bytes comes to it.

use crate::feed;
use terrace_resp::{Limits, ReplyParser, RequestParser, Step};

const CORPUS: &str = include_str!("../malformed.txt");

/// Who sends it, the bytes, the error.
fn corpus() -> Vec<[Vec<u8>; 3]> {
    let mut parser = RequestParser::new(Limits::default());
    let lines = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.map(|line| {
        let mut line = format!("{line}\n").into_bytes();
        match parser.next(&mut line) {
            Ok(Step::Command(entry)) if entry.count() == 3 => {
                [0, 1, 2].map(|at| entry.get(at).unwrap().to_vec())
            }
            other => panic!("{other:?}"),
        }
    });
    entries.collect()
}

/// The error that `who` gets for `bytes`, fed at once or byte by byte.
fn refusals(who: &[u8], bytes: &[u8]) -> [String; 2] {
    let limits = Limits::default();
    let single: Vec<usize> = (0..bytes.len()).collect();
    [&[][..], &single].map(|cuts| match who {
        b"client" => feed::requests(RequestParser::new(limits), limits, bytes, cuts)
            .1
            .unwrap_err()
            .to_string(),
        b"guest" => feed::requests(RequestParser::for_guest(limits), Limits::GUEST, bytes, cuts)
            .1
            .unwrap_err()
            .to_string(),
        _ => feed::replies(limits, bytes, cuts).1.unwrap_err().to_string(),
    })
}

#[test]
fn the_corpus_is_refused_in_its_words() {
    let corpus = corpus();
    assert!(corpus.len() > 80);
    for [who, bytes, expected] in corpus {
        let shown = bytes.escape_ascii().to_string();
        let expected = String::from_utf8(expected).unwrap();
        assert_eq!(refusals(&who, &bytes), [expected.as_str(); 2], "{shown}");
    }
}

#[test]
fn lines_are_as_long_as_allowed_and_no_longer() {
    let text = "Protocol error: too big inline request".to_string();
    for (who, most) in [(&b"client"[..], 64 << 10), (b"guest", 16 << 10)] {
        let line = vec![b'A'; most + 1];
        assert_eq!(refusals(who, &line), [&text, &text].map(String::clone));
        let ended = [&line[..], b"\r\nPING\r\n"].concat();
        assert_eq!(refusals(who, &ended), [&text, &text].map(String::clone));
        let mut parser = RequestParser::for_guest(Limits::default());
        if who == b"client" {
            parser.admit();
        }
        let mut fits = [&line[2..], b"\r\n"].concat();
        assert!(matches!(parser.next(&mut fits), Ok(Step::Command(_))));
    }
    let text = "malformed reply: line too long".to_string();
    let line = [b"+", &vec![b'A'; (64 << 10) + 1][..]].concat();
    assert_eq!(refusals(b"server", &line), [&text, &text].map(String::clone));
    let fits = [&line[1..], b"\r\n"].concat();
    let fits = [b"+", &fits[1..]].concat();
    assert_eq!(feed::replies(Limits::default(), &fits, &[]).0.len(), 1);
}

#[test]
fn whole_messages_are_as_long_as_allowed_and_no_longer() {
    // 10 arguments of 16 KiB are each allowed to a guest, and not together.
    let arguments = vec![vec![b'x'; 16 << 10]; 2];
    let mut request = Vec::new();
    terrace_resp::write_request(&mut request, &arguments);
    let [at_once, by_byte] = refusals(b"guest", &request);
    assert_eq!(at_once, "Protocol error: too big request");
    assert_eq!(by_byte, at_once);

    let limits = Limits { message_bytes: 40, ..Limits::default() };
    for (len, fits) in [(27, true), (28, false)] {
        // `*1 $ll` with their line ends are 9 bytes, the last line end is 2.
        let mut request = Vec::new();
        terrace_resp::write_request(&mut request, &[vec![b'x'; len + 2]]);
        assert_eq!(request.len(), len + 13);
        let outcome = feed::requests(RequestParser::new(limits), limits, &request, &[]).1;
        assert_eq!(outcome.is_ok(), fits, "{len}");
        let reply = [b"*1\r\n", &request[4..]].concat();
        let outcome = feed::replies(limits, &reply, &[]).1;
        assert_eq!(outcome.is_ok(), fits, "{len}");
    }
    let mut parser = ReplyParser::new(limits);
    assert!(parser.next(b"*3\r\n+0123456789\r\n+0123456789\r\n+0123456789\r\n").is_err());
}

#[test]
fn an_error_stays_an_error() {
    let mut parser = RequestParser::new(Limits::default());
    let mut buf = b"*2\r\n$4\r\nECHO\r\nx".to_vec();
    let first = parser.next(&mut buf).unwrap_err();
    buf.extend_from_slice(b"\r\n*1\r\n$4\r\nPING\r\n");
    assert_eq!(parser.next(&mut buf).unwrap_err(), first);
}
