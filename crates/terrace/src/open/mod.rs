//! Opening a store: for reading and writing ([`for_writing`], [`read_write`]; on a full disk [`full_disk`]), or read-only beside a writer
//! ([`read_only`]), with the options of families by [`family_options`]; the log is replayed by [`recover`], what stays of it for change feeds is found by [`kept_log`], and
//! files that nothing names are dealt with by [`orphans`], and before that by [`merged`] those of a repair that was cut short.

pub(crate) mod family_options;
pub(crate) mod for_writing;
pub(crate) mod full_disk;
pub(crate) mod kept_log;
pub(crate) mod merged;
pub(crate) mod orphans;
pub(crate) mod read_only;
pub(crate) mod read_write;
pub(crate) mod recover;
