//! What the store must answer: every write in the order in which it became visible, which the
//! engine tells, and what was promised of each.
//!
//! Only one thread runs at a time, so the number of visible batches is exact at any moment. A read
//! is right if it shows one prefix of the writes between what was visible when it began and when it
//! ended. All of this is of one life; the next begins with what was recovered.

use crate::model::{Batch, Contents, FAMILIES, Held, History, Op, is_empty};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard};
use terrace_base::sync::Note;
use terrace_base::sync::simulation;

type Versions = Vec<(usize, Option<Held>)>;

/// A key that was read, and what it held.
pub type ReadOf = (usize, Vec<u8>, Option<Vec<u8>>);

#[derive(Default)]
struct Book {
    /// What each thread is writing, with what it has read before, and where it has become visible.
    writing: BTreeMap<usize, (Batch, Vec<ReadOf>, Option<usize>)>,
    /// Groups that may be in the log behind what is visible, oldest first. The next one is appended while
    /// the one before it is on its way into the memtables; those whose append failed stand here as well.
    logged: Vec<Group>,
    visible: Vec<Batch>,
    versions: Vec<BTreeMap<Vec<u8>, Versions>>,
    /// Batches that must survive a power cut, and a killed process.
    durable: usize,
    handed_over: usize,
    at_cut: Option<Left>,
    conflicts: u64,
}

/// Batches that are written together, and the threads that wait for them.
struct Group {
    threads: Vec<usize>,
    batches: Vec<Batch>,
    failed: bool,
}

/// What may be found by the next life.
struct Left {
    /// Batches that must be there, and of these how many a later power cut must leave as well.
    floor: usize,
    durable: usize,
    history: History,
    /// What may be in the log behind it: one of these, or a part of it from its start.
    tails: Vec<Vec<Batch>>,
}

/// The writes of one life, and what was promised.
pub struct Oracle {
    book: Mutex<Book>,
}

