//! What tests of iterators share.

pub(crate) mod cursors;
