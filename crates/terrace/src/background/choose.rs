//! Which compaction runs next, of all families: under the scheduler's lock, from what is there and what runs.
//!
//! Once a merge has met a full disk, and until there is plenty of room, only merges that fit are begun: each try of one
//! that does not would fill the disk and fail writers. Where the wanted one does not fit, smaller ones are looked for:
//! its largest files stay where they are, as files that cannot be read do. What writes little since much is deleted by
//! ranges is tried all the same, with pauses; it ends before it has filled the disk (`compaction/kept_room`). While writes are refused anyway a merge that does not fit is tried as well,
//! with pauses: what it writes may be less than what it reads. And single files are rewritten, there and where nothing is
//! written, below deletions that have no room to be merged with all that they meet (`compaction/under_deletions`).
//!
//! Files that are looked at for such rewrites are looked at under the lock, and again and again while room is short: one
//! choice looks at a bounded number of pairs of files ([`Pairs`]), and where nothing was found nothing is looked for until
//! something has changed ([`Rewrites`]).

use crate::background::compaction::pick::{Choice, Compaction, PickInput, Values};
use crate::background::compaction::{
    MOST_PAIRS, pending_bytes, pick, pick_deleted_ranges, pick_idle, pick_under_deletions,
};
use crate::background::env::JobEnv;
use crate::env::reserve;
use crate::error::Error;
use crate::jobs::background_errors::{Attempt, RoomWanted, Work};
use crate::jobs::scheduler::{Rewrites, SchedulerState};
use crate::options::FamilyOptions;
use crate::version::family::Family;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use terrace_base::{FileNumber, SegmentNumber};
use terrace_manifest::Version;

/// A small merge takes one part in this many of the room at most.
const SMALL_PARTS: u64 = 4;

/// Smaller merges that are looked for in the place of one that does not fit.
const MAX_SMALLER: usize = 16;

/// Least room that one file takes.
const LEAST_FILE_BYTES: u64 = 4 << 10;

/// What all families' choices are made from that is not theirs: separated values, and files that
/// cannot be read.
pub(super) struct Shared {
    quarantined: Arc<HashSet<FileNumber>>,
    victims: Arc<HashSet<SegmentNumber>>,
    hidden: Arc<HashMap<FileNumber, u64>>,
    force: bool,
    live_bytes: u64,
    segment_bytes: u64,
}

impl Shared {
    pub fn new(env: &JobEnv, idle: bool) -> Self {
        Self::at(env, idle, env.base.clock.monotonic_us())
    }

    /// For a caller who asks: every file is tried but those that are known to be damaged.
    pub fn asked_for(env: &JobEnv, force: bool) -> Self {
        Self { force, ..Self::at(env, false, u64::MAX) }
    }

    fn at(env: &JobEnv, idle: bool, now_us: u64) -> Self {
        Self {
            quarantined: env.jobs.errors.quarantined(now_us),
            victims: env.read.value_log.victims().clone(),
            hidden: env.garbage.hidden(),
            force: idle || env.garbage.is_overdue(env.base.clock.monotonic_us()),
            live_bytes: env.read.value_log.live_bytes(),
            segment_bytes: env.base.options.advanced.segment_bytes,
        }
    }
}

/// What a family's choice is made from. The version is read under the scheduler's lock: a job
/// installs before it releases its claim, so the version is never older than the claims.
pub(super) fn input<'a>(
    env: &JobEnv,
    family: &Family,
    (version, options): (&'a Version, &'a FamilyOptions),
    jobs: &'a SchedulerState,
    shared: &'a Shared,
) -> PickInput<'a> {
    PickInput {
        family: family.id,
        version,
        options,
        in_progress: &jobs.busy_files,
        quarantined: &shared.quarantined,
        running: &jobs.running,
        snapshots_oldest: env.read.snapshots.oldest(),
        now_ms: env.base.clock.wall_ms(),
        values: Values {
            victims: &shared.victims,
            force: shared.force,
            hidden: &shared.hidden,
            live_bytes: shared.live_bytes,
            segment_bytes: shared.segment_bytes,
        },
    }
}

