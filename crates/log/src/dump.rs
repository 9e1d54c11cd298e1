//! Printing a segment whatever its state, for inspection and golden tests.
