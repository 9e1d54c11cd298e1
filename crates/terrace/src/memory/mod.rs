//! What the memory budget is spent on besides memtables: open readers and their blocks
//! ([`table_cache`]), and filter units ([`filter_budget`]).

pub(crate) mod filter_budget;
pub(crate) mod table_cache;
