//! Files looked at by people and estimators: the learned index laid out, with the keys that it was
//! trained on or without, and where in the data a key lies.

use crate::block_handle::{self, BlockHandle};
use crate::index::learned::LearnedIndex;
use crate::index::top_level::TAG_LEARNED;
use crate::load::OnMiss;
use crate::reader::SstReader;
use std::sync::Arc;
use terrace_base::Result;
use terrace_learned::{DrawnSegment, ModelStats};

/// A learned index as people look at it.
#[derive(Debug, Clone)]
pub struct ModelView {
    /// What was measured over the keys that it was trained on.
    pub stats: ModelStats,
    /// The most blocks that a line may be off.
    pub error_bound: u32,
    /// Its lines, by key.
    pub segments: Vec<DrawnSegment>,
    /// Bytes in memory, while it is there.
    pub memory_bytes: usize,
}

/// The first key of a data block beside what a learned index says of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelPoint {
    /// The key as the model sees it.
    pub key: u64,
    /// The number of its block.
    pub block: u32,
    /// That which the model predicts.
    pub predicted: Option<f64>,
}

impl SstReader {
    /// The learned index in the file and the first keys of all data blocks; `None` if it has none.
    /// Reads the whole file.
    ///
    /// # Errors
    /// I/O, and corruption of the learned index or a data block.
    pub fn model_points(self: &Arc<Self>) -> Result<Option<(ModelView, Vec<ModelPoint>)>> {
        let Some(handle) = self.top.other(TAG_LEARNED) else { return Ok(None) };
        let index = self.read_model(handle)?;
        let model = index.blocks().model();
        let mut points = Vec::new();
        self.for_each_first_key(|block, _, first| {
            let key = model.project(first);
            points.push(ModelPoint { key, block, predicted: model.predict(key) });
        })?;
        Ok(Some((view(&index), points)))
    }

    fn read_model(&self, handle: BlockHandle) -> Result<LearnedIndex> {
        let place = self.place(handle);
        let payload = block_handle::unpack(self.read(handle)?, &place)?;
        self.decode_model(&payload).map_err(|detail| place.corrupt(detail))
    }

    /// The learned index that lookups go through, or would if it were in memory; `None` if there is
    /// none. One that is not in memory is read past the cache, and nothing else is.
    ///
    /// # Errors
    /// I/O, and corruption of the learned index.
    pub fn model_view(&self) -> Result<Option<ModelView>> {
        if let Some(model) = self.resident_model() {
            return Ok(Some(view(&model)));
        }
        let Some(handle) = self.stored_model().filter(|_| self.has_model()) else {
            return Ok(None);
        };
        Ok(Some(view(&self.read_model(handle)?)))
    }
}

impl SstReader {
    /// How many bytes of the file's data precede `user_key`, to a block. Unlike
    /// [`SstReader::approximate_offset`] it reads the index partition of the key if it, and the
    /// learned index, are not in memory.
    ///
    /// # Errors
    /// I/O, and corruption of the index partition.
    pub fn offset_of(&self, user_key: &[u8]) -> Result<u64> {
        let at = self.top.index_at(user_key);
        if at < self.top.index().len() && self.resident_model().is_none() {
            let index = self.index_partition(at, OnMiss::Fill)?;
            let block = index.lower_bound(user_key).min(index.count() - 1);
            return Ok(index.handle(block).offset);
        }
        Ok(self.approximate_offset(user_key))
    }
}

fn view(index: &LearnedIndex) -> ModelView {
    let model = index.blocks().model();
    ModelView {
        stats: *model.stats(),
        error_bound: model.delta(),
        segments: model.segments().collect(),
        memory_bytes: index.memory_bytes(),
    }
}
