//! What is decoded when an SST is opened: the end of the file, and what must hold between its parts.

use crate::block_handle::{self, BlockHandle, Checked, Place};
use crate::counters::{Event, ReadCounters};
use crate::damage::is_damage;
use crate::footer::{FOOTER_BYTES, Footer};
use crate::index::top_level::TopLevel;
use crate::properties::Properties;
use std::borrow::Cow;
use terrace_base::{Error, FileNumber, Result};
use terrace_vfs::{RandomFile, check_not_encrypted};

/// Bytes at the end of the file that opening reads at once; they hold footer, properties,
/// top-level index and range tombstones of most files.
const TAIL_BYTES: u64 = 32 << 10;

/// What the top level and the properties say of each other.
pub(super) fn check_top_level(
    top: &TopLevel,
    properties: &Properties,
    file_end: u64,
) -> Checked<()> {
    let index = top.index();
    let blocks = index.iter().try_fold(0u64, |sum, place| sum.checked_add(place.block_count));
    if properties.data_bytes > file_end {
        return Err("the data passes the end of the file");
    }
    if index.first().is_some_and(|first| first.data_offset != 0)
        || index.last().is_some_and(|last| last.data_offset >= properties.data_bytes)
        || index.iter().any(|place| place.handle.offset < properties.data_bytes)
        || index.is_empty() != (properties.entry_count == 0)
        || index.iter().any(|place| place.block_count == 0)
        || blocks != Some(properties.data_block_count)
    {
        return Err("the top-level index does not match the properties");
    }
    Ok(())
}

/// The end of the file: everything that is decoded when it is opened.
pub(super) struct Tail<'a> {
    file: &'a dyn RandomFile,
    file_number: FileNumber,
    start: u64,
    bytes: Vec<u8>,
    pub footer: Footer,
}

impl<'a> Tail<'a> {
    pub fn read(
        file: &'a dyn RandomFile,
        file_number: FileNumber,
        counters: &ReadCounters,
    ) -> Result<Self> {
        let (path, size) = (file.path(), file.len());
        let Some(footer_at) = size.checked_sub(FOOTER_BYTES as u64) else {
            let detail = format!("{size} bytes are too few for an SST");
            return Err(Error::corruption(path, 0, detail));
        };
        let mut start = size.saturating_sub(TAIL_BYTES);
        let mut bytes = vec![0; (size - start) as usize];
        if let Err(error) = read_counted(file, start, &mut bytes, counters) {
            if !is_damage(&error) {
                return Err(error);
            }
            // It may lie in data, which only the blocks there need: a page of an encrypted file fails as a whole.
            start = footer_at;
            bytes.truncate(FOOTER_BYTES);
            read_counted(file, start, &mut bytes, counters)?;
        }
        let place = Place { path, file_number, offset: footer_at };
        let Some(footer) = bytes.last_chunk::<FOOTER_BYTES>() else {
            return Err(place.corrupt("no footer"));
        };
        let footer = match Footer::decode(footer, &place) {
            Ok(footer) => footer,
            // Without its keys an encrypted file reads as noise, which is no damage.
            Err(error) => return Err(check_not_encrypted(file).err().unwrap_or(error)),
        };
        let tail_offset = footer.tail_offset();
        if tail_offset < start {
            // What is read has no more bytes than blocks may have.
            if footer_at - tail_offset > footer.tail_bytes() {
                return Err(
                    place.corrupt("the blocks that the footer names do not lie side by side")
                );
            }
            let mut whole = vec![0; (start - tail_offset) as usize];
            read_counted(file, tail_offset, &mut whole, counters)?;
            whole.extend_from_slice(&bytes);
            (start, bytes) = (tail_offset, whole);
        }
        Ok(Self { file, file_number, start, bytes, footer })
    }

    pub fn decode<T>(
        &self,
        handle: BlockHandle,
        decode: impl FnOnce(&[u8]) -> Checked<T>,
    ) -> Result<T> {
        let (path, file_number) = (self.file.path(), self.file_number);
        let place = Place { path, file_number, offset: handle.offset };
        let stored = usize::try_from(handle.offset.wrapping_sub(self.start))
            .ok()
            .and_then(|at| self.bytes.get(at..)?.get(..handle.stored_len as usize));
        let stored = stored.ok_or_else(|| place.corrupt("the block is not where it should be"))?;
        let payload = payload(stored, &place)?;
        decode(&payload).map_err(|detail| place.corrupt(detail))
    }
}

fn read_counted(
    file: &dyn RandomFile,
    offset: u64,
    bytes: &mut [u8],
    counters: &ReadCounters,
) -> Result<()> {
    counters.count(Event::DeviceRead);
    counters.add(Event::DeviceReadBytes, bytes.len() as u64);
    file.read_at(offset, bytes)
}

/// The payload of a stored block, wherever its bytes lie.
pub(crate) fn payload<'a>(stored: &'a [u8], place: &Place<'_>) -> Result<Cow<'a, [u8]>> {
    let (content, compression) = block_handle::check(stored, place)?;
    if compression == crate::Compression::None {
        return Ok(Cow::Borrowed(content));
    }
    let mut payload = vec![0; block_handle::declared_len(content, compression, place)?];
    block_handle::decompress_into(content, compression, &mut payload, place)?;
    Ok(Cow::Owned(payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::top_level::IndexPlace;

    #[test]
    fn partitions_that_have_other_blocks_than_the_properties_count_are_refused() {
        let is_sound = |counts: [u64; 2], data_block_count| {
            let index = counts.into_iter().zip(0..).map(|(block_count, at)| {
                let handle = BlockHandle { offset: 1000 + at * 50, stored_len: 50 };
                let data_offset = at * 100;
                let place = IndexPlace { handle, data_offset, block_count, first_block: 0 };
                (vec![at as u8], place)
            });
            let top = TopLevel::new(index.collect(), 0, Vec::new(), Vec::new());
            let properties = Properties {
                entry_count: 9,
                data_block_count,
                data_bytes: 1000,
                ..Properties::default()
            };
            check_top_level(&top, &properties, 2000).is_ok()
        };
        assert!(is_sound([2, 3], 5));
        for (counts, recorded) in [([2, 3], 4), ([2, 3], 6), ([0, 5], 5), ([u64::MAX, 6], 5)] {
            assert!(!is_sound(counts, recorded), "{counts:?}, {recorded} recorded");
        }
    }
}
