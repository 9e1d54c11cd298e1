//! Redis's data types over the engine: strings, hashes, sets, sorted sets and lists in ordered keys.
//!
//! A [`Keyspace`] is one store; commands run inside a [`CommandBatch`], which gathers what many of them
//! write into one commit. How the types lie in keys is in `encode.rs`.
//!
//! Floor 5: uses the engine, and knows no protocol. Inside, a module uses only those listed above
//! it.

#![forbid(unsafe_code)]

// Vocabulary.
mod encode;
mod error;
mod integer;
mod key_layout;
mod long_double;
mod move_point;
mod random;
mod random_key;
// Nouns.
mod background_thread;
mod cursors;
mod databases;
mod dead_runs;
mod exported_key;
mod families;
mod first_expiries;
mod locks;
mod lookups;
mod move_records;
mod pending_writes;
mod result_size;
mod step_allowance;
mod store_kind;
mod store_marks;
mod vain_counts;
mod walk_bounds;
// The store, and what is written into it together.
mod command_batch;
mod keyspace;
mod watch;
// Commands.
mod active_expire;
mod convert;
mod export;
mod flush_db;
mod hashes;
mod key_moves;
mod key_page;
mod key_scan;
mod keys;
mod lists;
mod members;
mod rename;
mod repair;
mod set_algebra;
mod sets;
mod sorted_sets;
mod stray_key;
mod strings;
mod top_written;
mod usage;

pub use active_expire::ExpireProgress;
pub use command_batch::{CommandBatch, Mode, Text, Value};
pub use convert::{Converted, convert};
pub use encode::{COLLECTIONS, ELEMENTS, Kind, MAX_KEY_BYTES, MAX_MEMBER_BYTES, Meta};
pub use error::{Error, Result, Wait};
pub use export::MAX_EXPORT_BYTES;
pub use exported_key::{DamagedExport, ExportedKey};
pub use key_layout::{KeyLayout, MAX_DATABASES};
pub use key_moves::{Answer, ExportLimits, MoveState};
pub use key_page::KeyPage;
pub use key_scan::{KeyScan, SeenKey};
pub use keys::{ExpireIf, Type};
pub use keyspace::Keyspace;
pub use lists::{End, Inserted};
pub use long_double::LongDouble;
pub use lookups::Lookups;
pub use members::{Page, ranks};
pub use move_point::{move_point, watch_move_points};
pub use move_records::CLUSTER;
pub use repair::{repair, repair_telling};
pub use result_size::{MAX_ADDED_BYTES, MAX_STORED_BYTES, ResultSize};
pub use set_algebra::{Aggregation, Scored, Weighted};
pub use sorted_sets::{AddRule, Added, MemberEnd, Order, Range, ScoreEnd};
pub use step_allowance::InParts;
pub use store_kind::StoreKind;
pub use store_marks::doubt_notes;
pub use strings::{Lifetime, MAX_STRING_BYTES, PutOptions, PutOutcome, UnreadLen, When};
pub use terrace_cluster::Placement;
pub use top_written::{TopWrittenKeys, WrittenUserKey};
pub use walk_bounds::KeyRange;
pub use watch::Watch;
