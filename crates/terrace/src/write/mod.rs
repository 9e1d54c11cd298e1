//! Writing: the queue of writers ([`queue`]), what holds them back ([`stall`]), the check of read sets
//! ([`read_set`], [`validate`]), and the commit to log and memtables ([`commit`]).

pub(crate) mod commit;
pub(crate) mod env;
pub(crate) mod queue;
pub(crate) mod read_set;
pub(crate) mod stall;
pub(crate) mod validate;
