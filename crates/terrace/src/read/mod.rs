//! Reading: one key or many ([`get`]), a range ([`scan`]), and how much a range holds ([`estimate`]).

pub(crate) mod estimate;
pub(crate) mod get;
pub(crate) mod merged;
pub(crate) mod scan;
