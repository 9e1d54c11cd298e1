//! Somebody who may write to the disk, and knows every byte of the content, changes log segments, manifests and
//! evidence so that all checksums fit. Nothing of that is ever taken for data.

use super::{DIR, FRAME_HEADER, contents, encrypted, frames, open, options};
use crc32c::crc32c;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use terrace::Db;
use terrace::vfs::{SimVfs, Vfs};
use terrace_base::SegmentNumber;
use terrace_log::format::{self, HEADER_BYTES, RECORD_HEADER_BYTES, RecordType};
use terrace_vfs::OpenMode;

/// A file whose plaintext is known.
struct Known {
    path: PathBuf,
    raw: Vec<u8>,
    content: Vec<u8>,
}

impl Known {
    fn of(sim: &SimVfs, path: &Path) -> Self {
        let file = encrypted(sim, &[1]).open(path, OpenMode::default()).unwrap();
        let mut content = vec![0; file.len() as usize];
        file.read_at(0, &mut content).unwrap();
        Self { path: path.to_path_buf(), raw: sim.read_file(path).unwrap(), content }
    }

    /// Where byte `offset` of the content is in the file.
    fn place(&self, offset: usize) -> usize {
        let frames = frames(&self.raw);
        let frame = frames.iter().rfind(|(start, _)| *start <= offset as u64).unwrap();
        frame.1.start + FRAME_HEADER + offset - frame.0 as usize
    }

    /// The file with `wanted` at `offset` of its content, as far as that can be made without the key.
    fn forged(&self, offset: usize, wanted: &[u8]) -> Vec<u8> {
        let mut raw = self.raw.clone();
        for (at, byte) in (offset..).zip(wanted) {
            raw[self.place(at)] ^= self.content[at] ^ byte;
        }
        raw
    }

    fn segment(&self) -> u64 {
        u64::from_le_bytes(self.content[12..20].try_into().unwrap())
    }

    /// Where each record is.
    fn records(&self) -> Vec<Range<usize>> {
        let mut records = Vec::new();
        let mut at = HEADER_BYTES as usize;
        while let Some(head) = self.content.get(at..at + RECORD_HEADER_BYTES) {
            let len = u32::from_le_bytes(head[4..8].try_into().unwrap()) as usize;
            records.push(at..at + RECORD_HEADER_BYTES + len);
            at += RECORD_HEADER_BYTES + len;
        }
        assert_eq!(at, self.content.len());
        records
    }

    /// A record with this payload in the place of the one at `offset`, with the checksum that fits.
    fn record(&self, offset: usize, payload: &[u8]) -> Vec<u8> {
        let kind = RecordType::from_byte(self.content[offset + 8]).unwrap();
        let seed = format::segment_seed(SegmentNumber::new(self.segment()));
        let header = format::record_header(seed, offset as u64, kind, payload);
        [&header[..], payload].concat()
    }
}

/// A store whose log has what was synced, and its files that are read while they grow.
fn store() -> (SimVfs, BTreeMap<Vec<u8>, Vec<u8>>, Vec<Known>) {
    let sim = SimVfs::new(1);
    let db = open(&sim, &[1]);
    for n in 0..40_u32 {
        let len = if n % 5 == 0 { 6000 } else { 30 };
        db.put(format!("key-{n:03}"), format!("value {n} ").repeat(len / 8)).unwrap();
        if n == 20 {
            db.flush().unwrap();
        }
    }
    db.sync().unwrap();
    let want = contents(&db).into_iter().collect();
    let image = sim.kill_image();
    let grows = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        name.ends_with(".log") || name.starts_with("MANIFEST-") || name.starts_with("SYNCED-")
    };
    let files = image.files().into_iter().filter(|(path, _)| grows(path));
    let known: Vec<_> = files.map(|(path, _)| Known::of(&image, &path)).collect();
    assert!(known.len() >= 4, "a log, a manifest, two files of evidence");
    (image, want, known)
}

/// Opens the store with `forged` files: everything that was written is there, or an error. True if there was an error.
fn assert_refused(
    sim: &SimVfs,
    want: &BTreeMap<Vec<u8>, Vec<u8>>,
    forged: &[(&Path, &[u8])],
    what: &str,
) -> bool {
    let image = sim.kill_image();
    for (path, raw) in forged {
        image.write_file(path, raw);
    }
    let Ok(db) = Db::open(DIR, options(encrypted(&image, &[1]))) else { return true };
    let mut refused = false;
    for (key, value) in want {
        match db.get(key) {
            Ok(Some(found)) => assert!(found == value[..], "{what}: another value"),
            Ok(None) => panic!("{what}: a synced write is missing"),
            Err(_) => refused = true,
        }
    }
    if let Ok(entries) = db.iter() {
        for entry in entries.entries().flatten() {
            let value = want.get(&entry.0.to_vec()).unwrap_or_else(|| panic!("{what}: a new key"));
            assert!(entry.1 == value[..], "{what}: another value in a scan");
        }
    }
    refused
}

