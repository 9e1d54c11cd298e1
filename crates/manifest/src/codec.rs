//! The bytes of an edit: the payload of one record of a manifest.
//!
//! ```text
//! payload   kind               1   1 snapshot, 2 edit
//!           store id           8   snapshot only
//!           next family id     v   snapshot only
//!           present            v   bit 0 next file number, 1 last seqno, 2 filter heat,
//!                                  3 value segments, 4 evidence is kept (no field),
//!                                  5 retired files
//!           next file number   v   if present
//!           last seqno         v   if present
//!           filter heat        b   if present; for the engine, whose versions it carries itself
//!           segments           v   how many begin, if present; each number (v), kind (1; 1 commit
//!                                  log, 2 values), size (v); how many end (v); each number (v)
//!           retired files      v   how many, if present; each number (v)
//!           family count       v
//!           families               to the end
//!
//! family    id                 v
//!           present            v   bit 0 create, 1 drop, 2 min log segment, 3 flushed seqno,
//!                                  4 merge operator, 5 options
//!           name               b   if create
//!           min log segment    v   if present
//!           flushed seqno      v   if present
//!           merge operator     b   its name, if present
//!           options            b   text of at most 4096 bytes, if present; for the engine
//!           removed count      v
//!           removed                level (1), number (v)
//!           added count        v
//!           added                  level (1), file
//!
//! file      present            v   bit 0 largest is exclusive, 1 ttl due, 2 value references
//!           number, size       v v
//!           smallest           v b bytes shared with the smallest of the file before, the rest
//!           largest            v b bytes shared with this file's smallest, the rest
//!           smallest seqno     v
//!           largest seqno      v   minus the smallest
//!           entries, tombstones, range tombstones, raw bytes, created ms     v v v v v
//!           ttl due ms         v   if present
//!           value references   v   how many, if present; each segment minus the one before (v),
//!                                  bytes (v)
//! ```
//! `v` is a varint, `b` length-prefixed bytes. Unset bits leave their field out; an unknown bit is
//! refused.

use crate::edit::{FamilyEdit, MAX_OPTIONS_BYTES, SegmentKind, SegmentMeta, VersionEdit};
use crate::file_meta::FileMeta;
use terrace_base::ValueRef;
use terrace_base::codec::{put_bytes, put_varint};
use terrace_base::key::{MAX_KEY_BYTES, common_prefix};
use terrace_base::{Decoder, FileNumber, SegmentNumber, SeqNo};

const SNAPSHOT: u8 = 1;
const EDIT: u8 = 2;

const NEXT_FILE_NUMBER: u64 = 1;
const LAST_SEQNO: u64 = 1 << 1;
const FILTER_HEAT: u64 = 1 << 2;
const SEGMENTS: u64 = 1 << 3;
const EVIDENCE: u64 = 1 << 4;
const RETIRED: u64 = 1 << 5;

const CREATE: u64 = 1;
const DROP: u64 = 1 << 1;
const MIN_LOG_SEGMENT: u64 = 1 << 2;
const FLUSHED_SEQNO: u64 = 1 << 3;
const MERGE_OPERATOR: u64 = 1 << 4;
const OPTIONS: u64 = 1 << 5;

const LARGEST_EXCLUSIVE: u64 = 1;
const TTL_DUE: u64 = 1 << 1;
const VALUE_REFS: u64 = 1 << 2;

const COMMIT_LOG: u8 = 1;
const VALUES: u8 = 2;

/// The fewest bytes that a file and its level take: what a count is checked against before
/// memory is taken.
const MIN_FILE_BYTES: usize = 15;

/// Keys of a record, decoded, have at most this many times its bytes, and [`SHARED_ALLOWANCE_BYTES`].
const SHARED_MULTIPLE: usize = 64;

/// See [`SHARED_MULTIPLE`]. Builds that did not keep to it wrote keys of usual lengths.
const SHARED_ALLOWANCE_BYTES: usize = 64 << 20;

/// What a snapshot says besides its edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotHead {
    /// Drawn when the store was made.
    pub store_id: u64,
    /// The id of the next family.
    pub next_family_id: u32,
}

/// One record of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct ManifestRecord {
    /// Present if the record is a snapshot: then the edit makes the state from nothing.
    pub snapshot: Option<SnapshotHead>,
    /// The change.
    pub edit: VersionEdit,
}

