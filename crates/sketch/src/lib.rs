//! What is asked for most: top keys in bounded memory; pure.
//!
//! Floor 1: uses no other crate of the workspace, does no I/O.

#![forbid(unsafe_code)]
