//! The public interface: requests, replies, what is refused, what memory is taken, and a published
//! parser that must agree.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod bounds;
mod feed;
mod malformed;
mod oracle;
mod owned;
mod replies;
mod requests;
