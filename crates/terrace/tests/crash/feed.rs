//! The change feed of what a child leaves. Everything that the log has is what the threads' scripts say, in the order of
//! each, without a hole; an operation that was over before another began comes before it; and what earlier rounds
//! were seen to have is still the same, as far back as the log goes. From any number on, the feed is the end of that.

use crate::expected::{Round, changes_entries};
use crate::journal::Done;
use crate::script::{Change, Op, THREADS, family_name, key, marker_key, prefix};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use terrace::{Db, UpdateOp};
use terrace_base::rng::{Rng, SplitMix64};

/// One operation of a batch: its family, unless that was dropped since, and what was done.
#[derive(Debug, Clone)]
struct Line {
    family: Option<String>,
    what: String,
}

impl Line {
    fn new(family: Option<String>, what: impl Into<String>) -> Self {
        Self { family, what: what.into() }
    }

    fn is_same(&self, other: &Self) -> bool {
        let is_one_gone = self.family.is_none() || other.family.is_none();
        self.what == other.what && (is_one_gone || self.family == other.family)
    }
}

/// A batch as the feed gives it.
#[derive(Debug, Clone)]
struct Logged {
    first: u64,
    last: u64,
    lines: Vec<Line>,
}

/// What the log was seen to have, by the first number of each batch.
#[derive(Default)]
pub struct History {
    batches: BTreeMap<u64, Logged>,
    /// The newest number then.
    newest: u64,
    /// Notes of ingestions that a kill came between with their files: a store that is open for reading shows no
    /// number that only such a note has. The next writer counts it, so that its feed has the note.
    late: Vec<Vec<Line>>,
    /// Batches that were read, those of them that belong to earlier rounds, and reads from random numbers.
    pub read: u64,
    pub of_before: u64,
    pub suffixes: u64,
}

