//! Which keys are written most, from segments of the log: as a rule when they are needed no more (retire, between
//! leaving the log and leaving the disk), or earlier for who asks (`count_log.rs`). The file is read once again, as a
//! rule from the page cache; a writer never waits for it.

use crate::batch;
use crate::write::env::CommitEnv;
use std::collections::BTreeSet;
use terrace_base::{SegmentNumber, ValueKind};
use terrace_log::{LogReader, RecordKind, Step};
use terrace_manifest::names;

/// Counts the operations of these segments, whose files the caller has not let go of, unless that was done before;
/// `stay`: they are in the log still. A segment that cannot be read is left out: nothing but the counts depends on it.
pub(crate) fn count_segments(env: &CommitEnv, segments: &[SegmentNumber], stay: bool) {
    if !env.base.written.is_on() || segments.is_empty() {
        return;
    }
    let except = &env.base.options.advanced.write_tracking.except_families;
    let families = env.read.families.load();
    let left_out: BTreeSet<u32> = families
        .iter()
        .filter(|family| except.contains(&family.name))
        .map(|family| family.id)
        .collect();
    for segment in segments {
        let mut read = Ok(());
        env.base.written.count(env.base.clock.monotonic_us(), (*segment, stay), |seen| {
            read = count_segment(env, *segment, &left_out, seen);
        });
        if let Err(error) = read {
            tracing::debug!(segment = segment.get(), %error, "writes of a log segment are not counted");
        }
    }
}

fn count_segment(
    env: &CommitEnv,
    segment: SegmentNumber,
    left_out: &BTreeSet<u32>,
    seen: &mut dyn FnMut(u32, &[u8], u64),
) -> terrace_base::Result<()> {
    let path = names::log_path(&env.base.dir, segment);
    let mut reader = LogReader::open(&*env.base.vfs, &path, segment)?;
    while let Step::Record(record) = reader.next()? {
        if record.kind != RecordKind::Data {
            continue;
        }
        let Some((_, _, ops)) = batch::decode(record.payload) else { continue };
        for op in ops.map_while(|op| op.ok()) {
            if op.kind != ValueKind::RangeDelete && !left_out.contains(&op.family) {
                seen(op.family, op.key, (op.key.len() + op.value.len()) as u64);
            }
        }
    }
    Ok(())
}
