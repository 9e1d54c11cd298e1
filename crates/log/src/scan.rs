//! Finding sync markers and sound records in bytes that cannot be read in order.
