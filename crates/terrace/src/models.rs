//! What is known of models, for those who decide and for those who only count: how long lookups
//! take by which way, how files live, what came of training. No model lies here.
//!
//! Used by `table_cache`, `get`, `output` and `family`, which fill the counts, and by `learn`.

pub(crate) mod books;
pub(crate) mod samples;
pub(crate) mod tally;
