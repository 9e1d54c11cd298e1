//! The small shared state of a cluster: who is there, who owns what, who leads.
//!
//! One trait over a versioned map: [`Metadata`]. [`Etcd`] is the real thing, for any number of
//! machines; [`Embedded`] keeps the same in an engine's store, for one process that holds all roles.
//! Both pass the same tests (`tests/conformance`). Nothing per key of a user is kept here.
//!
//! Floor 5. The caller knows what the entries mean; this crate does not.

#![forbid(unsafe_code)]

mod embedded;
mod error;
mod etcd;
mod metadata;

pub use embedded::Embedded;
pub use error::{Error, Result};
pub use etcd::{Etcd, EtcdOptions};
pub use metadata::{
    Change, Changes, Compare, Entry, Grant, LeaseId, Metadata, Snapshot, Transaction, Watch, Write,
};