/// When the next choice is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// While there are writes.
    Usual,
    /// While there are none, or a caller waits for all work to be done.
    Idle,
    /// While the disk is full. What gives room back comes first by turns, since there may be no room for it, which others
    /// make.
    Full { turn: usize },
}

impl Occasion {
    /// Whether files of `family` below deletions are looked for.
    pub fn asks_for_rewrites(self, env: &JobEnv, family: u32, now_us: u64) -> bool {
        let errors = &env.jobs.errors;
        match self {
            Self::Usual => false,
            // Although the merges of the family may have a pause for want of room.
            Self::Idle => {
                errors.may_begin_but_for_room(Work::Compaction, family, now_us)
                    && errors.may_attempt(Attempt::Rewrite, family, now_us)
            }
            Self::Full { .. } => errors.may_begin(Work::Compaction, family, now_us),
        }
    }

    /// What is looked for, in this order.
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Usual => &[Kind::Usual],
            Self::Idle => &[Kind::Usual, Kind::Idle],
            Self::Full { turn } => match turn % 3 {
                0 => &[Kind::DeletedRanges, Kind::Usual, Kind::Idle, Kind::UnderDeletions],
                1 => &[Kind::UnderDeletions, Kind::Usual, Kind::Idle],
                _ => &[Kind::Usual, Kind::Idle, Kind::UnderDeletions],
            },
        }
    }
}

/// Kinds of choices.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Usual,
    Idle,
    DeletedRanges,
    UnderDeletions,
}

impl Kind {
    /// What fits into `room`, if that is given; and whether something else was wanted.
    fn choose(
        self,
        env: &JobEnv,
        room: Option<&Room>,
        input: &PickInput<'_>,
        rewrites: &Rewrites,
        pairs: &mut Pairs,
    ) -> (Choice, bool) {
        match self {
            Self::Usual => choose_fitting(env, room, input, pick),
            Self::Idle => choose_fitting(env, room, input, pick_idle),
            Self::DeletedRanges => choose_fitting(env, room, input, pick_deleted_ranges),
            Self::UnderDeletions => choose_rewrite(env, room, input, rewrites, pairs),
        }
    }
}

/// Pairs of files that one choice may look at for rewrites below deletions.
#[derive(Debug)]
struct Pairs {
    left: usize,
    /// How often they are asked for.
    asks: usize,
}

impl Pairs {
    fn new(asks: usize) -> Self {
        Self { left: MOST_PAIRS, asks }
    }

    /// Lets `look` look at its share, which it takes off what it is given; what it leaves is the others'.
    fn share<T>(&mut self, look: impl FnOnce(&mut usize) -> T) -> T {
        let share = self.left.div_ceil(self.asks.max(1));
        self.asks = self.asks.saturating_sub(1);
        let mut left = share;
        let looked = look(&mut left);
        self.left -= share - left.min(share);
        looked
    }
}

/// What [`choose`] gives.
pub(super) enum Next {
    Nothing,
    Job(Job),
    /// What is to be done has no room.
    NoRoom(NoRoom),
}

/// What is to be done now.
pub(super) struct Job {
    pub family: Arc<Family>,
    pub choice: Choice,
    /// Whether it is begun although it may not fit.
    pub is_attempt: bool,
}

/// Why a merge is not begun.
pub(super) struct NoRoom {
    pub cause: Arc<terrace_base::Error>,
    /// Whether writers wait for it; see [`stops_writes`].
    pub stops_writes: bool,
}

/// What merges may take, once one has found too little.
struct Room {
    bytes: u64,
    /// What a merge may take whatever others do: these have written a part of what they want already.
    small: u64,
    wanted: RoomWanted,
}

