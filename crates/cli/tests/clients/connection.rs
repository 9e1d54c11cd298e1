//! A plain connection: requests out, replies in, in order.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use terrace_resp::{Limits, Reply, ReplyParser, ReplyStep, write_request};

/// No reply takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Connection {
    stream: TcpStream,
    parser: ReplyParser,
    received: Vec<u8>,
}

impl Connection {
    pub fn to(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, parser: ReplyParser::new(Limits::default()), received: Vec::new() }
    }

    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply<'static> {
        self.send(&[arguments.iter().map(|a| a.as_ref().to_vec()).collect()]);
        self.reply()
    }

    /// Words without blanks in them.
    pub fn say(&mut self, words: &str) -> Reply<'static> {
        self.call(&words.split_whitespace().collect::<Vec<_>>())
    }

    pub fn send(&mut self, requests: &[Vec<Vec<u8>>]) {
        let mut bytes = Vec::new();
        for request in requests {
            write_request(&mut bytes, request);
        }
        self.stream.write_all(&bytes).unwrap();
    }

    pub fn reply(&mut self) -> Reply<'static> {
        self.try_reply().expect("the connection has ended")
    }

    /// `None` if the server has gone.
    pub fn try_reply(&mut self) -> Option<Reply<'static>> {
        loop {
            let found = match self.parser.next(&self.received).unwrap() {
                ReplyStep::Frame(frame) => {
                    let reply = frame.decode().unwrap().into_owned();
                    Some((reply, frame.bytes().len()))
                }
                ReplyStep::Incomplete { .. } => None,
            };
            if let Some((reply, bytes)) = found {
                self.received.drain(..bytes);
                return Some(reply);
            }
            let mut piece = [0; 64 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.received.extend_from_slice(&piece[..n]),
            }
        }
    }

    /// As [`Self::send`]; `false` if the server has gone.
    pub fn try_send(&mut self, request: &[Vec<u8>]) -> bool {
        let mut bytes = Vec::new();
        write_request(&mut bytes, request);
        self.stream.write_all(&bytes).is_ok()
    }
}
