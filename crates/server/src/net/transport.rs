//! The bytes of one client, with or without TLS, never waiting.

use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

/// How connections are encrypted.
pub type Tls = Arc<ServerConfig>;

/// Most plaintext that waits to be encrypted and sent.
const TLS_BUFFER_BYTES: usize = 256 << 10;

/// A client's socket.
pub(crate) enum Transport {
    /// Shared with a thread that sends to this client while its loop does not.
    Plain(Arc<TcpStream>),
    Tls(Box<Encrypted>),
    /// None: calls of other nodes come and go by messages to the loop.
    Calls,
}

/// A socket with TLS on it.
pub(crate) struct Encrypted {
    socket: TcpStream,
    session: ServerConnection,
}

/// What one read gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// This many bytes, and there may be more.
    More(usize),
    /// This many bytes, which were all there were.
    All(usize),
    /// The client has gone.
    Closed,
}

impl Transport {
    pub fn new(socket: TcpStream, tls: Option<&Tls>) -> io::Result<Self> {
        let Some(config) = tls else { return Ok(Self::Plain(Arc::new(socket))) };
        let mut session = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        session.set_buffer_limit(Some(TLS_BUFFER_BYTES));
        Ok(Self::Tls(Box::new(Encrypted { socket, session })))
    }

    pub fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(encrypted) => Some(&encrypted.socket),
            Self::Calls => None,
        }
    }

    /// The socket for somebody else to send by, if what is sent need not be encrypted.
    pub fn shared_socket(&self) -> Option<Arc<TcpStream>> {
        match self {
            Self::Plain(socket) => Some(socket.clone()),
            Self::Tls(_) | Self::Calls => None,
        }
    }

    /// Reads once into `buf`.
    pub fn receive(&mut self, buf: &mut [u8]) -> io::Result<Received> {
        match self {
            // A stream that gives less than was asked for has no more (epoll(7)).
            Self::Plain(socket) => match retry(|| (&**socket).read(buf)) {
                Ok(0) => Ok(Received::Closed),
                Ok(n) if n < buf.len() => Ok(Received::All(n)),
                Ok(n) => Ok(Received::More(n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Received::All(0)),
                Err(error) => Err(error),
            },
            Self::Tls(encrypted) => encrypted.receive(buf),
            Self::Calls => Ok(Received::All(0)),
        }
    }

    /// Writes what the socket takes of `bytes`: how many of them are off our hands.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => send(socket, bytes),
            Self::Tls(encrypted) => encrypted.send(bytes),
            Self::Calls => Ok(0),
        }
    }

    /// Whether encrypted bytes wait for the socket.
    pub fn is_flushed(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Calls => true,
            Self::Tls(encrypted) => !encrypted.session.wants_write(),
        }
    }

    /// Tells the client that nothing more comes.
    pub fn close(&mut self) {
        if let Self::Tls(encrypted) = self {
            encrypted.session.send_close_notify();
            let _gone = encrypted.push();
        }
        if let Some(socket) = self.socket() {
            let _gone = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Writes what a socket takes of `bytes`, and gives how many that were.
pub(super) fn send(mut socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match retry(|| socket.write(&bytes[sent..])) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => sent += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

impl Encrypted {
    fn receive(&mut self, buf: &mut [u8]) -> io::Result<Received> {
        let mut got = 0;
        loop {
            match self.session.reader().read(&mut buf[got..]) {
                // The client has said that nothing more comes.
                Ok(0) if got < buf.len() => {
                    return Ok(if got == 0 { Received::Closed } else { Received::More(got) });
                }
                Ok(n) => got += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Its side of the connection has ended without that word: everything before was read.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(if got == 0 { Received::Closed } else { Received::More(got) });
                }
                Err(error) => return Err(error),
            }
            if got == buf.len() {
                return Ok(Received::More(got));
            }
            match retry(|| self.session.read_tls(&mut self.socket)) {
                Ok(0) if got == 0 => return Ok(Received::Closed),
                Ok(0) => return Ok(Received::More(got)),
                Ok(_) => {
                    let processed = self.session.process_new_packets();
                    // An alert that says why goes out before the connection ends.
                    self.push()?;
                    processed.map_err(io::Error::other)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Received::All(got));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        loop {
            // First, so that there is room: a socket that took everything tells nobody to go on.
            self.push()?;
            if sent == bytes.len() || self.session.wants_write() {
                return Ok(sent);
            }
            let taken = self.session.writer().write(&bytes[sent..])?;
            if taken == 0 {
                return Ok(sent);
            }
            sent += taken;
        }
    }

    /// Gives encrypted bytes to the socket, as many as it takes.
    fn push(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match retry(|| self.session.write_tls(&mut self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn retry<T>(mut run: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match run() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
