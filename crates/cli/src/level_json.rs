//! A level of the tree as JSON.

use serde_json::{Value, json};
use terrace::LevelMetrics;

/// One row of the level table.
pub fn level_json(level: &LevelMetrics) -> Value {
    json!({
        "file_count": level.file_count, "size_bytes": level.size_bytes,
        "entry_count": level.entry_count, "tombstone_count": level.tombstone_count,
        "raw_bytes": level.raw_bytes, "written_bytes": level.written_bytes,
    })
}
