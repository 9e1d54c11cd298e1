//! The client that these tests share with those of the binary.

pub use terrace_resp::test_client::{
    Client, HANG_GUARD, array, bulk, error, field, free_port, int, ok, shown, text, until,
};

use std::io::ErrorKind;
use std::time::Duration;

/// Whether nothing has come for the client within a moment.
pub fn hears_nothing(client: &Client) -> bool {
    client.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let heard = client.stream.peek(&mut [0]);
    client.stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
    heard.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}
