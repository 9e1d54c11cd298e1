//! What lookups and training take, if it is not to be measured.

/// Nanoseconds by which it is decided which files and levels get models, instead of measured ones:
/// for tests and simulations, in which the same must happen on every machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelCosts {
    /// To train a key.
    pub training_ns_per_key: f64,
    /// A lookup in a file through its index.
    pub index_ns: f64,
    /// A lookup in a file through its model.
    pub model_ns: f64,
    /// To find the file of a level that may have a key.
    pub find_file_ns: f64,
}
