//! The bytes of an edit.
