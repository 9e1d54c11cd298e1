//! The server over real sockets.

mod client;
mod loops;
mod served;
mod transactions;
