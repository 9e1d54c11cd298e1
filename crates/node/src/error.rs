//! Why a node does not start, or a request to the cluster is not done.

use crate::store::StoreError;
use terrace_cluster::{NodeId, PlanError};

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting that cannot work; the text says which.
    #[error("{0}")]
    Config(String),
    /// The store belongs to another cluster.
    #[error("the store belongs to the cluster \"{found}\", not to \"{wanted}\"")]
    ForeignStore {
        /// The cluster in the store.
        found: String,
        /// The one that was to be joined.
        wanted: String,
    },
    /// Another process joined as this node and is alive.
    #[error("node {0} is running already")]
    Running(NodeId),
    /// The cluster's metadata.
    #[error(transparent)]
    Metadata(#[from] terrace_metadata::Error),
    /// The node's store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A plan is refused.
    #[error("{0}")]
    Plan(PlanError),
    /// There is no topology yet, or a node that is needed did not answer.
    #[error("{0}")]
    Unserved(String),
    /// The machine: ports, threads.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the machine said.
        error: std::io::Error,
    },
}
