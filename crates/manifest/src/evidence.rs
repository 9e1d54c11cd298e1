//! Evidence: what was on the device when it was last written down, kept apart from the files it
//! speaks of, so that a cut or lost manifest or log segment does not pass for an older store.
//!
//! ```text
//! SYNCED-1, SYNCED-2   one log segment (see docs/format/log.md) each, numbered 1 and 2
//!
//! payload   kind               1   3
//!           store id           8
//!           manifest           8   number of the manifest in force
//!           manifest bytes     8   its length that is durable
//!           log segment        8   the newest log segment with durable records; 0: none
//!           log bytes          8   where its durable records end; 0: only its name is durable
//!           last seqno         8   a sequence number up to which all writes are durable
//!           next file number   8   no file number at or above this one was in use
//! ```
//! All integers are little-endian.
//!
//! Invariants: a record speaks only of what had been synced before it was written, so every sound
//! record of either file stays true for ever, and what both say is the largest of each number. A
//! record that is lost, or never reached the device, makes the proof weaker and never wrong. Every
//! log sync is noted in the first file; what begins or ends files is noted in both, so that neither
//! is needed. Read the evidence *before* `CURRENT`: a writer beside the reader only adds.

use crate::names;
use std::path::{Path, PathBuf};
use terrace_base::{Decoder, Error, FileNumber, Result, SegmentNumber, SeqNo};
use terrace_log::{LogOptions, LogPosition, LogReader, LogWriter, RecordKind, Step};
use terrace_vfs::{Vfs, is_no_file, is_unreadable};

/// How many evidence files there are.
pub const EVIDENCE_FILES: usize = 2;

/// The kind of a record; records of manifests are of kind 1 and 2.
const CLAIMS: u8 = 3;

/// Everything here was durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claims {
    /// The store's.
    pub store_id: u64,
    /// The manifest in force, up to this length; number 0 if nothing is said of it.
    pub manifest: LogPosition,
    /// The commit log; segment 0 if nothing is said of it.
    pub log: LogPosition,
    /// Writes up to here.
    pub last_seqno: SeqNo,
    /// No file number at or above this one was in use.
    pub next_file_number: FileNumber,
}

impl Default for Claims {
    fn default() -> Self {
        Self {
            store_id: 0,
            manifest: LogPosition::START,
            log: LogPosition::START,
            last_seqno: SeqNo::ZERO,
            next_file_number: FileNumber::ZERO,
        }
    }
}

impl Claims {
    /// Adds what `other` says of the same store.
    pub fn add(&mut self, other: &Self) {
        self.store_id = other.store_id;
        self.manifest = self.manifest.max(other.manifest);
        self.log = self.log.max(other.log);
        self.last_seqno = self.last_seqno.max(other.last_seqno);
        self.next_file_number = self.next_file_number.max(other.next_file_number);
    }

    fn numbers(&self) -> [u64; 7] {
        let [manifest, log] = [self.manifest, self.log].map(|at| (at.segment.get(), at.offset));
        let (seqno, file) = (self.last_seqno.get(), self.next_file_number.get());
        [self.store_id, manifest.0, manifest.1, log.0, log.1, seqno, file]
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![CLAIMS];
        self.numbers().iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        out
    }

    /// Reads a payload; `None` if it is not what [`EvidenceFile::note`] writes.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(payload);
        if decoder.u8()? != CLAIMS {
            return None;
        }
        let store_id = decoder.u64()?;
        let mut position = || {
            let segment = SegmentNumber::new(decoder.u64()?);
            Some(LogPosition { segment, offset: decoder.u64()? })
        };
        let (manifest, log) = (position()?, position()?);
        let last_seqno = SeqNo::new(decoder.u64()?);
        let next_file_number = FileNumber::new(decoder.u64()?);
        let claims = Self { store_id, manifest, log, last_seqno, next_file_number };
        decoder.is_empty().then_some(claims)
    }
}

/// What the evidence files of a directory say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// All sound records together.
    pub claims: Claims,
    /// Files that are missing, and damage in those that are there. A torn tail is none.
    pub problems: Vec<(PathBuf, String)>,
}

