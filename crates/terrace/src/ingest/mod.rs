//! Ingestion: sorted files that were written outside the store become part of it, all of them together or
//! none. `sst_writer` writes such files, `copied` takes them over into the directory, `place` says into
//! which level, `run` installs them. `bulk` makes such files of entries in any order. `calls` is what `close`
//! waits for.

pub(crate) mod bulk;
pub(crate) mod calls;
pub(crate) mod copied;
pub(crate) mod place;
pub(crate) mod run;
pub(crate) mod sst_writer;
