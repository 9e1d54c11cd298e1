//! Takes over a file that was written outside a store (ingestion): its blocks are checked and copied, with
//! the checksums that they have under their new number. The place of every block stays the same.

use crate::block_handle::{self, BlockHandle};
use crate::footer::EXTERNAL_FILE_NUMBER;
use crate::load::OnMiss;
use crate::options::DEFAULT_WRITE_BYTES;
use crate::reader::SstReader;
use crate::unfinished::{Output, UnfinishedSst};
use crate::verify;
use std::path::Path;
use std::sync::Arc;
use terrace_base::{Error, FileNumber, Result, SeqNo};
use terrace_vfs::{CreateOptions, Vfs};

/// Bytes that are read together, if they are more than one block.
const READ_BYTES: usize = 1 << 20;

impl SstReader {
    /// Checks the whole file, which must be one that belongs to no store, and copies all but its end to
    /// `target`, which must not exist, as file `file_number`.
    ///
    /// # Errors
    /// `Corruption` if the file is damaged; `InvalidArgument` if it is no file to be ingested; I/O.
    pub fn copy_external(
        self: &Arc<Self>,
        vfs: &dyn Vfs,
        target: &Path,
        file_number: FileNumber,
        direct_write: bool,
    ) -> Result<UnfinishedSst> {
        check_external(self)?;
        verify::verify(self)?;
        let create = CreateOptions { direct: direct_write, ..Default::default() };
        let file = vfs.create(target, &create)?;
        let mut output = Output::new(file, file_number, DEFAULT_WRITE_BYTES);
        self.copy_blocks(&mut output)?;
        Ok(UnfinishedSst {
            output,
            top_level: self.top.clone(),
            range_tombstones: Arc::new(self.range_tombstones().clone()),
            properties: self.properties.clone(),
            training: None,
        })
    }

    /// Copies the blocks before the end, in their order, which `verify` has found to be without gaps.
    fn copy_blocks(&self, output: &mut Output) -> Result<()> {
        for index_at in 0..self.top.index().len() {
            let index = self.index_partition(index_at, OnMiss::Read)?;
            self.copy_run((0..index.count()).map(|at| index.handle(at)), output)?;
        }
        let filters = self.top.filters().iter();
        let units = filters.flat_map(|place| (0..place.shape.unit_count).map(|u| place.unit(u)));
        let index = self.top.index().iter().map(|place| place.handle);
        let others = self.top.others().iter().map(|(_, handle)| *handle);
        self.copy_run(units.chain(index).chain(others), output)
    }

    fn copy_run(
        &self,
        blocks: impl Iterator<Item = BlockHandle>,
        output: &mut Output,
    ) -> Result<()> {
        let mut together: Vec<BlockHandle> = Vec::new();
        let mut bytes = 0;
        for block in blocks {
            together.push(block);
            bytes += block.stored_len as usize;
            if bytes >= READ_BYTES {
                self.copy_together(&together, bytes, output)?;
                together.clear();
                bytes = 0;
            }
        }
        self.copy_together(&together, bytes, output)
    }

    fn copy_together(
        &self,
        blocks: &[BlockHandle],
        bytes: usize,
        output: &mut Output,
    ) -> Result<()> {
        let Some(first) = blocks.first() else { return Ok(()) };
        let mut stored = vec![0; bytes];
        self.count_read(bytes);
        self.file.read_at(first.offset, &mut stored)?;
        let mut rest = stored.as_slice();
        for block in blocks {
            let place = self.place(*block);
            let outside = || place.corrupt("the block does not follow the one before");
            let (own, after) =
                rest.split_at_checked(block.stored_len as usize).ok_or_else(outside)?;
            rest = after;
            if block.offset != output.offset() {
                return Err(outside());
            }
            let (content, kind) = block_handle::check_sum(own, &place)?;
            output.copy(content, kind)?;
        }
        Ok(())
    }
}

/// Refuses a file that is no file to be ingested.
fn check_external(reader: &SstReader) -> Result<()> {
    let properties = reader.properties();
    let refuse = |why: &str| {
        let text = format!("{} cannot be ingested: {why}", reader.path().display());
        Err(Error::InvalidArgument(text))
    };
    if reader.file_number() != EXTERNAL_FILE_NUMBER || properties.global_seqno.is_some() {
        return refuse("it belongs to a store");
    }
    if properties.largest_seqno > SeqNo::ZERO
        || reader.range_tombstones().seqnos().iter().any(|seqno| *seqno > SeqNo::ZERO)
    {
        return refuse("its entries have sequence numbers");
    }
    if !properties.value_refs.is_empty() {
        return refuse("it refers to values in the log of a store");
    }
    if properties.entry_count == 0 && properties.range_tombstone_count == 0 {
        return refuse("it is empty");
    }
    Ok(())
}