/// Why a payload is not a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Malformed {
    /// The field at this position in the payload is cut off or out of range.
    Field(&'static str, usize),
    /// A kind or bit that this build does not know.
    Unknown(&'static str, u64),
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Field(what, at) => write!(f, "{what} is cut off or malformed at byte {at}"),
            Self::Unknown(what, value) => write!(f, "unknown {what} {value:#x}"),
        }
    }
}

/// Appends the payload of an edit.
pub fn encode_edit(edit: &VersionEdit, out: &mut Vec<u8>) {
    out.push(EDIT);
    encode_body(edit, out);
}

/// Starts the payload of a snapshot: `put_head` and the families follow.
pub(crate) fn encode_snapshot_head(head: SnapshotHead, out: &mut Vec<u8>) {
    out.push(SNAPSHOT);
    out.extend_from_slice(&head.store_id.to_le_bytes());
    put_varint(out, u64::from(head.next_family_id));
}

/// Appends the payload of a record.
pub fn encode_record(record: &ManifestRecord, out: &mut Vec<u8>) {
    match record.snapshot {
        Some(head) => {
            encode_snapshot_head(head, out);
            encode_body(&record.edit, out);
        }
        None => encode_edit(&record.edit, out),
    }
}

fn encode_body(edit: &VersionEdit, out: &mut Vec<u8>) {
    let head = Head {
        next_file_number: edit.next_file_number,
        last_seqno: edit.last_seqno,
        filter_heat: edit.filter_heat.as_deref(),
        segments_added: &edit.segments_added,
        segments_removed: &edit.segments_removed,
        keeps_evidence: edit.keeps_evidence,
        retired: &edit.retired,
        family_count: edit.families.len(),
    };
    put_head(&head, out);
    for family in &edit.families {
        put_family(
            &FamilyHead {
                id: family.id,
                create: family.create.as_deref(),
                drop: family.drop,
                min_log_segment: family.min_log_segment,
                flushed_seqno: family.flushed_seqno,
                merge_operator: family.merge_operator.as_deref(),
                options: family.options.as_deref(),
            },
            out,
        );
        put_removed(&family.removed, out);
        let added = family.added.iter().map(|(level, file)| (*level, file));
        put_added(family.added.len(), added, out);
    }
}

/// What stands before the families.
pub(crate) struct Head<'a> {
    pub next_file_number: Option<FileNumber>,
    pub last_seqno: Option<SeqNo>,
    pub filter_heat: Option<&'a [u8]>,
    pub segments_added: &'a [SegmentMeta],
    pub segments_removed: &'a [SegmentNumber],
    pub keeps_evidence: bool,
    pub retired: &'a [FileNumber],
    pub family_count: usize,
}

pub(crate) fn put_head(head: &Head<'_>, out: &mut Vec<u8>) {
    let segments = !head.segments_added.is_empty() || !head.segments_removed.is_empty();
    let present = bit(head.next_file_number.is_some(), NEXT_FILE_NUMBER)
        | bit(head.last_seqno.is_some(), LAST_SEQNO)
        | bit(head.filter_heat.is_some(), FILTER_HEAT)
        | bit(segments, SEGMENTS)
        | bit(head.keeps_evidence, EVIDENCE)
        | bit(!head.retired.is_empty(), RETIRED);
    put_varint(out, present);
    for value in [head.next_file_number.map(FileNumber::get), head.last_seqno.map(SeqNo::get)]
        .into_iter()
        .flatten()
    {
        put_varint(out, value);
    }
    if let Some(heat) = head.filter_heat {
        put_bytes(out, heat);
    }
    if segments {
        put_varint(out, head.segments_added.len() as u64);
        for segment in head.segments_added {
            put_varint(out, segment.number.get());
            out.push(match segment.kind {
                SegmentKind::CommitLog => COMMIT_LOG,
                SegmentKind::Values => VALUES,
            });
            put_varint(out, segment.size_bytes);
        }
        put_varint(out, head.segments_removed.len() as u64);
        for number in head.segments_removed {
            put_varint(out, number.get());
        }
    }
    if !head.retired.is_empty() {
        put_varint(out, head.retired.len() as u64);
        head.retired.iter().for_each(|number| put_varint(out, number.get()));
    }
    put_varint(out, head.family_count as u64);
}

/// What stands before the files of a family.
pub(crate) struct FamilyHead<'a> {
    pub id: u32,
    pub create: Option<&'a str>,
    pub drop: bool,
    pub min_log_segment: Option<SegmentNumber>,
    pub flushed_seqno: Option<SeqNo>,
    pub merge_operator: Option<&'a str>,
    pub options: Option<&'a str>,
}

