//! What a server knows of one client.

use terrace_resp::{OwnedCommand, Protocol};

/// One client's state. It goes with a command that is executed on another thread, and comes back
/// with the reply.
#[derive(Default)]
pub struct Session {
    /// Unique and growing.
    pub id: u64,
    /// The selected database.
    pub db: u8,
    /// What replies are written in.
    pub protocol: Protocol,
    /// `CLIENT SETNAME`.
    pub name: String,
    /// Queued by `MULTI`.
    pub queued: Option<Vec<OwnedCommand>>,
}
