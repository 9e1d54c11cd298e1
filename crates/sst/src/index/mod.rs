//! The index: partitions loaded on demand, the pinned top level that finds them, and the learned
//! index that point lookups use in place of both.

pub(crate) mod learned;
pub(crate) mod partition;
pub(crate) mod top_level;
