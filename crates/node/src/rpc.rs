//! What goes between nodes: gRPC over HTTP/2, `proto/terrace.proto`.

pub mod api;
mod call_stream;
mod convert;
mod headers;
mod incoming;
mod limits;
mod link;
mod secret;
mod services;

pub use call_stream::CallSink;
pub use convert::{MoveMessage, ShardRecords, TakenPlan, TopCounts};
pub use incoming::{Caller, Connection, IncomingLimits, incoming};
pub use limits::{MAX_MESSAGE_BYTES, MAX_QUEUED_BYTES};
pub use link::{Link, LinkOptions};
pub use secret::Secret;
pub use services::{Peer, Roles, routes};
