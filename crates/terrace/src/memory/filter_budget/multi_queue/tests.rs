//! `mq` against a direct transcription of its rules, which sorts and sums everything anew at every
//! access.

use super::*;
use crate::memory::filter_budget::curve;
use proptest::prelude::*;
use terrace_base::FileNumber;

/// A partition of the transcription.
#[derive(Debug, Clone)]
struct Plain {
    units: u8,
    frequency: u64,
    last_access: u64,
    expired_time: u64,
}

/// The rules of the paper, one by one.
struct Transcription {
    curves: Vec<Arc<Curve>>,
    partitions: Vec<Plain>,
    accesses: u64,
    budget_bytes: usize,
    life_time: u64,
}

impl Transcription {
    fn used_bytes(&self, partitions: &[Plain]) -> usize {
        let charges = partitions.iter().zip(&self.curves);
        charges.map(|(partition, curve)| curve.charge_bytes(partition.units)).sum()
    }

    fn expected_reads(&self, partitions: &[Plain]) -> f64 {
        let parts = partitions.iter().zip(&self.curves);
        parts.map(|(p, curve)| p.frequency as f64 * curve.fpr(p.units)).sum()
    }

    /// The members of a queue from the least to the most recently accessed.
    fn queue(partitions: &[Plain], units: u8) -> Vec<usize> {
        let mut members: Vec<usize> =
            (0..partitions.len()).filter(|at| partitions[*at].units == units).collect();
        members.sort_by_key(|at| partitions[*at].last_access);
        members
    }

    fn access(&mut self, at: usize, now: u64) {
        self.accesses += 1;
        let partition = &mut self.partitions[at];
        partition.frequency += 1;
        partition.last_access = self.accesses;
        partition.expired_time = now + self.life_time;
        if partition.units >= self.curves[at].units() {
            return;
        }
        let before = self.expected_reads(&self.partitions);
        let mut changed = self.partitions.clone();
        changed[at].units += 1;
        let most = self.curves.iter().map(|curve| curve.units()).max().unwrap();
        for units in (1..=most).rev() {
            while self.used_bytes(&changed) > self.budget_bytes {
                // The accessed one has just been given a longer life and is no candidate.
                let members = Self::queue(&changed, units);
                let Some(least) = members.into_iter().find(|member| *member != at) else { break };
                if changed[least].expired_time >= now {
                    break;
                }
                changed[least].units -= 1;
            }
        }
        let fits = self.used_bytes(&changed) <= self.budget_bytes;
        if fits && self.expected_reads(&changed) < before - 1e-9 {
            self.partitions = changed;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn the_queues_follow_the_rules(
        kinds in prop::collection::vec(0usize..3, 2..9),
        part in 0.0f64..1.2,
        life_time in 0u64..40,
        accesses in prop::collection::vec((0usize..8, 0u64..6), 1..300),
    ) {
        let curve = |kind: &usize| Arc::new(match kind {
            0 => curve::bloom(16_000, 4.0, 4, 96),
            1 => curve::bloom(4_000, 2.0, 6, 96),
            _ => curve::ribbon(16_000, 6, 96),
        });
        let curves: Vec<Arc<Curve>> = kinds.iter().map(curve).collect();
        let all: usize = curves.iter().map(|curve| curve.charge_bytes(255)).sum();
        let budget_bytes = (all as f64 * part) as usize;
        let mut queues = MultiQueue::new();
        let id = |at: usize| PartitionId { file: FileNumber::new(3), at: at as u32 };
        let mut plain = Transcription {
            curves: curves.clone(),
            partitions: Vec::new(),
            accesses: 0,
            budget_bytes,
            life_time,
        };
        for (at, curve) in curves.iter().enumerate() {
            queues.insert(id(at), curve.clone(), 0, life_time);
            plain.accesses += 1;
            let (last_access, expired_time) = (plain.accesses, life_time);
            plain.partitions.push(Plain { units: 0, frequency: 0, last_access, expired_time });
        }
        let mut now = 0;
        for (at, passed) in accesses {
            let at = at % curves.len();
            now += passed;
            let used = plain.used_bytes(&plain.partitions);
            queues.access(id(at), now, life_time, budget_bytes - used);
            plain.access(at, now);
            let units: Vec<u8> = (0..curves.len()).map(|at| queues.units(id(at)).unwrap()).collect();
            let expected: Vec<u8> = plain.partitions.iter().map(|p| p.units).collect();
            prop_assert_eq!(units, expected);
            prop_assert!(plain.used_bytes(&plain.partitions) <= budget_bytes);
        }
    }
}

#[test]
fn a_tie_changes_nothing() {
    // Two units of two bits are worth what one of four is: demoting both for it gains nothing.
    let (four, two) = (curve::bloom(4_000, 4.0, 2, 0), curve::bloom(4_000, 2.0, 4, 0));
    let mut queues = MultiQueue::new();
    let id = |at| PartitionId { file: FileNumber::new(1), at };
    queues.insert(id(0), Arc::new(two), 4, 0);
    queues.insert(id(1), Arc::new(four), 1, 0);
    assert_eq!(queues.access(id(0), 0, 0, 0), None);
    assert_eq!(queues.access(id(1), 9, 0, 0), None);
    assert_eq!(queues.access(id(1), 10, 0, 0), Some(vec![id(0), id(0)]));
    assert_eq!((queues.units(id(0)), queues.units(id(1))), (Some(2), Some(2)));
}

#[test]
fn what_is_forgotten_makes_room_and_is_not_demoted_again() {
    let curve = Arc::new(curve::bloom(16_000, 4.0, 2, 0));
    let unit = curve.charge_bytes(1);
    let mut queues = MultiQueue::new();
    let id = |at| PartitionId { file: FileNumber::new(1), at };
    queues.insert(id(0), curve.clone(), 1, 0);
    queues.insert(id(1), curve, 0, 0);
    // Without room, expired or not: the one that has expired makes way.
    assert_eq!(queues.access(id(1), 0, 10, 0), None);
    assert_eq!(queues.access(id(1), 5, 10, 0), Some(vec![id(0)]));
    queues.remove(id(0));
    assert_eq!(queues.units(id(0)), None);
    assert_eq!(queues.access(id(1), 100, 10, unit), Some(Vec::new()));
    assert_eq!(queues.units(id(1)), Some(2));
}
