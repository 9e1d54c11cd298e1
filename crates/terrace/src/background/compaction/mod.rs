//! Compaction: `pick` is the vocabulary of a choice, `leveled` (with `windows`) and `tiered` choose, and `under_deletions` what to rewrite
//! below deletions that stay ([`above`]); `job` merges, without what these hide (`hiding`),
//! `values` moves separated values on the way; `kept_room` is what a merge leaves free. What survives a merge is `retain`'s business, how it
//! is written `output`'s.

pub(crate) mod above;
mod hiding;
pub(crate) mod job;
pub(crate) mod kept_room;
pub(crate) mod leveled;
pub(crate) mod pick;
pub(crate) mod tiered;
mod under_deletions;
pub(crate) mod values;
mod windows;

use crate::options::{CompactionStyle, FamilyOptions};
use pick::{Choice, Manual, ManualStep, PickInput};
use terrace_manifest::{LEVEL_COUNT, Version};
pub(crate) use under_deletions::{MOST_PAIRS, pick as pick_under_deletions};

/// What to do next in one family.
pub(crate) fn pick(input: &PickInput<'_>) -> Choice {
    match input.options.style {
        CompactionStyle::Leveled => leveled::pick(input),
        CompactionStyle::Tiered => tiered::pick(input),
    }
}

/// What is worth doing in one family while nothing else is, so that reads meet few runs. Every
/// choice is bounded in what it writes per byte moved; repeated calls come to an end.
pub(crate) fn pick_idle(input: &PickInput<'_>) -> Choice {
    match input.options.style {
        CompactionStyle::Leveled => leveled::pick_idle(input),
        CompactionStyle::Tiered => tiered::pick_idle(input),
    }
}

/// What may give room back on a full disk, before anything else is tried there: merges of files with range
/// tombstones, which write little where much is deleted.
pub(crate) fn pick_deleted_ranges(input: &PickInput<'_>) -> Choice {
    match input.options.style {
        CompactionStyle::Leveled => leveled::pick_deleted_ranges(input),
        CompactionStyle::Tiered => tiered::pick_deleted_ranges(input),
    }
}

/// The next step of a `compact_range`.
pub(crate) fn pick_manual(input: &PickInput<'_>, manual: &mut Manual) -> ManualStep {
    match input.options.style {
        CompactionStyle::Leveled => leveled::pick_manual(input, manual),
        CompactionStyle::Tiered => tiered::pick_manual(input, manual),
    }
}

/// The next rewrite of files with values in victim segments, for a caller that waits for them to go.
pub(crate) fn pick_values(input: &PickInput<'_>) -> Option<Choice> {
    match input.options.style {
        CompactionStyle::Leveled => leveled::pick_values(input),
        CompactionStyle::Tiered => tiered::pick_values(input),
    }
}

/// Bytes that compaction has to write before nothing is over its target.
pub(crate) fn pending_bytes(input: &PickInput<'_>) -> u64 {
    match input.options.style {
        CompactionStyle::Leveled => leveled::pending_bytes(input),
        CompactionStyle::Tiered => tiered::pending_bytes(input),
    }
}

/// The bytes above which each level is merged down. `None`: its size does not decide that.
pub(crate) fn level_targets(
    version: &Version,
    options: &FamilyOptions,
) -> [Option<u64>; LEVEL_COUNT] {
    match options.style {
        CompactionStyle::Leveled => leveled::level_targets(version, options),
        CompactionStyle::Tiered => [None; LEVEL_COUNT],
    }
}

#[cfg(test)]
mod tests;
