//! Looking into the files of a store without the engine: dumps of every file kind, and the check
//! behind `terrace verify`.
//!
//! Floor 5, using floors 0-3 only. Nothing here writes to a store or takes its lock, so all of it
//! works on a store that another process has open, and on one that no longer opens. A dump prints
//! what can be decoded, states every piece of damage with its offset, goes on, and returns how
//! many there were; only what keeps it from looking at all (no such file, no permission) is an
//! error.
//!
//! The byte formats are known to the crates that own them, and so are their dumps; what is here is
//! the one payload that floors 0-3 do not know ([`batch`]), the LSM as a whole ([`lsm`],
//! [`check_store`]), and finding the files.

#![forbid(unsafe_code)]

pub mod batch;
mod check;
mod directory;
mod log;
mod lsm;
mod manifest;
mod model_drawing;
mod problem;
mod salvage;
mod segments;
mod sst;
mod text;
mod tree;

pub use check::{Counts, Progress, Report, check_store, check_store_with};
pub use directory::{Contents, contents};
pub use log::log;
pub use lsm::lsm;
pub use manifest::manifest;
pub use problem::Problem;
pub use sst::{plot_sst, sst};
pub use terrace_log::dump::Detail as LogDetail;
pub use terrace_sst::DumpDetail as SstDetail;
pub use text::{Abridged, Escaped, SizeBytes};
