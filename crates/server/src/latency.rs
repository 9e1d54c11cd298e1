//! How often commands are executed and how long they take, and which events took long.
//!
//! A thread records under its own shard of locks, which it shares with few others, so recording
//! costs some 20 ns; a read merges the shards.

use hdrhistogram::{CreationError, Histogram};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads with the same shard wait for each other.
const SHARDS: usize = 16;

/// Durations are kept to two digits, up to an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Events that are kept by name.
const KEPT_EVENTS: usize = 160;

/// What is counted of one command.
#[derive(Debug, Clone)]
pub struct CommandStats {
    /// Executed.
    pub calls: u64,
    /// Of these, answered with an error.
    pub failed: u64,
    /// Not executed: not allowed, or with wrong arguments.
    pub rejected: u64,
    /// Time in all.
    pub total_ns: u64,
    /// Durations in nanoseconds.
    pub durations: Histogram<u64>,
}

impl CommandStats {
    fn with(durations: Histogram<u64>) -> Self {
        Self { calls: 0, failed: 0, rejected: 0, total_ns: 0, durations }
    }

    /// Adds what another shard counted.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.rejected += other.rejected;
        self.total_ns += other.total_ns;
        // All have the same bounds.
        let _same_bounds = self.durations.add(&other.durations);
    }
}

/// An event that took at least `latency-monitor-threshold`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spike {
    /// When, in seconds since 1970.
    pub at_s: u64,
    /// How long, in ms.
    pub took_ms: u64,
}

/// All of it.
pub struct Latency {
    /// No durations; all others have its bounds.
    empty: Histogram<u64>,
    shards: Vec<Mutex<Vec<Option<Box<CommandStats>>>>>,
    events: Mutex<BTreeMap<&'static str, Event>>,
}

#[derive(Debug, Default)]
struct Event {
    spikes: VecDeque<Spike>,
    most_ms: u64,
}

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
    };
}

impl Latency {
    /// For this many commands and subcommands, which are counted apart.
    ///
    /// # Errors
    /// The machine's addresses are too small for a histogram.
    pub fn new(commands: usize) -> Result<Self, CreationError> {
        let empty = Histogram::new_with_bounds(1, LONGEST_NS, 2)?;
        let shard = || Mutex::new((0..commands).map(|_| None).collect());
        let shards = (0..SHARDS).map(|_| shard()).collect();
        Ok(Self { empty, shards, events: Mutex::default() })
    }

    /// A histogram without durations, to which those of commands can be added.
    pub fn empty(&self) -> Histogram<u64> {
        Histogram::new_from(&self.empty)
    }

    fn with(&self, command: u16, change: impl FnOnce(&mut CommandStats)) {
        let mut shard = SHARD.with(|at| self.shards[*at].lock());
        let Some(place) = shard.get_mut(usize::from(command)) else { return };
        change(place.get_or_insert_with(|| Box::new(CommandStats::with(self.empty()))));
    }

    /// A command was executed.
    pub fn note(&self, command: u16, took_ns: u64, failed: bool) {
        self.with(command, |stats| {
            stats.calls += 1;
            stats.failed += u64::from(failed);
            stats.total_ns += took_ns;
            stats.durations.saturating_record(took_ns);
        });
    }

    /// A command was refused.
    pub fn note_rejected(&self, command: u16) {
        self.with(command, |stats| stats.rejected += 1);
    }

    /// What is counted, by the number of the command; those that were never sent are left out.
    pub fn commands(&self) -> Vec<(u16, CommandStats)> {
        let mut merged: BTreeMap<u16, CommandStats> = BTreeMap::new();
        for shard in &self.shards {
            for (number, stats) in shard.lock().iter().enumerate() {
                let Some(stats) = stats else { continue };
                match merged.get_mut(&(number as u16)) {
                    Some(sum) => sum.add(stats),
                    None => drop(merged.insert(number as u16, CommandStats::clone(stats))),
                }
            }
        }
        merged.into_iter().collect()
    }

