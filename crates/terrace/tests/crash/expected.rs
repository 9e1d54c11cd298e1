//! What the store must hold: the state before a round, the scripts of its threads and what the
//! journals say follow each other. [`judge`] finds out how much of every thread's script the store
//! has, and refuses everything that is not a prefix of it or that goes against the journals.

use crate::journal::Done;
use crate::script::{
    COUNTED, COUNTER, Entry, Model, OWN, Op, SHARED, SWEPT, Script, THREADS, Value, bytes_of,
    counted_key, family_name, key, marker_key, may_be, prefix,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use terrace::{ColumnFamily, Db, ReadOptions, Result};

/// A store as it is known to be between two rounds.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub models: Vec<Model>,
    /// The shared counter.
    pub counter: u64,
}

impl State {
    pub fn new() -> Self {
        Self { models: vec![Model::default(); THREADS], counter: 0 }
    }

    /// Bytes of keys and values that are there.
    pub fn live_bytes(&self) -> u64 {
        let entries = self.models.iter().flat_map(|model| {
            let own = model.own.values();
            model.shared.iter().chain(own).flat_map(BTreeMap::values)
        });
        entries.map(|(content, _)| content.iter().map(|v| u64::from(v.len) + 24).sum::<u64>()).sum()
    }

    /// Writes it where the next child finds it.
    pub fn save(&self, path: &Path) {
        let mut text = format!("{}\n", self.counter);
        for (thread, model) in self.models.iter().enumerate() {
            let _ = writeln!(text, "thread {thread} {} {}", model.created, model.own_exists);
            let shared = model.shared.iter().enumerate();
            let own = model.incarnation().and_then(|own| model.own.get(&own));
            for (place, entries) in shared.chain(own.map(|own| (OWN, own))) {
                for (key, (content, expiry)) in entries {
                    let _ = write!(text, "{place} {key} {}", expiry.unwrap_or(0));
                    for Value { tag, len, random, swept } in content {
                        let _ = write!(text, " {tag} {len} {random} {swept}");
                    }
                    let _ = writeln!(text);
                }
            }
        }
        std::fs::write(path, text).unwrap();
    }

    pub fn load(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut lines = text.lines();
        let mut state =
            Self { models: Vec::new(), counter: lines.next().unwrap().parse().unwrap() };
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            if words[0] == "thread" {
                state.models.push(Model {
                    created: number(2) as u32,
                    own_exists: words[3] == "true",
                    ..Model::default()
                });
                continue;
            }
            let model = state.models.last_mut().unwrap();
            let values = words[3..].chunks_exact(4).map(|words| Value {
                tag: words[0].parse().unwrap(),
                len: words[1].parse().unwrap(),
                random: words[2] == "true",
                swept: words[3] == "true",
            });
            let entry: Entry = (values.collect(), Some(number(2)).filter(|e| *e > 0));
            match number(0) as usize {
                OWN => model.own.entry(model.created).or_default().insert(number(1), entry),
                place => model.shared[place].insert(number(1), entry),
            };
        }
        state
    }
}

/// A round as it was ordered.
pub struct Round {
    pub number: u64,
    pub seed: u64,
    pub now_ms: u64,
    pub before: State,
}

impl Round {
    /// The first `count` operations of `thread`.
    pub fn ops(&self, thread: usize, count: usize) -> Vec<Op> {
        let own = self.before.models[thread].own_exists;
        let mut script = Script::new(self.seed, thread, own, self.now_ms);
        (0..count).map(|_| script.next()).collect()
    }

    /// What the `op`th operation of `thread` writes under its marker or counted key.
    pub fn stamp(&self, thread: usize, op: u64) -> Vec<u8> {
        format!("{}.{thread}.{op}", self.number).into_bytes()
    }
}

/// How many operations of every thread may be there, at least and at most; and how many were over
/// before the store was looked at: creating and dropping families, and syncs, hold from then on.
#[derive(Debug, Clone)]
pub struct Bounds {
    pub least: Vec<usize>,
    pub most: Vec<usize>,
    pub over: Vec<usize>,
}

/// Keys and values of one family by thread, as a scan shows them, and what belongs to no thread.
type Seen = Vec<BTreeMap<Vec<u8>, Vec<u8>>>;

/// What a store shows.
#[derive(PartialEq, Eq)]
pub struct View {
    /// By place, then thread.
    places: Vec<Seen>,
    own: Vec<Option<BTreeMap<Vec<u8>, Vec<u8>>>>,
    /// Keys of the default family that belong to no thread.
    rest: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn scan(family: &ColumnFamily, backward: bool) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut iter = family.iter_with(&ReadOptions::default())?;
    let mut seen = BTreeMap::new();
    if backward {
        iter.seek_to_last()?
    } else {
        iter.seek_to_first()?
    }
    while iter.valid() {
        seen.insert(iter.key().to_vec(), iter.value().to_vec());
        if backward { iter.prev()? } else { iter.next()? }
    }
    Ok(seen)
}

