//! A plain client for tests, over any stream: one request, one reply, in order. Behind the feature
//! `test-client`; what no test expects is a panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ports;

pub use ports::{free_port, free_ports};

use crate::{Limits, Protocol, Reply, ReplyParser, ReplyStep, ReplyWriter, write_request};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Far longer than anything takes, on a busy machine too: what takes longer hangs.
pub const HANG_GUARD: Duration = Duration::from_secs(600);

/// Waits until `what` holds; panics with `why` if it never does.
pub fn until(why: &str, mut what: impl FnMut() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < HANG_GUARD, "{why}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A connection.
pub struct Client<S = TcpStream> {
    /// What it reads and writes.
    pub stream: S,
    parser: ReplyParser,
    received: Vec<u8>,
}

impl Client {
    /// To a server at this address.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
        Self::over(stream)
    }

    /// Waits until the server has ended the connection; panics if it says something before, or
    /// does not end it.
    pub fn expect_end(&mut self) {
        assert!(self.received.is_empty(), "{}", self.received.escape_ascii());
        let mut piece = [0; 256];
        match self.stream.read(&mut piece) {
            Ok(0) => {}
            Ok(n) => panic!("it says {}", piece[..n].escape_ascii()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "not ended"),
        }
    }

    /// The value of an option.
    pub fn option(&mut self, name: &str) -> String {
        text(field(&self.call(&["CONFIG", "GET", name]), name))
    }

    /// A number of `INFO`.
    pub fn info(&mut self, name: &str) -> u64 {
        let page = text(&self.say("INFO"));
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no {name}: {page}")).parse().unwrap()
    }
}

impl<S: Read + Write> Client<S> {
    /// Over a stream that is open.
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

    /// Sends a request, as [`Client::send_raw`] does.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        self.try_send(arguments);
    }

    /// Sends a request; `false` if the server has ended the connection.
    pub fn try_send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> bool {
        let mut request = Vec::new();
        write_request(&mut request, arguments);
        self.try_send_raw(&request)
    }

    /// Sends several requests at once.
    pub fn send_all<A: AsRef<[u8]>>(&mut self, requests: &[Vec<A>]) {
        let mut bytes = Vec::new();
        requests.iter().for_each(|request| write_request(&mut bytes, request));
        self.send_raw(&bytes);
    }

    /// Sends several requests of words at once.
    pub fn send_words(&mut self, requests: &[&str]) {
        let words = |request: &&'_ str| request.split_whitespace().map(String::from).collect();
        self.send_all::<String>(&requests.iter().map(words).collect::<Vec<_>>());
    }

    /// Sends several requests of words at once; gives all replies.
    pub fn pipeline(&mut self, requests: &[&str]) -> Vec<Reply<'static>> {
        self.send_words(requests);
        requests.iter().map(|_| self.reply()).collect()
    }

    /// The next reply.
    pub fn reply(&mut self) -> Reply<'static> {
        match self.receive_reply() {
            Ok(Some(reply)) => reply,
            Ok(None) => panic!("the server has ended the connection"),
            Err(error) => panic!("no reply: {error}"),
        }
    }

    /// The next reply; `None` if the server has ended the connection, or the stream's timeout has passed.
    pub fn try_reply(&mut self) -> Option<Reply<'static>> {
        self.receive_reply().ok().flatten()
    }

    /// The next reply; `None` at the end of the stream.
    fn receive_reply(&mut self) -> std::io::Result<Option<Reply<'static>>> {
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
                return Ok(Some(reply));
            }
            let mut piece = [0; 64 << 10];
            let read = match self.stream.read(&mut piece) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if read == 0 {
                return Ok(None);
            }
            self.received.extend_from_slice(&piece[..read]);
        }
    }

    /// Sends bytes as they are. A server that has seen enough may close before it has taken all
    /// of them; what it said until then is there to be read, and then comes the end.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.try_send_raw(bytes);
    }

    /// As [`Client::send_raw`]; `false` if the server has ended the connection.
    fn try_send_raw(&mut self, bytes: &[u8]) -> bool {
        use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
        match self.stream.write_all(bytes) {
            Ok(()) => true,
            Err(error) => {
                let kind = error.kind();
                let ended = matches!(kind, BrokenPipe | ConnectionReset | ConnectionAborted);
                assert!(ended, "neither sent nor ended: {error}");
                false
            }
        }
    }
}

/// `OK`.
pub fn ok() -> Reply<'static> {
    Reply::Simple(b"OK"[..].into())
}

/// A bulk string.
pub fn bulk(text: &str) -> Reply<'static> {
    Reply::Bulk(text.as_bytes().to_vec().into())
}

/// An integer.
pub fn int(value: i64) -> Reply<'static> {
    Reply::Integer(value)
}

/// An array.
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

/// All bytes of a reply, to look for a text in it.
pub fn shown(reply: &Reply<'_>) -> String {
    let mut bytes = Vec::new();
    reply.write(&mut ReplyWriter::new(&mut bytes, Protocol::Resp3));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The value under a name in a reply of names and values.
pub fn field<'a>(reply: &'a Reply<'static>, name: &str) -> &'a Reply<'static> {
    let Reply::Array(items) = reply else { panic!("no names and values: {reply:?}") };
    let found = items.chunks_exact(2).find(|pair| text(&pair[0]) == name);
    &found.unwrap_or_else(|| panic!("no {name}: {reply:?}"))[1]
}
