//! What people and dashboards are shown: families, levels and files ([`store_shape`]), and where the
//! memory budget is ([`memory_pools`]).

pub(crate) mod memory_pools;
pub(crate) mod store_shape;
