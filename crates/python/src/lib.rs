//! The Python package `terracedb`: the store behind a dict.
//!
//! Classes are immutable to Python's eyes and guard what changes by a lock that is taken without the
//! interpreter's, so that no thread waits for the one while it holds the other. What may wait for the
//! device gives the interpreter to other threads; a read that is answered from memory does not, since that
//! would cost more than the read. Functions of Python that the engine calls back are in `callbacks`. What callers see is said in `python/terracedb/__init__.pyi`.
//!
//! Floor 6: uses the engine and what the bindings share, and of the keyspace how a repair knows a server's store.

#![allow(unsafe_code, reason = "what PyO3's macros generate")]

mod arguments;
mod backups;
mod batch;
mod bulk_loader;
mod callbacks;
mod compaction_filter;
mod db;
mod entries;
mod errors;
mod family;
mod merge_operator;
mod options;
mod reader;
mod repair;
mod results;
mod snapshot;
mod sst_writer;
mod transaction;
mod updates;
mod view;

use pyo3::prelude::*;
use terrace_binding::Outcome;

/// What `import terracedb` finds.
#[pymodule]
fn _terracedb(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<family::ColumnFamily>()?;
    module.add_class::<db::Db>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<entries::Entries>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<sst_writer::SstWriter>()?;
    module.add_class::<bulk_loader::BulkLoader>()?;
    module.add_class::<backups::Backups>()?;
    module.add_class::<backups::Backup>()?;
    module.add_class::<merge_operator::MergeOperator>()?;
    module.add_class::<compaction_filter::CompactionFilter>()?;
    module.add_class::<updates::Updates>()?;
    module.add_class::<updates::UpdateBatch>()?;
    module.add_class::<updates::Update>()?;
    module.add_function(wrap_pyfunction!(repair::repair, module)?)?;
    module.add_function(wrap_pyfunction!(_panic, module)?)?;
    callbacks::register(module)?;
    errors::add(module)?;
    let names: Vec<String> = module.dict().keys().extract()?;
    let public: Vec<String> = names.into_iter().filter(|name| !name.starts_with('_')).collect();
    module.add("__all__", public)
}

/// Panics with this text, as the engine does if it has a defect: for tests, which find no other way to such an exception.
#[pyfunction]
fn _panic(py: Python<'_>, text: String) -> PyResult<()> {
    let work = || -> Outcome<()> { std::panic::resume_unwind(Box::new(text)) };
    callbacks::wait(py, work, errors::raise)
}
