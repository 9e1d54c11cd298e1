//! Opening a store: for reading and writing ([`read_write`]), or read-only beside a writer
//! ([`read_only`]); the log is replayed by [`recover`], what stays of it for change feeds is found by [`kept_log`], and
//! files that nothing names are dealt with by [`orphans`].

pub(crate) mod kept_log;
pub(crate) mod orphans;
pub(crate) mod read_only;
pub(crate) mod read_write;
pub(crate) mod recover;
