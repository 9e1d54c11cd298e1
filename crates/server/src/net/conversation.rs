//! A client without a socket: what it says goes through the parser, the dispatch and the turns of a
//! connection, and what comes back are the bytes that a connection would send.
//!
//! One thread does what an event loop and the pool do between them. Used where bytes are to be tried
//! by the million: the fuzz targets.

use super::connection::{Progress, Talk};
use super::visit;
use crate::dispatch;
use crate::server::Server;
use crate::session::{Home, Origin};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_keyspace::{CommandBatch, Mode};

/// A client that is connected from its [`Self::begin`] until it is dropped.
pub struct Conversation {
    server: Arc<Server>,
    talk: Talk,
    /// The turn of the loop that serves it, and that of the pool.
    in_memory: CommandBatch,
    on_device: CommandBatch,
    home: Arc<Ended>,
}

/// Whether somebody has ended the connection.
#[derive(Default)]
struct Ended(AtomicBool);

impl Home for Ended {
    fn end(&self, _: usize, _: u64) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Conversation {
    /// A client connects from this machine.
    pub fn begin(server: &Arc<Server>) -> Self {
        let home = Arc::new(Ended::default());
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let served_by: Arc<dyn Home> = home.clone();
        let origin = Origin { peer: here, local: here, is_tls: false, home: served_by, token: 0 };
        Self {
            talk: Talk::begin(server, origin),
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
        self.talk.begin_turn();
        let mut progress = self.talk.feed(&mut fresh, &mut self.in_memory, &self.server);
        loop {
            if let Err(error) = dispatch::commit(&mut self.in_memory, &self.server) {
                self.talk.fail_turn(&error);
            }
            said.append(&mut self.talk.output);
            match progress {
                Progress::Idle => return said,
                Progress::Close => {
                    self.home.end(0, self.talk.session.id);
                    return said;
                }
                Progress::Elsewhere(..) => {
                    let (talk, turn) = (&mut self.talk, &mut self.on_device);
                    progress = visit::serve(talk, turn, &self.server, visit::MAX_COMMANDS);
                    said.append(&mut self.talk.output);
                }
                Progress::More => {
                    self.talk.begin_turn();
                    progress = self.talk.go_on(&mut self.in_memory, &self.server, usize::MAX);
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
        self.server.clients.leave(self.talk.session.id);
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
        let kill = format!("CLIENT KILL ID {}\r\n", client.talk.session.id);
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
