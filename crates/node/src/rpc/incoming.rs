//! Connections of other nodes, which end with this node: a server that is dropped would leave those that
//! are open to themselves. Anybody who reaches the port can connect, so there is a limit of connections, and
//! one that makes no call with the cluster's secret soon is ended.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Sleep;
use tokio_stream::Stream;
use tonic::transport::server::Connected;

/// How long nothing is accepted after the machine has refused a connection, as it does when there are no file
/// descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// Bounds of what others may hold.
#[derive(Debug, Clone, Copy)]
pub struct IncomingLimits {
    /// Connections at a time; further ones wait. Another node has two.
    pub connections: usize,
    /// How long after its beginning a connection ends if no call of it was let in.
    pub first_call: Duration,
}

impl Default for IncomingLimits {
    fn default() -> Self {
        Self { connections: 1024, first_call: Duration::from_secs(5) }
    }
}

/// Accepts connections. They end when the sender of `ended` is dropped.
pub fn incoming(
    listener: TcpListener,
    ended: watch::Receiver<()>,
    limits: IncomingLimits,
) -> impl Stream<Item = io::Result<Connection>> {
    let places = Arc::new(Semaphore::new(limits.connections));
    let next_place = place(&places);
    Incoming {
        listener,
        ended,
        limits,
        places,
        next_place,
        free_place: None,
        pause: None,
        is_refused: false,
    }
}

type Place = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

fn place(places: &Arc<Semaphore>) -> Place {
    let places = places.clone();
    Box::pin(async move { places.acquire_owned().await.ok() })
}

struct Incoming {
    listener: TcpListener,
    ended: watch::Receiver<()>,
    limits: IncomingLimits,
    places: Arc<Semaphore>,
    next_place: Place,
    /// For the next connection.
    free_place: Option<OwnedSemaphorePermit>,
    pause: Option<Pin<Box<Sleep>>>,
    /// The last attempt was refused by the machine: said once for each time.
    is_refused: bool,
}

impl Incoming {
    fn connection(&mut self, stream: TcpStream) -> Connection {
        let mut ended = self.ended.clone();
        let deadline = Box::pin(tokio::time::sleep(self.limits.first_call));
        Connection {
            stream,
            ended: Box::pin(async move { while ended.changed().await.is_ok() {} }),
            caller: Caller::default(),
            deadline: Some(deadline),
            _place: self.free_place.take(),
        }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(context));
                this.pause = None;
            }
            if this.free_place.is_none() {
                let Some(free) = ready!(this.next_place.as_mut().poll(context)) else {
                    return Poll::Ready(None);
                };
                this.free_place = Some(free);
                this.next_place = place(&this.places);
            }
            match ready!(this.listener.poll_accept(context)) {
                Ok((stream, _)) => {
                    this.is_refused = false;
                    // Without it, it is slower.
                    let _ = stream.set_nodelay(true);
                    return Poll::Ready(Some(Ok(this.connection(stream))));
                }
                Err(error) => {
                    if !std::mem::replace(&mut this.is_refused, true) {
                        tracing::warn!("other nodes cannot connect, which is tried again: {error}");
                    }
                    this.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
            }
        }
    }
}

/// Who is at the other end of a connection; comes with each of its calls.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    is_let_in: Arc<AtomicBool>,
}

impl Caller {
    /// A call was let in: the connection is another node's.
    pub(super) fn let_in(&self) {
        self.is_let_in.store(true, Ordering::Relaxed);
    }
}

/// A connection; reads its end when the node has ended, or nobody was let in for too long.
pub struct Connection {
    stream: TcpStream,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    caller: Caller,
    /// Until a call is let in.
    deadline: Option<Pin<Box<Sleep>>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// Whether the time for the first call is over.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        if self.caller.is_let_in.load(Ordering::Relaxed) {
            self.deadline = None;
        }
        self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(context).is_ready())
    }
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
    }
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
        if self.is_late(context) {
            // Never let in any more: a time that is over is not asked for again.
            self.deadline = None;
            self.ended = Box::pin(std::future::ready(()));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
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
