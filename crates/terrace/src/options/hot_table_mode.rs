//! The option that says whether a store keeps a hot table, and its text.

use super::words::spelled;

/// Whether keys that are written again and again are kept in memory instead of being flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HotTableMode {
    /// Every memtable is flushed whole.
    #[default]
    Off,
    /// Keys that are written more than once in the life of a memtable stay in memory, within a
    /// quarter of what one memtable may hold, as long as they are.
    Auto,
}

spelled!(HotTableMode, "hot_table", Off = "off", Auto = "auto");