impl Oracle {
    /// A store in which `batches` will be recovered, of which `durable` lie on the device already.
    pub fn new(batches: Vec<Batch>, durable: usize) -> Self {
        let mut book = Book { versions: vec![BTreeMap::new(); FAMILIES.len()], ..Book::default() };
        batches.into_iter().for_each(|batch| book.publish(batch));
        (book.durable, book.handed_over) = (durable, book.visible.len());
        Self { book: Mutex::new(book) }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    /// What the engine tells of its groups.
    pub fn hear(&self, note: Note, threads: &[usize]) {
        let mut book = self.book();
        match note {
            Note::Logged => {
                let batches = threads.iter().map(|thread| book.writing[thread].0.clone()).collect();
                // An append that failed is tried again.
                for group in &mut book.logged {
                    group.failed |= group.threads == threads;
                }
                book.logged.push(Group { threads: threads.to_vec(), batches, failed: false });
            }
            Note::Visible => {
                // Groups before it must have failed: they cannot become visible any more.
                let found = book.logged.iter().position(|g| !g.failed && g.threads == threads);
                let found = found.expect("a group became visible that was not logged, or too late");
                book.logged.drain(..=found);
                assert!(book.logged.len() < 2, "two groups are logged behind one that is inserted");
                for thread in threads {
                    let Some((batch, reads, _)) = book.writing.get(thread).cloned() else {
                        continue;
                    };
                    let count = book.visible.len();
                    for (family, key, seen) in reads {
                        let now = book.value_at(count, family, &key);
                        // Values are unique. What had expired when it was read is still there.
                        let same = match &seen {
                            None => now.is_none_or(|held| held.at(0) != held.at(u64::MAX)),
                            Some(seen) => now.is_some_and(|held| {
                                let seen = Some(&seen[..]);
                                [0, u64::MAX].iter().any(|ms| held.at(*ms).as_deref() == seen)
                            }),
                        };
                        assert!(same, "a transaction became visible, but what it read had changed");
                    }
                    book.publish(batch);
                    if let Some(entry) = book.writing.get_mut(thread) {
                        entry.2 = Some(count + 1);
                    }
                }
            }
        }
    }

    pub fn begin_write(&self, batch: Batch, reads: Vec<ReadOf>) {
        if let Some(thread) = simulation::thread_number() {
            self.book().writing.insert(thread, (batch, reads, None));
        }
    }

    /// The write of this thread returned. `durable` and `handed_over` say what it promised then; if it failed it is not visible.
    /// Gives how many batches were visible with it, if it became visible.
    pub fn end_write(&self, ok: bool, durable: bool, handed_over: bool) -> Option<usize> {
        let at = self.end_visible_write(ok, durable, handed_over);
        assert!(ok || at.is_none(), "a write failed and is visible");
        at
    }

    /// As [`Self::end_write`], of one that may be visible though its sync has failed.
    pub fn end_visible_write(&self, ok: bool, durable: bool, handed_over: bool) -> Option<usize> {
        let mut book = self.book();
        let thread = simulation::thread_number().unwrap_or(0);
        let (batch, _, at) = book.writing.remove(&thread)?;
        if !ok {
            for group in &mut book.logged {
                group.failed |= group.threads.contains(&thread);
            }
        }
        match (ok, at) {
            (true, None) => {
                assert!(is_empty(&batch), "a write that was acknowledged is not visible")
            }
            (false, _) => {}
            (true, Some(at)) => {
                if durable {
                    book.durable = book.durable.max(at);
                }
                if handed_over || durable {
                    book.handed_over = book.handed_over.max(at);
                }
            }
        }
        at
    }

    pub fn note_conflict(&self) {
        self.book().conflicts += 1;
    }

    pub fn conflicts(&self) -> u64 {
        self.book().conflicts
    }

    /// Batches that are visible.
    pub fn visible(&self) -> usize {
        self.book().visible.len()
    }

    /// Everything up to `count` batches is on the device.
    pub fn promise(&self, count: usize) {
        let mut book = self.book();
        book.durable = book.durable.max(count);
        book.handed_over = book.handed_over.max(count);
    }

    /// The power is cut, or the process killed: remembers what must be there.
    pub fn cut(&self, killed: bool) {
        let mut book = self.book();
        book.at_cut = Some(book.left(killed));
    }

    /// How many batches the next life must find.
    pub fn floor(&self, killed: bool) -> usize {
        let book = self.book();
        book.at_cut.as_ref().map_or_else(|| book.left(killed).floor, |left| left.floor)
    }

    /// The batches that `contents` shows, if a recovery may show them, and how many of them a power
    /// cut must leave even before they are recovered.
    pub fn recovered(
        &self,
        contents: &Contents,
        now_ms: u64,
        killed: bool,
    ) -> Result<(Vec<Batch>, usize), String> {
        let mut book = self.book();
        let at_cut = book.at_cut.take();
        let Left { floor, durable, history, tails } = at_cut.unwrap_or_else(|| book.left(killed));
        let ceiling = history.batches.len();
        let mut outcome = history.prefix_of(contents, floor, ceiling, now_ms).map(|count| {
            let mut batches = history.batches.clone();
            batches.truncate(count);
            batches
        });
        for tail in &tails {
            if outcome.is_ok() {
                break;
            }
            let mut with_tail = history.clone();
            with_tail.batches.extend(tail.iter().cloned());
            let most = with_tail.batches.len();
            if let Ok(count) = with_tail.prefix_of(contents, ceiling, most, now_ms) {
                with_tail.batches.truncate(count);
                outcome = Ok(with_tail.batches);
            }
        }
        let batches = outcome.map_err(|mismatch| mismatch.to_string())?;
        let durable = durable.min(batches.len());
        Ok((batches, durable))
    }

    /// Of `prefixes`, those at which `key` holds `got`.
    pub fn check_get(
        &self,
        prefixes: impl IntoIterator<Item = usize>,
        family: usize,
        key: &[u8],
        now_ms: u64,
        got: Option<&[u8]>,
    ) -> Result<Vec<usize>, String> {
        let book = self.book();
        let mut seen = Vec::new();
        let fits = |prefix: &usize| {
            let want = book.value_at(*prefix, family, key).and_then(|held| held.at(now_ms));
            seen.push(want.as_deref().map(head));
            want.as_deref() == got
        };
        let right: Vec<usize> = prefixes.into_iter().filter(fits).collect();
        match right.is_empty() {
            false => Ok(right),
            true => {
                seen.dedup();
                let (name, key) = (FAMILIES[family], head(key));
                Err(format!(
                    "get {name}/{key} gave {:?}; right would be one of {seen:?}",
                    got.map(head)
                ))
            }
        }
    }

    /// Of `prefixes`, those at which a scan shows `got`: all of it, or only its beginning.
    pub fn check_scan(
        &self,
        prefixes: impl IntoIterator<Item = usize>,
        family: usize,
        now_ms: u64,
        got: &[(Vec<u8>, Vec<u8>)],
        whole: bool,
    ) -> Result<Vec<usize>, String> {
        let book = self.book();
        let mut difference = String::new();
        let fits = |prefix: &usize| {
            let want = book.scan_at(*prefix, family, now_ms);
            let len = if whole { want.len().max(got.len()) } else { got.len() };
            let at = (0..len).find(|at| {
                want.get(*at).map(|(key, value)| (*key, &**value))
                    != got.get(*at).map(|(key, value)| (key.as_slice(), value.as_slice()))
            });
            if let Some(at) = at {
                let text = |key: &[u8], value: &[u8]| format!("{}={}", head(key), head(value));
                let want = want.get(at).map(|(key, value)| text(key, value));
                let got = got.get(at).map(|(key, value)| text(key, value));
                difference = format!("entry {at} is {got:?}, not {want:?}, after {prefix} batches");
            }
            at.is_none()
        };
        let right: Vec<usize> = prefixes.into_iter().filter(fits).collect();
        match right.is_empty() {
            false => Ok(right),
            true => Err(format!("a scan of {} shows no prefix: {difference}", FAMILIES[family])),
        }
    }

    /// The prefixes that a read may show that began when `from` batches were visible.
    pub fn window(&self, from: usize) -> RangeInclusive<usize> {
        from..=self.visible()
    }
}

/// The beginning of a key or value, to be read by people.
fn head(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(8)]).into_owned()
}

