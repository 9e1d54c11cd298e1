//! The crate from outside: files written and read through the public API, on the simulated file
//! system.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod concurrency;
mod damage;
mod external;
mod files;
mod golden;
mod learned;
mod likely;
mod model;
mod multi_get;
mod pages;
mod units;
mod values;
mod versions;
