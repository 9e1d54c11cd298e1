//! Learned indexes as the engine uses them. The models are `terrace-learned`'s, and `terrace-sst` has
//! those of single files; here are the model of a whole level ([`level_model`]), what lookups with
//! and without a model take ([`lookup_costs`]), and the history of files from which it is decided which of them
//! get one ([`file_stats`]). The job that trains is `background/train_models`.

pub(crate) mod file_stats;
pub(crate) mod level_model;
pub(crate) mod lookup_costs;
