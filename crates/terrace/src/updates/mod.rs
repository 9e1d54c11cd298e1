//! The change feed: committed batches, read back from the log in the order of their commits. `segments` says which
//! segments of the log there are and keeps them, `feed` goes through them, `update` is what a feed gives.

pub(crate) mod feed;
mod segments;
pub(crate) mod update;