/// What is known of the operations of a round.
pub struct Known<'a> {
    pub round: &'a Round,
    pub done: &'a [Done],
    /// Of every thread the least and the most number of operations that the store shows.
    pub there: &'a [(usize, usize)],
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn digest(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn put(key: &[u8], value: &[u8], expiry_ms: Option<u64>) -> String {
    format!("put {} {} {:x} {expiry_ms:?}", text(key), value.len(), digest(value))
}

fn line_of(op: &UpdateOp<'_>) -> String {
    match op {
        UpdateOp::Put { key, value, expires_at_ms } => put(key, value, *expires_at_ms),
        UpdateOp::Delete { key } => format!("delete {}", text(key)),
        UpdateOp::DeleteRange { start, end } => format!("range {} {}", text(start), text(end)),
        UpdateOp::Merge { key, operand } => format!("merge {} {:x}", text(key), digest(operand)),
        UpdateOp::Ingested { smallest, largest } => {
            format!("ingest {} {}", text(smallest), text(largest))
        }
        other => format!("{other:?}"),
    }
}

/// Everything that the feed has from `since` on.
fn read(db: &Db, since: u64) -> Result<Vec<Logged>, String> {
    let mut all: Vec<Logged> = Vec::new();
    let feed = db.updates_since(since).map_err(|e| format!("opening it at {since}: {e}"))?;
    for batch in feed {
        let batch = batch.map_err(|e| format!("reading it: {e}"))?;
        let (first, last) = (batch.first_seqno(), batch.last_seqno());
        let mut lines = Vec::new();
        for update in batch.updates() {
            let update = update.map_err(|e| format!("batch {first}: {e}"))?;
            lines.push(Line::new(update.family.map(str::to_string), line_of(&update.op)));
        }
        if all.last().is_some_and(|before| before.last >= first) || lines.is_empty() {
            return Err(format!("batch {first} to {last} comes where it should not"));
        }
        all.push(Logged { first, last, lines });
    }
    Ok(all)
}

/// Whose a batch is.
fn thread_of(batch: &Logged) -> Option<usize> {
    let keys = || batch.lines.iter().filter_map(|line| line.what.split(' ').nth(1));
    (0..THREADS).find(|thread| {
        let (own, marker) = (text(&prefix(*thread)), text(&marker_key(*thread)));
        keys().any(|key| key.starts_with(&own) || key == marker)
    })
}

/// What the log has of a change of `thread`.
fn line_of_change(thread: usize, change: &Change) -> Line {
    let own_key = |number: &u64| key(thread, *number);
    let (family, what) = match change {
        Change::Put { family, key, value, expiry_ms } => {
            (family, put(&own_key(key), &value.bytes(), *expiry_ms))
        }
        Change::Merge { family, key, value } => {
            (family, format!("merge {} {:x}", text(&own_key(key)), digest(&value.bytes())))
        }
        Change::Delete { family, key } => (family, format!("delete {}", text(&own_key(key)))),
        Change::DeleteRange { family, start, end } => {
            (family, format!("range {} {}", text(&own_key(start)), text(&own_key(end))))
        }
    };
    Line::new(Some(family_name(thread, *family)), what)
}

/// Whether `batch` is what operation `number` of `thread` writes.
fn is_of(batch: &Logged, round: &Round, thread: usize, number: usize, op: &Op) -> bool {
    let default = || Some(family_name(thread, 0));
    let stamp = round.stamp(thread, number as u64);
    let marker = Line::new(default(), put(&marker_key(thread), &stamp, None));
    let want = match op {
        Op::Write { batch, marked, .. } => {
            let lines = batch.iter().map(|change| line_of_change(thread, change));
            lines.chain(marked.then_some(marker)).collect::<Vec<_>>()
        }
        Op::Ingest { family, files } => note_of(thread, *family, files),
        // Which number the increment got, the state says ([`crate::expected::judge`]).
        Op::Count => {
            let counts =
                |head: &str| batch.lines.iter().filter(|line| line.what.starts_with(head)).count();
            let is_marked = batch.lines.iter().any(|line| line.is_same(&marker));
            let deletes = counts("delete count-");
            return is_marked
                && (counts("put counter "), counts("put count-")) == (1, 1)
                && deletes <= 1
                && batch.lines.len() == 3 + deletes;
        }
        _ => return false,
    };
    is_same(&batch.lines, &want)
}

fn is_same(lines: &[Line], other: &[Line]) -> bool {
    lines.len() == other.len() && lines.iter().zip(other).all(|(a, b)| a.is_same(b))
}

/// What the log has of files that `thread` ingests.
fn note_of(thread: usize, family: usize, files: &[Vec<Change>]) -> Vec<Line> {
    let keys = |file: &Vec<Change>| -> Vec<u64> {
        let key = |change: &Change| match change {
            Change::Put { key, .. } | Change::Merge { key, .. } | Change::Delete { key, .. } => {
                Some(*key)
            }
            Change::DeleteRange { .. } => None,
        };
        file.iter().filter_map(key).collect()
    };
    let line = |keys: Vec<u64>| {
        let (smallest, largest) = (keys[0], keys[keys.len() - 1]);
        let (smallest, largest) = (key(thread, smallest), key(thread, largest));
        let what = format!("ingest {} {}", text(&smallest), text(&largest));
        Line::new(Some(family_name(thread, family)), what)
    };
    files.iter().map(keys).filter(|keys| !keys.is_empty()).map(line).collect()
}

/// The ingestion that `thread` had begun when it was killed.
fn half_done<'a>(ops: &'a [Op], done: &Done) -> Option<(usize, &'a [Vec<Change>])> {
    match ops.last() {
        Some(Op::Ingest { family, files }) if done.acknowledged.len() < ops.len() => {
            Some((*family, files))
        }
        _ => None,
    }
}