impl Room {
    /// `None` if they may take what they want. `besides`: bytes that stay free.
    fn look(env: &JobEnv, jobs: &SchedulerState, besides: u64) -> Option<Self> {
        let wanted = env.jobs.errors.room_wanted()?;
        // Unknown room is no reason to wait for more.
        let room = Some(reserve::room_bytes(&*env.base.vfs, &env.base.dir));
        let free = room.filter(|room| *room < u64::MAX)?.saturating_sub(besides);
        let needs = jobs.running.iter().map(|running| running.needs_bytes);
        let taken: u64 = needs.clone().sum();
        let taken_by_small: u64 = needs.filter(|bytes| *bytes <= free / SMALL_PARTS).sum();
        let bytes = free.saturating_sub(taken);
        if bytes / 2 >= wanted.bytes {
            env.jobs.errors.room_came(bytes);
            return None;
        }
        let small = if taken_by_small <= free / 2 { free / SMALL_PARTS } else { 0 };
        Some(Self { bytes, small, wanted })
    }

    fn fits(&self, env: &JobEnv, merge: &Compaction) -> bool {
        needs_bytes(env, merge) <= self.most_bytes()
    }

    /// What one merge may take.
    fn most_bytes(&self) -> u64 {
        self.bytes.max(self.small)
    }

    /// Whether it fits, or is worth an attempt: a file that deletes ranges and holds little else makes its merge write
    /// little. Those that were in vain have pauses.
    fn may_begin(&self, env: &JobEnv, merge: &Compaction) -> bool {
        let now_us = env.base.clock.monotonic_us();
        let may_attempt = || env.jobs.errors.may_attempt(Attempt::Ranges, merge.family, now_us);
        let deletes = || merge.files().any(|file| pick::mostly_deletes_ranges(file));
        self.fits(env, merge) || (deletes() && may_attempt())
    }
}

/// Room that the outputs of `merge` may take, with the values that it moves; of a file below deletions, what is expected to
/// be left of both. A file that deletes ranges becomes as many as it meets where it is divided in place.
pub(super) fn needs_bytes(env: &JobEnv, merge: &Compaction) -> u64 {
    let victims = env.read.value_log.victims();
    let moved = merge.files().map(|file| pick::victim_bytes(file, &victims)).sum();
    let divides =
        merge.start_level == merge.output_level && merge.files().any(|f| pick::deletes_ranges(f));
    let pieces = if divides { merge.grandparents.len() as u64 } else { 0 };
    let bytes = match &merge.above {
        None => merge.input_bytes().saturating_add(moved),
        Some(above) => left_bytes(merge.input_bytes(), above.left_bytes, moved),
    };
    bytes.saturating_add(pieces * LEAST_FILE_BYTES)
}

/// Of `bytes` of a file that has `left` in the end, and of its values in proportion.
fn left_bytes(bytes: u64, left: u64, values: u64) -> u64 {
    let values = u128::from(values) * u128::from(left) / u128::from(bytes.max(1));
    left.saturating_add(u64::try_from(values).unwrap_or(u64::MAX))
}

