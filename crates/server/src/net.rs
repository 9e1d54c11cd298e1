//! RESP over TCP and TLS: sockets, connections, the loops that serve them, and the executor of what may
//! block.
//!
//! ```text
//!  listeners ──► event loop ─┬─ receives requests, executes those that cannot block, all into one batch
//!                            ├─ commits the batch: one write to the log for all its connections
//!                            ├─ sends replies
//!                            └─► executor: commands that may block, each with the state of its client, and
//!                                commits that may wait; both come back through the loop's handle
//! ```
//! A loop never waits for the device, nor for another loop: one slow read stalls only its own client. Where a
//! client stands is said by its phase (module `phase`).

mod call_executor;
mod call_lane;
mod client_state;
mod connection;
mod conversation;
mod event_loop;
mod executor;
mod listen;
mod loop_handle;
mod offload;
mod open_call;
mod phase;
mod remote;
mod thread;
mod tls;
mod transport;
mod turn_clock;

pub use call_executor::CallExecutor;
pub use conversation::Conversation;
pub use event_loop::Loops;
pub use executor::Executor;
pub use listen::{Bound, Endpoint, addresses};
pub use loop_handle::LoopHandle;
pub use tls::configured as tls;
pub use transport::Tls;
