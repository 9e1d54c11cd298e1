//! `terrace-bench`: workloads, driver and report; the peers behind one adapter each.
//!
//! Floor 5. The command line ([`BenchArgs`]) becomes a list of [jobs](job::Job) (`plan`); the
//! driver runs each in a process of its own, engines taking turns repeat by repeat, and gathers
//! [rows](report::Row). What a workload does and how it is measured is said in [`workload`].
//!
//! Unsafe code is confined to the adapters of C libraries (`engine::{c_library, rocksdb,
//! leveldb}`).

pub mod catalog;
pub mod engine;
pub mod estimate;
pub mod filter;
pub mod job;
pub mod package_names;
pub mod report;
pub mod store;
pub mod store_size;
pub mod workload;

mod args;
mod driver;
mod on_drop;
mod plan;

pub use args::BenchArgs;

use anyhow::Result;

/// Runs what the command line asks for, or, in a process that the driver started, one job of it.
pub fn run(args: BenchArgs) -> Result<()> {
    match driver::job_of_this_process()? {
        Some(job) => driver::carry_out(&job),
        None => driver::drive(&plan::Plan::new(&args)?),
    }
}
