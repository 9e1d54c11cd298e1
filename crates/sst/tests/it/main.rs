//! The crate from outside: files written and read through the public API, on the simulated file
//! system.

mod concurrency;
mod damage;
mod files;
mod golden;
mod model;
