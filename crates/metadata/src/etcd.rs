//! etcd, by its own API: `proto/etcd.proto` has the part that is used.
//!
//! A call goes to one member; one that does not answer in time is left for the next member, from the
//! next call on. Reads and keep-alives are tried at every member once, transactions never twice.
//! Members are asked for linearizable reads, and to end a stream when they know no leader
//! (`hasleader`): else a member that is cut off from the majority would keep a watch open and silent.

mod api;
mod calls;
mod convert;
mod watch;

pub use calls::{Etcd, EtcdOptions};
