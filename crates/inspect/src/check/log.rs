//! Checking the commit log: as a recovery reads it, and every batch in it op by op.

use crate::batch::{self, PayloadPlace};
use crate::directory::Listing;
use crate::problem::Problem;
use crate::text::Abridged;
use crate::tree::Tree;
use std::path::{Path, PathBuf};
use terrace_base::{SegmentNumber, SeqNo};
use terrace_log::format::RECORD_HEADER_BYTES;
use terrace_log::{LogPosition, LogSegments, Setting};
use terrace_manifest::evidence::Claims;
use terrace_manifest::names;
use terrace_vfs::Vfs;

/// Bytes of a key in a message.
const SHOWN_BYTES: usize = 40;

/// What to say of writes in a segment that names none before it.
const UNLINKED: &str = "the log does not begin with this segment, and it names none that it continues: \
                        an open takes it for one of another store";

#[derive(Debug, Default)]
pub(super) struct Found {
    pub problems: Vec<Problem>,
    pub notes: Vec<String>,
    pub segments: u64,
    pub records: u64,
    pub ops: u64,
}

/// Replays the segments that `tree` still needs, into nothing. `claims` are what is known of them.
pub(super) fn check(
    vfs: &dyn Vfs,
    dir: &Path,
    claims: &Claims,
    listing: &Listing,
    tree: &Tree,
) -> Found {
    let mut found = Found::default();
    let oldest = tree.oldest_log_segment();
    let segments = tree.log_in_force(listing);
    found.segments = segments.len() as u64;
    let first = segments.first().map(|file| file.number);
    if oldest > SegmentNumber::ZERO
        && first != Some(oldest)
        && (first.is_some() || tree.keeps_evidence)
    {
        let detail = "it is missing, and the manifest says that the log begins with it";
        found.problems.push(Problem::of(&names::log_path(dir, oldest), detail));
    }
    let is_proven = |log: &LogPosition| log.segment > SegmentNumber::ZERO && log.segment >= oldest;
    let proven = Some(claims.log).filter(is_proven);
    let mut next_seqno = SeqNo::ZERO;
    // What is half seen of an append is neither damage nor unfinished.
    let setting = Setting { proven, beside_writer: true };
    let outcome = LogSegments::open(vfs, &segments).and_then(|log| {
        // A store begins such a one when it is opened, and its manifest says that the log begins with it before there are
        // writes in it.
        let unlinked = tree.keeps_evidence.then(|| log.unlinked(oldest));
        let mut unlinked = unlinked.unwrap_or_default();
        log.replay(setting, &mut |segment, offset, payload| {
            let path = listing.logs.get(&segment).map_or(Path::new(""), PathBuf::as_path);
            let mut problem = |detail: String| {
                let problem = Problem::of(path, detail);
                found.problems.push(Problem { offset: Some(offset), ..problem });
            };
            found.records += 1;
            let payload_at = offset + RECORD_HEADER_BYTES as u64;
            let place = PayloadPlace { segment, offset: payload_at };
            let Some(batch) = batch::decode(payload, place) else {
                problem("the record passes its checksum but is no batch".into());
                return Ok(());
            };
            if batch.op_count > 0 && unlinked.remove(&segment) {
                problem(UNLINKED.into());
            }
            if let Some((at, why)) = batch.fault {
                problem(format!("the batch of this record is damaged at byte {at}: {why}"));
            }
            for (op, handle) in batch.unsound_values() {
                problem(format!(
                    "the checksum of the value of `{}` at offset {} is wrong",
                    Abridged(op.key, SHOWN_BYTES),
                    handle.offset
                ));
            }
            if batch.first_seqno < next_seqno {
                let first = batch.first_seqno;
                problem(format!("the batch starts at seqno {first}, {next_seqno} should be next"));
            }
            next_seqno = batch.first_seqno.saturating_add(u64::from(batch.op_count));
            found.ops += batch.ops.len() as u64;
            Ok(())
        })
    });
    match outcome {
        Ok(recovered) => {
            if let Some(why) = recovered.torn {
                let bytes = recovered.dropped_bytes;
                found.notes.push(format!(
                    "the log ends in {bytes} unfinished bytes that were never durable and that \
                     the next open drops: {why}"
                ));
            }
        }
        Err(error) => {
            let path = segments.first().map_or(Path::new(""), |file| &file.path);
            found.problems.push(Problem::from_error(&error, path));
        }
    }
    found
}
