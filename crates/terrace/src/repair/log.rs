//! The commit log: what a replay will find in it, and segments whose header is damaged.

use super::base::is_loss;
use super::{FamilySign, Repair};
use crate::batch;
use crate::error::Result;
use crate::open::recover;
use crate::version::file_numbers::FileNumbers;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use terrace_base::{SegmentNumber, SeqNo};
use terrace_log::format::{HEADER_BYTES, Header, encode_header};
use terrace_log::{Gap, LogPosition, SegmentFile};
use terrace_manifest::ManifestState;
use terrace_manifest::evidence::Claims;
use terrace_manifest::names;
use terrace_sst::is_damage;
use terrace_vfs::{
    CreateOptions, LOST_PAGE_BYTES, LOST_SECTOR_BYTES, OpenMode, is_unreadable, read_around_loss,
};

/// Bytes of a segment that are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// What is in the log.
#[derive(Default)]
pub(super) struct LogSurvey {
    /// Whether it has to be salvaged, since an open would refuse it.
    pub salvages: bool,
    pub batches: u64,
    /// Ids of the families that the batches write to.
    pub families: BTreeSet<u32>,
    /// The names that their keys tell.
    pub names: BTreeMap<u32, &'static str>,
    pub end: Option<LogPosition>,
    pub gaps: Vec<Gap>,
    /// Why it ends where it does, if it looks as if a crash had cut it.
    pub torn: Option<String>,
    /// Segments that an earlier recovery had dropped.
    pub skipped: Vec<SegmentNumber>,
}

