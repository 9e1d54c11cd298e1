//! Merge operators: what an operand written by `merge` does to the value of its key (put, get, compact).
//!
//! A merge writes only the operand. Reads find the operands above the newest value and fold them;
//! flush and compaction fold what no snapshot keeps apart, and combine the rest. The words are
//! RocksDB's: a full merge folds operands onto a value, a partial merge makes one operand of several.

mod builtin;
mod operands;
mod operator;

pub use builtin::{AppendOperator, CounterOperator, MaxOperator, builtin_merge_operator};
pub(crate) use operands::{Offered, Operands};
pub(crate) use operator::MAX_OPERATOR_NAME_BYTES;
pub use operator::{MergeError, MergeOperator, associative};

/// The code of the page, compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/merge.md")]
struct Page;
