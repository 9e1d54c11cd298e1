//! The index: partitions loaded on demand, and the pinned top level that finds them.

pub(crate) mod partition;
pub(crate) mod top_level;
