//! Integration tests of the engine through its public API.

mod basics;
mod families;
mod limits;
