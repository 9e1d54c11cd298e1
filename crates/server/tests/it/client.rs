//! The client that these tests share with those of the binary.

pub use terrace_resp::test_client::{Client, array, bulk, error, field, int, ok, shown, text};