impl View {
    pub fn of(db: &Db, backward: bool) -> Result<Self> {
        let mut places = Vec::new();
        let mut rest = BTreeMap::new();
        for name in SHARED {
            let mut by_thread: Seen = vec![BTreeMap::new(); THREADS];
            if let Some(family) = db.column_family(name) {
                for (key, value) in scan(&family, backward)? {
                    match (0..THREADS).find(|thread| key.starts_with(&prefix(*thread))) {
                        Some(thread) => by_thread[thread].insert(key, value),
                        None => rest.insert(key, value),
                    };
                }
            }
            places.push(by_thread);
        }
        let mut own = Vec::new();
        for thread in 0..THREADS {
            let family = db.column_family(&family_name(thread, OWN));
            own.push(family.map(|family| scan(&family, backward)).transpose()?);
        }
        Ok(Self { places, own, rest })
    }

    /// Everything in the default family, in order of key.
    pub fn default_family(&self) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
        let all: BTreeMap<_, _> = self.places[0].iter().flatten().chain(&self.rest).collect();
        all.into_iter()
    }

    /// The number of the last marked operation of `thread` in the round.
    fn marker(&self, round: &Round, thread: usize) -> Option<usize> {
        let text = String::from_utf8_lossy(self.rest.get(&marker_key(thread))?).into_owned();
        let (number, op) = text.split_once('.').map(|(n, rest)| (n, rest.rsplit('.').next()))?;
        (number == round.number.to_string()).then(|| op?.parse().ok()).flatten()
    }

    /// Whether it shows `model` for `thread`; else where not.
    fn shows(
        &self,
        thread: usize,
        model: &Model,
        own: Option<u32>,
        now_ms: u64,
    ) -> std::result::Result<(), String> {
        for place in 0..=OWN {
            let seen = match place {
                OWN => match &self.own[thread] {
                    Some(seen) => seen,
                    None => continue,
                },
                _ => &self.places[place][thread],
            };
            let want = model.seen_of(place, own, now_ms);
            let name = family_name(thread, place);
            let mut known = 0;
            for (number, content) in &want {
                let got = seen.get(&key(thread, *number));
                known += usize::from(got.is_some());
                match got {
                    got if may_be(place, content, got.map(Vec::as_slice)) => {}
                    None => return Err(format!("{name}: key {number} is missing")),
                    Some(got) => {
                        let got = String::from_utf8_lossy(&got[..got.len().min(20)]).into_owned();
                        return Err(format!("{name}: key {number} is {got}, not {content:x?}"));
                    }
                }
            }
            if seen.len() > known {
                let known: Vec<_> = want.keys().map(|number| key(thread, *number)).collect();
                let extra = seen.keys().find(|key| !known.contains(key));
                let extra = String::from_utf8_lossy(extra.unwrap()).into_owned();
                return Err(format!("{name}: there is {extra}, which should be absent"));
            }
        }
        Ok(())
    }
}

/// Enters into `model` what the compaction filter has done by now to the keys of `thread`: it stays done.
fn note_swept(view: &View, thread: usize, model: &mut Model) {
    let seen = &view.places[SWEPT][thread];
    model.shared[SWEPT].retain(|number, (content, _)| {
        let got = seen.get(&key(thread, *number));
        if got.is_some_and(|got| *got != bytes_of(content)) {
            content.iter_mut().for_each(|value| value.swept = true);
        }
        got.is_some()
    });
}

/// What a view shows of one thread. Operations that change nothing to be seen may be there or not.
struct Found {
    model: Model,
    own: Option<u32>,
    least: usize,
    most: usize,
}

/// Finds the state that `view` shows: of every thread the operations up to a number within
/// `bounds`, and nothing else. Gives the numbers too, the least and the most that show the same.
pub fn judge(
    view: &View,
    round: &Round,
    done: &[Done],
    bounds: &Bounds,
) -> std::result::Result<(State, Vec<(usize, usize)>), String> {
    let mut state = State::default();
    let mut there = Vec::new();
    let all_ops: Vec<Vec<Op>> =
        (0..THREADS).map(|thread| round.ops(thread, done[thread].begun.len())).collect();
    for (thread, ops) in all_ops.iter().enumerate() {
        let found = judge_thread(view, round, thread, ops, bounds)
            .map_err(|why| format!("thread {thread}: {why}"))?;
        let mut model = found.model;
        model.created = found.own.unwrap_or(model.created);
        model.tidy(found.own, round.now_ms);
        note_swept(view, thread, &mut model);
        state.models.push(model);
        there.push((found.least, found.most));
    }
    state.counter = judge_counter(view, round, &all_ops, &there)?;
    check_order(&all_ops, done, bounds, &there)?;
    Ok((state, there))
}