/// Reads the evidence in `dir`.
///
/// # Errors
/// I/O but for a missing file, and one of two that the device does not give, or that is no regular file; `Unsupported` for
/// another format version; `Corruption` if the files are of two stores.
pub fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Evidence> {
    let mut evidence = Evidence::default();
    let mut one_says_nothing = false;
    for number in 1..=EVIDENCE_FILES as u64 {
        let path = names::evidence_path(dir, number);
        let claims = match read_file(vfs, &path, number, &mut evidence.problems) {
            Ok(claims) => claims,
            Err(error) if error.is_not_found() => {
                evidence.problems.push((path, "it is missing".into()));
                continue;
            }
            Err(error) if error.is_corruption() => {
                evidence.problems.push((path, error.to_string()));
                continue;
            }
            // What the other one says is true by itself.
            Err(error) if (is_unreadable(&error) || is_no_file(&error)) && !one_says_nothing => {
                evidence.problems.push((path, error.to_string()));
                one_says_nothing = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        let Some(claims) = claims else { continue };
        let known = evidence.claims.store_id;
        if known != 0 && known != claims.store_id {
            let detail =
                "it is of another store than the other evidence file; remove the wrong one";
            return Err(Error::corruption(&path, 0, detail));
        }
        evidence.claims.add(&claims);
    }
    Ok(evidence)
}

/// All sound records of one file together, those behind damage too: each is true by itself.
fn read_file(
    vfs: &dyn Vfs,
    path: &Path,
    number: u64,
    problems: &mut Vec<(PathBuf, String)>,
) -> Result<Option<Claims>> {
    // Not around what the device does not give: the newest records could be passed over as a torn tail.
    let mut reader = LogReader::open(vfs, path, SegmentNumber::new(number))?;
    let mut all: Option<Claims> = None;
    loop {
        match reader.next()? {
            Step::Record(record) if record.kind == RecordKind::Data => {
                // A record of a later build, or a file that is something else: it says nothing here.
                let Some(claims) = Claims::decode(record.payload) else {
                    let why = format!("at offset {}: no evidence record", record.offset);
                    problems.push((path.to_path_buf(), why));
                    continue;
                };
                all.get_or_insert(claims).add(&claims);
            }
            Step::Record(_) => {}
            Step::End { torn: None, .. } => break,
            Step::End { torn: Some(why), offset } => {
                let goes_on = reader.resync()?.is_some();
                if goes_on || all.is_none() {
                    problems.push((path.to_path_buf(), format!("at offset {offset}: {why}")));
                }
                if !goes_on {
                    break;
                }
            }
        }
    }
    Ok(all)
}

/// One evidence file, open for appending.
pub struct EvidenceFile {
    writer: LogWriter,
}

impl EvidenceFile {
    /// Puts a durable file with `claims` in the place of file `number` (1 or 2) in `dir`. That it
    /// bears the name is for the caller to make durable.
    pub fn create(vfs: &dyn Vfs, dir: &Path, number: u64, claims: &Claims) -> Result<Self> {
        let temp = names::evidence_temp_path(dir, number);
        if vfs.exists(&temp)? {
            vfs.remove(&temp)?;
        }
        let mut writer =
            LogWriter::create(vfs, &temp, SegmentNumber::new(number), &LogOptions::default())?;
        writer.append(&[&claims.encode()])?;
        writer.sync_to_end()?;
        vfs.rename(&temp, &names::evidence_path(dir, number))?;
        Ok(Self { writer })
    }

    /// Appends `claims`: in the kernel when this returns. After an error the file takes no more.
    pub fn note(&mut self, claims: &Claims) -> Result<()> {
        self.writer.append(&[&claims.encode()]).map(drop)
    }

    /// Makes everything noted durable.
    pub fn sync(&mut self) -> Result<()> {
        self.writer.sync_to_end().map(drop)
    }

    /// Bytes of the file.
    pub fn len_bytes(&self) -> u64 {
        self.writer.len_bytes()
    }
}

#[cfg(test)]
mod tests;
