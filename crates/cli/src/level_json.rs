//! A level of the tree as JSON, and how structs of figures become it.

use serde_json::Value;
use terrace::LevelMetrics;

/// The fields of a struct as those of a JSON object.
macro_rules! fields {
    ($of:expr; $($name:ident),+) => {
        serde_json::Map::from_iter([$((stringify!($name).to_string(), serde_json::json!($of.$name))),+])
    };
}
pub(crate) use fields;

/// One row of the level table.
pub fn level_json(level: &LevelMetrics) -> Value {
    Value::Object(fields!(
        level; file_count, size_bytes, entry_count, tombstone_count, raw_bytes, written_bytes, filter_stopped,
        filter_vain, filter_found, filter_units_loaded, filter_units_dropped, filter_memory_bytes, model_files,
        level_models
    ))
}
