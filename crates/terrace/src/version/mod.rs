//! The file set and what readers hold of it: what a read sees ([`read_state`]) of a [`family`], at
//! which sequence numbers ([`snapshots`]), how a change of it becomes durable and visible ([`install`]), and what keeps
//! it honest: numbers of files ([`file_numbers`]), names of new ones ([`unpublished`]), evidence of what was synced ([`evidence`]), pins of readers
//! in other processes ([`reader_pins`]), segments of the log that change feeds read ([`log_history`]).

pub(crate) mod evidence;
pub(crate) mod family;
pub(crate) mod file_numbers;
pub(crate) mod hot_keys;
pub(crate) mod hot_table;
pub(crate) mod install;
pub(crate) mod log_history;
pub(crate) mod read_env;
pub(crate) mod read_state;
pub(crate) mod reader_pins;
pub(crate) mod snapshots;
pub(crate) mod unpublished;
pub(crate) mod version_set;
