//! Background work: the threads ([`worker`]) and what they do: [`flush`], [`hot_checkpoint`], [`compact`] (chosen by [`choose`], picked and run by
//! [`compaction`]), [`compact_range`], waiting for all of it ([`settle`]), garbage collection of values ([`gc`], [`collect_garbage`]), training of models
//! ([`train_models`]). [`bound_log`] says what is flushed for the sake of the log, [`log_care`] when it is synced in the background, [`rebalance`] moves memory between pools, [`ahead`] does what writers would wait for, [`read_again`] reads what could not be read before it is merged, [`retain`] says which versions survive, [`filter`] asks the program about them, [`output`] writes them.

mod ahead;
mod bound_log;
pub(crate) mod choose;
pub(crate) mod collect_garbage;
pub(crate) mod compact;
pub(crate) mod compact_events;
pub(crate) mod compact_range;
pub(crate) mod compaction;
pub(crate) mod env;
pub(crate) mod filter;
pub(crate) mod flush;
pub(crate) mod fold;
pub(crate) mod full_disk;
pub(crate) mod gc;
pub(crate) mod hot_checkpoint;
mod log_care;
pub(crate) mod output;
mod read_again;
pub(crate) mod rebalance;
pub(crate) mod retain;
pub(crate) mod settle;
pub(crate) mod train_models;
pub(crate) mod worker;
