//! How a workload measures, on a store that only notes what it is asked, and that answers wrongly if it is to.

use super::*;
use crate::store::{Cursor, MetadataBytes};
use std::sync::PoisonError;

/// What a fake does otherwise than a store should.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Faults {
    /// Puts fail.
    puts_fail: bool,
    /// Scans leave out the entry at this place.
    left_out: Option<usize>,
    /// Scans have the entries at this place and the next in the wrong order.
    swapped: Option<usize>,
    /// Values have a byte less than they should.
    short_values: bool,
    /// Lookups do not find this item.
    lost: Option<u64>,
}

/// A store that says of every key that it has it, whose scans have the first items, and that had settled at `calm`.
struct Fake {
    calm: Instant,
    faults: Faults,
    keys: KeySpace,
    value_size: usize,
    /// What scans find.
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    asked: Arc<Mutex<Vec<Vec<u8>>>>,
    /// How often everything was merged.
    merges: Arc<Mutex<u32>>,
}

impl Fake {
    fn new(job: &Job, faults: Faults) -> Self {
        let value_size = job.shape.value_size - usize::from(faults.short_values);
        let keys = KeySpace::new(job.shape.key_size, job.shape.keys).unwrap();
        let mut key = Vec::new();
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = (0..job.shape.keys)
            .map(|item| {
                keys.present(item, &mut key);
                (key.clone(), vec![0; value_size])
            })
            .collect();
        if let Some(at) = faults.swapped {
            entries.swap(at, at + 1);
        }
        if let Some(at) = faults.left_out {
            entries.remove(at);
        }
        let (asked, merges) = (Arc::default(), Arc::default());
        Self { calm: Instant::now(), faults, keys, value_size, entries, asked, merges }
    }
}

impl Store for Fake {
    fn put(&self, _key: &[u8], _value: &[u8]) -> Result<()> {
        ensure!(!self.faults.puts_fail, "as asked");
        Ok(())
    }

    fn get(&self, key: &[u8], see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(key.to_vec());
        if self.faults.lost.is_some_and(|item| self.keys.is_present(item, key)) {
            return Ok(false);
        }
        see(&vec![0; self.value_size]);
        Ok(true)
    }

    fn delete(&self, _key: &[u8]) -> Result<()> {
        Ok(())
    }

    fn multi_get(&self, keys: &[Vec<u8>], _see: &mut dyn FnMut(&[u8])) -> Result<usize> {
        Ok(keys.len())
    }

    fn cursor(&self) -> Result<Box<dyn Cursor + '_>> {
        Ok(Box::new(FakeCursor { entries: &self.entries, at: 0 }))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<Instant> {
        Ok(self.calm)
    }

    fn metadata_bytes(&self) -> Result<MetadataBytes> {
        Ok(MetadataBytes::default())
    }

    fn merge_all(&self) -> Result<()> {
        *self.merges.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Ok(())
    }

    fn stats_text(&self) -> String {
        String::new()
    }

    fn options_text(&self) -> String {
        String::new()
    }

    fn version(&self) -> String {
        String::new()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct FakeCursor<'a> {
    entries: &'a [(Vec<u8>, Vec<u8>)],
    at: usize,
}

impl Cursor for FakeCursor<'_> {
    /// Entries may be out of order: the first that is not before the key.
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let found = self.entries.iter().position(|(known, _)| &known[..] >= key);
        self.at = found.unwrap_or(self.entries.len());
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.entries.get(self.at).map(|(key, value)| (&key[..], &value[..]))
    }
}

