//! A plain client: one request, one reply, over any stream.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use terrace_resp::{Limits, Reply, ReplyParser, ReplyStep, write_request};

/// No reply takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
pub struct Client<S = TcpStream> {
    pub stream: S,
    parser: ReplyParser,
    received: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::over(stream)
    }
}

impl<S: Read + Write> Client<S> {
    pub fn over(stream: S) -> Self {
        Self { stream, parser: ReplyParser::new(Limits::default()), received: Vec::new() }
    }

    /// Sends a request of words that have no blanks in them.
    pub fn say(&mut self, words: &str) -> Reply<'static> {
        let words: Vec<&str> = words.split_whitespace().collect();
        self.call(&words)
    }

    /// Sends a request and waits for its reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply<'static> {
        self.send(arguments);
        self.reply()
    }

    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        let mut request = Vec::new();
        write_request(&mut request, arguments);
        self.stream.write_all(&request).unwrap();
    }

    /// Sends several requests at once.
    pub fn pipeline_sent(&mut self, requests: &[&str]) {
        let mut bytes = Vec::new();
        for request in requests {
            write_request(&mut bytes, &request.split_whitespace().collect::<Vec<_>>());
        }
        self.stream.write_all(&bytes).unwrap();
    }

    /// Sends several requests at once; gives all replies.
    pub fn pipeline(&mut self, requests: &[&str]) -> Vec<Reply<'static>> {
        self.pipeline_sent(requests);
        requests.iter().map(|_| self.reply()).collect()
    }

    /// The next reply.
    pub fn reply(&mut self) -> Reply<'static> {
        self.try_reply().expect("the connection has ended")
    }

    /// The next reply; `None` if the server has ended the connection.
    pub fn try_reply(&mut self) -> Option<Reply<'static>> {
        loop {
            let complete = match self.parser.next(&self.received).unwrap() {
                ReplyStep::Frame(frame) => {
                    let bytes = frame.bytes().len();
                    Some((frame.decode().unwrap().into_owned(), bytes))
                }
                ReplyStep::Incomplete { .. } => None,
            };
            if let Some((reply, bytes)) = complete {
                self.received.drain(..bytes);
                return Some(reply);
            }
            let mut piece = [0; 64 << 10];
            let read = self.stream.read(&mut piece).ok()?;
            if read == 0 {
                return None;
            }
            self.received.extend_from_slice(&piece[..read]);
        }
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }
}

pub fn ok() -> Reply<'static> {
    Reply::Simple(b"OK"[..].into())
}

pub fn bulk(text: &str) -> Reply<'static> {
    Reply::Bulk(text.as_bytes().to_vec().into())
}

pub fn int(value: i64) -> Reply<'static> {
    Reply::Integer(value)
}

pub fn array(replies: impl IntoIterator<Item = Reply<'static>>) -> Reply<'static> {
    Reply::Array(replies.into_iter().collect())
}

/// The text of an error; panics if it is none.
pub fn error(reply: &Reply<'_>) -> String {
    match reply {
        Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("no error: {other:?}"),
    }
}

/// The text of a simple or bulk string; panics if it is none.
pub fn text(reply: &Reply<'_>) -> String {
    match reply {
        Reply::Simple(text) | Reply::Bulk(text) | Reply::Verbatim { text, .. } => {
            String::from_utf8_lossy(text).into_owned()
        }
        other => panic!("no text: {other:?}"),
    }
}
