//! The commit log: what a replay will find in it.

use super::base::is_loss;
use super::{FamilySign, Repair};
use crate::batch;
use crate::error::Result;
use crate::open::recover::{self, Place};
use crate::version::file_numbers::FileNumbers;
use std::collections::{BTreeMap, BTreeSet};
use terrace_base::{SegmentNumber, SeqNo};
use terrace_log::{Gap, LogPosition, SegmentFile};
use terrace_manifest::ManifestState;
use terrace_manifest::evidence::Claims;
use terrace_manifest::names;

/// What is in the log.
#[derive(Default)]
pub(super) struct LogSurvey {
    /// Whether it has to be salvaged, since an open would refuse it.
    pub salvages: bool,
    pub batches: u64,
    /// Ids of the families that the batches write to.
    pub families: BTreeSet<u32>,
    /// Of those: the ones that they merge operands into.
    pub operands: BTreeSet<u32>,
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
        let mut survey = match complete.and_then(|()| read(&log, state, self.signs)) {
            Err(error) if is_loss(&error) => {
                log.salvages = true;
                read(&log, state, self.signs)?
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
        let oldest = state.oldest_log_segment();
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
}

/// Reads what a replay would, and checks what it would check.
fn read(
    log: &recover::Log<'_>,
    state: &ManifestState,
    signs: &[FamilySign],
) -> terrace_base::Result<LogSurvey> {
    let mut survey = LogSurvey::default();
    let mut next_seqno = SeqNo::ZERO;
    let mut apply = |at: Place, payload: &[u8]| {
        let path = names::log_path(log.dir, at.segment);
        let wrong = |why: String| terrace_base::Error::corruption(&path, at.offset, why);
        let (first, count, ops) = batch::decode_next(payload, next_seqno).map_err(wrong)?;
        if count > 0 && at.is_unlinked {
            return Err(wrong(recover::OF_ANOTHER_STORE.into()));
        }
        let ops: std::result::Result<Vec<_>, usize> = ops.collect();
        next_seqno = first + u64::from(count);
        for op in ops.map_err(|at| wrong(batch::not_a_batch(at)))? {
            survey.families.insert(op.family);
            if op.kind.is_operand() {
                survey.operands.insert(op.family);
            }
            if let Some(sign) = signs.iter().find(|sign| sign.is_of(op.family, op.key)) {
                survey.names.insert(op.family, sign.name);
            }
        }
        Ok(())
    };
    let (recovered, gaps) = log.read(state, &mut apply)?;
    survey.batches = recovered.records;
    survey.torn = recovered.torn;
    (survey.end, survey.skipped, survey.gaps) = (recovered.end, recovered.skipped, gaps);
    Ok(survey)
}
