//! Printing a segment whatever its state, for `terrace inspect` and golden tests.
//!
//! Every sound record is printed; what stands between them is named as damage, skipped byte by
//! byte, and printed as such. The caller says what a payload means: the commit log and the
//! manifest share this framing.

use crate::format::{self, HEADER_BYTES, Header, HeaderFault, LogPosition, RECORD_HEADER_BYTES};
use crate::reader::{
    LogReader, Record, RecordKind, Step, read_header_around_loss, unsupported_version,
};
use crate::value::{StoredValue, value_of};
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use terrace_base::{Error, Result, SegmentNumber};
use terrace_compression::Compression;
use terrace_vfs::{OpenMode, Vfs};

/// How often a dump looks in vain whether a writer has appended meanwhile what it saw in part: each look reads anew, and a
/// file may be damaged in any number of places.
const MOST_VAIN_LOOKS: u32 = 16;

/// How much is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// One line per record, and what the caller says about its payload.
    Records,
    /// Every byte of every header, and at most this many of each payload, annotated.
    Bytes {
        /// Payload bytes shown per record.
        payload_bytes: usize,
    },
}

/// What was printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dumped {
    /// Data records.
    pub records: u64,
    /// Sync markers.
    pub markers: u64,
    /// Values by themselves.
    pub values: u64,
    /// Stretches of bytes that are no records although records follow, or that end the file.
    pub damaged: u64,
}

/// Where a payload stands: what it says of places can be compared with that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadPlace {
    /// Number of the segment.
    pub segment: SegmentNumber,
    /// File offset of the payload's first byte.
    pub offset: u64,
}

/// Says what a payload means, a line per item.
pub type Describe<'a> = dyn Fn(&[u8], PayloadPlace) -> Vec<String> + 'a;

/// Prints the segment at `path`, to which a writer may be appending. Its number is taken from its header, or is `segment`
/// if the header is damaged.
///
/// # Errors
/// I/O; `Unsupported` for another format version. Damage is printed.
pub fn dump(
    vfs: &dyn Vfs,
    path: &Path,
    segment: SegmentNumber,
    detail: Detail,
    describe: &Describe<'_>,
    out: &mut dyn io::Write,
) -> Result<Dumped> {
    let header = match read_header_around_loss(vfs, path)? {
        Err(HeaderFault::Version(version)) => return Err(unsupported_version(path, version)),
        header => header.ok(),
    };
    let number = header.map_or(segment, |header| header.segment);
    let mut reader = LogReader::open_around_loss(vfs, path, number)?;
    let mut dumper = Dumper { out, path, detail, dumped: Dumped::default() };
    dumper.header(vfs, header, reader.file_bytes())?;
    let mut vain_looks = 0;
    loop {
        let (from, why) = match reader.next() {
            Ok(Step::Record(record)) => {
                let lines = match record.kind {
                    RecordKind::Data => {
                        let offset = record.offset + RECORD_HEADER_BYTES as u64;
                        describe(record.payload, PayloadPlace { segment: number, offset })
                    }
                    RecordKind::SyncMarker(_) => Vec::new(),
                    RecordKind::Value => dumper.value(&record, number),
                };
                dumper.record(number, record.offset, record.kind, record.payload, &lines)?;
                continue;
            }
            Ok(Step::End { offset, torn: None }) => {
                dumper.end(offset, reader.file_bytes())?;
                break;
            }
            Ok(Step::End { offset, torn: Some(why) }) => (offset, why),
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(error) => (reader.position(), error.to_string()),
        };
        if vain_looks < MOST_VAIN_LOOKS {
            // A file that is gone, or cannot be opened again, is printed as it was opened.
            if reader.look_again(vfs).unwrap_or(false) {
                continue;
            }
            vain_looks += 1;
        }
        let next = reader.resync()?;
        dumper.damage(from, next.unwrap_or(reader.file_bytes()), &why)?;
        if next.is_none() {
            break;
        }
    }
    Ok(dumper.dumped)
}

struct Dumper<'a> {
    out: &'a mut dyn io::Write,
    path: &'a Path,
    detail: Detail,
    dumped: Dumped,
}

