//! `merge` of a store and of a column family (put).

use super::{ColumnFamily, Db};
use crate::error::Result;
use terrace_base::ValueKind;

impl Db {
    /// Merges `operand` into the value of `key`, as the merge operator of the column family says
    /// ([`CfOptions::merge_operator`](crate::CfOptions::merge_operator)). Nothing is read: it costs
    /// what a put costs, and the value is made when it is read or compacted.
    ///
    /// A read folds all operands that are not compacted yet, so a key that gets very many between two flushes
    /// is read slowly meanwhile.
    ///
    /// # Errors
    /// `InvalidArgument` if the family has no merge operator; else as [`Db::put`]. What the operator thinks of
    /// the operand is only known when the key is read.
    ///
    /// ```
    /// # fn main() -> terrace::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("terrace-doc-merge-{}", std::process::id()));
    /// use std::sync::Arc;
    /// use terrace::{CfOptions, CounterOperator, Db, Options};
    ///
    /// let default_family =
    ///     CfOptions { merge_operator: Some(Arc::new(CounterOperator)), ..Default::default() };
    /// let db = Db::open(&dir, Options { default_family, ..Default::default() })?;
    /// for _ in 0..3 {
    ///     db.merge(b"visits", CounterOperator::encode(1))?;
    /// }
    /// let visits = db.get(b"visits")?.and_then(|value| CounterOperator::decode(&value));
    /// assert_eq!(visits, Some(3));
    /// # db.close()?;
    /// # std::fs::remove_dir_all(&dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.default.merge(key, operand)
    }
}

impl ColumnFamily {
    /// As [`Db::merge`].
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.family.check_merges()?;
        self.write_one(ValueKind::Merge, key.as_ref(), operand.as_ref())
    }

    /// The name of the family's merge operator, if it has one.
    pub fn merge_operator(&self) -> Option<&str> {
        self.family.merge_operator().map(|operator| operator.name())
    }
}
