//! Writing: the queue of writers ([`queue`]), what holds them back ([`stall`]), the check of read sets
//! ([`read_set`], [`validate`], [`changed_range`]), the commit to log and memtables ([`commit`]) by a leader who may panic ([`led`]), what a full disk takes
//! ([`full_disk`]), room in memtables
//! ([`room`]), as much as a flush finds room for ([`flush_room`]), and in the hot table ([`hot_swap`]), the life of the
//! log's segments ([`log_segments`]) and of their names ([`segment_names`]), who syncs it ([`log_syncs`]), and which keys are in them most often ([`count_written`], [`count_log`]).

mod changed_range;
pub(crate) mod commit;
pub(crate) mod count_log;
pub(crate) mod count_written;
pub(crate) mod env;
pub(crate) mod flush_room;
mod full_disk;
pub(crate) mod hot_swap;
pub(crate) mod led;
pub(crate) mod log_segments;
mod log_syncs;
pub(crate) mod queue;
pub(crate) mod read_set;
pub(crate) mod room;
mod segment_names;
pub(crate) mod stall;
pub(crate) mod validate;
