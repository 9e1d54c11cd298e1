//! The traits and types that an operator of merges is made of.

use std::fmt;
use std::sync::Arc;

/// The longest name of a merge operator, in bytes.
pub(crate) const MAX_OPERATOR_NAME_BYTES: usize = 256;

/// Why operands cannot be merged, in words for the error that the reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeError(pub String);

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MergeError {}

/// What the operands of a column family mean. Given in
/// [`CfOptions::merge_operator`](crate::CfOptions::merge_operator); its name is stored with the family.
///
/// Every function must be pure: the same arguments give the same result, in every process and build
/// that opens the store. They are called by readers and by background threads, at the same time.
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("terrace-doc-op-{}", std::process::id()));
/// use std::sync::Arc;
/// use terrace::{CfOptions, Db, MergeError, MergeOperator, Options};
///
/// /// Keeps the longest of all operands.
/// struct Longest;
///
/// impl MergeOperator for Longest {
///     fn name(&self) -> &str {
///         "longest"
///     }
///
///     fn full_merge(
///         &self,
///         _key: &[u8],
///         existing: Option<&[u8]>,
///         operands: &[&[u8]],
///     ) -> Result<Vec<u8>, MergeError> {
///         let all = existing.iter().chain(operands).copied();
///         Ok(all.max_by_key(|value| value.len()).unwrap_or_default().to_vec())
///     }
/// }
///
/// let default_family = CfOptions { merge_operator: Some(Arc::new(Longest)), ..Default::default() };
/// let db = Db::open(&dir, Options { default_family, ..Default::default() })?;
/// db.merge(b"word", b"terrace")?;
/// db.merge(b"word", b"hill")?;
/// assert_eq!(db.get(b"word")?.as_deref(), Some(&b"terrace"[..]));
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
pub trait MergeOperator: Send + Sync {
    /// The name that is stored with the column family, of 1 to 256 bytes. An open with an operator of another name
    /// is refused: change it whenever the meaning of operands changes.
    fn name(&self) -> &str;

    /// The value of `key` after `operands`, oldest first, of which there is at least one. `existing` is
    /// the value below them; `None` if the key was absent, deleted or expired.
    ///
    /// # Errors
    /// The operands cannot be merged: a read of the key fails with
    /// [`Error::MergeFailed`](crate::Error::MergeFailed), and background work leaves them as they are.
    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError>;

    /// One operand that does what `operands` do, oldest first, of which there are at least two, whatever
    /// lies below them. `None`, the default, if there is none: they all stay.
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (_, _) = (key, operands);
        None
    }
}

/// The operator's name.
impl fmt::Debug for dyn MergeOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MergeOperator({:?})", self.name())
    }
}

/// Operators are the same if they have the same name.
impl PartialEq for dyn MergeOperator {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

/// The operator of an associative function, for which values and operands are the same kind of thing:
/// `merge(key, existing, operand)` gives the value after `operand`, and for two operands that follow each
/// other, with the older as `existing`, the operand that does what both do.
///
/// ```
/// let union = terrace::associative("bit union", |_key, existing, operand| {
///     let left = existing.and_then(|value| value.first()).copied().unwrap_or(0);
///     Ok(vec![left | operand.first().copied().unwrap_or(0)])
/// });
/// assert_eq!(union.full_merge(b"k", Some(&[1]), &[&[2], &[8]]).unwrap(), [11]);
/// ```
pub fn associative(
    name: impl Into<String>,
    merge: impl Fn(&[u8], Option<&[u8]>, &[u8]) -> Result<Vec<u8>, MergeError> + Send + Sync + 'static,
) -> Arc<dyn MergeOperator> {
    Arc::new(Associative { name: name.into(), merge })
}

struct Associative<F> {
    name: String,
    merge: F,
}

impl<F> MergeOperator for Associative<F>
where
    F: Fn(&[u8], Option<&[u8]>, &[u8]) -> Result<Vec<u8>, MergeError> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        let mut value: Option<Vec<u8>> = None;
        for operand in operands {
            value = Some((self.merge)(key, value.as_deref().or(existing), operand)?);
        }
        value.ok_or_else(|| MergeError("there is no operand".into()))
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (first, rest) = operands.split_first()?;
        self.full_merge(key, Some(first), rest).ok()
    }
}
