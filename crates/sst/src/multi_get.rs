//! Many lookups at once: every round takes each lookup as far as memory goes and reads all that
//! is missing in one batch. A cold lookup takes two or three rounds: filter, index with it or after it, data. In the first
//! round lookups wait for memory together ([`ahead`]).

use crate::lookup::{Entry, Lookup};
use crate::reader::SstReader;
pub use lookup::BatchLookup;
pub(crate) use missing::not_executed;
use missing::{Loaded, Wants, read_wanted};
use terrace_base::{Error, Result};

impl SstReader {
    /// Many lookups, each as by [`SstReader::get`]; in every round all partitions and
    /// blocks that are missing are read together. [`multi_get`] does this across files.
    pub fn multi_get(&self, lookups: &[Lookup<'_>]) -> Result<Vec<Option<Entry>>> {
        let mut batch: Vec<_> =
            lookups.iter().map(|lookup| BatchLookup::new(self, *lookup)).collect();
        multi_get(&mut batch)?;
        Ok(batch.into_iter().map(|lookup| lookup.found).collect())
    }
}

/// Executes lookups in any number of files of one file system: filters first, then index and
/// data, with one batch of reads per round. Lookups in the same file should follow each other. After an error the
/// `found` of all are unspecified. A lookup with [`Lookup::in_memory`] that needs a read is such an error, before
/// anything is read; what all of them have counted as heat is taken back then ([`SstReader::take_back`]).
pub fn multi_get(lookups: &mut [BatchLookup<'_>]) -> Result<()> {
    let outcome = execute(lookups);
    if matches!(outcome, Err(Error::NotInMemory)) {
        lookups.iter().for_each(BatchLookup::take_back);
    }
    outcome
}

fn execute(lookups: &mut [BatchLookup<'_>]) -> Result<()> {
    let mut loaded = Loaded::default();
    let fill_cache = lookups.iter().all(|batch| batch.lookup.fill_cache);
    let mut wants = Wants::default();
    for some in lookups.chunks_mut(ahead::TOGETHER) {
        ahead::advance(some, &loaded, &mut wants);
        advance(some, &loaded, &mut wants)?;
    }
    while !wants.is_empty() {
        read_wanted(&mut wants, &mut loaded, fill_cache)?;
        lookups.iter_mut().for_each(|batch| batch.is_waiting = false);
        advance(lookups, &loaded, &mut wants)?;
    }
    Ok(())
}

fn advance<'a>(
    lookups: &mut [BatchLookup<'a>],
    loaded: &Loaded,
    wants: &mut Wants<'a>,
) -> Result<()> {
    for batch in lookups {
        steps::advance(batch, loaded, wants)?;
        if batch.lookup.in_memory && !wants.is_empty() {
            return Err(Error::NotInMemory);
        }
    }
    Ok(())
}

mod ahead;
mod lookup;
mod missing;
mod steps;
