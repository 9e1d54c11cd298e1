//! Which segments garbage collection takes next: a pure choice from the stats.
//!
//! Collecting a segment costs its live bytes, which are written once more, and frees the rest. So
//! segments with a large share of garbage go first, and only while the share of the whole
//! log is above the ratio. Of two with the same share the older one goes first: where some keys are
//! overwritten more often than others, what lives in an old segment will live on, and what lives in a young one
//! will soon be garbage without being moved. So segments are ordered by what collecting frees per byte that it moves,
//! times the root of the segment's age ([`urgency`]; the policy "cost-benefit" of the source below, section 3.6, with a root
//! since hidden garbage makes the shares uncertain). In a store that is overwritten uniformly with a log of utilisation `u`
//! the worst segments then have a live share `L` with `u = (1 - L) / -ln L`, and every written byte
//! is written `1 / (1 - L)` times (Rosenblum and Ousterhout, "The Design and Implementation of a
//! Log-Structured File System", TOCS 1992, section 3.4, with the utilisation of what is cleaned
//! solved for the oldest segment of a log in the order of its writes).
//!
//! What is collected is collected by compactions, which rewrite the part of the key tree that they
//! read. Therefore enough segments are victims at once that this pays ([`MIN_GAIN`]), and few
//! enough that their live bytes, which exist twice until the last of them has moved, stay a small
//! part of the store ([`MAX_MOVING`]).
//!
//! Garbage that no compaction has met yet (both versions of the key must meet) counts as garbage
//! of the log, not of a segment. `gc/simulation` shows what comes of all this. Called by `gc`.

use crate::values::value_log::SegmentStats;
use std::collections::HashSet;
use terrace_base::SegmentNumber;

/// Bytes freed at once, in bytes of the key tree.
pub(crate) const MIN_GAIN: f64 = 3.0;
/// Live bytes of victim segments, as a share of all live bytes, or as many as a memtable may always refer to, if that is more:
/// of a log of a few segments one more comes with each flush, and of one at a time no backlog would ever go. One segment
/// is always allowed.
pub(crate) const MAX_MOVING: f64 = 0.09;
/// A segment with a smaller share of garbage is not worth its move, or with half of the ratio if that is smaller: where
/// all segments are alike, each has about as much as the log.
const MIN_SHARE: f64 = 0.1;

/// What is known of the value log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GarbageStats<'a> {
    /// Every sealed segment.
    pub segments: &'a [SegmentStats],
    /// Those that are victims already.
    pub victims: &'a HashSet<SegmentNumber>,
    /// Bytes of segments that are not sealed yet.
    pub open_bytes: u64,
    /// Garbage that is not in the stats yet, estimated.
    pub unknown_bytes: u64,
    /// Bytes of all SSTs.
    pub tree_bytes: u64,
    /// Live bytes of victims that are always allowed.
    pub least_moving_bytes: u64,
    /// Share of garbage in the log up to which nothing is done.
    pub ratio: f64,
}

impl GarbageStats<'_> {
    /// Share of the log that is garbage, once the victim segments are gone if `after`.
    pub fn garbage_share(&self, after: bool) -> f64 {
        let mut bytes = self.open_bytes as f64;
        let mut garbage = self.unknown_bytes as f64;
        for segment in self.segments {
            let free = segment.garbage_bytes() as f64;
            // What lives in a victim moves and stays as it is.
            let gone = after && self.victims.contains(&segment.number);
            bytes += if gone { segment.live_bytes as f64 } else { segment.size_bytes as f64 };
            garbage += if gone { 0.0 } else { free };
        }
        if bytes > 0.0 { (garbage / bytes).min(1.0) } else { 0.0 }
    }
}

