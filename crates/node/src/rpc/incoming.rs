//! Connections of other nodes, which end with this node: a server that is dropped would leave those that
//! are open to themselves.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_stream::Stream;
use tonic::transport::server::Connected;

/// Accepts connections. They end when the sender of `ended` is dropped.
pub fn incoming(
    listener: TcpListener,
    ended: watch::Receiver<()>,
) -> impl Stream<Item = io::Result<Connection>> {
    Incoming { listener, ended }
}

struct Incoming {
    listener: TcpListener,
    ended: watch::Receiver<()>,
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.listener.poll_accept(context).map(|accepted| {
            Some(accepted.and_then(|(stream, _)| {
                stream.set_nodelay(true)?;
                let mut ended = self.ended.clone();
                let ended = Box::pin(async move { while ended.changed().await.is_ok() {} });
                Ok(Connection { stream, ended })
            }))
        })
    }
}

/// A connection; reads its end when the node has ended.
pub struct Connection {
    stream: TcpStream,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended.as_mut().poll(context).is_ready() {
            // Polled no more: an end that was reported is not asked for again.
            self.ended = Box::pin(std::future::ready(()));
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