impl History {
    /// Reads the feed of `db`, from the oldest number and from a random one.
    pub fn check(
        &mut self,
        db: &Db,
        known: &Known<'_>,
        rng: &mut SplitMix64,
    ) -> Result<(), String> {
        let newest = db.latest_seqno();
        let oldest = db.oldest_update().map_err(|e| format!("the oldest number: {e}"))?;
        let all = read(db, oldest)?;
        let (before, new) = all.split_at(all.partition_point(|batch| batch.first <= self.newest));
        for batch in before {
            let was = self.batches.get(&batch.first);
            let is_as_it_was = was.is_some_and(|was| {
                let mut lines = was.lines.iter().zip(&batch.lines);
                was.last == batch.last && lines.all(|(a, b)| a.is_same(b))
            });
            if !is_as_it_was {
                return Err(format!("{batch:.300?} was {was:.300?}"));
            }
        }
        if let (Some(first), true) = (before.first(), !self.batches.is_empty()) {
            let missing = self.batches.range(first.first..).count() != before.len();
            if missing {
                return Err(format!("of what it had from {} on, something is gone", first.first));
            }
        }
        let is_whole = oldest <= self.newest + 1;
        let comes_late = |batch: &&Logged| self.late.iter().any(|note| is_same(note, &batch.lines));
        let late = new.iter().take_while(comes_late).count();
        let new = &new[late..];
        check_new(new, known, is_whole)?;
        self.late.retain(|note| !all.iter().any(|batch| is_same(note, &batch.lines)));
        for (thread, done) in known.done.iter().enumerate() {
            let ops = known.round.ops(thread, done.begun.len());
            let note = half_done(&ops, done).map(|(family, files)| note_of(thread, family, files));
            let is_there = |note: &Vec<Line>| new.iter().any(|batch| is_same(note, &batch.lines));
            self.late.extend(note.filter(|note| !is_there(note)));
        }
        let since = oldest + rng.below(newest.saturating_sub(oldest) + 2);
        let since = since.min(newest + 1);
        let end = read(db, since)?;
        let want = &all[all.partition_point(|batch| batch.last < since)..];
        let firsts = |batches: &[Logged]| batches.iter().map(|b| b.first).collect::<Vec<_>>();
        if firsts(want) != firsts(&end) {
            return Err(format!("from {since} on it is not the end of all that there is"));
        }
        self.read += all.len() as u64;
        self.of_before += before.len() as u64;
        self.suffixes += 1;
        self.newest = newest;
        self.batches = all.into_iter().map(|batch| (batch.first, batch)).collect();
        Ok(())
    }
}

/// Checks what this round has logged; `is_whole` if the log has all of it.
fn check_new(new: &[Logged], known: &Known<'_>, is_whole: bool) -> Result<(), String> {
    let mut of_thread: Vec<Vec<usize>> = vec![Vec::new(); THREADS];
    for (at, batch) in new.iter().enumerate() {
        let thread = thread_of(batch).ok_or_else(|| format!("nobody has written {batch:.300?}"))?;
        of_thread[thread].push(at);
    }
    let mut missing: Vec<(usize, usize)> = Vec::new();
    let mut op_of: Vec<Option<(usize, usize)>> = vec![None; new.len()];
    for (thread, batches) in of_thread.iter().enumerate() {
        let begun = known.done[thread].begun.len();
        let ops = known.round.ops(thread, begun);
        let logged: Vec<usize> = (0..begun).filter(|at| changes_entries(&ops[*at])).collect();
        let (least, most) = known.there[thread];
        // Its note is in the log before the files are in force.
        let most = if half_done(&ops, &known.done[thread]).is_some() { begun } else { most };
        let ends = (least..=most).map(|count| logged.partition_point(|at| *at < count));
        let fits = |end: &usize| {
            let Some(from) = end.checked_sub(batches.len()) else { return false };
            let mut pairs = batches.iter().zip(&logged[from..*end]);
            (from == 0 || !is_whole)
                && pairs.all(|(b, op)| is_of(&new[*b], known.round, thread, *op, &ops[*op]))
        };
        let Some(end) = ends.clone().find(fits) else {
            let ends: Vec<usize> = ends.collect();
            let last = batches.last().map(|at| &new[*at]);
            return Err(format!(
                "thread {thread}: its {} batches are not the last of {ends:?} operations that write, all of them: \
                 {is_whole}; the last is {last:.400?}, of the script {:.400?}",
                batches.len(),
                ends.last().and_then(|end| logged[..*end].last()).map(|at| (at, &ops[*at])),
            ));
        };
        let from = end - batches.len();
        missing.extend(logged[..from].iter().map(|op| (thread, *op)));
        for (at, op) in batches.iter().zip(&logged[from..end]) {
            op_of[*at] = Some((thread, *op));
        }
    }
    // What began after one that is there was over comes after it, and so is there.
    let over = |&(thread, op): &(usize, usize)| known.done[thread].acknowledged.get(op).copied();
    let first_over = op_of.iter().flatten().filter_map(over).min().unwrap_or(u64::MAX);
    for (thread, op) in missing {
        if known.done[thread].begun[op] > first_over {
            return Err(format!(
                "operation {op} of thread {thread} is missing; it began after one that is there was over"
            ));
        }
    }
    let mut newest_begun = 0;
    for (thread, op) in op_of.into_iter().flatten() {
        let done = &known.done[thread];
        if done.acknowledged.get(op).is_some_and(|over| *over < newest_begun) {
            return Err(format!(
                "operation {op} of thread {thread} was over before one began that comes before it"
            ));
        }
        newest_begun = newest_begun.max(done.begun[op]);
    }
    Ok(())
}

