//! The lives of a family's files, as the analyzer sees them: when they came to their level, what
//! they were asked, when they left; from that, which file is worth a model, and which level.
//!
//! Pure: the caller looks at the family's version now and then and says what time it is. A file
//! that comes and goes between two looks is never seen; it was younger than any file that is
//! decided on, so it would not count for any of them.

use std::collections::BTreeMap;
use terrace_base::FileNumber;
use terrace_learned::analyzer::level::{self, LevelCosts, LevelDecision, LevelState};
use terrace_learned::analyzer::{
    Candidate, Costs, DeadFile, Decision, LevelHistory, Lookups, decide,
};
use terrace_manifest::LEVEL_COUNT;

/// A file or level that was passed over is looked at again when it is older by one part in this many,
/// and after this long at the latest: costs and lookups may be others by then.
const SECOND_LOOK_PART: u64 = 4;
const LONGEST_SECOND_LOOK_MS: u64 = 60_000;

/// A model that could not be made, or was lost, is tried again after this long; twice as long each
/// time, up to this many times.
const FIRST_RETRY_MS: u64 = 1000;
const MAX_DOUBLINGS: u32 = 10;

/// Where a file's lookups are counted.
pub(crate) trait Counted {
    /// All so far.
    fn lookups(&self) -> Lookups;
}

/// What is done about a model of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// There is none; it is decided on.
    Open,
    /// There is one.
    Trained,
    /// There will be none.
    Refused,
}

/// One file in one level.
struct Life<C> {
    level: usize,
    born_ms: u64,
    key_count: u64,
    counts: C,
    /// What it was asked before it came to this level.
    before: Lookups,
    stage: Stage,
    /// Not to be decided on before.
    wait_until_ms: u64,
    /// How often a model was lost again, or could not be made.
    losses: u32,
    last: Option<Decision>,
}

impl<C: Counted> Life<C> {
    /// Decides again, later.
    fn put_off(&mut self, now_ms: u64) {
        self.stage = Stage::Open;
        self.wait_until_ms = now_ms + retry_ms(self.losses);
        self.losses += 1;
    }

    fn lookups(&self) -> Lookups {
        less(self.counts.lookups(), self.before)
    }

    fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.born_ms)
    }
}

/// How long to wait after `failures` before, and another now.
fn retry_ms(failures: u32) -> u64 {
    FIRST_RETRY_MS << failures.min(MAX_DOUBLINGS)
}

/// How long to wait with what is `age_ms` old and was not worth a model.
fn second_look_ms(age_ms: u64) -> u64 {
    (age_ms / SECOND_LOOK_PART).clamp(1, LONGEST_SECOND_LOOK_MS)
}

fn less(a: Lookups, b: Lookups) -> Lookups {
    let positive = (a.positive - b.positive).max(0.0);
    Lookups { positive, negative: (a.negative - b.negative).max(0.0) }
}

/// Since when the files of a level are the same.
#[derive(Debug, Clone, Copy, Default)]
struct Quiet {
    since_ms: u64,
    /// Lookups of its files by then.
    before: f64,
    key_count: u64,
    files: usize,
    refused: bool,
    /// How often its model could not be made.
    failures: u32,
    wait_until_ms: u64,
    /// A sum over the files' numbers: whether they are the same.
    mark: u64,
}

/// A live file, as the caller lists them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveFile {
    pub level: usize,
    pub number: FileNumber,
    pub key_count: u64,
}

/// What was decided on a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FileVerdict {
    pub number: FileNumber,
    pub level: usize,
    pub decision: Decision,
}

/// The stats of one family.
pub(crate) struct FileStats<C> {
    lives: BTreeMap<FileNumber, Life<C>>,
    histories: [LevelHistory; LEVEL_COUNT],
    levels: [Quiet; LEVEL_COUNT],
}

impl<C> Default for FileStats<C> {
    fn default() -> Self {
        Self {
            lives: BTreeMap::new(),
            histories: Default::default(),
            levels: [Quiet::default(); LEVEL_COUNT],
        }
    }
}

impl<C: Counted> FileStats<C> {
    /// Takes down which files are live now. To be called after each change of the version.
    pub fn observe(&mut self, now_ms: u64, live: &[LiveFile], counts: impl Fn(FileNumber) -> C) {
        let at: BTreeMap<FileNumber, LiveFile> =
            live.iter().map(|file| (file.number, *file)).collect();
        let Self { lives, histories, .. } = self;
        lives.retain(|number, life| {
            let place = at.get(number);
            if place.is_some_and(|file| file.level == life.level) {
                return true;
            }
            if let Some(history) = histories.get_mut(life.level) {
                history.record(DeadFile {
                    life_ms: life.age_ms(now_ms),
                    key_count: life.key_count,
                    lookups: life.lookups(),
                });
            }
            if let Some(file) = place {
                // A move: the life in the other level begins, the model stays.
                life.level = file.level;
                life.born_ms = now_ms;
                life.before = life.counts.lookups();
                life.wait_until_ms = 0;
            }
            place.is_some()
        });
        for file in live {
            lives.entry(file.number).or_insert_with(|| {
                let counts = counts(file.number);
                Life {
                    level: file.level,
                    born_ms: now_ms,
                    key_count: file.key_count,
                    before: counts.lookups(),
                    counts,
                    stage: Stage::Open,
                    wait_until_ms: 0,
                    losses: 0,
                    last: None,
                }
            });
        }
        self.observe_levels(now_ms, live);
    }