    /// How many commands were executed. Cheaper than [`Self::commands`].
    pub fn calls(&self) -> u64 {
        let calls = |shard: &Mutex<Vec<Option<Box<CommandStats>>>>| -> u64 {
            shard.lock().iter().flatten().map(|stats| stats.calls).sum()
        };
        self.shards.iter().map(calls).sum()
    }

    /// How often each command was executed, by its number.
    pub fn calls_by_command(&self) -> Vec<(u16, u64)> {
        let mut calls = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            calls.resize(shard.len(), 0);
            for (sum, stats) in calls.iter_mut().zip(shard.iter()) {
                *sum += stats.as_ref().map_or(0, |stats| stats.calls);
            }
        }
        calls.into_iter().enumerate().map(|(number, calls)| (number as u16, calls)).collect()
    }

    /// Counts from 0 again.
    pub fn reset(&self) {
        for shard in &self.shards {
            shard.lock().iter_mut().for_each(|place| *place = None);
        }
    }

    /// An event took long.
    pub fn note_event(&self, name: &'static str, at_s: u64, took_ms: u64) {
        let mut events = self.events.lock();
        let event = events.entry(name).or_default();
        event.most_ms = event.most_ms.max(took_ms);
        match event.spikes.back_mut() {
            // One a second: the longest.
            Some(last) if last.at_s == at_s => last.took_ms = last.took_ms.max(took_ms),
            _ => event.spikes.push_back(Spike { at_s, took_ms }),
        }
        if event.spikes.len() > KEPT_EVENTS {
            event.spikes.pop_front();
        }
    }

    /// The spikes of an event, oldest first.
    pub fn history(&self, name: &str) -> Vec<Spike> {
        self.events.lock().get(name).map_or_else(Vec::new, |e| e.spikes.iter().copied().collect())
    }

    /// Of every event its name, its last spike and its longest one in ms.
    pub fn latest(&self) -> Vec<(&'static str, Spike, u64)> {
        let events = self.events.lock();
        let last = |(name, event): (&&'static str, &Event)| {
            Some((*name, *event.spikes.back()?, event.most_ms))
        };
        events.iter().filter_map(last).collect()
    }

    /// Forgets the spikes of these events, or of all; how many had any.
    pub fn reset_events(&self, names: &[String]) -> usize {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|name, _| !names.is_empty() && !names.iter().any(|wanted| wanted == name));
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn threads_count_together() {
        let latency = Arc::new(Latency::new(3).unwrap());
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let latency = latency.clone();
                std::thread::spawn(move || {
                    for n in 0..1000 {
                        latency.note(1, 1000 + n, n % 10 == 0);
                    }
                    latency.note_rejected(2);
                    latency.note(99, 1, false);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(latency.calls(), 8000);
        let commands = latency.commands();
        assert_eq!(commands.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
        let (one, two) = (&commands[0].1, &commands[1].1);
        assert_eq!((one.calls, one.failed, one.rejected), (8000, 800, 0));
        assert_eq!(one.total_ns, 8 * (1000 * 1000 + 999 * 1000 / 2));
        assert_eq!(one.durations.len(), 8000);
        assert_eq!((two.calls, two.rejected), (0, 8));
        latency.reset();
        assert!(latency.commands().is_empty());
    }

    #[test]
    fn spikes_are_kept_one_a_second() {
        let latency = Latency::new(0).unwrap();
        for (at_s, took_ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            latency.note_event("command", at_s, took_ms);
        }
        let spike = |at_s, took_ms| Spike { at_s, took_ms };
        assert_eq!(latency.history("command"), [spike(1, 9), spike(2, 3)]);
        assert_eq!(latency.latest(), [("command", spike(2, 3), 9)]);
        for at_s in 0..1000 {
            latency.note_event("command", at_s, 1);
        }
        assert_eq!(latency.history("command").len(), KEPT_EVENTS);
        assert_eq!(latency.reset_events(&["other".into()]), 0);
        assert_eq!(latency.reset_events(&[]), 1);
        assert!(latency.history("command").is_empty());
    }
}
