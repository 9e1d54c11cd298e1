//! A client's offload to a thread that may wait: what it has asked for is executed there, the replies
//! leave from there, and it is laid where its loop finds it when it looks. The loop is woken only if
//! it has looked before, or if there is more to do.

use super::client_state::{ClientState, Progress};
use super::loop_handle::LoopHandle;
use super::transport;
use crate::dispatch;
use crate::server::Server;
use mio::net::TcpStream;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_keyspace::{CommandBatch, Wait};

/// Commands that a client may execute on one offload before others have their turn, if the first had
/// to wait for the device: the next ones may have to as well.
pub(super) const MAX_COMMANDS: usize = 64;

/// A client on its offload, and where it comes from. Whoever begins one counts it in the server's
/// `waiting`.
pub(crate) struct Offload {
    pub state: Box<ClientState>,
    /// What its command has to wait for.
    pub wait: Wait,
    pub home: Arc<LoopHandle>,
    pub token: usize,
    /// Where replies may go at once: nothing else waits to be sent, and nobody else sends.
    pub socket: Option<Arc<TcpStream>>,
    pub return_slot: Arc<ReturnSlot>,
}

impl Offload {
    /// Executes what the client has asked for, and lets it go home.
    pub fn run(mut self, batch: &mut CommandBatch, server: &Server) {
        let most = if self.wait == Wait::Key { 1 } else { MAX_COMMANDS };
        let progress = serve(&mut self.state, batch, server, most);
        server.stats.waiting.fetch_sub(1, Ordering::Relaxed);
        let Self { mut state, home, token, socket, return_slot, .. } = self;
        if let Some(socket) = socket
            // What was wrong the loop will hear as well.
            && let Ok(sent) = transport::send(&socket, &state.output)
        {
            server.stats.sent_bytes.add(sent as u64);
            state.has_sent(sent);
        }
        let is_done = progress == Progress::Idle && state.output.is_empty();
        if let Some(state) = return_slot.lay(state, is_done) {
            home.come_back(token, state, progress);
        }
    }
}

/// Where a client lies that is back from a offload, until its loop looks.
#[derive(Default)]
pub(crate) struct ReturnSlot(Mutex<SlotState>);

#[derive(Default)]
struct SlotState {
    state: Option<Box<ClientState>>,
    /// The loop has looked for it, or would have to.
    is_wanted: bool,
}

impl ReturnSlot {
    /// A offload begins; whether the loop is to be told of its end in any case.
    pub fn leave(&self, is_wanted: bool) {
        self.0.lock().is_wanted = is_wanted;
    }

    /// The client, if it is back. If not, the loop will be told when it is.
    pub fn look(&self) -> Option<Box<ClientState>> {
        let mut place = self.0.lock();
        place.is_wanted |= place.state.is_none();
        place.state.take()
    }

    /// The offload is over. Gives the client back if its loop has to be told.
    fn lay(&self, state: Box<ClientState>, is_done: bool) -> Option<Box<ClientState>> {
        let mut place = self.0.lock();
        if !is_done || place.is_wanted {
            return Some(state);
        }
        place.state = Some(state);
        None
    }
}

/// Executes what the client has asked for, each command in a batch of its own.
pub(super) fn serve(
    state: &mut ClientState,
    batch: &mut CommandBatch,
    server: &Server,
    most: usize,
) -> Progress {
    for _ in 0..most {
        state.begin_batch();
        let progress = state.go_on(batch, server, 1);
        if let Err(error) = dispatch::commit(batch, server) {
            state.fail_batch(&error);
        }
        match progress {
            // The batch that was just committed may have held the locks.
            Progress::More | Progress::Elsewhere(..) => {}
            Progress::Idle | Progress::Close => return progress,
        }
    }
    Progress::More
}