    fn observe_levels(&mut self, now_ms: u64, live: &[LiveFile]) {
        for number in 0..LEVEL_COUNT {
            let files = || live.iter().filter(|file| file.level == number);
            // Numbers are given once, so that a sum of their hashes tells sets of them apart.
            let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ n;
            let mark =
                files().fold(0, |mark: u64, file| mark.wrapping_add(hash(file.number.get())));
            let count = files().count();
            let level = &self.levels[number];
            if level.mark == mark && level.files == count && count > 0 {
                continue;
            }
            self.levels[number] = Quiet {
                since_ms: now_ms,
                before: self.lookups_at(number),
                key_count: files().map(|file| file.key_count).sum(),
                files: count,
                refused: false,
                failures: 0,
                wait_until_ms: 0,
                mark,
            };
        }
    }

    fn lookups_at(&self, level: usize) -> f64 {
        let files = self.lives.values().filter(|life| life.level == level);
        files.map(|life| life.counts.lookups()).map(|l| l.positive + l.negative).sum()
    }

    /// Calls `look` with where the lookups of each live file are counted.
    pub fn for_each(&self, look: impl FnMut(&C)) {
        self.lives.values().map(|life| &life.counts).for_each(look);
    }

    /// Which file to train first, if any; `costs` are those of a level. Every verdict that is not
    /// the one before goes to `note`.
    pub fn next_file(
        &mut self,
        now_ms: u64,
        costs: impl Fn(usize) -> Costs,
        mut note: impl FnMut(&FileVerdict),
    ) -> Option<FileVerdict> {
        let costs: [Costs; LEVEL_COUNT] = std::array::from_fn(costs);
        let mut first: Option<FileVerdict> = None;
        for (number, life) in &mut self.lives {
            if life.stage != Stage::Open || now_ms < life.wait_until_ms {
                continue;
            }
            let age_ms = life.age_ms(now_ms);
            let candidate =
                Candidate { age_ms, key_count: life.key_count, lookups: life.lookups() };
            let decision = decide(&candidate, &self.histories[life.level], &costs[life.level]);
            let verdict = FileVerdict { number: *number, level: life.level, decision };
            match decision {
                Decision::Wait { until_ms } => life.wait_until_ms = life.born_ms + until_ms,
                Decision::Skip { .. } => {
                    life.wait_until_ms = now_ms + second_look_ms(age_ms);
                }
                Decision::Train { .. } | Decision::TrainUnknown => {
                    let urgent = |best: &FileVerdict| decision.cmp_urgency(&best.decision).is_gt();
                    if first.as_ref().is_none_or(urgent) {
                        first = Some(verdict);
                    }
                }
            }
            let same =
                |last: Decision| std::mem::discriminant(&last) == std::mem::discriminant(&decision);
            if !life.last.replace(decision).is_some_and(same) {
                note(&verdict);
            }
        }
        first
    }

    /// File `number` has a model, or will have none.
    pub fn trained(&mut self, number: FileNumber, has_model: bool) {
        if let Some(life) = self.lives.get_mut(&number) {
            life.stage = if has_model { Stage::Trained } else { Stage::Refused };
        }
    }

    /// File `number` could not be read; it is tried again, each time after a longer while.
    pub fn failed(&mut self, number: FileNumber, now_ms: u64) {
        if let Some(life) = self.lives.get_mut(&number) {
            life.put_off(now_ms);
        }
    }

    /// Files whose model `is_lost` are decided on again, each time after a longer while: memory is
    /// too scarce for all.
    pub fn find_losses(&mut self, now_ms: u64, is_lost: impl Fn(&C) -> bool) {
        let trained = self.lives.iter_mut().filter(|(_, life)| life.stage == Stage::Trained);
        for (_, life) in trained.filter(|(_, life)| is_lost(&life.counts)) {
            life.put_off(now_ms);
        }
    }

    /// Which of the levels below L0 is to get a model; `costs` are those of a level, or `None` if it
    /// has one or was not measured.
    pub fn next_level(
        &mut self,
        now_ms: u64,
        costs: impl Fn(usize) -> Option<LevelCosts>,
        mut note: impl FnMut(usize, &LevelDecision),
    ) -> Option<(usize, LevelDecision)> {
        for number in 1..LEVEL_COUNT {
            let quiet = self.levels[number];
            // In a level of one file there is nothing to search for.
            if quiet.files < 2 || quiet.refused || now_ms < quiet.wait_until_ms {
                continue;
            }
            let Some(costs) = costs(number) else { continue };
            let state = LevelState {
                quiet_ms: now_ms.saturating_sub(quiet.since_ms),
                key_count: quiet.key_count,
                lookup_count: (self.lookups_at(number) - quiet.before).max(0.0) as u64,
                costs,
            };
            let decision = level::decide(&state);
            if let LevelDecision::Level { .. } = decision {
                return Some((number, decision));
            }
            if let LevelDecision::Files { deficit_ns: Some(_) } = decision {
                if quiet.wait_until_ms == 0 {
                    note(number, &decision);
                }
                let again = now_ms + second_look_ms(state.quiet_ms);
                self.levels[number].wait_until_ms = again;
            }
        }
        None
    }

    /// Files of `level` could not be read; it is tried again, each time after a longer while.
    pub fn level_failed(&mut self, level: usize, now_ms: u64) {
        if let Some(quiet) = self.levels.get_mut(level) {
            quiet.wait_until_ms = now_ms + retry_ms(quiet.failures);
            quiet.failures += 1;
        }
    }

    /// The keys of `level` cannot be learned, or not in the memory for it, until its files change.
    pub fn refuse_level(&mut self, level: usize) {
        if let Some(quiet) = self.levels.get_mut(level) {
            quiet.refused = true;
        }
    }
}

#[cfg(test)]
mod tests;
