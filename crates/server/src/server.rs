//! What all connections share.

use std::sync::Arc;
use terrace_keyspace::Keyspace;

/// The state of the server.
pub struct Server {
    /// The data.
    pub space: Arc<Keyspace>,
}
