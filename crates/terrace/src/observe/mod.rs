//! What people and dashboards are shown: counters ([`current_metrics`]), families, levels and files ([`store_shape`]), and where the
//! memory budget is ([`memory_pools`]).

pub(crate) mod current_metrics;
pub(crate) mod memory_pools;
pub(crate) mod store_shape;