pub(crate) fn put_family(head: &FamilyHead<'_>, out: &mut Vec<u8>) {
    put_varint(out, u64::from(head.id));
    let present = bit(head.create.is_some(), CREATE)
        | bit(head.drop, DROP)
        | bit(head.min_log_segment.is_some(), MIN_LOG_SEGMENT)
        | bit(head.flushed_seqno.is_some(), FLUSHED_SEQNO)
        | bit(head.merge_operator.is_some(), MERGE_OPERATOR)
        | bit(head.options.is_some(), OPTIONS);
    put_varint(out, present);
    if let Some(name) = head.create {
        put_bytes(out, name.as_bytes());
    }
    let numbers =
        [head.min_log_segment.map(SegmentNumber::get), head.flushed_seqno.map(SeqNo::get)];
    for value in numbers.into_iter().flatten() {
        put_varint(out, value);
    }
    for text in [head.merge_operator, head.options].into_iter().flatten() {
        put_bytes(out, text.as_bytes());
    }
}

pub(crate) fn put_removed(removed: &[(u8, FileNumber)], out: &mut Vec<u8>) {
    put_varint(out, removed.len() as u64);
    for (level, number) in removed {
        out.push(*level);
        put_varint(out, number.get());
    }
}

pub(crate) fn put_added<'a>(
    count: usize,
    added: impl Iterator<Item = (u8, &'a FileMeta)>,
    out: &mut Vec<u8>,
) {
    put_varint(out, count as u64);
    let (start, mut key_bytes) = (out.len(), 0);
    let mut before: &[u8] = &[];
    for (level, file) in added {
        out.push(level);
        // Keys are written whole from time to time, so that readers can bound the memory that a record takes.
        key_bytes += file.smallest.len() + file.largest.len();
        if key_bytes > SHARED_MULTIPLE * (out.len() - start) {
            before = &[];
        }
        put_file(file, before, out);
        before = &file.smallest;
    }
}

fn put_file(file: &FileMeta, before: &[u8], out: &mut Vec<u8>) {
    let present = bit(file.largest_exclusive, LARGEST_EXCLUSIVE)
        | bit(file.ttl_due_ms.is_some(), TTL_DUE)
        | bit(!file.value_refs.is_empty(), VALUE_REFS);
    put_varint(out, present);
    put_varint(out, file.number.get());
    put_varint(out, file.size_bytes);
    put_after(before, &file.smallest, out);
    put_after(&file.smallest, &file.largest, out);
    put_varint(out, file.smallest_seqno.get());
    put_varint(out, file.largest_seqno.get().saturating_sub(file.smallest_seqno.get()));
    for value in [
        file.entry_count,
        file.tombstone_count,
        file.range_tombstone_count,
        file.raw_bytes,
        file.created_ms,
    ] {
        put_varint(out, value);
    }
    if let Some(due) = file.ttl_due_ms {
        put_varint(out, due);
    }
    if !file.value_refs.is_empty() {
        put_varint(out, file.value_refs.len() as u64);
        let mut before = SegmentNumber::ZERO;
        for reference in &file.value_refs {
            put_varint(out, reference.segment - before);
            put_varint(out, reference.bytes);
            before = reference.segment;
        }
    }
}

/// Appends `key` as what it shares with `before` and the rest.
fn put_after(before: &[u8], key: &[u8], out: &mut Vec<u8>) {
    let shared = common_prefix(before, key);
    put_varint(out, shared as u64);
    put_bytes(out, &key[shared..]);
}

fn bit(set: bool, bit: u64) -> u64 {
    if set { bit } else { 0 }
}

