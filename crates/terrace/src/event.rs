//! `tracing` events: flush, compaction, stall, error. One function each, so that the fields of an
//! event are named in one place.

use crate::error::Error;
use std::fmt::Display;
use std::path::Path;
use terrace_base::{FileNumber, SegmentNumber};
use terrace_log::LogPosition;

/// The target under which every event of the engine is logged.
pub(crate) const TARGET: &str = "terrace";

pub(crate) fn opened(dir: &Path, families: usize, files: usize, recovered: u64, micros: u64) {
    tracing::info!(target: TARGET, dir = %dir.display(), families, files, recovered_batches = recovered, open_us = micros, "opened");
}

pub(crate) fn torn_log(end: LogPosition, dropped_bytes: u64, why: &str) {
    let (segment, offset) = (end.segment.get(), end.offset);
    tracing::warn!(target: TARGET, segment, offset, dropped_bytes, why, "the log ends in an unfinished record; what was never synced is dropped");
}

pub(crate) fn set_aside(file: &str, to: &Path, why: &str) {
    tracing::warn!(target: TARGET, file, to = %to.display(), why, "a file that looks like data was set aside");
}

pub(crate) fn foreign_file(name: &str) {
    tracing::warn!(target: TARGET, name, "a file in the directory has a number far past all others: it is not the store's, and is left alone");
}

pub(crate) fn foreign_in_backup_work(path: &Path) {
    tracing::warn!(target: TARGET, path = %path.display(), "no backup has made what is here, where backups have their checkpoint: it is left alone, and has to be moved away before the next backup");
}

pub(crate) fn evidence_damaged(path: &Path, why: &str) {
    tracing::warn!(target: TARGET, path = %path.display(), why, "an evidence file is lost or damaged: it is written anew from what the other files say");
}

pub(crate) fn evidence_stale(error: &terrace_base::Error) {
    tracing::warn!(target: TARGET, %error, "what was synced could not be written down: until it is, fewer lost or cut files are noticed");
}

pub(crate) fn flushed(family: &str, memtables: usize, entries: u64, bytes: u64, micros: u64) {
    tracing::info!(target: TARGET, family, memtables, entries, written_bytes = bytes, took_us = micros, "flush");
}

pub(crate) fn compacted(family: &str, what: &str, read: u64, written: u64, micros: u64) {
    tracing::info!(target: TARGET, family, what, read_bytes = read, written_bytes = written, took_us = micros, "compaction");
}

/// The first failure of a job.
pub(crate) fn filter_failed(family: &str, filter: &str, key: &[u8], why: &str) {
    let key = key.get(..64).unwrap_or(key).escape_ascii();
    tracing::error!(target: TARGET, family, filter, %key, why, "a compaction filter failed: the entry stays");
}

pub(crate) fn filter_set_aside(family: &str, job: &str) {
    tracing::info!(target: TARGET, family, job, "a snapshot was taken while a compaction filter changed what it sees: repeated without the filter");
}

pub(crate) fn listener_panicked(why: &str) {
    tracing::error!(target: TARGET, why, "an event listener panicked");
}

pub(crate) fn ingested(family: &str, files: usize, entries: u64, bytes: u64, micros: u64) {
    tracing::info!(target: TARGET, family, files, entries, bytes, took_us = micros, "ingestion");
}

pub(crate) fn ingested_file_stays(error: &terrace_base::Error) {
    tracing::warn!(target: TARGET, %error, "a file that was ingested, and was to be removed then, stays where it is");
}

pub(crate) fn stalled(family: &str, cause: &str, stopped: bool) {
    tracing::warn!(target: TARGET, family, cause, stopped, "writes are stalled");
}

pub(crate) fn background_error(doing: &str, error: &Error) {
    let severity = error.severity().name();
    tracing::error!(target: TARGET, doing, severity, %error, "background work failed");
}

/// `pause_us`: when it is tried again, if ever.
pub(crate) fn quarantined(
    family: &str,
    level: u8,
    file: FileNumber,
    pause_us: Option<u64>,
    error: &Error,
) {
    tracing::error!(target: TARGET, family, tree_level = level, file = file.get(), retry_after_us = pause_us, %error, "a file cannot be read: it is left out of compactions");
}

pub(crate) fn filter_unit_lost(file: FileNumber, error: &terrace_base::Error) {
    tracing::warn!(target: TARGET, file = file.get(), %error, "a filter unit cannot be read: lookups go on without it");
}

