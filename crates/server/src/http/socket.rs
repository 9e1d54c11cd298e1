//! The stream of a connection, which can be looked at while it is read and written: whether its peer has closed its side.
//!
//! A peer that has done so has gone, or waits for its answer (`nc -N`); nothing tells which. So it is answered, but a
//! request that has nothing to show for [`LOOKS`] looks, and of which no more is read, is given up with the connection. One
//! without a request is read, and so ends by itself. `wire.rs` calls this.

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::pin::Pin;
use std::slice::from_mut;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How often in a row nothing has been written to a peer that has closed its side, nor read of what it had sent.
const LOOKS: u32 = 10;
/// Between two of these looks.
const PAUSE: Duration = Duration::from_secs(1);
const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// See the module. Clones are the same stream.
#[derive(Clone)]
pub(super) struct Socket(Arc<Mutex<State>>);

struct State {
    stream: TcpStream,
    /// Bytes that were read and written.
    passed_bytes: u64,
}

impl State {
    fn note(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.passed_bytes += *bytes as u64;
        }
    }
}

impl Socket {
    pub fn new(stream: TcpStream) -> Self {
        Self(Arc::new(Mutex::new(State { stream, passed_bytes: 0 })))
    }

    /// Whether the peer has closed its side, whatever of what it had sent was read.
    fn is_half_closed(&self) -> bool {
        let state = self.0.lock();
        let mut polled = PollFd::new(&state.stream, PollFlags::RDHUP);
        match poll(from_mut(&mut polled), Some(&NO_WAIT)) {
            // Errors and the end of both sides show unasked.
            Ok(_) => !polled.revents().is_empty(),
            Err(error) => error != Errno::AGAIN && error != Errno::INTR,
        }
    }

    /// Returns when the peer has closed its side and for some time nothing has passed.
    pub async fn until_given_up(&self) {
        let (mut looks, mut before) = (0, 0);
        while looks < LOOKS {
            tokio::time::sleep(PAUSE).await;
            let passed = self.0.lock().passed_bytes;
            let is_idle = self.is_half_closed() && passed == before;
            (looks, before) = (if is_idle { looks + 1 } else { 0 }, passed);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        let before = into.filled().len();
        let read = Pin::new(&mut state.stream).poll_read(cx, into);
        state.passed_bytes += (into.filled().len() - before) as u64;
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        let written = Pin::new(&mut state.stream).poll_write(cx, bytes);
        state.note(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        let written = Pin::new(&mut state.stream).poll_write_vectored(cx, bytes);
        state.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.0.lock().stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        Pin::new(&mut state.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        Pin::new(&mut state.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[test]
    fn a_side_is_closed_also_while_not_all_that_was_sent_is_read() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let connecting = TcpStream::connect(listener.local_addr().unwrap());
            let (connected, accepted) = tokio::join!(connecting, listener.accept());
            let (mut peer, mut socket) = (connected.unwrap(), Socket::new(accepted.unwrap().0));
            peer.write_all(b"x").await.unwrap();
            assert!(!socket.is_half_closed());
            peer.shutdown().await.unwrap();
            // A peer that has gone with requests that wait for their turn.
            while !socket.is_half_closed() {
                tokio::task::yield_now().await;
            }
            assert_eq!(socket.read_u8().await.unwrap(), b'x');
            assert!(socket.is_half_closed());
            assert_eq!(socket.0.lock().passed_bytes, 1);
            socket.write_all(b"yy").await.unwrap();
            assert_eq!(socket.0.lock().passed_bytes, 3);
            drop(socket);
            let mut told = Vec::new();
            peer.read_to_end(&mut told).await.unwrap();
            assert_eq!(told, b"yy");
        });
    }
}
