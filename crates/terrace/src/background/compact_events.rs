//! The events of a compaction for listeners.

use crate::background::compaction::pick::{Choice, File};
use crate::background::env::JobEnv;
use crate::error::Result;
use crate::listener::{CompactionBegun, CompactionEnded, Event, SstInfo};
use crate::version::family::Family;
use crate::version::install::sst_info;
use std::time::Duration;

/// Bytes read and written.
pub(crate) type Volume = (u64, u64);

/// What a compaction did.
pub(crate) struct Merged {
    pub volume: Volume,
    pub outputs: Vec<SstInfo>,
}

/// Tells that a compaction begins; gives the number of the job.
pub(crate) fn begun(env: &JobEnv, family: &Family, choice: &Choice) -> u64 {
    let job = env.base.events.next_job();
    let is_move = matches!(choice, Choice::Move(_));
    let (inputs, output_level) = match choice {
        Choice::Nothing => return job,
        _ if !env.base.events.is_heard() => return job,
        Choice::Move(moved) => {
            let inputs = moved.files.iter().map(|file| sst_info(moved.from, file));
            (inputs.collect(), moved.to)
        }
        Choice::Merge(merge) => {
            let of_level = |(level, files): &(u8, Vec<File>)| {
                let level = *level;
                files.iter().map(move |file| sst_info(level, file)).collect::<Vec<_>>()
            };
            (merge.inputs.iter().flat_map(of_level).collect(), merge.output_level)
        }
    };
    env.base.events.tell(|| {
        Event::CompactionBegun(CompactionBegun {
            job,
            family: family.name.clone(),
            reason: reason(choice),
            inputs,
            output_level: usize::from(output_level),
            is_move,
        })
    });
    job
}

/// Tells that it has ended.
pub(crate) fn ended(
    env: &JobEnv,
    family: &Family,
    choice: &Choice,
    job: u64,
    took: Duration,
    result: &Result<Merged>,
) {
    env.base.events.tell(|| {
        let merged = result.as_ref().ok();
        let (read_bytes, written_bytes) = merged.map_or((0, 0), |merged| merged.volume);
        Event::CompactionEnded(CompactionEnded {
            job,
            family: family.name.clone(),
            reason: reason(choice),
            outputs: merged.map(|merged| merged.outputs.clone()).unwrap_or_default(),
            read_bytes,
            written_bytes,
            took,
            error: result.as_ref().err().cloned(),
        })
    });
}

fn reason(choice: &Choice) -> &'static str {
    match choice {
        Choice::Nothing => "",
        Choice::Move(moved) => moved.reason.name(),
        Choice::Merge(merge) => merge.reason.name(),
    }
}