pub(crate) fn unfinished_file_stays(error: &terrace_base::Error) {
    tracing::warn!(target: TARGET, %error, "an unfinished file stays until the next open");
}

pub(crate) fn unneeded_file_stays(error: &terrace_base::Error) {
    tracing::warn!(target: TARGET, %error, "a file that nothing needs cannot be removed; it is tried again");
}

pub(crate) fn log_history_ends(error: &terrace_base::Error) {
    tracing::warn!(target: TARGET, %error, "a log segment that is kept for change feeds cannot be read: feeds begin behind it");
}

/// `pause_us` as in [`quarantined`].
pub(crate) fn value_not_moved(
    segment: SegmentNumber,
    pause_us: Option<u64>,
    error: &terrace_base::Error,
) {
    match pause_us {
        Some(pause_us) => {
            tracing::warn!(target: TARGET, segment = segment.get(), pause_us, %error, "a value cannot be read: its segment is not collected for a while");
        }
        None => {
            tracing::warn!(target: TARGET, segment = segment.get(), %error, "a value is damaged: its segment is not collected until the next open");
        }
    }
}

pub(crate) fn filter_heat_not_saved(error: &terrace_base::Error) {
    tracing::warn!(target: TARGET, %error, "the heat of filters was not saved: after the next open they are loaded as lookups come");
}

pub(crate) fn decided_on_model(
    family: &str,
    level: usize,
    file: FileNumber,
    decision: &dyn Display,
) {
    tracing::debug!(target: TARGET, family, tree_level = level, file = file.get(), %decision, "a model of a file was decided on");
}

pub(crate) fn decided_on_level_model(family: &str, level: usize, decision: &dyn Display) {
    tracing::debug!(target: TARGET, family, tree_level = level, %decision, "a model of a level was decided on");
}

pub(crate) fn model_trained(family: &str, level: usize, file: FileNumber, bytes: u64, micros: u64) {
    tracing::info!(target: TARGET, family, tree_level = level, file = file.get(), model_bytes = bytes, took_us = micros, "a model of a file was trained");
}

pub(crate) fn model_refused(family: &str, level: usize, file: FileNumber, why: &dyn Display) {
    tracing::info!(target: TARGET, family, tree_level = level, file = file.get(), %why, "a file gets no model");
}

pub(crate) fn level_model_built(
    family: &str,
    level: usize,
    files: usize,
    bytes: usize,
    micros: u64,
) {
    tracing::info!(target: TARGET, family, tree_level = level, files, model_bytes = bytes, took_us = micros, "a level has one model");
}

pub(crate) fn level_model_refused(family: &str, level: usize, why: &dyn Display) {
    tracing::info!(target: TARGET, family, tree_level = level, %why, "a level gets no model");
}

pub(crate) fn level_model_dropped(family: &str, level: usize) {
    tracing::info!(target: TARGET, family, tree_level = level, "the files of a level changed: its model goes, those of the files serve");
}

pub(crate) fn readers_pin(files: u64, bytes: u64) {
    tracing::warn!(target: TARGET, files, bytes, "read-only stores keep files that are not needed otherwise: refresh or close them, or set max_reader_pinned_bytes");
}

pub(crate) fn disk_full(error: &terrace_base::Error) {
    tracing::error!(target: TARGET, %error, "the disk is full: writes are refused until there is room");
}

pub(crate) fn disk_has_room(free_bytes: u64) {
    tracing::info!(target: TARGET, free_bytes, "there is room on the disk again: writes resume");
}

#[cfg(test)]
mod tests {
    /// Names that every line of a log has. A server's log of JSON objects has the fields of the event beside them.
    const OF_EVERY_LINE: [&str; 4] = ["timestamp", "level", "target", "message"];

    #[test]
    fn no_field_has_a_name_that_every_line_of_a_log_has() {
        let lines = include_str!("event.rs").lines().map(str::trim);
        let events: Vec<&str> = lines.filter(|line| line.starts_with("tracing::")).collect();
        assert!(events.len() > 30, "{}", events.len());
        for event in events {
            let fields = event.split(", ").map(|field| field.trim_start_matches(['%', '?']));
            let mut names = fields.filter_map(|field| field.split([' ', ')']).next());
            assert!(names.all(|name| !OF_EVERY_LINE.contains(&name)), "{event}");
        }
    }
}
