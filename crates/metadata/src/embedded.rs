//! [`Metadata`](crate::Metadata) in an engine's store, for one process that holds all roles.
//!
//! ```text
//! family "metadata":  "r"        last revision (8 bytes, little-endian)
//!                     "k" + key  mod_revision (8), value
//! ```
//! Every transaction is one synced batch. Leases live in memory only: their holders lived in this
//! process, so at the open what was bound to a lease is gone, as if all leases had ended. (Entries with a lease are
//! therefore not written at all; their revisions are.)

mod history;
mod store;

pub use store::Embedded;