impl Repair<'_> {
    /// Reads the log that `state` needs.
    pub(super) fn read_log(
        &mut self,
        listing: &[String],
        state: &ManifestState,
        claims: &Claims,
        numbers: &FileNumbers,
    ) -> Result<LogSurvey> {
        let segments = recover::segments_in(self.dir, listing, state, numbers);
        let vfs = self.vfs.clone();
        let mut log = recover::Log::new(&*vfs, self.dir, &segments, claims, state);
        let complete = recover::live_segments(self.dir, listing, state, numbers).map(drop);
        let mut survey = match complete.and_then(|()| read(&log, self.signs)) {
            Err(error) if is_loss(&error) => {
                log.salvages = true;
                read(&log, self.signs)?
            }
            read => read?,
        };
        survey.salvages = log.salvages;
        self.saved(format!("{} batches of the log", survey.batches));
        if let Some(why) = &survey.torn {
            self.note(format!("the log ends where a crash seems to have cut it: {why}"));
        }
        for number in &survey.skipped {
            self.note(format!(
                "log segment {number}: the log does not lead to it; it moves to lost/"
            ));
        }
        if survey.salvages {
            self.tell_gaps(&survey, &segments, state, claims);
        }
        Ok(survey)
    }

    fn tell_gaps(
        &mut self,
        survey: &LogSurvey,
        segments: &[SegmentFile],
        state: &ManifestState,
        claims: &Claims,
    ) {
        let before = self.report.lost.len();
        let oldest = recover::oldest_needed(state);
        let first = segments.first().map(|file| file.number);
        if oldest > SegmentNumber::ZERO && first != Some(oldest) {
            self.lost(format!("log segment {oldest}: it is missing, and the log begins with it"));
        }
        for Gap { segment, offset, why } in &survey.gaps {
            self.lost(format!("log segment {segment} at offset {offset}: {why}"));
        }
        let end = survey.end.unwrap_or_default();
        let proven = claims.log;
        if proven.segment > SegmentNumber::ZERO && proven.segment >= oldest && end < proven {
            self.lost(format!(
                "the log behind offset {} of segment {}: it had been durable up to offset {} of segment {}",
                end.offset, end.segment, proven.offset, proven.segment
            ));
        }
        if self.report.lost.len() == before {
            self.lost(
                "the log: an open refuses it, although every record in it can be read".into(),
            );
        }
    }

    /// The segments among `numbers` that have another header than theirs; they are written anew for that.
    pub(super) fn bad_headers(&self, paths: Vec<SegmentFile>) -> Result<Vec<SegmentFile>> {
        let mut bad = Vec::new();
        for SegmentFile { number, path } in paths {
            let header = match self.vfs.len(&path) {
                Ok(len) if len <= HEADER_BYTES => continue,
                Ok(_) => terrace_log::read_header_around_loss(&*self.vfs, &path),
                Err(error) => Err(error),
            };
            let header = match header {
                // Nothing of it can be read: its values are missing, as those of a segment that is lost.
                Err(error) if is_damage(&error) => continue,
                header => header?,
            };
            match header {
                Ok(header) if header.segment == number => {}
                // A header before nothing is of no use.
                _ if !self.is_worth_a_header(&path)? => {}
                _ => bad.push(SegmentFile { number, path }),
            }
        }
        Ok(bad)
    }

    /// Whether a segment, which is longer than its header, has anything but zeros, and nothing behind the header is known
    /// to be damaged, but for pages that the device does not give.
    fn is_worth_a_header(&self, path: &Path) -> Result<bool> {
        let file = self.vfs.open(path, OpenMode::default())?;
        let (mut buffer, mut damaged) = (vec![0; PIECE_BYTES], Vec::new());
        let header = &mut buffer[..HEADER_BYTES as usize];
        read_around_loss(&*file, 0, header, &mut damaged, LOST_PAGE_BYTES)?;
        let mut is_zeros = damaged.is_empty() && header.iter().all(|byte| *byte == 0);
        let mut offset = HEADER_BYTES;
        while offset < file.len() {
            let piece = (PIECE_BYTES as u64).min(file.len() - offset) as usize;
            let read = match file.read_at(offset, &mut buffer[..piece]) {
                Err(error) if is_unreadable(&error) => {
                    let buffer = &mut buffer[..piece];
                    read_around_loss(&*file, offset, buffer, &mut damaged, LOST_PAGE_BYTES)
                }
                read => read,
            };
            match read {
                Ok(()) => is_zeros &= buffer[..piece].iter().all(|byte| *byte == 0),
                Err(error) if error.is_corruption() => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            offset += piece as u64;
        }
        Ok(!is_zeros)
    }

    /// Puts a copy of a segment with a sound header in its place, with zeros for what cannot be read. Its records are what
    /// they were: their checksums say where they stand.
    pub(super) fn mend_header(&self, number: SegmentNumber, path: &Path) -> Result<()> {
        let temp = names::temp_path(self.dir, number.file());
        if self.vfs.exists(&temp)? {
            self.vfs.remove(&temp)?;
        }
        let source = self.vfs.open(path, OpenMode::default())?;
        let grows = path == names::log_path(self.dir, number);
        let mut copy = self.vfs.create(&temp, &CreateOptions { grows, ..Default::default() })?;
        copy.append(&encode_header(&Header { segment: number, previous: None }))?;
        let (mut buffer, mut offset) = (vec![0; PIECE_BYTES], HEADER_BYTES);
        while offset < source.len() {
            let len = (PIECE_BYTES as u64).min(source.len() - offset) as usize;
            let (piece, mut damaged) = (&mut buffer[..len], Vec::new());
            // A value that was found to be whole may stand beside a lost sector.
            read_around_loss(&*source, offset, piece, &mut damaged, LOST_SECTOR_BYTES)?;
            for range in damaged {
                piece[(range.start - offset) as usize..(range.end - offset) as usize].fill(0);
            }
            copy.append(piece)?;
            offset += len as u64;
        }
        copy.finish()?;
        copy.sync()?;
        self.vfs.rename(&temp, path)?;
        Ok(self.vfs.sync_dir(self.dir)?)
    }
}

/// Reads what a replay would, and checks what it would check.
fn read(log: &recover::Log<'_>, signs: &[FamilySign]) -> terrace_base::Result<LogSurvey> {
    let mut survey = LogSurvey::default();
    let mut next_seqno = SeqNo::ZERO;
    let mut apply = |segment: SegmentNumber, offset: u64, payload: &[u8]| {
        let path = names::log_path(log.dir, segment);
        let wrong = |why: String| terrace_base::Error::corruption(&path, offset, why);
        let (first, count, ops) = batch::decode_next(payload, next_seqno).map_err(wrong)?;
        let ops: std::result::Result<Vec<_>, usize> = ops.collect();
        next_seqno = first + u64::from(count);
        for op in ops.map_err(|at| wrong(batch::not_a_batch(at)))? {
            survey.families.insert(op.family);
            if let Some(sign) = signs.iter().find(|sign| sign.is_of(op.family, op.key)) {
                survey.names.insert(op.family, sign.name);
            }
        }
        Ok(())
    };
    let (recovered, gaps) = log.read(&mut apply)?;
    survey.batches = recovered.records;
    survey.torn = recovered.torn;
    (survey.end, survey.skipped, survey.gaps) = (recovered.end, recovered.skipped, gaps);
    Ok(survey)
}
