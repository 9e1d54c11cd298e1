//! A client's visit to a thread that may wait: what it has asked for is executed there, the replies
//! leave from there, and it is laid where its loop finds it when it looks. The loop is woken only if
//! it has looked before, or if there is more to do.

use super::connection::{Progress, Talk};
use super::event_loop::LoopHandle;
use super::transport;
use crate::dispatch;
use crate::server::Server;
use mio::net::TcpStream;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_keyspace::{CommandBatch, Wait};

/// Commands that a client may execute on one visit before others have their turn, if the first had
/// to wait for the device: the next ones may have to as well.
pub(super) const MAX_COMMANDS: usize = 64;

/// A client on its visit, and where it comes from. Whoever begins one counts it in the server's
/// `waiting`.
pub(crate) struct Visit {
    pub talk: Box<Talk>,
    /// What its command has to wait for.
    pub wait: Wait,
    pub home: Arc<LoopHandle>,
    pub token: usize,
    /// Where replies may go at once: nothing else waits to be sent, and nobody else sends.
    pub socket: Option<Arc<TcpStream>>,
    pub berth: Arc<Berth>,
}

impl Visit {
    /// Executes what the client has asked for, and lets it go home.
    pub fn run(mut self, turn: &mut CommandBatch, server: &Server) {
        let most = if self.wait == Wait::Key { 1 } else { MAX_COMMANDS };
        let progress = serve(&mut self.talk, turn, server, most);
        server.stats.waiting.fetch_sub(1, Ordering::Relaxed);
        let Self { mut talk, home, token, socket, berth, .. } = self;
        if let Some(socket) = socket
            // What was wrong the loop will hear as well.
            && let Ok(sent) = transport::send(&socket, &talk.output)
        {
            server.stats.sent_bytes.add(sent as u64);
            talk.has_sent(sent);
        }
        let is_done = progress == Progress::Idle && talk.output.is_empty();
        if let Some(talk) = berth.lay(talk, is_done) {
            home.come_back(token, talk, progress);
        }
    }
}

/// Where a client lies that is back from a visit, until its loop looks.
#[derive(Default)]
pub(crate) struct Berth(Mutex<Place>);

#[derive(Default)]
struct Place {
    talk: Option<Box<Talk>>,
    /// The loop has looked for it, or would have to.
    is_wanted: bool,
}

impl Berth {
    /// A visit begins; whether the loop is to be told of its end in any case.
    pub fn leave(&self, is_wanted: bool) {
        self.0.lock().is_wanted = is_wanted;
    }

    /// The client, if it is back. If not, the loop will be told when it is.
    pub fn look(&self) -> Option<Box<Talk>> {
        let mut place = self.0.lock();
        place.is_wanted |= place.talk.is_none();
        place.talk.take()
    }

    /// The visit is over. Gives the client back if its loop has to be told.
    fn lay(&self, talk: Box<Talk>, is_done: bool) -> Option<Box<Talk>> {
        let mut place = self.0.lock();
        if !is_done || place.is_wanted {
            return Some(talk);
        }
        place.talk = Some(talk);
        None
    }
}

/// Executes what the client has asked for, each command in a turn of its own.
pub(super) fn serve(
    talk: &mut Talk,
    turn: &mut CommandBatch,
    server: &Server,
    most: usize,
) -> Progress {
    for _ in 0..most {
        talk.begin_turn();
        let progress = talk.go_on(turn, server, 1);
        if let Err(error) = dispatch::commit(turn, server) {
            talk.fail_turn(&error);
        }
        match progress {
            // The turn that was just committed may have held the locks.
            Progress::More | Progress::Elsewhere(..) => {}
            Progress::Idle | Progress::Close => return progress,
        }
    }
    Progress::More
}