/// The victim segments from now on: those there are, and what has to join them. A segment stays
/// chosen until it is gone.
pub(crate) fn choose(stats: &GarbageStats<'_>) -> HashSet<SegmentNumber> {
    let there: HashSet<SegmentNumber> =
        stats.segments.iter().map(|segment| segment.number).collect();
    let mut victims: HashSet<SegmentNumber> = stats.victims.intersection(&there).copied().collect();
    let (mut bytes, mut garbage) = (stats.open_bytes as f64, stats.unknown_bytes as f64);
    let (mut live, mut moving, mut gain) = (0.0, 0.0, 0.0);
    let mut rest: Vec<&SegmentStats> = Vec::new();
    for segment in stats.segments {
        live += segment.live_bytes as f64;
        if victims.contains(&segment.number) {
            bytes += segment.live_bytes as f64;
            moving += segment.live_bytes as f64;
            gain += segment.garbage_bytes() as f64;
        } else {
            bytes += segment.size_bytes as f64;
            garbage += segment.garbage_bytes() as f64;
            rest.push(segment);
        }
    }
    if garbage <= stats.ratio * bytes {
        return victims;
    }
    let least = MIN_SHARE.min(stats.ratio / 2.0);
    rest.retain(|segment| segment.garbage_share() >= least);
    let newest = stats.segments.iter().map(|segment| segment.number).max().unwrap_or_default();
    rest.sort_by(|a, b| {
        urgency(b, newest).total_cmp(&urgency(a, newest)).then(a.number.cmp(&b.number))
    });
    let most_moving = (MAX_MOVING * live).max(stats.least_moving_bytes as f64);
    for segment in rest {
        let enough = garbage <= stats.ratio * bytes && gain >= MIN_GAIN * stats.tree_bytes as f64;
        let full = moving > 0.0 && moving + segment.live_bytes as f64 > most_moving;
        if enough || full {
            break;
        }
        victims.insert(segment.number);
        moving += segment.live_bytes as f64;
        gain += segment.garbage_bytes() as f64;
        garbage -= segment.garbage_bytes() as f64;
        bytes -= segment.garbage_bytes() as f64;
    }
    victims
}

/// What collecting `segment` frees per byte that it moves, times the root of its age. The age is the count of files that were begun
/// since, up to `newest`: about as many come with each flush, and the number of a segment is known after a reopen as well.
/// Infinite if there is nothing to move.
fn urgency(segment: &SegmentStats, newest: SegmentNumber) -> f64 {
    if segment.live_bytes == 0 {
        return f64::INFINITY;
    }
    let age = newest.get().saturating_sub(segment.number.get()) + 1;
    segment.garbage_bytes() as f64 / segment.live_bytes as f64 * (age as f64).sqrt()
}

