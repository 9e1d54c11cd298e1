//! An annotated dump of an SST for inspection, made with the decoders that reads use, tolerant of
//! damage: what cannot be decoded is said and the rest goes on.
//!
//! Every line is the place in the file (or `+` the place in a decompressed payload), the bytes
//! there, and what they mean.

use crate::block::{BlockRef, format};
use crate::block_handle::{self, BlockHandle, Place};
use crate::footer::{FOOTER_BYTES, Footer};
use crate::index::learned::LearnedIndex;
use crate::index::partition::IndexPartition;
use crate::index::top_level::{FilterPlace, TAG_LEARNED, TopLevel};
use crate::properties::Properties;
use crate::reader::payload;
use crate::tombstone_block;
use std::borrow::Cow;
use std::fmt::{self, Write};
use terrace_base::key::{trailer_kind, trailer_seqno};
use terrace_base::{Decoder, FileNumber, HANDLE_BYTES, ValueHandle, ValueRef};
use terrace_buf::Buf;
use terrace_compression::Compression;
use terrace_vfs::RandomFile;

/// How much a dump shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DumpDetail {
    /// Footer, properties, top-level index, range tombstones.
    #[default]
    Summary,
    /// Also every partition and every data block.
    Blocks,
    /// Also every entry.
    Entries,
}

/// The most bytes of a key or value that a dump prints.
const SHOWN_BYTES: usize = 32;

/// The most bytes of hex on a line.
const HEX_BYTES: usize = 12;

/// Where the file number stands in the footer.
const FOOTER_FILE_NUMBER_AT: usize = 36;

/// Writes a dump of `file`. `file_number` is that of its name; `None` believes the footer. The
/// only errors are those of `out`.
pub fn dump(
    file: &dyn RandomFile,
    file_number: Option<FileNumber>,
    detail: DumpDetail,
    out: &mut dyn Write,
) -> fmt::Result {
    let mut dump = Dump { file, file_number: FileNumber::ZERO, detail, out };
    let Some(footer_at) = file.len().checked_sub(FOOTER_BYTES as u64) else {
        return writeln!(dump.out, "! {} bytes are too few for an SST", file.len());
    };
    let mut bytes = [0; FOOTER_BYTES];
    if let Err(error) = file.read_at(footer_at, &mut bytes) {
        return writeln!(dump.out, "! {error}");
    }
    let mut named = Decoder::new(&bytes[FOOTER_FILE_NUMBER_AT..]);
    dump.file_number = file_number.or_else(|| named.u64().map(FileNumber::new)).unwrap_or_default();
    let (path, file_number) = (file.path(), dump.file_number);
    let footer = match Footer::decode(&bytes, &Place { path, file_number, offset: footer_at }) {
        Ok(footer) => footer,
        Err(error) => {
            dump.line(footer_at, &bytes, "the footer")?;
            return writeln!(dump.out, "! {error}");
        }
    };
    let top = dump.decoded(footer.top_level, |bytes| TopLevel::decode(bytes, footer_at))?;
    if let Some(top) = top.as_ref().filter(|_| detail >= DumpDetail::Blocks) {
        dump.blocks(top)?;
    }
    if let Some(top) = &top {
        dump.others(top, footer.properties)?;
    }
    if let Some(handle) = footer.range_tombstones {
        dump.range_tombstones(handle)?;
    }
    if let Some(top) = &top {
        dump.top_level(footer.top_level, top)?;
    }
    dump.properties(footer.properties)?;
    dump.footer(footer_at, &bytes, &footer)
}

struct Dump<'a> {
    file: &'a dyn RandomFile,
    file_number: FileNumber,
    detail: DumpDetail,
    out: &'a mut dyn Write,
}