impl Book {
    fn tails(&self) -> Vec<Vec<Batch>> {
        let mut tails: Vec<Vec<Batch>> = Vec::new();
        for (index, group) in self.logged.iter().enumerate() {
            tails.push(group.batches.clone());
            // Only one that has not failed has another one behind it.
            for before in self.logged[..index].iter().filter(|before| !before.failed) {
                tails.push(before.batches.iter().chain(&group.batches).cloned().collect());
            }
        }
        tails
    }

    fn left(&self, killed: bool) -> Left {
        Left {
            floor: if killed { self.handed_over } else { self.durable },
            durable: if killed { self.durable } else { usize::MAX },
            history: History { batches: self.visible.clone() },
            tails: self.tails(),
        }
    }

    fn value_at(&self, prefix: usize, family: usize, key: &[u8]) -> Option<&Held> {
        let versions = self.versions[family].get(key)?;
        versions[..versions.partition_point(|(at, _)| *at <= prefix)].last()?.1.as_ref()
    }

    fn scan_at(&self, prefix: usize, family: usize, now_ms: u64) -> Vec<(&[u8], Cow<'_, [u8]>)> {
        let keys = self.versions[family].keys();
        let alive = keys.filter_map(|key| {
            Some((key.as_slice(), self.value_at(prefix, family, key)?.at(now_ms)?))
        });
        alive.collect()
    }

    /// Adds a batch to what is visible.
    fn publish(&mut self, batch: Batch) {
        let at = self.visible.len() + 1;
        for op in &batch {
            match op {
                Op::Put { family, key, value, expiry_ms } => {
                    let version = (at, Some(Held::of_value(value.clone(), *expiry_ms)));
                    self.versions[*family].entry(key.clone()).or_default().push(version);
                }
                Op::Merge { family, key, operand } => {
                    let versions = self.versions[*family].entry(key.clone()).or_default();
                    let before = versions.last().and_then(|(_, held)| held.clone());
                    let mut held = before.unwrap_or_default();
                    held.merge(operand);
                    versions.push((at, Some(held)));
                }
                Op::Delete { family, key } => {
                    self.versions[*family].entry(key.clone()).or_default().push((at, None));
                }
                Op::DeleteRange { family, start, end } if start < end => {
                    let range = self.versions[*family].range_mut(start.clone()..end.clone());
                    range.for_each(|(_, versions)| versions.push((at, None)));
                }
                Op::DeleteRange { .. } => {}
            }
        }
        self.visible.push(batch);
    }
}
