//! Reading what is sound of a damaged SST: for `terrace repair`.

use crate::block_handle::BlockHandle;
use crate::damage::is_damage;
use crate::iter::{ScanOptions, SstIter};
use crate::load::OnMiss;
use crate::reader::SstReader;
use std::cmp::Ordering;
use std::sync::Arc;
use terrace_base::key::compare_internal;
use terrace_base::{Error, Result};

/// A stretch of an SST that cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// The last key before it; `None` at the front of the file.
    pub after: Option<Vec<u8>>,
    /// No key in it is above this one.
    pub upto: Vec<u8>,
    /// What is wrong.
    pub error: Error,
}

/// Takes key, trailer and stored value of an entry.
pub type TakeEntry<'a> = dyn FnMut(&[u8], u64, &[u8]) -> Result<()> + 'a;

/// Gives every entry that can be read to `take`, in order.
pub(crate) fn entries(
    reader: &Arc<SstReader>,
    take: &mut TakeEntry<'_>,
) -> Result<Vec<Unreadable>> {
    let options = ScanOptions { fill_cache: false, prefetch_blocks: 0, ..ScanOptions::default() };
    let iter = SstIter::new(reader.clone(), options);
    let mut pass = Pass { reader, iter, take, last: None, unreadable: Vec::new() };
    for index_at in 0..reader.top.index().len() {
        let index = match reader.index_partition(index_at, OnMiss::Read) {
            Ok(index) => index,
            Err(error) => {
                pass.note(error, reader.top.index_separator(index_at).to_vec())?;
                continue;
            }
        };
        for block_at in 0..index.count() {
            if let Some(error) = pass.block(index_at, block_at, index.handle(block_at))? {
                pass.note(error, index.separator(block_at))?;
            }
        }
    }
    Ok(pass.unreadable)
}

impl SstReader {
    /// Gives every entry that can be read to `take`, in order, and tells what cannot: for a file that
    /// [`SstReader::verify`] refuses. Nothing else reads past damage.
    ///
    /// # Errors
    /// What `take` returns; I/O that is no damage ([`is_damage`](crate::is_damage)).
    pub fn salvage(self: &Arc<Self>, take: &mut TakeEntry<'_>) -> Result<Vec<Unreadable>> {
        entries(self, take)
    }
}

struct Pass<'a> {
    reader: &'a Arc<SstReader>,
    iter: SstIter,
    take: &'a mut TakeEntry<'a>,
    /// The entry before.
    last: Option<(Vec<u8>, u64)>,
    unreadable: Vec<Unreadable>,
}

impl Pass<'_> {
    /// Takes the entries of a block; gives what is wrong with it.
    fn block(
        &mut self,
        index_at: usize,
        block_at: usize,
        handle: BlockHandle,
    ) -> Result<Option<Error>> {
        let block = match self.iter.visit_block(index_at, block_at) {
            Ok(block) => block,
            Err(error) => return Ok(Some(error)),
        };
        let mut key = Vec::new();
        for at in 0..block.count() {
            block.read_key(at, &mut key);
            let mut entry = block.entry(at);
            entry.trailer |= self.reader.global_trailer;
            if let Some((before, trailer)) = &self.last
                && compare_internal(before, *trailer, &key, entry.trailer) != Ordering::Less
            {
                let place = self.reader.place(handle);
                return Ok(Some(place.corrupt(format!("entry {at} is out of order"))));
            }
            (self.take)(&key, entry.trailer, block.value(entry.value))?;
            self.last = Some((key.clone(), entry.trailer));
        }
        Ok(None)
    }

    fn note(&mut self, error: Error, upto: Vec<u8>) -> Result<()> {
        if !is_damage(&error) {
            return Err(error);
        }
        let after = self.last.as_ref().map(|(key, _)| key.clone());
        self.unreadable.push(Unreadable { after, upto, error });
        Ok(())
    }
}
