//! Where keys lie in a file, without reading its data: for estimates, and for cutting work into parts.

use crate::load::OnMiss;
use crate::reader::SstReader;
use terrace_base::Result;

impl SstReader {
    /// About how many bytes of the file's data precede `user_key`. Reads nothing: exact to a
    /// block if the learned index or the index partition is resident, else to half a partition.
    pub fn approximate_offset(&self, user_key: &[u8]) -> u64 {
        if let Some(model) = self.resident_model()
            && let Some(guess) = model.locate(user_key)
            && user_key <= self.properties.largest.as_slice()
        {
            return model.handle(guess.block as usize).offset;
        }
        let at = self.top.index_at(user_key);
        let Some(place) = self.top.index().get(at) else { return self.properties.data_bytes };
        if let Some(index) = &*self.slots.index[at].load() {
            let block = index.lower_bound(user_key).min(index.count() - 1);
            return index.handle(block).offset;
        }
        place.data_offset.midpoint(self.data_end(at))
    }

    /// At most `count` user keys, ascending, that cut the data into parts of about equal size,
    /// for work that is to be split. Reads index partitions, past the cache, if there are few.
    pub fn index_separators(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let partitions = self.top.index().len();
        // (separator, where the data at or below it ends)
        let mut cuts: Vec<(Vec<u8>, u64)> = Vec::new();
        for at in 0..partitions {
            if partitions > count.saturating_mul(8) {
                cuts.push((self.top.index_separator(at).to_vec(), self.data_end(at)));
                continue;
            }
            let index = self.index_partition(at, OnMiss::Read)?;
            for block in 0..index.count() {
                let end = index.handle(block).end().unwrap_or(u64::MAX);
                cuts.push((index.separator(block), end));
            }
        }
        cuts.pop();
        let data_bytes = self.properties.data_bytes as u128;
        let wanted = |part: usize| (data_bytes * part as u128 / (count as u128 + 1)) as u64;
        let nearest = |part: usize| cuts.partition_point(|(_, end)| *end < wanted(part));
        let mut picked: Vec<usize> = (1..=count).map(nearest).collect();
        picked.dedup();
        let mut keys: Vec<Vec<u8>> =
            picked.into_iter().filter_map(|at| cuts.get(at).map(|cut| cut.0.clone())).collect();
        keys.dedup();
        Ok(keys)
    }
}