impl Dump<'_> {
    fn line(&mut self, offset: u64, bytes: &[u8], text: &str) -> fmt::Result {
        self.row(&format!("{offset:08x}"), bytes, text)
    }

    fn row(&mut self, place: &str, bytes: &[u8], text: &str) -> fmt::Result {
        let shown = &bytes[..bytes.len().min(HEX_BYTES)];
        let mut hex: String = shown.iter().map(|byte| format!("{byte:02x} ")).collect();
        if bytes.len() > shown.len() {
            hex.push_str("..");
        }
        writeln!(self.out, "{place:>9}  {hex:<width$} {text}", width = 3 * HEX_BYTES + 2)
    }

    /// The stored bytes of a block; what is wrong is said.
    fn stored(&mut self, handle: BlockHandle) -> Result<Option<Vec<u8>>, fmt::Error> {
        let fits = handle.end().is_some_and(|end| end <= self.file.len());
        if !fits {
            writeln!(self.out, "! {handle:?} passes the end of the file")?;
            return Ok(None);
        }
        let mut bytes = vec![0; handle.stored_len as usize];
        match self.file.read_at(handle.offset, &mut bytes) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) => writeln!(self.out, "! {error}").map(|()| None),
        }
    }

    /// A structure; what is wrong with it is said.
    fn decoded<T>(
        &mut self,
        handle: BlockHandle,
        decode: impl FnOnce(&[u8]) -> block_handle::Checked<T>,
    ) -> Result<Option<T>, fmt::Error> {
        let Some(stored) = self.stored(handle)? else { return Ok(None) };
        let (path, file_number) = (self.file.path(), self.file_number);
        let place = Place { path, file_number, offset: handle.offset };
        let decoded = payload(&stored, &place)
            .and_then(|payload| decode(&payload).map_err(|detail| place.corrupt(detail)));
        match decoded {
            Ok(decoded) => Ok(Some(decoded)),
            Err(error) => writeln!(self.out, "! {error}").map(|()| None),
        }
    }

    fn trailer(&mut self, handle: BlockHandle) -> fmt::Result {
        let Some(stored) = self.stored(handle)? else { return Ok(()) };
        let Some((_, trailer)) = stored.split_last_chunk::<{ block_handle::TRAILER_BYTES }>()
        else {
            return Ok(());
        };
        let at = handle.offset + (stored.len() - trailer.len()) as u64;
        let kind = Compression::from_byte(trailer[0] & !block_handle::PADDED);
        let kind = kind.map_or("unknown", Compression::name);
        let padding = match block_handle::padding_bytes(&stored) {
            0 => String::new(),
            bytes => format!("after {bytes} bytes of padding: "),
        };
        self.line(at, trailer, &format!("{padding}compression {kind}, checksum"))
    }

    fn blocks(&mut self, top: &TopLevel) -> fmt::Result {
        let mut partitions = Vec::new();
        for place in top.index() {
            let load = |bytes: &[u8]| IndexPartition::load(Buf::from(bytes));
            partitions.push(self.decoded(place.handle, load)?);
        }
        for (number, index) in partitions.iter().enumerate() {
            let Some(index) = index else { continue };
            for at in 0..index.count() {
                self.data_block(number, at, index.handle(at))?;
            }
        }
        for (number, place) in top.filters().iter().enumerate() {
            self.filter_partition(number, place)?;
        }
        for ((number, index), place) in partitions.iter().enumerate().zip(top.index()) {
            let Some(index) = index else { continue };
            self.index_partition(number, index, place.handle)?;
        }
        Ok(())
    }

    fn filter_partition(&mut self, number: usize, place: &FilterPlace) -> fmt::Result {
        for unit in 0..place.shape.unit_count {
            let handle = place.unit(unit);
            if let Some(bytes) = self.decoded(handle, |bytes| Ok(bytes.len()))? {
                let text = format!("filter unit {number}.{unit}: {bytes} bytes");
                let stored = self.stored(handle)?.unwrap_or_default();
                self.line(handle.offset, &stored, &text)?;
                self.trailer(handle)?;
            }
        }
        Ok(())
    }

    fn data_block(&mut self, partition: usize, at: usize, handle: BlockHandle) -> fmt::Result {
        let Some(stored) = self.stored(handle)? else { return Ok(()) };
        let (path, file_number) = (self.file.path(), self.file_number);
        let place = Place { path, file_number, offset: handle.offset };
        let parsed = payload(&stored, &place).and_then(|payload| {
            let layout = format::parse(&payload).map_err(|detail| place.corrupt(detail))?;
            Ok((payload, layout))
        });
        let (payload, layout) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return writeln!(self.out, "! {error}"),
        };
        let block = BlockRef::new(&payload, layout);
        let base = match &payload {
            Cow::Borrowed(_) => Some(handle.offset),
            Cow::Owned(_) => None,
        };
        let text = format!(
            "data block {partition}.{at}: {} entries, {} bytes as {}{}{}, prefix {}",
            block.count(),
            payload.len(),
            stored.len(),
            if layout.wide { ", wide offsets" } else { "" },
            if layout.is_bare() { ", no trailers" } else { "" },
            shown(block.prefix()),
        );
        self.line(handle.offset, &stored, &text)?;
        if self.detail == DumpDetail::Entries {
            self.entries(&block, &payload, base)?;
        }
        self.trailer(handle)
    }

    fn entries(&mut self, block: &BlockRef<'_>, payload: &[u8], base: Option<u64>) -> fmt::Result {
        let mut key = Vec::new();
        for at in 0..block.count() {
            block.read_key(at, &mut key);
            let entry = block.entry(at);
            let range = block.entry_range(at);
            let place = match base {
                Some(base) => format!("{:08x}", base + range.start as u64),
                None => format!("+{:07x}", range.start),
            };
            let (kind, value) = described(entry.trailer, block.value(entry.value));
            let text = format!(
                "  entry {at}: head {:08x}, {} @ {} {kind} = {value}",
                u32::from_be_bytes(block.head(at)),
                shown(&key),
                trailer_seqno(entry.trailer),
            );
            self.row(&place, &payload[range], &text)?;
        }
        Ok(())
    }

    fn index_partition(
        &mut self,
        number: usize,
        index: &IndexPartition,
        handle: BlockHandle,
    ) -> fmt::Result {
        let stored = self.stored(handle)?.unwrap_or_default();
        let text = format!(
            "index partition {number}: {} blocks, {} bytes, prefix {}",
            index.count(),
            index.payload_bytes(),
            shown(index.prefix()),
        );
        self.line(handle.offset, &stored, &text)?;
        for at in 0..index.count() {
            let block = index.handle(at);
            let separator = index.separator(at);
            let text = format!(
                "  block {number}.{at} at {:08x}, {} bytes, keys up to {}",
                block.offset,
                block.stored_len,
                shown(&separator)
            );
            self.row("", &[], &text)?;
        }
        self.trailer(handle)
    }

    /// The learned index, and blocks of later versions.
    fn others(&mut self, top: &TopLevel, properties: BlockHandle) -> fmt::Result {
        for (tag, handle) in top.others() {
            let stored = self.stored(*handle)?.unwrap_or_default();
            if *tag == TAG_LEARNED {
                self.learned_index(*handle, properties, &stored)?;
            } else {
                let text = format!("block with the unknown tag {tag}: {} bytes", stored.len());
                self.line(handle.offset, &stored, &text)?;
            }
            self.trailer(*handle)?;
        }
        Ok(())
    }

    fn learned_index(
        &mut self,
        handle: BlockHandle,
        at: BlockHandle,
        stored: &[u8],
    ) -> fmt::Result {
        let Some(properties) = self.decoded(at, Properties::decode)? else { return Ok(()) };
        let Properties { data_block_count, data_bytes, index_bytes, .. } = properties;
        let decode = |payload: &[u8]| LearnedIndex::decode(payload, data_block_count, data_bytes);
        let Some(index) = self.decoded(handle, decode)? else { return Ok(()) };
        let text = format!(
            "learned index: {} bytes for {data_block_count} blocks, {} in memory; the index partitions have {index_bytes}",
            stored.len(),
            index.memory_bytes(),
        );
        self.line(handle.offset, stored, &text)?;
        let text = format!(
            "  {} bytes a block tell blocks apart, {} in all their places; {} blocks begin inside a key's versions",
            index.blocks().cell_bytes(),
            index.place_bytes(),
            index.continued_count(),
        );
        self.row("", &[], &text)?;
        for line in index.blocks().model().to_string().lines() {
            self.row("", &[], &format!("  {line}"))?;
        }
        if self.detail >= DumpDetail::Blocks {
            for (at, segment) in index.blocks().model().segments().enumerate() {
                let ((from, low), (to, high)) = (segment.from, segment.to);
                let text = format!("  segment {at}: {from} to {to}, block {low:.2} to {high:.2}");
                self.row("", &[], &text)?;
            }
        }
        Ok(())
    }

    fn range_tombstones(&mut self, handle: BlockHandle) -> fmt::Result {
        let Some(tombstones) = self.decoded(handle, tombstone_block::decode)? else {
            return Ok(());
        };
        let stored = self.stored(handle)?.unwrap_or_default();
        let text = format!("range tombstones: {} fragments", tombstones.fragment_count());
        self.line(handle.offset, &stored, &text)?;
        for fragment in tombstones.fragments() {
            let (start, end) = (shown(fragment.start), shown(fragment.end));
            self.row("", &[], &format!("  [{start}, {end}) @ {:?}", fragment.seqnos))?;
        }
        self.trailer(handle)
    }

    fn top_level(&mut self, handle: BlockHandle, top: &TopLevel) -> fmt::Result {
        let stored = self.stored(handle)?.unwrap_or_default();
        let text = format!(
            "top-level index: {} index partitions, {} other blocks, {} filter partitions, prefixes of {} bytes",
            top.index().len(),
            top.others().len(),
            top.filters().len(),
            top.prefix_len(),
        );
        self.line(handle.offset, &stored, &text)?;
        for (at, place) in top.index().iter().enumerate() {
            let text = format!(
                "  index partition {at} at {:08x}, {} bytes: {} blocks from {:08x}, keys up to {}",
                place.handle.offset,
                place.handle.stored_len,
                place.block_count,
                place.data_offset,
                shown(top.index_separator(at)),
            );
            self.row("", &[], &text)?;
        }
        for (at, place) in top.filters().iter().enumerate() {
            let shape = place.shape;
            let text = format!(
                "  filter partition {at} at {:08x}: {}, seed {}, {} units of {} and {} bytes, {} keys up to {}",
                place.offset,
                shape.kind.name(),
                shape.seed,
                shape.unit_count,
                shape.first_unit_bytes,
                shape.unit_bytes,
                place.key_count,
                shown(top.filter_separator(at)),
            );
            self.row("", &[], &text)?;
        }
        self.trailer(handle)
    }

    fn properties(&mut self, handle: BlockHandle) -> fmt::Result {
        let Some(mut properties) = self.decoded(handle, Properties::decode)? else {
            return Ok(());
        };
        let stored = self.stored(handle)?.unwrap_or_default();
        self.line(handle.offset, &stored, "properties")?;
        let value_refs = std::mem::take(&mut properties.value_refs);
        let family = properties.family.take();
        let merge_operator = properties.merge_operator.take();
        let as_old_as = properties.as_old_as.take();
        for line in format!("{properties:#?}").lines() {
            let field = line.trim().trim_end_matches(',');
            // Keys are shown as text below; the debug form spreads them over many lines.
            let is_shown_below = field.ends_with(['[', ']'])
                || matches!(
                    field,
                    "family: None"
                        | "global_seqno: None"
                        | "merge_operator: None"
                        | "as_old_as: None"
                        | "is_hot_checkpoint: false"
                );
            if field.contains(": ") && !is_shown_below {
                self.row("", &[], &format!("  {field}"))?;
            }
        }
        if let Some((id, name)) = family {
            self.row("", &[], &format!("  family {id}: {name:?}"))?;
        }
        if let Some(name) = merge_operator {
            self.row("", &[], &format!("  merge operator: {name:?}"))?;
        }
        if let Some(file) = as_old_as {
            self.row("", &[], &format!("  as old as SST {file}"))?;
        }
        for ValueRef { segment, bytes } in value_refs {
            self.row("", &[], &format!("  value segment {segment}: {bytes} bytes"))?;
        }
        let (smallest, largest) = (shown(&properties.smallest), shown(&properties.largest));
        self.row("", &[], &format!("  bounds: {smallest} to {largest}"))?;
        self.trailer(handle)
    }

    fn footer(&mut self, at: u64, bytes: &[u8], footer: &Footer) -> fmt::Result {
        let handle = |handle: BlockHandle| format!("{:08x} + {}", handle.offset, handle.stored_len);
        let tombstones = footer.range_tombstones.map_or("none".to_string(), handle);
        let names = [
            (0, 12, format!("footer: range tombstones {tombstones}")),
            (12, 24, format!("  top-level index {}", handle(footer.top_level))),
            (24, 36, format!("  properties {}", handle(footer.properties))),
            (36, 44, format!("  file number {}", self.file_number)),
            (44, 48, format!("  format version {}", footer.version)),
            (48, 52, "  checksum".to_string()),
            (52, FOOTER_BYTES, "  magic".to_string()),
        ];
        for (from, to, text) in names {
            self.line(at + from as u64, &bytes[from..to], &text)?;
        }
        Ok(())
    }
}

