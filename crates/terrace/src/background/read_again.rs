//! Files that could not be read are read again, whole, before a merge that has them writes anything (compact). Such a merge
//! is tried every few seconds ([`crate::jobs::background_errors`]), and has written all that lies before the sector when it
//! comes to it: a store that nobody uses would write that, and remove it, again and again.

use crate::background::compaction::pick::{Compaction, File};
use crate::background::env::JobEnv;
use crate::error::{Error, Result};
use terrace_base::InternalIter;
use terrace_sst::ScanOptions;

/// Entries between two looks whether the store stops.
const LOOK_ENTRIES: u64 = 1024;

/// Reads the files of `merge` that could not be read when they were tried last.
///
/// # Errors
/// What is still in the way; `Closed` if the store stops.
pub(super) fn files_that_failed(env: &JobEnv, merge: &Compaction) -> Result<()> {
    let above = merge.above.iter().flat_map(|above| above.files());
    let mut files = merge.files().chain(above);
    files.try_for_each(|file| match env.jobs.errors.could_not_read(file.number) {
        true => read(env, file),
        false => Ok(()),
    })
}

fn read(env: &JobEnv, file: &File) -> Result<()> {
    let reader = env.read.table_cache.reader_for_work(file)?;
    let mut iter = reader.iter(ScanOptions::compaction());
    let mut entries = 0_u64;
    iter.seek_to_first()?;
    while iter.valid() {
        entries += 1;
        if entries.is_multiple_of(LOOK_ENTRIES) && env.jobs.scheduler.is_stopping() {
            return Err(Error::Closed);
        }
        iter.next()?;
    }
    Ok(())
}
