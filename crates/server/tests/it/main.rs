//! The server over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;
mod cluster;
mod command_line;
mod command_options;
mod commits;
mod compatibility;
mod counters;
mod disk_full;
mod documents;
mod encryption_keys;
mod gate;
mod history;
mod hostile;
mod limits;
mod loops;
mod nodes;
mod offloads;
mod pipelines;
mod ranges;
mod security;
mod served;
mod settings;
mod suites;
mod tls;
mod transactions;
mod tuning;
mod under_way;
mod users;
mod walks;