/// The kind and the value of an entry. A handle is `segment:offset+len`, and how the value is
/// compressed; its expiry stands before it.
fn described(trailer: u64, value: &[u8]) -> (String, String) {
    let Some(kind) = trailer_kind(trailer) else {
        return ("unknown kind".to_string(), shown(value));
    };
    let value = match ValueHandle::of_entry(kind, value) {
        Some(handle) => {
            let expiry =
                value.split_last_chunk::<HANDLE_BYTES>().and_then(|(e, _)| e.first_chunk());
            let expiry = expiry.map_or(String::new(), |expiry: &[u8; 8]| {
                format!("until {} ", u64::from_le_bytes(*expiry))
            });
            let codec = match Compression::from_byte(handle.compression) {
                Some(Compression::None) => "",
                Some(codec) => &format!(" {}", codec.name()),
                None => " unknown compression",
            };
            let ValueHandle { segment, offset, len, .. } = handle;
            format!("{expiry}{segment}:{offset}+{len}{codec}")
        }
        None => shown(value),
    };
    (format!("{kind:?}"), value)
}

/// Bytes as text, escaped and cut.
fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let more = match bytes.len() > cut.len() {
        true => format!(".. ({} bytes)", bytes.len()),
        false => String::new(),
    };
    format!("\"{}\"{more}", cut.escape_ascii())
}
