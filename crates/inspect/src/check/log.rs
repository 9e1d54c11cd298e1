//! Checking the commit log: as a recovery reads it, and every batch in it op by op.

use crate::batch::{self, PayloadPlace};
use crate::directory::Listing;
use crate::problem::Problem;
use crate::text::Abridged;
use crate::tree::Tree;
use std::path::{Path, PathBuf};
use terrace_log::format::RECORD_HEADER_BYTES;
use terrace_vfs::Vfs;

/// Bytes of a key in a message.
const SHOWN_BYTES: usize = 40;

#[derive(Debug, Default)]
pub(super) struct Found {
    pub problems: Vec<Problem>,
    pub notes: Vec<String>,
    pub segments: u64,
    pub records: u64,
    pub ops: u64,
}

/// Replays the segments that `tree` still needs, into nothing.
pub(super) fn check(vfs: &dyn Vfs, listing: &Listing, tree: &Tree) -> Found {
    let mut found = Found::default();
    let live = listing.logs.range(tree.oldest_log_segment()..);
    let segments: Vec<(u64, PathBuf)> =
        live.map(|(number, path)| (*number, path.clone())).collect();
    found.segments = segments.len() as u64;
    let mut next_seqno = 0;
    let outcome = terrace_log::recover(vfs, &segments, &mut |segment, offset, payload| {
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
            let path = segments.first().map_or(Path::new(""), |(_, path)| path);
            found.problems.push(Problem::from_error(&error, path));
        }
    }
    found
}
