//! What `learned` measures.

use super::{known, known_count};
use crate::report::Row;
use serde::{Deserialize, Serialize};

/// What `learned` measures beside what every row has; null where the engine does not tell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedFigures {
    /// The kind of keys.
    pub key_set: String,
    /// The rate over that of the same store in the same round without models, or of a peer with
    /// binary search.
    pub speedup: Option<f64>,
    /// Of the searches of a file, the share that a model of the file guided.
    pub model_share: Option<f64>,
    /// The share that a model of its whole level guided.
    pub level_share: Option<f64>,
    /// Bytes of models in memory, with what they need beside them.
    pub model_bytes: Option<u64>,
    /// Models made since the store was opened.
    pub models_built: Option<u64>,
    /// Files not worth one.
    pub models_refused: Option<u64>,
    /// Levels with a model of all their files.
    pub level_models: Option<u64>,
    /// Seconds of training.
    pub training_s: Option<f64>,
    /// Nanoseconds of training for each key that a model was made of, each time one was; what was
    /// spent on files that got none is in it.
    pub training_ns_per_key: Option<f64>,
}

impl LearnedFigures {
    /// Medians, field by field; `None` without rows that have such figures.
    pub(in crate::report) fn median(rows: &[&Row]) -> Option<Self> {
        let all: Vec<&Self> = rows.iter().filter_map(|row| row.learned.as_ref()).collect();
        let first = *all.first()?;
        Some(Self {
            key_set: first.key_set.clone(),
            speedup: known(&all, |f| f.speedup),
            model_share: known(&all, |f| f.model_share),
            level_share: known(&all, |f| f.level_share),
            model_bytes: known_count(&all, |f| f.model_bytes),
            models_built: known_count(&all, |f| f.models_built),
            models_refused: known_count(&all, |f| f.models_refused),
            level_models: known_count(&all, |f| f.level_models),
            training_s: known(&all, |f| f.training_s),
            training_ns_per_key: known(&all, |f| f.training_ns_per_key),
        })
    }
}