/// The victim segments while the disk is full: those with the largest share of garbage whose live bytes find room
/// together, until they free `wanted_bytes`, however much garbage the log has as a whole. Where none does, merges can
/// still make room.
pub(crate) fn choose_fitting(
    segments: &[SegmentStats],
    mut room_bytes: u64,
    wanted_bytes: u64,
) -> HashSet<SegmentNumber> {
    let mut order: Vec<&SegmentStats> =
        segments.iter().filter(|segment| segment.garbage_share() >= MIN_SHARE).collect();
    order.sort_by(|a, b| {
        b.garbage_share().total_cmp(&a.garbage_share()).then(a.number.cmp(&b.number))
    });
    let (mut victims, mut gain) = (HashSet::new(), 0);
    for segment in order {
        if gain >= wanted_bytes {
            break;
        }
        if let Some(left) = room_bytes.checked_sub(segment.live_bytes) {
            room_bytes = left;
            gain += segment.garbage_bytes();
            victims.insert(segment.number);
        }
    }
    victims
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_base::rng::{Rng, SplitMix64};

    #[test]
    fn a_small_ratio_is_kept_where_all_segments_are_alike() {
        let segment = |number| SegmentStats {
            number: SegmentNumber::new(number),
            size_bytes: 1000,
            live_bytes: 920,
        };
        let segments: Vec<SegmentStats> = (1..=50).map(segment).collect();
        let choice = |ratio| {
            choose(&GarbageStats {
                segments: &segments,
                victims: &HashSet::new(),
                open_bytes: 0,
                unknown_bytes: 0,
                tree_bytes: 10,
                least_moving_bytes: 0,
                ratio,
            })
        };
        assert!(!choice(0.05).is_empty(), "writers are slowed until something is collected");
        assert!(choice(0.09).is_empty());
    }

    /// Keys are overwritten at random, and each segment holds nearly as many values as there are keys. With one victim for
    /// each segment that comes, a backlog of them would stay for ever.
    #[test]
    fn a_log_of_a_few_segments_is_collected_faster_than_it_grows() {
        const KEYS: usize = 2600;
        const VALUE_BYTES: u64 = 2000;
        const VALUES: u64 = 2000;
        let mut rng = SplitMix64::new(1);
        let mut places = vec![0_u64; KEYS];
        // Values by segment.
        let mut segments = std::collections::BTreeMap::new();
        let mut number = 0;
        let mut largest = 0;
        for round in 0..40 {
            number += 1;
            for _ in 0..VALUES {
                places[rng.below(KEYS as u64) as usize] = number;
            }
            segments.insert(number, VALUES);
            if round < 8 {
                // Nothing is merged meanwhile.
                continue;
            }
            let live = |number: u64| places.iter().filter(|place| **place == number).count() as u64;
            let stats: Vec<SegmentStats> = segments
                .iter()
                .map(|(number, values)| SegmentStats {
                    number: SegmentNumber::new(*number),
                    size_bytes: values * VALUE_BYTES,
                    live_bytes: live(*number) * VALUE_BYTES,
                })
                .collect();
            let chosen = choose(&GarbageStats {
                segments: &stats,
                victims: &HashSet::new(),
                open_bytes: 0,
                unknown_bytes: 0,
                tree_bytes: 100_000,
                least_moving_bytes: 4 << 20,
                ratio: 0.3,
            });
            number += 1;
            let mut moved = 0;
            for place in &mut places {
                if chosen.contains(&SegmentNumber::new(*place)) {
                    *place = number;
                    moved += 1;
                }
            }
            segments.retain(|number, _| !chosen.contains(&SegmentNumber::new(*number)));
            segments.insert(number, moved);
            largest = largest.max(segments.values().sum::<u64>());
        }
        assert!(largest <= KEYS as u64 * 16 / 10, "{largest} values for {KEYS} keys");
    }

    #[test]
    fn on_a_full_disk_the_worst_that_fit_are_taken() {
        let lives = [990, 900, 500, 400, 450, 0, 100, 899];
        let segments: Vec<SegmentStats> = (1..)
            .zip(lives)
            .map(|(number, live_bytes)| {
                let number = SegmentNumber::new(number);
                SegmentStats { number, size_bytes: 1000, live_bytes }
            })
            .collect();
        let chosen_for = |room_bytes, wanted_bytes| {
            let victims = choose_fitting(&segments, room_bytes, wanted_bytes);
            let mut lives: Vec<u64> = segments
                .iter()
                .filter(|segment| victims.contains(&segment.number))
                .map(|segment| segment.live_bytes)
                .collect();
            lives.sort_unstable();
            lives
        };
        let chosen = |room_bytes| chosen_for(room_bytes, u64::MAX);
        assert_eq!(chosen(0), [0]);
        assert_eq!(chosen(99), [0]);
        assert_eq!(chosen(560), [0, 100, 400]);
        assert_eq!(chosen(1000), [0, 100, 400, 450]);
        // What is nearly clean stays.
        assert_eq!(chosen(u64::MAX), [0, 100, 400, 450, 500, 899, 900]);
        // No more than what is wanted.
        assert_eq!(chosen_for(1000, 1000), [0]);
        assert_eq!(chosen_for(1000, 1001), [0, 100]);
        assert_eq!(chosen_for(1000, 0), [0; 0]);
    }

    /// Each line of `segments`: number, size, live bytes. Gives the victims, of which one at a time is chosen, in their order.
    fn order(segments: &str) -> Vec<u64> {
        let mut segments: Vec<SegmentStats> = segments
            .lines()
            .map(|line| {
                let fields: Vec<u64> =
                    line.split_whitespace().map(|n| n.parse().unwrap()).collect();
                let [number, size_bytes, live_bytes] = fields[..] else { panic!("{line}") };
                SegmentStats { number: SegmentNumber::new(number), size_bytes, live_bytes }
            })
            .collect();
        let mut order = Vec::new();
        loop {
            let chosen = choose(&GarbageStats {
                segments: &segments,
                victims: &HashSet::new(),
                open_bytes: 0,
                unknown_bytes: 1 << 40,
                tree_bytes: 0,
                least_moving_bytes: 0,
                ratio: 0.3,
            });
            // There is so much garbage that only what may move at once ends the choice.
            let (Some(victim), true) = (chosen.iter().next(), chosen.len() <= 1) else {
                assert!(chosen.is_empty(), "{chosen:?}");
                return order;
            };
            order.push(victim.get());
            segments.retain(|segment| segment.number != *victim);
        }
    }

    #[test]
    fn of_segments_with_as_much_garbage_the_older_go_first_and_a_young_one_once_it_has_much_more() {
        let alike = "7 1000 500\n3 1000 500\n5 1000 500\n4 1000 500";
        assert_eq!(order(alike), [3, 4, 5, 7]);
        // Segment 100 is ten times as old as 191: three times as much must be freed there for each byte that moves.
        assert_eq!(order("100 1000 500\n191 1000 260\n200 1000 950"), [100, 191]);
        assert_eq!(order("100 1000 500\n191 1000 220\n200 1000 950"), [191, 100]);
        // An old one with hardly any garbage is never worth it, nor in the way of others.
        assert_eq!(order("1 1000 910\n100000 1000 800"), [100_000]);
    }

    #[test]
    fn a_segment_without_live_bytes_goes_first_whatever_its_age_and_size() {
        let segment = |number, size_bytes, live_bytes| SegmentStats {
            number: SegmentNumber::new(number),
            size_bytes,
            live_bytes,
        };
        let newest = SegmentNumber::new(1_000_000);
        // Old, and nearly all of it is garbage.
        let other = urgency(&segment(1, 1 << 30, 1), newest);
        assert!(other.is_finite() && urgency(&segment(1_000_000, 100, 0), newest) > other);
    }

    #[test]
    fn the_most_urgent_segments_go_first_and_none_while_the_log_is_clean_enough() {
        let (mut collected, mut clean) = (0, 0);
        for seed in 0..2_000 {
            let mut rng = SplitMix64::new(seed);
            let most_garbage = 1 + rng.below(1000);
            let segments: Vec<SegmentStats> = (1..=1 + rng.below(60) as u32)
                .map(|number| {
                    let live_bytes = 1000 - rng.below(most_garbage);
                    SegmentStats {
                        number: SegmentNumber::new(number.into()),
                        size_bytes: 1000,
                        live_bytes,
                    }
                })
                .collect();
            let stats = GarbageStats {
                segments: &segments,
                victims: &HashSet::new(),
                open_bytes: rng.below(3000),
                unknown_bytes: 0,
                tree_bytes: rng.below(2000),
                least_moving_bytes: rng.below(2) * 4000,
                ratio: 0.3,
            };
            let chosen = choose(&stats);
            if stats.garbage_share(false) <= stats.ratio {
                assert!(chosen.is_empty(), "seed {seed}");
                clean += 1;
                continue;
            }
            let chosen = &chosen;
            let enough = |segment: &&SegmentStats| segment.garbage_share() >= MIN_SHARE;
            let newest = segments.iter().map(|segment| segment.number).max();
            let share = |taken: bool| {
                let all = segments.iter().filter(enough);
                let all = all.filter(move |b| chosen.contains(&b.number) == taken);
                all.map(|segment| urgency(segment, newest.unwrap()))
            };
            let least = share(true).fold(f64::INFINITY, f64::min);
            assert!(least >= share(false).fold(0.0, f64::max), "seed {seed}");
            collected += usize::from(least.is_finite());
        }
        assert!(collected > 300 && clean > 300, "{collected}, {clean}");
    }
}
