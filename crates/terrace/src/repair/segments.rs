//! The segments that the repaired store has: with values that SSTs refer to, and of the log.

use super::{Repair, values};
use crate::error::Result;
use crate::open::recover;
use crate::version::file_numbers::FileNumbers;
use std::collections::BTreeSet;
use std::path::Path;
use terrace_base::SegmentNumber;
use terrace_log::SegmentFile;
use terrace_log::format::HEADER_BYTES;
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{ManifestState, SegmentKind, SegmentMeta};

/// What is added to the name of a file of which nothing can be used.
const DAMAGED: &str = ".damaged";

impl Repair<'_> {
    /// Puts the value segments into `state`: those of the manifest, and those that SSTs have `referred` to, as far as they are
    /// there. Gives those, and those of the log, that are to be mended.
    pub(super) fn segments(
        &mut self,
        state: &mut ManifestState,
        referred: &BTreeSet<SegmentNumber>,
        (listing, numbers): (&[String], &FileNumbers),
        aside: &mut Vec<(String, &'static str)>,
    ) -> Result<Vec<SegmentFile>> {
        let oldest = state.oldest_log_segment();
        let known: BTreeSet<SegmentNumber> =
            state.segments.keys().chain(referred).copied().collect();
        let mut mended = Vec::new();
        for number in known {
            let stated = state.segments.get(&number).copied();
            let mut place = None;
            for named in values::places(self.dir, number, stated.map(|meta| meta.kind)) {
                if place.is_none() && self.is_there(&named.1)? {
                    place = Some(named);
                }
            }
            let Some((kind, path)) = place else {
                // What it took with it was told with the SSTs that refer to it.
                state.segments.remove(&number);
                continue;
            };
            let is_replayed = kind == SegmentKind::CommitLog && number >= oldest;
            if is_replayed && !state.segments.contains_key(&number) {
                // It becomes a value segment by that.
                continue;
            }
            let left = self.left_of(number, &path)?;
            if left.is_lost() {
                state.segments.remove(&number);
                let why = left.damage.unwrap_or_default();
                match referred.contains(&number) {
                    true => self.lost(format!("the values of segment {number}: {why}")),
                    false => self.note(format!("segment {number} moves to lost/: {why}")),
                }
                aside.extend(name_of(&path).map(|name| (name, DAMAGED)));
                continue;
            }
            let size_bytes = left.len_bytes;
            let stated = stated.map(|meta| meta.size_bytes);
            if !is_replayed && size_bytes < HEADER_BYTES {
                state.segments.remove(&number);
                self.note(format!("segment {number} is empty, and is a value segment no more"));
                continue;
            }
            if let Some(stated) = stated.filter(|stated| size_bytes < *stated) {
                self.note(format!("segment {number} has {size_bytes} bytes, not {stated}"));
            }
            // What lies behind is not the store's.
            let size_bytes = stated.map_or(size_bytes, |stated| size_bytes.min(stated));
            state.segments.insert(number, SegmentMeta { number, kind, size_bytes });
            if left.is_to_be_mended() {
                mended.push(SegmentFile { number, path });
            }
        }
        for file in recover::segments_in(self.dir, listing, state, numbers) {
            // One of which nothing can be read, or that is another one, is a gap in the log.
            if !self.is_misplaced(&file.path)
                && self.left_of(file.number, &file.path)?.is_to_be_mended()
            {
                mended.push(file);
            }
        }
        self.damaged_history(state, (listing, numbers), aside)?;
        mended.sort();
        for SegmentFile { number, .. } in &mended {
            self.note(format!(
                "segment {number}: it is damaged and moves to lost/; if the store needs it after the log is replayed, it is \
                 written anew, with a sound header, and zeros for what cannot be read of it"
            ));
        }
        Ok(mended)
    }

    /// Sets those segments aside that are there for change feeds only and cannot be read: feeds begin behind them.
    fn damaged_history(
        &mut self,
        state: &ManifestState,
        (listing, numbers): (&[String], &FileNumbers),
        aside: &mut Vec<(String, &'static str)>,
    ) -> Result<()> {
        let oldest = state.oldest_log_segment();
        for name in listing {
            let FileName::Log(number) = names::parse(name) else { continue };
            let is_needed = number >= oldest || state.segments.contains_key(&number);
            let goes = aside.iter().any(|(aside, _)| aside == name);
            if is_needed || goes || numbers.is_foreign(number.file()) {
                continue;
            }
            if let Some(why) = self.left_of(number, &self.dir.join(name))?.damage {
                self.note(format!(
                    "log segment {number}, which only change feeds need, moves to lost/: {why}"
                ));
                aside.push((name.clone(), DAMAGED));
            }
        }
        Ok(())
    }
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_string())
}
