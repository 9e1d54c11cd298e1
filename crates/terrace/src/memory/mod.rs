//! What the memory budget is spent on besides memtables: open readers and their blocks
//! ([`table_cache`], [`reader_slot`]), and filter units ([`filter_budget`]); what memtables
//! lend while they do not use it ([`memtable_loan`]), what is held of them longer ([`left_memtables`]), and what those of all families
//! take ([`family_totals`]); what more of it would save ([`pool_gains`]), and what
//! moves it ([`arbiter`]); what gives freed memory back ([`packing`]).

pub(crate) mod arbiter;
pub(crate) mod family_totals;
pub(crate) mod filter_budget;
pub(crate) mod left_memtables;
pub(crate) mod memtable_loan;
pub(crate) mod packing;
pub(crate) mod pool_gains;
pub(crate) mod reader_slot;
pub(crate) mod table_cache;