/// Reads the payload of a record; all of it must be used.
pub fn decode_record(payload: &[u8]) -> Result<ManifestRecord, Malformed> {
    let key_bytes = payload.len().saturating_mul(SHARED_MULTIPLE);
    let key_bytes_left = key_bytes.saturating_add(SHARED_ALLOWANCE_BYTES);
    let mut input = Input { decoder: Decoder::new(payload), key_bytes_left };
    let snapshot = match input.byte("kind")? {
        SNAPSHOT => Some(SnapshotHead {
            store_id: input.fixed("store id")?,
            next_family_id: input.narrow("next family id")?,
        }),
        EDIT => None,
        kind => return Err(Malformed::Unknown("record kind", u64::from(kind))),
    };
    let known = NEXT_FILE_NUMBER | LAST_SEQNO | FILTER_HEAT | SEGMENTS | EVIDENCE | RETIRED;
    let present = input.bits("edit field", known)?;
    let next_file_number =
        input.optional(present & NEXT_FILE_NUMBER, "next file number")?.map(FileNumber::new);
    let last_seqno = input.optional(present & LAST_SEQNO, "last seqno")?.map(SeqNo::new);
    let mut filter_heat = None;
    if present & FILTER_HEAT != 0 {
        let bytes = input.decoder.bytes();
        filter_heat = Some(input.field(bytes, "filter heat")?.into());
    }
    let (mut segments_added, mut segments_removed) = (Vec::new(), Vec::new());
    if present & SEGMENTS != 0 {
        let count = input.count("segments that begin", 3)?;
        for _ in 0..count {
            segments_added.push(input.segment()?);
        }
        let count = input.count("segments that end", 1)?;
        for _ in 0..count {
            segments_removed.push(input.segment_number()?);
        }
    }
    let mut retired = Vec::new();
    if present & RETIRED != 0 {
        let count = input.count("retired files", 1)?;
        for _ in 0..count {
            retired.push(FileNumber::new(input.varint("retired file")?));
        }
    }
    let count = input.count("family count", 4)?;
    let mut families = Vec::with_capacity(count);
    for _ in 0..count {
        families.push(input.family()?);
    }
    if !input.decoder.is_empty() {
        return Err(Malformed::Field("the end of the record", input.decoder.position()));
    }
    let edit = VersionEdit {
        next_file_number,
        last_seqno,
        families,
        filter_heat,
        segments_added,
        segments_removed,
        keeps_evidence: present & EVIDENCE != 0,
        retired,
    };
    Ok(ManifestRecord { snapshot, edit })
}

struct Input<'a> {
    decoder: Decoder<'a>,
    /// What keys may still take.
    key_bytes_left: usize,
}