impl Dumper<'_> {
    fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.out, "{text}").map_err(|source| Error::io("print", self.path, source))
    }

    fn bytes(&mut self, offset: u64, bytes: &[u8], meaning: &str) -> Result<()> {
        for line in hex_lines(offset, bytes, meaning) {
            self.line(&line)?;
        }
        Ok(())
    }

    fn header(&mut self, vfs: &dyn Vfs, header: Option<Header>, file_bytes: u64) -> Result<()> {
        let Some(Header { segment, previous }) = header else {
            return self.line(&format!("segment without a sound header, {file_bytes} bytes"));
        };
        let after = previous.map_or(String::new(), |LogPosition { segment, offset }| {
            format!(", continues segment {segment} at {offset}")
        });
        self.line(&format!("segment {segment}{after}, {file_bytes} bytes"))?;
        if self.detail == Detail::Records {
            return Ok(());
        }
        let mut raw = [0u8; HEADER_BYTES as usize];
        vfs.open(self.path, OpenMode::default())?.read_at(0, &mut raw)?;
        let LogPosition { segment: before, offset: end } = previous.unwrap_or_default();
        let fields = [
            (0..8, "magic".to_string()),
            (8..12, format!("format version {}", format::FORMAT_VERSION)),
            (12..20, format!("segment {segment}")),
            (20..28, format!("previous segment {before}")),
            (28..36, format!("previous end {end}")),
            (36..40, "reserved".to_string()),
            (40..44, "checksum, correct".to_string()),
        ];
        for (range, meaning) in fields {
            self.bytes(range.start as u64, &raw[range], &meaning)?;
        }
        Ok(())
    }

    /// What a value record holds; a line that it is damaged if that is not so.
    fn value(&mut self, record: &Record<'_>, segment: SegmentNumber) -> Vec<String> {
        if !segment.fits_handles() {
            self.dumped.damaged += 1;
            return vec!["DAMAGE: no handle names a segment of this number".into()];
        }
        match value_of(record, segment) {
            Ok(StoredValue { key, handle, .. }) => {
                let codec =
                    Compression::from_byte(handle.compression).map_or("?", Compression::name);
                vec![format!(
                    "value of \"{}\" at {}:{}+{}, compression {codec}, checksum correct",
                    key.escape_ascii(),
                    handle.segment,
                    handle.offset,
                    handle.len
                )]
            }
            Err(why) => {
                self.dumped.damaged += 1;
                vec![format!("DAMAGE: {why}")]
            }
        }
    }

    fn record(
        &mut self,
        segment: SegmentNumber,
        offset: u64,
        kind: RecordKind,
        payload: &[u8],
        lines: &[String],
    ) -> Result<()> {
        let (name, kind_byte) = match kind {
            RecordKind::Data => {
                self.dumped.records += 1;
                ("data".to_string(), format::RecordType::Data)
            }
            RecordKind::SyncMarker(LogPosition { segment, offset }) => {
                self.dumped.markers += 1;
                let name = format!("sync marker: durable up to {offset} of segment {segment}");
                (name, format::RecordType::SyncMarker)
            }
            RecordKind::Value => {
                self.dumped.values += 1;
                ("value".to_string(), format::RecordType::Value)
            }
        };
        self.line(&format!("record at {offset}, {} payload bytes, {name}", payload.len()))?;
        if let Detail::Bytes { payload_bytes } = self.detail {
            let seed = format::segment_seed(segment);
            let head = format::record_header(seed, offset, kind_byte, payload);
            self.bytes(offset, &head[0..4], "checksum, correct")?;
            self.bytes(offset + 4, &head[4..8], &format!("length {}", payload.len()))?;
            self.bytes(offset + 8, &head[8..9], &format!("type {:?}", kind_byte))?;
            let shown = &payload[..payload.len().min(payload_bytes)];
            let start = offset + RECORD_HEADER_BYTES as u64;
            self.bytes(start, shown, "payload")?;
            if shown.len() < payload.len() {
                self.line(&format!("  ... {} bytes more", payload.len() - shown.len()))?;
            }
        }
        for line in lines {
            self.line(&format!("  {line}"))?;
        }
        Ok(())
    }

    fn damage(&mut self, from: u64, to: u64, why: &str) -> Result<()> {
        self.dumped.damaged += 1;
        self.line(&format!("DAMAGE at {from}, {} bytes skipped: {why}", to.saturating_sub(from)))
    }

    fn end(&mut self, offset: u64, file_bytes: u64) -> Result<()> {
        match file_bytes.saturating_sub(offset) {
            0 => self.line(&format!("end at {offset}")),
            zeros => self.line(&format!("end at {offset}, then {zeros} zeros of preallocation")),
        }
    }
}

