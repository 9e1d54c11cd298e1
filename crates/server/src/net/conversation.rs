//! A client without a socket: what it says goes through the parser, the dispatch and the batches of a
//! connection, and what comes back are the bytes that a connection would send.
//!
//! One thread does what an event loop and the executor do between them. Used where bytes are to be tried
//! by the million: the fuzz targets.

use super::client_state::{ClientState, Progress};
use super::offload;
use crate::dispatch;
use crate::server::Server;
use crate::session::{ConnectionCloser, Origin};
use crate::settle::UnderWay;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_keyspace::{CommandBatch, Mode};

/// A client that is connected from its [`Self::begin`] until it is dropped.
pub struct Conversation {
    server: Arc<Server>,
    state: ClientState,
    /// The batch of the loop that serves it, and that of the executor.
    in_memory: CommandBatch,
    on_device: CommandBatch,
    home: Arc<Ended>,
}

/// Whether somebody has ended the connection.
#[derive(Default)]
struct Ended(AtomicBool);

impl ConnectionCloser for Ended {
    // One thread does everything: nothing is ever under way beside it.
    fn end(&self, _: usize, _: u64, _: UnderWay) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn settle(&self, _: usize, _: u64, _: UnderWay) {}

    fn settled(&self, _: usize, _: u64) {}
}

impl Conversation {
    /// A client connects from this machine.
    pub fn begin(server: &Arc<Server>) -> Self {
        let home = Arc::new(Ended::default());
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let served_by: Arc<dyn ConnectionCloser> = home.clone();
        let origin = Origin { peer: here, local: here, is_tls: false, home: served_by, token: 0 };
        Self {
            state: ClientState::begin(server, origin),
            in_memory: server.space.command_batch(Mode::Memory),
            on_device: server.space.command_batch(Mode::Device),
            server: server.clone(),
            home,
        }
    }

    /// Says these bytes, which need not be whole requests, and gives the replies to all requests
    /// that are complete now; nothing once the conversation [is over](Self::is_over).
    pub fn say(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut said = Vec::new();
        if self.is_over() {
            return said;
        }
        let mut fresh = bytes.to_vec();
        self.state.begin_batch();
        let mut progress = self.state.feed(&mut fresh, &mut self.in_memory, &self.server);
        loop {
            if let Err(error) = dispatch::commit(&mut self.in_memory, &self.server)
                && self.state.fail_batch(&error)
            {
                progress = Progress::Close;
            }
            said.append(&mut self.state.output);
            match progress {
                // Nobody gives it a cluster.
                Progress::Idle | Progress::Await(_) | Progress::AfterCommit | Progress::Paused => {
                    return said;
                }
                Progress::Close | Progress::Unsure => {
                    self.home.0.store(true, Ordering::Relaxed);
                    return said;
                }
                Progress::Elsewhere(..) => {
                    let (state, batch) = (&mut self.state, &mut self.on_device);
                    progress = offload::serve(state, batch, &self.server, offload::MAX_COMMANDS);
                    said.append(&mut self.state.output);
                }
                Progress::More => {
                    self.state.begin_batch();
                    progress = self.state.go_on(&mut self.in_memory, &self.server, usize::MAX);
                }
            }
        }
    }

    /// Whether the connection has ended: by its client's will, by an error, or by somebody else.
    pub fn is_over(&self) -> bool {
        self.home.0.load(Ordering::Relaxed)
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.server.clients.leave(self.state.session.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use terrace_keyspace::Keyspace;

    #[test]
    fn bytes_are_answered_as_by_a_connection() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::load(None, [], []).unwrap();
        let space = Keyspace::open(dir.path(), config.settings().engine_options()).unwrap();
        let server = Arc::new(Server::new(space, config).unwrap());
        let mut client = Conversation::begin(&server);
        let mut other = Conversation::begin(&server);
        assert_eq!(server.clients.count(), 2);
        assert_eq!(client.say(b"SET k v\r\nGET k\r\nGE"), b"+OK\r\n$1\r\nv\r\n");
        // The rest of it, and one that has to wait.
        assert_eq!(
            client.say(b"T k\r\nCONFIG GET x\r\nECHO e\r\n"),
            b"$1\r\nv\r\n*0\r\n$1\r\ne\r\n"
        );
        let kill = format!("CLIENT KILL ID {}\r\n", client.state.session.id);
        assert_eq!(other.say(kill.as_bytes()), b":1\r\n");
        assert!(client.is_over() && client.say(b"PING\r\n").is_empty());
        assert_eq!(other.say(b"QUIT\r\nPING\r\n"), b"+OK\r\n");
        assert!(other.is_over());
        let mut third = Conversation::begin(&server);
        assert!(third.say(b"*x\r\n").starts_with(b"-ERR Protocol error"));
        assert!(third.is_over());
        drop((client, other, third));
        assert_eq!(server.clients.count(), 0);
    }
}