fn judge_thread(
    view: &View,
    round: &Round,
    thread: usize,
    ops: &[Op],
    bounds: &Bounds,
) -> std::result::Result<Found, String> {
    let (least, most) = (bounds.least[thread], bounds.most[thread].min(ops.len()));
    // Which own families there may be, and up to how many operations. They are in force as soon as
    // they are acknowledged, whatever a buffered log has lost; and no write is there without the
    // families that were made or dropped before it.
    let mut model = round.before.models[thread].clone();
    let mut incarnations: Vec<(usize, Option<u32>)> = Vec::new();
    for at in 0..=most {
        let own = model.incarnation();
        if at >= bounds.over[thread] && own.is_some() == view.own[thread].is_some() {
            match incarnations.last_mut().filter(|(_, last)| *last == own) {
                Some((until, _)) => *until = at,
                None => incarnations.push((at, own)),
            }
        }
        ops.get(at).into_iter().for_each(|op| model.apply(op));
    }
    let marked = |op: &Op| matches!(op, Op::Write { marked: true, .. } | Op::Count);
    let seen = view.marker(round, thread);
    let from = seen.map_or(0, |op| op + 1);
    let until = (from..ops.len()).find(|at| marked(&ops[*at])).unwrap_or(ops.len());
    let mut model = round.before.models[thread].clone();
    let mut why = format!("the last marked operation there is {seen:?}");
    let mut found: Option<Found> = None;
    for count in 0..=most {
        if (from.max(least)..=until).contains(&count) {
            let shows =
                |own: &&Option<u32>| view.shows(thread, &model, **own, round.now_ms).is_ok();
            let mut possible =
                incarnations.iter().filter(|(until, _)| *until >= count).map(|(_, own)| own);
            let own = match &found {
                // Only operations that nobody can see may follow.
                Some(found) => Some(&found.own).filter(shows),
                None => possible.clone().find(shows),
            };
            match own {
                Some(own) => {
                    let least = found.as_ref().map_or(count, |found| found.least);
                    found = Some(Found { model: model.clone(), own: *own, least, most: count });
                }
                None if found.is_some() => break,
                None => {
                    let own = possible.next().copied().flatten();
                    let difference = view.shows(thread, &model, own, round.now_ms).err();
                    let _ = write!(why, "; after {count} operations {difference:?}");
                }
            }
        }
        ops.get(count).into_iter().for_each(|op| model.apply(op));
    }
    found.ok_or_else(|| {
        why.truncate(2000);
        format!("no prefix of its script from {least} to {most} operations: {why}")
    })
}

/// The shared counter counts every increment once: the keys written by the last [`COUNTED`] are
/// there and no other, and those of this round are those that the threads' prefixes have.
fn judge_counter(
    view: &View,
    round: &Round,
    ops: &[Vec<Op>],
    there: &[(usize, usize)],
) -> std::result::Result<u64, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let counter = view.rest.get(COUNTER).map_or(Ok(0), |bytes| text(bytes).parse::<u64>());
    let counter = counter.map_err(|e| format!("the counter is no number: {e}"))?;
    let mut stamps = Vec::new();
    for n in counter.saturating_sub(COUNTED) + 1..=counter {
        let found = view.rest.get(&counted_key(n));
        let stamp = found.ok_or(format!("the counter is {counter}, increment {n} is missing"))?;
        if n > round.before.counter {
            stamps.push(text(stamp));
        }
    }
    let kept = view.rest.keys().filter(|key| key.starts_with(b"count-")).count() as u64;
    if kept != counter.min(COUNTED) {
        return Err(format!("the counter is {counter}, and {kept} increments are kept"));
    }
    // Increments are marked, so whether they are there is known.
    let of = |thread: usize| {
        let ops = ops[thread][..there[thread].1].iter().enumerate();
        let counts = ops.filter(|(_, op)| matches!(op, Op::Count));
        counts.map(move |(at, _)| text(&round.stamp(thread, at as u64)))
    };
    let wanted: Vec<String> = (0..THREADS).flat_map(of).collect();
    let grown = counter.wrapping_sub(round.before.counter);
    if grown != wanted.len() as u64 {
        return Err(format!(
            "the counter went from {} to {counter}; of the threads' increments {} are there",
            round.before.counter,
            wanted.len()
        ));
    }
    match stamps.iter().find(|stamp| !wanted.contains(stamp)) {
        Some(stamp) => Err(format!("increment {stamp} is there although its thread is not so far")),
        None => Ok(counter),
    }
}

/// Whether an operation that is there must be there with all that was over before it.
pub fn changes_entries(op: &Op) -> bool {
    matches!(op, Op::Write { .. } | Op::Count | Op::Ingest { .. })
}

/// What was over before something began that is there, or that makes durable what was before, is
/// there too: the log has no hole.
fn check_order(
    ops: &[Vec<Op>],
    done: &[Done],
    bounds: &Bounds,
    there: &[(usize, usize)],
) -> std::result::Result<(), String> {
    let mut newest = 0;
    for thread in 0..THREADS {
        for (at, op) in ops[thread].iter().enumerate() {
            let logged = changes_entries(op) && at < there[thread].0;
            let handed_over = op.hands_over() && at < bounds.over[thread];
            if logged || handed_over {
                newest = newest.max(done[thread].begun[at]);
            }
        }
    }
    for thread in 0..THREADS {
        let must = done[thread].acknowledged_before(newest);
        let lost = (there[thread].1..must).find(|at| changes_entries(&ops[thread][*at]));
        if let Some(lost) = lost {
            return Err(format!(
                "operation {lost} of thread {thread} is missing; it was over before one began \
                 that is there: a hole"
            ));
        }
    }
    Ok(())
}
