//! Connections: how many, how long, and how large a request may be. `http.rs` calls this.
//!
//! No slow client holds a connection: a request must have come within the read timeout, which
//! also ends connections that stay idle, and a peer must take what is sent: something within the write timeout, and
//! all of it at a least rate. Refusals and answers about health end their connections, see `guard.rs`; who has closed its
//! side is answered, see `socket.rs`.

use super::api;
use super::guard::{self, Peer};
use super::peers::{PeerConnection, Peers};
use super::shared::Shared;
use super::socket::Socket;
use super::{
    HttpOptions, LEAST_BYTES_PER_S, MAX_CONNECTIONS, MAX_HEAD_BYTES, SPARE_CONNECTIONS,
    ServerStatus,
};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Headers of a request.
const MAX_HEADERS: usize = 64;
/// After an error of `accept` that lies with us (no file descriptor is left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For answers that are under way when the server stops.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// A spare connection lasts at most this long.
const SPARE_TIME: Duration = Duration::from_secs(2);
/// The answer to a connection too many.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Serves at all listeners until `stopped` says so.
pub(super) async fn serve(
    listeners: Vec<TcpListener>,
    status: Arc<dyn ServerStatus>,
    options: HttpOptions,
    mut stopped: watch::Receiver<bool>,
) {
    let shared = Arc::new(Shared::new(status));
    let door = Arc::new(Door::new(shared.clone(), options, stopped.clone()));
    let sampling = tokio::spawn(shared.sampler.clone().run());
    let mut accepting: JoinSet<()> =
        listeners.into_iter().map(|listener| door.clone().accept(listener)).collect();
    drop(door);
    wait(&mut stopped).await;
    sampling.abort();
    shared.sampler.hang_up();
    let ends = async { while accepting.join_next().await.is_some() {} };
    let _ = timeout(LAST_ANSWERS, ends).await;
    // A device that hangs does not keep the store from being closed.
    let _ = timeout(LAST_ANSWERS, shared.sampler.end()).await;
}

/// Returns when the server stops.
async fn wait(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// What the listeners share.
pub(super) struct Door {
    slots: Arc<Semaphore>,
    spare_slots: Arc<Semaphore>,
    peers: Arc<Peers>,
    router: Router,
    shared: Arc<Shared>,
    options: HttpOptions,
    stopped: watch::Receiver<bool>,
}

impl Door {
    pub fn new(shared: Arc<Shared>, options: HttpOptions, stopped: watch::Receiver<bool>) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            spare_slots: Arc::new(Semaphore::new(SPARE_CONNECTIONS)),
            peers: Arc::default(),
            router: api::router(shared.clone()),
            shared,
            options,
            stopped,
        }
    }

    /// Accepts connections until the server stops, and waits for their ends.
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        let mut stopped = self.stopped.clone();
        loop {
            tokio::select! {
                () = wait(&mut stopped) => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => self.admit(stream, peer, &mut connections),
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    /// Serves a connection beside those in `connections`, or refuses it.
    pub fn admit(&self, stream: TcpStream, peer: SocketAddr, connections: &mut JoinSet<()>) {
        let local = stream.local_addr().ok().map(|local| local.ip());
        let of_peer = self.peers.enter(peer.ip(), local);
        let slot = || self.slots.clone().try_acquire_owned().ok();
        // Who checks the health may come from the address of a peer that has enough.
        let slot = of_peer.as_ref().and_then(|_| slot());
        let is_spare = slot.is_none();
        let spare = || self.spare_slots.clone().try_acquire_owned().ok();
        let Some(slot) = slot.or_else(spare) else { return self.refuse(stream) };
        self.shared.count_connection();
        let mut router = self.router.clone().layer(Extension(Peer(peer.ip())));
        if is_spare {
            router = router.layer(middleware::from_fn(only_health));
        }
        let (held, stopped) = ((slot, of_peer), self.stopped.clone());
        let serving = connection(stream, held, is_spare, router, self.options.clone(), stopped);
        connections.spawn(async move {
            match is_spare {
                true => drop(timeout(SPARE_TIME, serving).await),
                false => serving.await,
            }
        });
    }

    fn refuse(&self, stream: TcpStream) {
        self.shared.count_refused();
        // There is room in a new connection, which the runtime has not learned yet.
        if let Ok(mut stream) = stream.into_std() {
            let _ = stream.write_all(TOO_MANY);
        }
    }
}

/// What a spare connection is for.
async fn only_health(request: Request, next: Next) -> Response {
    match guard::FREE.contains(&request.uri().path()) {
        true => next.run(request).await,
        false => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn connection(
    stream: TcpStream,
    _held: (OwnedSemaphorePermit, Option<PeerConnection>),
    is_spare: bool,
    router: Router,
    options: HttpOptions,
    mut stopped: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let socket = Socket::new(stream);
    let io = TokioIo::new(Impatient::new(socket.clone(), options.write_timeout));
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .keep_alive(!is_spare)
        .half_close(true)
        .header_read_timeout(options.read_timeout)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS);
    let mut serving = std::pin::pin!(http.serve_connection(io, TowerToHyperService::new(router)));
    // Errors are the client's: it was too slow, sent no HTTP, or went away.
    tokio::select! {
        _ = serving.as_mut() => return,
        () = socket.until_given_up() => return,
        () = wait(&mut stopped) => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = serving.await;
}

/// A stream whose writes fail when the peer takes nothing for too long, or too little.
pub(super) struct Impatient<S> {
    stream: S,
    patience: Duration,
    /// There is while the peer has not taken all that was to be written.
    lag: Option<Lag>,
}

/// A peer that lags behind what is written.
struct Lag {
    began: Instant,
    /// Bytes that it has taken since then.
    taken: u64,
    /// Runs while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Impatient<S> {
    pub fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, lag: None }
    }

    /// What a write gave, or an error if it waits and has waited for too long.
    fn judge(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            if let Some(lag) = &mut self.lag {
                lag.taken += written.as_ref().map_or(0, |bytes| *bytes as u64);
                lag.deadline = None;
            }
            return Poll::Ready(written);
        }
        let (patience, now) = (self.patience, Instant::now());
        let lag = self.lag.get_or_insert(Lag { began: now, taken: 0, deadline: None });
        let for_taken = Duration::from_millis(lag.taken.saturating_mul(1000) / LEAST_BYTES_PER_S);
        let until = (now + patience).min(lag.began + patience + for_taken);
        let deadline =
            lag.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Comes when there is nothing left to be written, so that the peer does not lag any more.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lag = None;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
