//! Offloading: a client whose next command may block goes, as a whole, to a thread that may wait. The command is
//! executed there and its replies are sent from there. Then the client's state is put into its return slot;
//! the loop is woken only if it has already asked for it, or if the client has more to do.

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

/// Commands that are executed in one offload, if the first one waited for the device, since the next ones may wait
/// for it too.
pub(super) const MAX_COMMANDS: usize = 64;

/// A client that is offloaded, and its loop. The caller that begins one counts it in the server's
/// `waiting`.
pub(crate) struct Offload {
    pub state: Box<ClientState>,
    /// Why its command may block.
    pub wait: Wait,
    /// How often its next command was refused a key that another batch was writing.
    pub tries: u32,
    pub home: Arc<LoopHandle>,
    pub token: usize,
    /// For replies: set if no earlier reply waits to be sent, so that only this thread writes to it.
    pub socket: Option<Arc<TcpStream>>,
    pub return_slot: Arc<ReturnSlot>,
}

impl Offload {
    /// Executes the commands of the client, and gives it back to its loop. Unless `batch` waits for keys, a command may be
    /// refused one: then this gives the client back, to be tried again when a key is free.
    pub fn run(mut self, batch: &mut CommandBatch, server: &Server) -> Option<Self> {
        let most = if self.wait == Wait::Key { 1 } else { MAX_COMMANDS };
        let progress = serve(&mut self.state, batch, server, most);
        if matches!(progress, Progress::Elsewhere(..)) {
            self.send(server);
            self.tries += 1;
            return Some(self);
        }
        server.stats.waiting.fetch_sub(1, Ordering::Relaxed);
        self.send(server);
        let Self { state, home, token, return_slot, .. } = self;
        let is_done = progress == Progress::Idle && state.output.is_empty();
        debug_assert!(!state.remote.is_open(), "only a loop sends");
        if let Some(state) = return_slot.lay(state, is_done) {
            home.come_back(token, state, progress);
        }
        None
    }

    /// Sends the replies that there are, if that is done here.
    fn send(&mut self, server: &Server) {
        let Self { state, socket, .. } = self;
        if let Some(socket) = socket
            && !state.session.is_settling()
            // An error is left to the loop, which meets it too.
            && let Ok(sent) = transport::send(socket, &state.output)
        {
            server.stats.sent_bytes.add(sent as u64);
            state.has_sent(sent);
        }
    }
}

/// Holds the state of a client that is back from a offload, until its loop looks.
#[derive(Default)]
pub(crate) struct ReturnSlot(Mutex<SlotState>);

#[derive(Default)]
struct SlotState {
    state: Option<Box<ClientState>>,
    /// The loop has asked for it: it must be woken.
    is_wanted: bool,
}

impl ReturnSlot {
    /// A offload begins; with `is_wanted` the loop is woken at its end in any case.
    pub fn leave(&self, is_wanted: bool) {
        self.0.lock().is_wanted = is_wanted;
    }

    /// The client, if it is back. If not, the loop is woken when it is.
    pub fn look(&self) -> Option<Box<ClientState>> {
        let mut place = self.0.lock();
        place.is_wanted |= place.state.is_none();
        place.state.take()
    }

    /// The offload is over. Returns the client if the loop has to be woken for it.
    fn lay(&self, state: Box<ClientState>, is_done: bool) -> Option<Box<ClientState>> {
        let mut place = self.0.lock();
        if !is_done || place.is_wanted {
            return Some(state);
        }
        place.state = Some(state);
        None
    }
}

/// Executes commands of the client, each in a batch of its own. [`Progress::Elsewhere`] says that the next one was refused a key,
/// which happens only if `batch` does not wait for keys.
pub(super) fn serve(
    state: &mut ClientState,
    batch: &mut CommandBatch,
    server: &Server,
    most: usize,
) -> Progress {
    for _ in 0..most {
        let cluster = server.cluster.as_ref();
        let guard = cluster.and_then(|cluster| cluster.guard_of(state.next_uses_no_key()));
        state.begin_batch();
        let progress = state.go_on(batch, server, 1);
        let committed = dispatch::commit(batch, server);
        state.session.info.end_work();
        let has_to_end = committed.is_err_and(|error| state.fail_batch(&error));
        if state.session.is_guarded && guard.is_some_and(|guard| !guard.may_reply()) {
            // Another owner may have answered meanwhile: what happened is not known.
            state.output.truncate(state.batch_mark);
            return Progress::Unsure;
        }
        if has_to_end {
            return Progress::Close;
        }
        match progress {
            Progress::Elsewhere(..) if batch.take_held_up() => return progress,
            // The batch that was just committed may have held the locks.
            Progress::Elsewhere(..) => {}
            // Perhaps it is to be sent, which only the loop does.
            Progress::More if server.cluster.is_some() => return progress,
            Progress::More if state.session.is_settling() => return progress,
            Progress::More => {}
            _ => return progress,
        }
    }
    Progress::More
}
