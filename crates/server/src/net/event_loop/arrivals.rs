//! Clients that connect: accepted by the first loop, each served by one of all.

use super::{ACCEPT_PAUSE, EventLoop, FIRST_LISTENER};
use crate::net::client_state::ClientState;
use crate::net::connection::Connection;
use crate::net::loop_handle::Message;
use crate::net::transport::Transport;
use crate::session::Origin;
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Interest, Token};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections that are accepted at a time; then clients have their turns.
const MAX_ACCEPTED: usize = 64;

/// The longest pause between probes that Linux takes; with a longer one it would take none of the three numbers.
const MAX_KEEPALIVE_SECONDS: u32 = 32_767;

impl EventLoop {
    pub(super) fn register_listeners(&mut self) -> io::Result<()> {
        for (number, bound) in self.listeners.iter_mut().enumerate() {
            let token = Token(FIRST_LISTENER + number);
            self.poll.registry().register(&mut bound.listener, token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Accepts waiting connections and spreads them over the loops.
    pub(super) fn accept(&mut self, number: usize) {
        for _ in 0..MAX_ACCEPTED {
            let Some(bound) = self.listeners.get(number) else { return };
            match bound.listener.accept() {
                Ok((socket, peer)) => {
                    let (local, is_tls) = (bound.address, bound.is_tls);
                    let message = Message::Client { socket, peer, local, is_tls };
                    self.next = (self.next + 1) % self.all.len();
                    let home = &self.all[self.next];
                    if Arc::ptr_eq(home, &self.handle) {
                        let Message::Client { socket, peer, local, is_tls } = message else {
                            return;
                        };
                        self.welcome(socket, peer, local, is_tls);
                    } else {
                        home.send(message);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Out of files, most likely: those who wait are asked again soon.
                    tracing::warn!(%error, "cannot accept a connection");
                    self.accepts_again = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
        // No event says so of those who wait already.
        self.accepts_again = Some(Instant::now());
    }

    /// A client is served here from now on, unless it is refused.
    pub(super) fn welcome(
        &mut self,
        mut socket: TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
        is_tls: bool,
    ) {
        if self.stops_by.is_some() {
            return;
        }
        if let Some(refusal) = self.server.refusal(&peer) {
            self.server.stats.rejected_connections.add(1);
            // Who does not read it at once does not hear it; nor does one who expects TLS.
            if !is_tls {
                let _unheard = io::Write::write(&mut socket, refusal.as_bytes());
            }
            return;
        }
        let _best_effort = socket.set_nodelay(true);
        if let Some(seconds) = self.server.keepalive() {
            set_keepalive(&socket, seconds);
        }
        let tls = self.tls.as_ref().filter(|_| is_tls);
        let transport = match Transport::new(socket, tls) {
            Ok(transport) => transport,
            Err(error) => return tracing::warn!(%error, "cannot begin TLS"),
        };
        let entry = self.clients.vacant_entry();
        let token = entry.key();
        let origin = Origin { peer, local, is_tls, home: self.handle.clone(), token };
        let state = Box::new(ClientState::begin(&self.server, origin));
        let client = entry.insert(Connection::new(transport, state));
        let both = Interest::READABLE | Interest::WRITABLE;
        let Some(socket) = client.transport.socket().map(AsRawFd::as_raw_fd) else { return };
        let registry = self.poll.registry();
        if let Err(error) = registry.register(&mut SourceFd(&socket), Token(token), both) {
            tracing::warn!(%error, "cannot watch a connection");
            self.remove(token);
        }
    }

    /// Receives requests of a client whose replies wait for it: as many as `client-query-buffer-limit` says, then the
    /// connection ends.
    pub(super) fn receive_ahead(&mut self, token: usize) {
        let Some(client) = self.clients.get_mut(token) else { return };
        let Ok(received) = client.receive_ahead(&mut self.scratch) else {
            return self.remove(token);
        };
        self.server.stats.received_bytes.add(received as u64);
        let waiting = client.state.as_ref().map_or(0, |state| state.input_bytes());
        if waiting > self.server.limits().message_bytes {
            tracing::warn!(client = client.id, "requests over client-query-buffer-limit");
            self.server.stats.query_limit_closed.add(1);
            return self.remove(token);
        }
        if client.is_only_received() {
            self.queue(token);
        }
    }
}

fn set_keepalive(socket: &TcpStream, seconds: u32) {
    use rustix::net::sockopt;
    let seconds = seconds.min(MAX_KEEPALIVE_SECONDS);
    let idle = Duration::from_secs(u64::from(seconds));
    let interval = Duration::from_secs(u64::from((seconds / 3).max(1)));
    let set = sockopt::set_socket_keepalive(socket, true)
        .and_then(|()| sockopt::set_tcp_keepidle(socket, idle))
        .and_then(|()| sockopt::set_tcp_keepintvl(socket, interval))
        .and_then(|()| sockopt::set_tcp_keepcnt(socket, 3));
    if let Err(error) = set {
        tracing::debug!(%error, "no keepalive");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt;

    /// A number that the system refuses would leave a silent connection to its defaults: two hours.
    #[test]
    fn every_number_of_seconds_between_probes_is_one_that_the_system_takes() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for (wanted, idle, interval) in
            [(1, 1, 1), (300, 300, 100), (32_767, 32_767, 10_922), (100_000_000, 32_767, 10_922)]
        {
            let theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let socket = TcpStream::from_std(theirs);
            set_keepalive(&socket, wanted);
            assert!(sockopt::socket_keepalive(&socket).unwrap());
            assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), Duration::from_secs(idle));
            assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap(), Duration::from_secs(interval));
            assert_eq!(sockopt::tcp_keepcnt(&socket).unwrap(), 3);
        }
    }
}