/// What came of some work on a fake.
struct Done {
    result: Result<()>,
    asked: Vec<Vec<u8>>,
    merges: u32,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// Runs `work` on a bench of a fake that has such faults, after `change` of its job.
fn on_faulty_fake(
    faults: Faults,
    change: impl FnOnce(&mut Job),
    work: impl FnOnce(&mut Bench<'_>) -> Result<()>,
) -> Done {
    let dir = tempfile::tempdir().unwrap();
    let mut job = job(Engine::Terrace, StoreKind::Basic, &[], dir.path());
    job.threads = 1;
    change(&mut job);
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    let observer = Observer::new(move |event| sink.lock().unwrap().push(event));
    let fake = Fake::new(&job, faults);
    let (asked, merges) = (fake.asked.clone(), fake.merges.clone());
    let mut bench = Bench {
        job: &job,
        observer: &observer,
        store: Box::new(fake),
        keys: KeySpace::new(job.shape.key_size, job.shape.keys).unwrap(),
        facts: job.facts(String::new(), String::new()),
    };
    let result = work(&mut bench);
    drop(bench);
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for event in std::mem::take(&mut *events.lock().unwrap()) {
        match event {
            Event::Row(row) => rows.push(*row),
            Event::Note(text) => notes.push(text),
            _ => {}
        }
    }
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    let merges = *merges.lock().unwrap();
    Done { result, asked, merges, rows, notes }
}

/// Runs `work` on a bench of a fake without faults; what was asked of the store, and the rows.
fn on_fake(work: impl FnOnce(&mut Bench<'_>) -> Result<()>) -> (Vec<Vec<u8>>, Vec<Row>) {
    let done = on_faulty_fake(Faults::default(), |_| {}, work);
    done.result.unwrap();
    (done.asked, done.rows)
}

/// The store was calm before the last write was acknowledged: however long it takes to be sure of that, nothing is
/// added.
#[test]
fn the_time_to_settled_ends_when_the_calm_begins() {
    let (_, rows) = on_fake(|bench| {
        let bench = &*bench;
        let phase = Phase { threads: 1, ops: 10, duration: None, time_every: 1 };
        let make = |thread| {
            let sampler = bench.sampler(&Distribution::Uniform, bench.shape().keys)?;
            Ok(point_read::PointReader::new(bench, "fill", thread, sampler, 0.0))
        };
        bench.measure_to_settled("fill", phase, 10, |_| 10, make)
    });
    assert_eq!(names(&rows), ["fill", "fill-unsettled"]);
    assert_eq!(rows[0].seconds, rows[1].seconds);
}

/// Else the cache would have what is measured first.
#[test]
fn a_warm_up_asks_for_other_keys_than_what_is_measured() {
    let (asked, rows) = on_fake(|bench| point_read::readrandom(bench));
    assert_eq!((rows.len(), rows[0].ops), (1, 2000));
    // A tenth of the operations, unless two seconds were over before.
    let warm_up = asked.len() - 2000;
    assert!((1..=200).contains(&warm_up), "{warm_up}");
    assert_ne!(asked[..warm_up], asked[warm_up..2 * warm_up]);
}

/// Every pass of a scan has every entry once, in its order, with its value; if not, there is no row.
#[test]
fn scans_that_are_not_whole_are_wrong_answers() {
    let scan =
        |faults| on_faulty_fake(faults, |job| job.limit.ops = Some(7000), |b| range::scan(b));
    let right = scan(Faults::default());
    right.result.unwrap();
    // 3,000 entries and one step past the end, in each pass.
    assert_eq!((right.rows[0].ops, right.rows.len()), (7000, 1));
    for faults in [
        Faults { left_out: Some(1500), ..Faults::default() },
        Faults { left_out: Some(2999), ..Faults::default() },
        Faults { swapped: Some(10), ..Faults::default() },
        Faults { short_values: true, ..Faults::default() },
    ] {
        let wrong = scan(faults);
        let text = format!("{:#}", wrong.result.unwrap_err());
        assert!(text.contains("wrong answer") && wrong.rows.is_empty(), "{faults:?}: {text}");
    }
}

#[test]
fn seeks_warm_ups_and_lookups_insist_on_what_is_stored() {
    type Work = fn(&mut Bench<'_>) -> Result<()>;
    let without_end = Faults { left_out: Some(2999), ..Faults::default() };
    let short = Faults { short_values: true, ..Faults::default() };
    let work: [(&str, Faults, Work); 5] = [
        ("warm-up", without_end, |bench| bench.warm_up_by_scan()),
        ("warm-up", short, |bench| bench.warm_up_by_scan()),
        ("seek", Faults { swapped: Some(2), ..Faults::default() }, |bench| {
            range::seekrandom(bench)
        }),
        ("seek", short, |bench| range::seekrandom(bench)),
        ("lookup", short, |bench| point_read::readrandom(bench)),
    ];
    for (name, faults, work) in work {
        let done = on_faulty_fake(faults, |job| job.limit.ops = Some(20_000), work);
        let text = format!("{:#}", done.result.unwrap_err());
        assert!(text.contains("wrong answer"), "{name} {faults:?}: {text}");
    }
    on_fake(|bench| bench.warm_up_by_scan());
    on_fake(|bench| range::seekrandom(bench));
}

/// Without a bound of their own, the reads end with the writer.
#[test]
fn an_error_of_the_writer_ends_the_reads_beside_it() {
    let faults = Faults { puts_fail: true, ..Faults::default() };
    let unbounded = |job: &mut Job| {
        job.limit.ops = Some(u64::MAX);
        job.settings.write_rate = 0;
    };
    let done = on_faulty_fake(faults, unbounded, |bench| mixed::readwhilewriting(bench));
    assert_eq!(done.result.unwrap_err().to_string(), "as asked");
    assert!(done.rows.is_empty());
}

#[test]
fn what_is_written_beside_reads_is_in_their_row() {
    let unbounded = |job: &mut Job| job.settings.write_rate = 0;
    let done = on_faulty_fake(Faults::default(), unbounded, |bench| mixed::readwhilewriting(bench));
    done.result.unwrap();
    let row = &done.rows[0];
    let writer = row.writer.as_ref().unwrap();
    assert_eq!((row.ops, row.user_bytes), (2000, writer.writer_bytes));
    assert!(!done.notes.iter().any(|note| note.contains("the writer")), "{:?}", done.notes);
    // No disk writes an exbibyte a second.
    let faster = |job: &mut Job| job.settings.write_rate = 1 << 60;
    let done = on_faulty_fake(Faults::default(), faster, |bench| mixed::readwhilewriting(bench));
    assert!(done.notes.iter().any(|note| note.contains("the writer wrote")), "{:?}", done.notes);
}

#[test]
fn everything_is_merged_before_reads_if_that_is_asked_for() {
    let merge = |merged| {
        let change = |job: &mut Job| job.settings.merged = merged;
        on_faulty_fake(Faults::default(), change, |bench| {
            bench.merge_if_asked()?;
            point_read::readrandom(bench)
        })
    };
    let (with, without) = (merge(true), merge(false));
    assert_eq!((with.merges, with.rows[0].merged), (1, true));
    assert_eq!((without.merges, without.rows[0].merged), (0, false));
}

#[test]
fn bytes_that_are_written_while_a_workload_only_reads_are_noted() {
    let noted = |written_bytes, user_bytes, found| {
        let done = on_faulty_fake(
            Faults::default(),
            |_| {},
            |bench| {
                let tally = phase::Tally { found, missed: 0, user_bytes };
                let latencies = phase::histogram()?;
                let outcome = Outcome { ops: 1, seconds: 1.0, latencies, tally };
                let usage = Usage { written_bytes, ..Usage::default() };
                let phase = Phase { threads: 1, ops: 1, duration: None, time_every: 1 };
                bench.report("reads", phase, &outcome, usage, 1, None)
            },
        );
        done.notes
    };
    assert!(noted(5 << 20, 0, 9)[0].contains("5.0 MiB"));
    assert!(noted(4096, 0, 9).is_empty(), "lines of a log");
    assert!(noted(5 << 20, 1, 9).is_empty() && noted(5 << 20, 0, 0).is_empty());
}

/// The fake forgets what is inserted: a scan does not come upon it, and a lookup does not find the item that is lost.
#[test]
fn mixes_insist_on_what_one_thread_has_inserted() {
    let mix = |mix, faults| {
        let done = on_faulty_fake(
            faults,
            |_| {},
            |bench| ycsb::run_mix(bench, mix, &ycsb::Inserts::new(bench.shape().keys)),
        );
        done.result.map_err(|error| format!("{error:#}"))
    };
    let first_inserted = Faults { lost: Some(3000), ..Faults::default() };
    assert!(mix(Mix::D, first_inserted).unwrap_err().contains("wrong answer"));
    assert!(mix(Mix::E, Faults::default()).unwrap_err().contains("wrong answer"));
    mix(Mix::D, Faults::default()).unwrap();
    mix(Mix::C, Faults::default()).unwrap();
}

#[test]
fn space_is_over_what_lives_once_items_were_inserted() {
    let write = |job: &mut Job| {
        std::fs::write(job.dir.join("data"), vec![1; 1 << 20]).unwrap();
        usage::sync_file_system(&job.dir).unwrap();
    };
    let (mut files, mut live) = (0, 0);
    let done = on_faulty_fake(Faults::default(), write, |bench| {
        let inserts = ycsb::Inserts::new(bench.shape().keys);
        ycsb::run_mix(bench, Mix::D, &inserts)?;
        live = inserts.count() * bench.item_bytes();
        files = usage::dir_bytes(&bench.job.dir)?;
        Ok(())
    });
    done.result.unwrap();
    assert!(live > 3000 * 116 && files > 0);
    let space = done.rows[0].space_amp.unwrap();
    assert!((space - files as f64 / live as f64).abs() < 1e-9, "{space}");
}