/// What `op` would leave in the log, if it is a write.
fn logged(round: &Round, thread: usize, number: usize, op: &Op, first: u64) -> Option<Logged> {
    let Op::Write { batch, marked, .. } = op else { return None };
    let stamp = round.stamp(thread, number as u64);
    let marker = put(&marker_key(thread), &stamp, None);
    let marker = marked.then(|| Line::new(Some(family_name(thread, 0)), marker));
    let lines = batch.iter().map(|change| line_of_change(thread, change)).chain(marker);
    let lines: Vec<Line> = lines.collect();
    Some(Logged { first, last: first + lines.len() as u64 - 1, lines })
}

/// The check fails if a batch is missing, comes twice or too early, or says something else.
#[test]
fn a_log_that_is_not_what_the_scripts_say_is_refused() {
    let before = crate::expected::State::new();
    let round = Round { number: 3, seed: 5, now_ms: 1000, before };
    let mut all = Vec::new();
    let mut done = vec![Done::default(); THREADS];
    let mut tickets = 1..;
    // As far as the first operation of each thread that is none of a batch.
    for (thread, done) in done.iter_mut().enumerate() {
        for (number, op) in round.ops(thread, 500).iter().enumerate() {
            if changes_entries(op) && !matches!(op, Op::Write { .. }) {
                break;
            }
            all.extend(logged(&round, thread, number, op, all.len() as u64 * 1000 + 1));
            done.begun.extend(tickets.next());
            done.acknowledged.extend(tickets.next());
        }
    }
    assert!(all.len() > 10, "{}", all.len());
    let there: Vec<_> = done.iter().map(|d| (d.begun.len(), d.begun.len())).collect();
    let known = Known { round: &round, done: &done, there: &there };
    check_new(&all, &known, true).unwrap();
    check_new(&all[5..], &known, false).unwrap();
    check_new(&all[1..], &known, true).unwrap_err();
    check_new(&all[..all.len() - 1], &known, false).unwrap_err();
    for at in 0..all.len() - 1 {
        let mut missing = all.clone();
        missing.remove(at);
        check_new(&missing, &known, true).unwrap_err();
        let mut twice = all.clone();
        twice.insert(at, all[at].clone());
        check_new(&twice, &known, true).unwrap_err();
        let mut swapped = all.clone();
        swapped.swap(at, at + 1);
        check_new(&swapped, &known, true).unwrap_err();
        let mut other = all.clone();
        other[at].lines[0].what.push('x');
        check_new(&other, &known, true).unwrap_err();
    }
}
