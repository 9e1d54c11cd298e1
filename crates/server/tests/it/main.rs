//! The server over real sockets.

mod client;
mod documents;
mod loops;
mod served;
mod transactions;
