//! Which keys are written most, with what is in the log still: for who does not want to wait until it leaves the log,
//! where a hot table keeps it for long. Nothing is flushed; the log begins another segment.

use crate::error::Result;
use crate::write::count_written::count_segments;
use crate::write::env::CommitEnv;
use crate::write::log_segments::next_segment;
use terrace_base::SegmentNumber;

/// Counts everything that was written before this, as far as it is not counted yet.
pub(crate) fn count_log(env: &CommitEnv) -> Result<()> {
    if !env.base.written.is_on() {
        return Ok(());
    }
    env.base.health.check_writable()?;
    // The files of the segments stay until they are read.
    let _held = env.versions.hold_deletions();
    let full: Vec<SegmentNumber> = {
        let lead = env.queue()?.lead();
        let mut log = lead.log();
        if log.last_seqno > env.versions.log_history.last_full_seqno() {
            next_segment(env, &mut log)?;
        }
        log.segments.iter().map(|(number, _)| *number).collect()
    };
    count_segments(env, &full, true);
    Ok(())
}
