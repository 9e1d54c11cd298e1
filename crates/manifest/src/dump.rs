//! Printing a manifest whatever its state, for inspection and golden tests.