impl Input<'_> {
    fn field<T>(&self, value: Option<T>, what: &'static str) -> Result<T, Malformed> {
        value.ok_or(Malformed::Field(what, self.decoder.position()))
    }

    fn byte(&mut self, what: &'static str) -> Result<u8, Malformed> {
        let value = self.decoder.u8();
        self.field(value, what)
    }

    fn fixed(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let value = self.decoder.u64();
        self.field(value, what)
    }

    fn varint(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let value = self.decoder.varint();
        self.field(value, what)
    }

    fn narrow(&mut self, what: &'static str) -> Result<u32, Malformed> {
        let value = self.varint(what)?;
        self.field(u32::try_from(value).ok(), what)
    }

    fn bits(&mut self, what: &'static str, known: u64) -> Result<u64, Malformed> {
        let bits = self.varint(what)?;
        if bits & !known != 0 { Err(Malformed::Unknown(what, bits)) } else { Ok(bits) }
    }

    fn optional(&mut self, present: u64, what: &'static str) -> Result<Option<u64>, Malformed> {
        if present != 0 { self.varint(what).map(Some) } else { Ok(None) }
    }

    /// A count of items of at least `item_bytes` each, which the rest must have room for.
    fn count(&mut self, what: &'static str, item_bytes: usize) -> Result<usize, Malformed> {
        let count = self.varint(what)?;
        let room = self.decoder.rest().len() / item_bytes;
        self.field(usize::try_from(count).ok().filter(|count| *count <= room), what)
    }

    /// The number of a segment with values.
    fn segment_number(&mut self) -> Result<SegmentNumber, Malformed> {
        Ok(SegmentNumber::new(self.narrow("segment number")?.into()))
    }

    fn segment(&mut self) -> Result<SegmentMeta, Malformed> {
        let number = self.segment_number()?;
        let kind = match self.byte("segment kind")? {
            COMMIT_LOG => SegmentKind::CommitLog,
            VALUES => SegmentKind::Values,
            kind => return Err(Malformed::Unknown("segment kind", u64::from(kind))),
        };
        Ok(SegmentMeta { number, kind, size_bytes: self.varint("segment size")? })
    }

    /// References to value segments, which ascend.
    fn value_refs(&mut self) -> Result<Vec<ValueRef>, Malformed> {
        let count = self.count("value reference count", 2)?;
        let mut refs: Vec<ValueRef> = Vec::with_capacity(count);
        for _ in 0..count {
            let step = u64::from(self.narrow("referred segment")?);
            let segment = match refs.last() {
                None => Some(SegmentNumber::new(step)),
                Some(before) => before.segment.checked_add(step).filter(|_| step > 0),
            };
            let segment = segment.filter(|segment| segment.fits_handles());
            let segment = self.field(segment, "referred segment")?;
            refs.push(ValueRef { segment, bytes: self.varint("referred bytes")? });
        }
        Ok(refs)
    }

    fn family(&mut self) -> Result<FamilyEdit, Malformed> {
        let id = self.narrow("family id")?;
        let known = CREATE | DROP | MIN_LOG_SEGMENT | FLUSHED_SEQNO | MERGE_OPERATOR | OPTIONS;
        let present = self.bits("family field", known)?;
        let mut create = None;
        if present & CREATE != 0 {
            let name = self.decoder.bytes().and_then(|name| std::str::from_utf8(name).ok());
            create = Some(self.field(name, "family name")?.to_owned());
        }
        let min_log_segment =
            self.optional(present & MIN_LOG_SEGMENT, "min log segment")?.map(SegmentNumber::new);
        let flushed_seqno =
            self.optional(present & FLUSHED_SEQNO, "flushed seqno")?.map(SeqNo::new);
        let mut merge_operator = None;
        if present & MERGE_OPERATOR != 0 {
            let name = self.decoder.bytes().and_then(|name| std::str::from_utf8(name).ok());
            merge_operator = Some(self.field(name, "merge operator")?.to_owned());
        }
        let mut options = None;
        if present & OPTIONS != 0 {
            let text = self.decoder.bytes().filter(|text| text.len() <= MAX_OPTIONS_BYTES);
            let text = text.and_then(|text| std::str::from_utf8(text).ok());
            options = Some(self.field(text, "family options")?.into());
        }
        let removed_count = self.count("removed count", 2)?;
        let mut removed = Vec::with_capacity(removed_count);
        for _ in 0..removed_count {
            removed.push((self.byte("level")?, FileNumber::new(self.varint("file number")?)));
        }
        let added_count = self.count("added count", MIN_FILE_BYTES)?;
        let mut added: Vec<(u8, FileMeta)> = Vec::with_capacity(added_count);
        for _ in 0..added_count {
            let level = self.byte("level")?;
            let before = added.last().map_or(&[][..], |(_, file)| &file.smallest);
            let file = self.file(before)?;
            added.push((level, file));
        }
        let drop = present & DROP != 0;
        Ok(FamilyEdit {
            id,
            create,
            merge_operator,
            options,
            drop,
            min_log_segment,
            flushed_seqno,
            added,
            removed,
        })
    }

    fn file(&mut self, before: &[u8]) -> Result<FileMeta, Malformed> {
        let present = self.bits("file field", LARGEST_EXCLUSIVE | TTL_DUE | VALUE_REFS)?;
        let number = self.varint("file number")?;
        let size_bytes = self.varint("file size")?;
        let smallest = self.after(before, "smallest key")?;
        let largest = self.after(&smallest, "largest key")?;
        let smallest_seqno = self.varint("smallest seqno")?;
        let seqno_span = self.varint("largest seqno")?;
        let largest_seqno = self.field(smallest_seqno.checked_add(seqno_span), "largest seqno")?;
        Ok(FileMeta {
            number: FileNumber::new(number),
            size_bytes,
            smallest,
            largest,
            largest_exclusive: present & LARGEST_EXCLUSIVE != 0,
            smallest_seqno: SeqNo::new(smallest_seqno),
            largest_seqno: SeqNo::new(largest_seqno),
            entry_count: self.varint("entry count")?,
            tombstone_count: self.varint("tombstone count")?,
            range_tombstone_count: self.varint("range tombstone count")?,
            raw_bytes: self.varint("raw bytes")?,
            created_ms: self.varint("creation time")?,
            ttl_due_ms: self.optional(present & TTL_DUE, "ttl due time")?,
            value_refs: match present & VALUE_REFS {
                0 => Vec::new(),
                _ => self.value_refs()?,
            },
        })
    }

    fn after(&mut self, before: &[u8], what: &'static str) -> Result<Vec<u8>, Malformed> {
        let shared = self.varint(what)?;
        let shared = usize::try_from(shared).ok().and_then(|shared| before.get(..shared));
        let shared = self.field(shared, what)?;
        let rest = self.decoder.bytes();
        let rest = self.field(rest, what)?;
        let len = shared.len() + rest.len();
        let left = self.key_bytes_left.checked_sub(len).filter(|_| len <= MAX_KEY_BYTES);
        self.key_bytes_left = self.field(left, "key")?;
        let mut key = Vec::with_capacity(len);
        key.extend_from_slice(shared);
        key.extend_from_slice(rest);
        Ok(key)
    }
}

#[cfg(test)]
mod tests;