#[test]
fn no_record_of_a_log_or_manifest_can_be_changed() {
    let (sim, want, files) = store();
    let (mut tries, mut refusals) = (0, 0);
    for file in &files {
        for record in file.records() {
            let payload = record.start + RECORD_HEADER_BYTES..record.end;
            let bytes = file.content[payload.clone()].to_vec();
            let step = (bytes.len() / 12).max(1);
            for at in (0..bytes.len()).step_by(step) {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                let forged = file.forged(record.start, &file.record(record.start, &changed));
                let what = format!("{:?}, record {record:?}, byte {at}", file.path);
                let refused = assert_refused(&sim, &want, &[(&file.path, &forged)], &what);
                refusals += u32::from(refused);
                tries += 1;
            }
        }
    }
    assert!(tries > 300, "{tries}");
    assert!(refusals > tries / 2, "{refusals} of {tries}");
}

#[test]
fn the_link_to_the_segment_before_cannot_be_changed() {
    let (sim, want, files) = store();
    let logs = files.iter().filter(|file| file.path.extension().is_some_and(|e| e == "log"));
    let mut tries = 0;
    for log in logs {
        for at in 20..36 {
            let mut header = log.content[..HEADER_BYTES as usize].to_vec();
            header[at] ^= 1;
            let sum = crc32c(&header[..40]).to_le_bytes();
            header[40..44].copy_from_slice(&sum);
            let forged = log.forged(0, &header);
            // Whatever becomes of the store, the header is not taken for sound.
            let image = sim.kill_image();
            image.write_file(&log.path, &forged);
            let header = terrace_log::read_header(&*encrypted(&image, &[1]), &log.path).unwrap();
            assert!(header.is_err(), "byte {at}");
            assert_refused(&sim, &want, &[(&log.path, &forged)], &format!("header, byte {at}"));
            tries += 1;
        }
    }
    assert!(tries >= 16);
}

#[test]
fn a_separated_value_cannot_be_changed_with_its_checksums() {
    let (sim, want, files) = store();
    let mut tries = 0;
    for log in files.iter().filter(|file| file.path.extension().is_some_and(|e| e == "log")) {
        for record in log.records() {
            for (key, value) in want.iter().filter(|(_, value)| value.len() > 512) {
                let payload = log.content[record.start + RECORD_HEADER_BYTES..record.end].to_vec();
                let Some(at) = payload.windows(value.len()).position(|part| part == value) else {
                    continue;
                };
                let sum_at = at + value.len();
                for byte in [0, value.len() / 2, value.len() - 1] {
                    let mut changed = payload.clone();
                    changed[at + byte] ^= 1;
                    let old = terrace_log::value::checksum(key, value);
                    let new = terrace_log::value::checksum(key, &changed[at..sum_at]);
                    for (at, mask) in (sum_at..).zip((old ^ new).to_le_bytes()) {
                        changed[at] ^= mask;
                    }
                    let forged = log.forged(record.start, &log.record(record.start, &changed));
                    let what = format!("{:?}, byte {byte}", String::from_utf8_lossy(key));
                    assert!(assert_refused(&sim, &want, &[(&log.path, &forged)], &what), "{what}");
                    tries += 1;
                }
            }
        }
    }
    assert!(tries >= 15, "{tries}");
}

#[test]
fn an_older_state_of_a_log_takes_no_other_end() {
    let (sim, want, files) = store();
    let log = files.iter().rfind(|file| file.path.extension().is_some_and(|e| e == "log")).unwrap();
    // Every record of before, and in the place of the next one another of the same length.
    for record in log.records() {
        let mut payload = log.content[record.start + RECORD_HEADER_BYTES..record.end].to_vec();
        *payload.last_mut().unwrap() ^= 1;
        let forged = log.forged(record.start, &log.record(record.start, &payload));
        let cut = &forged[..log.place(record.end - 1) + 1];
        for forged in [&forged[..], cut] {
            let what = format!("from {} on", record.start);
            assert_refused(&sim, &want, &[(&log.path, forged)], &what);
        }
    }
}
