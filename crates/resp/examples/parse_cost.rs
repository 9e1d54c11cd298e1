//! What the parsers and the writer cost, in ns for one command or reply, in memory and on one
//! thread: `cargo run --release -p terrace-resp --example parse_cost`.
//!
//! Each figure is the fastest of 20 passes over 10,000 commands in one buffer, as a pipeline that
//! has arrived whole, or in pieces of 16 KiB.

use std::hint::black_box;
use std::time::Instant;
use terrace_resp::{
    Limits, Protocol, ReplyParser, ReplyStep, ReplyWriter, RequestParser, Step, write_request,
};

const COMMANDS: usize = 10_000;
const PASSES: usize = 20;

/// The fastest pass in ns for each of [`COMMANDS`].
fn fastest(mut pass: impl FnMut()) -> f64 {
    let times = (0..PASSES).map(|_| {
        let start = Instant::now();
        pass();
        start.elapsed().as_nanos() as f64 / COMMANDS as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Parses all of `stream` in pieces; the number of commands, and of bytes in arguments.
fn parse(parser: &mut RequestParser, stream: &mut [u8], piece: usize) -> (usize, usize) {
    let (mut at, mut end, mut commands, mut bytes) = (0, 0, 0, 0);
    while end < stream.len() {
        end = stream.len().min(end + piece);
        loop {
            match parser.next(&mut stream[at..end]) {
                Ok(Step::Command(command)) => {
                    commands += 1;
                    bytes += command.iter().map(|argument| argument.len()).sum::<usize>();
                    at += command.bytes();
                }
                Ok(Step::Blank { bytes }) => at += bytes,
                Ok(Step::Incomplete { .. }) => break,
                Err(error) => {
                    println!("{error}");
                    return (commands, bytes);
                }
            }
        }
    }
    (commands, bytes)
}

fn requests(name: &str, arguments: impl Fn(usize) -> Vec<Vec<u8>>, inline: bool) {
    let mut stream = Vec::new();
    for at in 0..COMMANDS {
        let arguments = arguments(at);
        match inline {
            true => stream.extend_from_slice(&[&arguments.join(&b' ')[..], b"\r\n"].concat()),
            false => write_request(&mut stream, &arguments),
        }
    }
    let mut parser = RequestParser::new(Limits::default());
    for (how, piece) in [("whole", usize::MAX), ("16 KiB pieces", 16 << 10)] {
        let piece = piece.min(stream.len());
        let mut parsed = (0, 0);
        let ns = fastest(|| parsed = black_box(parse(&mut parser, black_box(&mut stream), piece)));
        assert_eq!(parsed.0, COMMANDS);
        let gbs = stream.len() as f64 / COMMANDS as f64 / ns;
        println!("parse {name:<34} {how:<14} {ns:7.1} ns  {gbs:6.2} GB/s");
    }
}

fn replies(name: &str, write: impl Fn(&mut ReplyWriter<'_>)) {
    let mut out = Vec::new();
    let ns = fastest(|| {
        out.clear();
        for _ in 0..COMMANDS {
            write(&mut ReplyWriter::new(black_box(&mut out), Protocol::Resp3));
        }
    });
    println!("write {name:<34} {:<14} {ns:7.1} ns", "");
    let mut parser = ReplyParser::new(Limits::default());
    for decode in [false, true] {
        let mut count = 0;
        let ns = fastest(|| {
            let mut at = 0;
            count = 0;
            while let Ok(ReplyStep::Frame(frame)) = parser.next(black_box(&out[at..])) {
                at += frame.bytes().len();
                count += 1;
                if decode {
                    black_box(frame.decode().ok());
                }
            }
        });
        assert_eq!(count, COMMANDS);
        let how = if decode { "and decode" } else { "find" };
        println!("read  {name:<34} {how:<14} {ns:7.1} ns");
    }
}

fn main() {
    let key = |at: usize| format!("key:{at:012}").into_bytes();
    requests("GET, key of 16", |at| vec![b"GET".to_vec(), key(at)], false);
    requests(
        "SET, key of 16, value of 3",
        |at| vec![b"SET".to_vec(), key(at), b"xxx".to_vec()],
        false,
    );
    requests(
        "SET, key of 16, value of 128",
        |at| vec![b"SET".to_vec(), key(at), vec![b'x'; 128]],
        false,
    );
    let mset =
        |at| (0..21).map(|word| if word == 0 { b"MSET".to_vec() } else { key(at) }).collect();
    requests("MSET, 10 pairs", mset, false);
    requests("GET inline, key of 16", |at| vec![b"GET".to_vec(), key(at)], true);
    replies("OK", |reply| reply.ok());
    replies("integer", |reply| reply.integer(1_234_567));
    replies("bulk of 128", |reply| reply.bulk([b'x'; 128]));
    replies("double", |reply| reply.double(0.1234));
    replies("array of 10 bulks of 16", |reply| {
        reply.array(10);
        (0..10).for_each(|_| reply.bulk([b'x'; 16]));
    });
}
