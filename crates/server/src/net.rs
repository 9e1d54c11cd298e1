//! RESP over TCP and TLS: sockets, connections, the loops that serve them and the threads that wait
//! for the device.
//!
//! ```text
//!  listeners ──► event loop ─┬─ reads requests, executes what is in memory, all into one batch
//!                            ├─ commits the batch: one write to the log for all its connections
//!                            ├─ writes replies
//!                            └─► pool: a connection whose next command must wait goes there as a
//!                                whole, executes what it has asked for, and comes back; one that
//!                                is alone stays, and the loop goes to another thread
//! ```
//! A loop never waits for the device, nor for another loop: one slow read stalls nobody but its own
//! client, and a commit that may have to wait, for a sync or since writes are held back, is left to
//! the loop's committer.

mod client_state;
mod committer;
mod connection;
mod conversation;
mod event_loop;
mod listen;
mod loop_handle;
mod offload;
mod pool;
mod thread;
mod tls;
mod transport;

pub use conversation::Conversation;
pub use event_loop::Loops;
pub use listen::{Bound, Endpoint, addresses};
pub use loop_handle::LoopHandle;
pub use pool::Pool;
pub use tls::configured as tls;
pub use transport::Tls;