/// `bytes` as lines of offset, at most eight bytes in hex, the same as text, and `meaning` on the
/// first.
pub fn hex_lines(offset: u64, bytes: &[u8], meaning: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, chunk) in bytes.chunks(8).enumerate() {
        let mut line = format!("  {:06x}  ", offset + 8 * at as u64);
        let mut text = String::new();
        for byte in chunk {
            // Writing to a string cannot fail.
            let _ = write!(line, "{byte:02x} ");
            text.push(if byte.is_ascii_graphic() { char::from(*byte) } else { '.' });
        }
        let meaning = if at == 0 { meaning } else { "" };
        lines.push(format!("{line:<34}{text:<8}  {meaning}").trim_end().to_string());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogOptions, LogWriter};
    use terrace_vfs::SimVfs;

    const SEGMENT: SegmentNumber = SegmentNumber::new(7);

    fn path() -> &'static Path {
        Path::new("/000007.log")
    }

    fn sample() -> SimVfs {
        let vfs = SimVfs::new(0);
        let options = LogOptions { preallocate_bytes: 256, ..LogOptions::default() };
        let mut writer = LogWriter::create_after(
            &vfs,
            path(),
            SEGMENT,
            &options,
            Some(LogPosition { segment: SegmentNumber::new(5), offset: 1234 }),
        )
        .unwrap();
        writer.append(&[b"a batch"]).unwrap();
        writer.sync().unwrap();
        writer.append(&[b"", b"a payload of more than eight bytes"]).unwrap();
        vfs
    }

    fn text(vfs: &SimVfs, detail: Detail) -> (String, Dumped) {
        let mut out = Vec::new();
        let describe = |payload: &[u8], place: PayloadPlace| {
            let bytes = vfs.read_file(path()).unwrap();
            assert!(
                place.segment == SEGMENT && bytes[place.offset as usize..].starts_with(payload)
            );
            vec![format!("{} bytes of payload", payload.len())]
        };
        let dumped = dump(vfs, path(), SEGMENT, detail, &describe, &mut out).unwrap();
        (String::from_utf8(out).unwrap(), dumped)
    }

    /// Compares with a file under `testdata`; with `UPDATE=1` in the environment rewrites it.
    fn golden(name: &str, found: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, found).unwrap();
        }
        let want = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(found, want, "{} differs; UPDATE=1 rewrites it", file.display());
    }

    #[test]
    fn a_sound_segment_is_printed_as_in_the_format_document() {
        let (found, dumped) = text(&sample(), Detail::Bytes { payload_bytes: 16 });
        golden("segment.txt", &found);
        assert_eq!(dumped, Dumped { records: 3, markers: 1, ..Dumped::default() });
    }

    #[test]
    fn damage_is_printed_and_skipped() {
        let vfs = sample();
        // Into the marker's payload, and the last payload.
        vfs.corrupt(path(), 75, 0xff);
        vfs.corrupt(path(), 115, 0xff);
        let (found, dumped) = text(&vfs, Detail::Records);
        golden("damaged.txt", &found);
        assert_eq!(dumped, Dumped { records: 2, damaged: 2, ..Dumped::default() });
    }

    #[test]
    fn a_segment_without_a_header_still_shows_its_records() {
        let vfs = sample();
        vfs.corrupt(path(), 3, 1);
        let (found, dumped) = text(&vfs, Detail::Records);
        assert!(found.contains("without a sound header"), "{found}");
        assert_eq!(dumped, Dumped { records: 3, markers: 1, damaged: 1, values: 0 });
    }

    fn nothing(_: &[u8], _: PayloadPlace) -> Vec<String> {
        Vec::new()
    }

    #[test]
    fn values_by_themselves_are_printed_with_their_handles() {
        let vfs = SimVfs::new(0);
        let mut writer = crate::value::ValueWriter::create(&vfs, path(), SEGMENT, 0).unwrap();
        let handle = writer.add(b"key", b"some value", 0).unwrap();
        writer.add(b"other", &[], 0).unwrap();
        writer.finish().unwrap();
        let (found, dumped) = text(&vfs, Detail::Bytes { payload_bytes: 40 });
        golden("values.txt", &found);
        assert_eq!(dumped, Dumped { values: 2, ..Dumped::default() });
        // The same record in a log that is no value segment of that number.
        vfs.corrupt(path(), handle.offset, 1);
        let (found, dumped) = text(&vfs, Detail::Records);
        assert_eq!(dumped, Dumped { values: 1, damaged: 1, ..Dumped::default() }, "{found}");
    }

    #[test]
    fn any_bytes_are_printed_without_a_panic() {
        let vfs = sample();
        let whole = vfs.read_file(path()).unwrap();
        for at in 0..whole.len() as u64 {
            vfs.corrupt(path(), at, 0x55);
            let mut out = Vec::new();
            let outcome = dump(&vfs, path(), SEGMENT, Detail::Records, &nothing, &mut out);
            let dumped = outcome.unwrap();
            assert!(dumped.records + dumped.markers >= 2, "byte {at}");
            vfs.corrupt(path(), at, 0x55);
        }
        for cut in (0..whole.len() as u64).rev() {
            vfs.truncate(path(), cut);
            assert!(
                dump(&vfs, path(), SEGMENT, Detail::Records, &nothing, &mut Vec::new()).is_ok()
            );
        }
    }
}
