//! What can go wrong, by what the caller has to do about it.

/// As [`std::result::Result`], with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody answered in time, or there is no majority. Whether a transaction happened is unknown:
    /// read again before the next step. Try later.
    #[error("the metadata store cannot be reached: {0}")]
    Unavailable(String),
    /// The lease does not exist any more, and what was bound to it is gone or will be at once.
    #[error("the lease has ended")]
    LeaseGone,
    /// The changes since the revision that a watch asked for are not kept any more: read everything
    /// again. The first revision that is kept.
    #[error("changes before revision {0} are not kept any more")]
    Compacted(u64),
    /// The request is refused as it is; trying again does not help.
    #[error("the metadata store refuses the request: {0}")]
    Refused(String),
    /// The store that an embedded one lies in.
    #[error(transparent)]
    Store(#[from] terrace::Error),
}
