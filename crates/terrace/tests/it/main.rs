//! Integration tests of the engine through its public API.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod background_errors;
mod basics;
mod camera;
mod crash_in_recovery;
mod disk_full;
mod drawn;
mod durability;
mod expiry;
mod explain;
mod families;
mod faults;
mod faults_in_turn;
mod filters;
mod fixture;
mod gc;
mod handles;
mod harness;
mod held;
mod hot_table;
mod hot_table_twin;
mod in_memory;
mod introspection;
mod large_values;
mod learning;
mod left_over;
mod limits;
mod live_options;
mod lost_files;
mod metamorphic;
mod misplaced;
mod model;
mod mutants;
mod power_cut;
mod range_deletes;
mod readers;
mod repair;
mod room;
mod separation;
mod stalls;
mod strays;
mod transaction_ranges;
mod transactions;
mod values;
mod written;
