//! Whether what takes long goes on: not when the server is to end, nor when its client was ended, since who ended it waits
//! for its command.

use super::{Call, Failure, Outcome};
use crate::server::Stop;
use crate::session::ClientInfo;
use std::sync::Arc;

/// See the module.
pub(super) struct Interruption<'a> {
    stop: &'a Stop,
    client: Arc<ClientInfo>,
}

impl<'a> Interruption<'a> {
    /// That of a command.
    pub fn of(call: &Call<'a>) -> Self {
        Self { stop: &call.server.stop, client: call.session.info.clone() }
    }

    /// Whether the command is to end.
    pub fn is_due(&self) -> bool {
        self.stop.is_requested() || self.client.is_ended()
    }

    /// What the command fails with then.
    ///
    /// # Errors
    /// See above.
    pub fn check(&self) -> Outcome {
        if self.stop.is_requested() {
            return Err(Failure::STOPPING);
        }
        match self.client.is_ended() {
            true => Err(Failure::line("ERR the client was ended")),
            false => Ok(()),
        }
    }
}