/// As `choose`, but only what fits into `room`; the choice, and whether another one was wanted.
fn choose_fitting(
    env: &JobEnv,
    room: Option<&Room>,
    input: &PickInput<'_>,
    choose: impl Fn(&PickInput<'_>) -> Choice,
) -> (Choice, bool) {
    let first = choose(input);
    let Some(room) = room else { return (first, false) };
    let mut too_large = match first {
        Choice::Merge(merge) if !room.may_begin(env, &merge) => merge,
        choice => return (choice, false),
    };
    let mut stays = input.quarantined.clone();
    for _ in 0..MAX_SMALLER {
        let mut deepest = too_large.inputs.last().map_or_else(Vec::new, |(_, files)| files.clone());
        deepest.sort_by_key(|file| Reverse(file.size_bytes));
        let mut over = needs_bytes(env, &too_large).saturating_sub(room.most_bytes());
        if deepest.is_empty() {
            break;
        }
        for file in deepest {
            stays.insert(file.number);
            over = over.saturating_sub(file.size_bytes);
            if over == 0 {
                break;
            }
        }
        too_large = match choose(&PickInput { quarantined: &stays, ..*input }) {
            Choice::Merge(merge) if !room.may_begin(env, &merge) => merge,
            choice => return (choice, true),
        };
    }
    (Choice::Nothing, true)
}

/// A file below deletions whose rewrite fits into `room`, if that is given; and whether there is one that does not.
fn choose_rewrite(
    env: &JobEnv,
    room: Option<&Room>,
    input: &PickInput<'_>,
    rewrites: &Rewrites,
    pairs: &mut Pairs,
) -> (Choice, bool) {
    let mut is_other = false;
    let fits = |merge: &Compaction| {
        let fits = room.is_none_or(|room| room.fits(env, merge));
        is_other |= !fits;
        fits
    };
    let choice = pairs.share(|pairs| pick_under_deletions(input, rewrites, pairs, fits));
    (choice, is_other)
}

/// The next choice of all families; idle work only if no family has other work. First comes the family whose
/// L0 is nearest to stopping its writers, and those whose L0 slows nobody take turns.
pub(super) fn choose(env: &JobEnv, jobs: &mut SchedulerState, occasion: Occasion) -> Next {
    let is_full = env.base.health.is_disk_full();
    // On a full disk all families may be asked twice.
    let passes = if is_full { 2 } else { 1 };
    let mut pairs = Pairs::new(passes * env.read.families.load().len());
    let Some(room) = Room::look(env, jobs, if is_full { 0 } else { besides(env) }) else {
        return choose_in(env, jobs, occasion, None, &mut pairs);
    };
    match choose_in(env, jobs, occasion, Some(&room), &mut pairs) {
        Next::Job(job) => Next::Job(job),
        _ if is_full => match choose_in(env, jobs, occasion, None, &mut pairs) {
            Next::Job(job) => Next::Job(Job { is_attempt: true, ..job }),
            next => next,
        },
        // What runs may make room.
        _ if jobs.running.is_empty() && stops_writes(env, jobs, &room) => no_room(&room, true),
        next if occasion == Occasion::Idle => {
            under_deletions(env, jobs, &room, &mut pairs).map_or(next, Next::Job)
        }
        next => next,
    }
}

/// What is done for room while nothing is written and a merge has none: a file below deletions is rewritten, if what is
/// expected to be left of it fits.
fn under_deletions(
    env: &JobEnv,
    jobs: &mut SchedulerState,
    room: &Room,
    pairs: &mut Pairs,
) -> Option<Job> {
    let now_us = env.base.clock.monotonic_us();
    let room_bytes = room.most_bytes();
    if jobs.rewrites.has_nothing(jobs.generation, room_bytes, now_us) {
        return None;
    }
    let families = env.read.families.load();
    let shared = Shared::new(env, true);
    let may_begin = |family: &&Arc<Family>| {
        !family.is_dropped()
            && !jobs.is_left_to_manual(family.id, family.l0_pressure())
            && Occasion::Idle.asks_for_rewrites(env, family.id, now_us)
    };
    let job = families.iter().filter(may_begin).find_map(|family| {
        let (version, options) = (family.state().version.clone(), family.options());
        let input = input(env, family, (&version, &options), jobs, &shared);
        let (choice, _) = choose_rewrite(env, Some(room), &input, &jobs.rewrites, pairs);
        let is_merge = matches!(choice, Choice::Merge(_));
        is_merge.then(|| Job { family: family.clone(), choice, is_attempt: false })
    });
    if job.is_none() {
        jobs.rewrites.note_nothing(jobs.generation, room_bytes, now_us);
    }
    job
}

/// Bytes that stay free of merges while writes go on.
pub(super) fn besides(env: &JobEnv) -> u64 {
    env.base.dynamic.reserve_bytes().saturating_mul(2)
}

fn no_room(room: &Room, stops_writes: bool) -> Next {
    match &room.wanted.error {
        Error::DiskFull(cause) => Next::NoRoom(NoRoom { cause: cause.clone(), stops_writes }),
        _ => Next::Nothing,
    }
}

/// Whether the L0 of a family is full, nothing runs there, and no merge of it fits into `room`, also once the pause is
/// over that one may have: it is then for the state "disk full" to make room, in which deletions are taken.
fn stops_writes(env: &JobEnv, jobs: &SchedulerState, room: &Room) -> bool {
    let shared = Shared::new(env, false);
    let families = env.read.families.load();
    families.iter().filter(|f| !f.is_dropped()).any(|family| {
        let runs = || jobs.running.iter().any(|running| running.family == family.id);
        if family.l0_pressure().is_none_or(|full| full < 1.0) || runs() {
            return false;
        }
        let (version, options) = (family.state().version.clone(), family.options());
        let input = input(env, family, (&version, &options), jobs, &shared);
        let (choice, is_other) = choose_fitting(env, Some(room), &input, pick);
        is_other && matches!(choice, Choice::Nothing)
    })
}

/// As [`stops_writes`], with the room that merges have while writes go on.
pub(super) fn has_no_room_for_writes(env: &JobEnv, jobs: &SchedulerState) -> bool {
    env.jobs.errors.room_wanted().is_some()
        && Room::look(env, jobs, besides(env)).is_some_and(|room| stops_writes(env, jobs, &room))
}

/// As [`choose`]: what fits into `room`, if that is given.
fn choose_in(
    env: &JobEnv,
    jobs: &SchedulerState,
    occasion: Occasion,
    room: Option<&Room>,
    pairs: &mut Pairs,
) -> Next {
    let now_us = env.base.clock.monotonic_us();
    let families = env.read.families.load();
    let shared = Shared::new(env, occasion != Occasion::Usual);
    let may_begin = |f: &&Arc<Family>| {
        !f.is_dropped() && env.jobs.errors.may_begin(Work::Compaction, f.id, now_us)
    };
    let pressure = |family: &Family| family.l0_pressure().map(|pressure| pressure.min(1.0));
    let mut order: Vec<(Option<f64>, &Arc<Family>)> =
        families.iter().filter(may_begin).map(|family| (pressure(family), family)).collect();
    order.sort_by(|(a, one), (b, other)| {
        let turn = |family: &Family| family.id.wrapping_sub(jobs.last_chosen).wrapping_sub(1);
        let by_pressure = b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0));
        by_pressure.then_with(|| turn(one).cmp(&turn(other)))
    });
    let mut wants_room = false;
    for kind in occasion.kinds() {
        for (pressure, family) in &order {
            let (version, options) = (family.state().version.clone(), family.options());
            let input = input(env, family, (&version, &options), jobs, &shared);
            family.set_pending_bytes(pending_bytes(&input));
            if jobs.is_left_to_manual(family.id, *pressure) {
                continue;
            }
            let (choice, is_other) = kind.choose(env, room, &input, &jobs.rewrites, pairs);
            if !matches!(choice, Choice::Nothing) {
                let fits = |room: &Room| match &choice {
                    Choice::Merge(merge) => room.fits(env, merge),
                    _ => true,
                };
                let is_attempt = !room.is_none_or(fits);
                return Next::Job(Job { family: (*family).clone(), choice, is_attempt });
            }
            wants_room |= is_other;
        }
    }
    match room {
        Some(room) if wants_room => no_room(room, false),
        _ => Next::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_choice_looks_at_a_bounded_number_of_pairs_however_often_it_asks() {
        let asks = 5;
        let mut pairs = Pairs::new(asks);
        let (mut seen, mut first) = (0, 0);
        for ask in 0..2 * asks {
            pairs.share(|left| {
                first = if ask == 0 { *left } else { first };
                seen += std::mem::take(left);
            });
        }
        assert_eq!(seen, MOST_PAIRS);
        assert!(first <= MOST_PAIRS / asks + 1, "{first} for the first of {asks}");
        // What one leaves is the others'.
        let mut pairs = Pairs::new(2);
        pairs.share(|left| *left -= 1);
        assert_eq!(pairs.share(|left| *left), MOST_PAIRS - 1);
    }
}
