//! The change feed: every committed batch comes once and in order, whatever the log and its values go
//! through meanwhile; what is not there is an error.

mod crash;
mod follow;

use crate::harness::{
    DIR, Generator, Mix, Store, at_step, draw_separation, effort, eventually, over_seeds,
    small_options, stopped_clock,
};
use crate::ingesting::write_file;
use crate::model::{Batch, FAMILIES, Op};
use std::path::Path;
use std::sync::{Arc, Mutex};
use terrace::vfs::{SimVfs, Vfs};
use terrace::{
    CfOptions, Db, Error, IngestOptions, IngestPosition, Options, SyncMode, Update, UpdateBatch,
    UpdateOp, Updates,
};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_manifest::names::{self, FileName};

fn options(sim: &SimVfs) -> Options {
    let mut options = small_options(Arc::new(sim.clone()), &stopped_clock());
    options.column_families.clear();
    options.advanced.compact_when_idle = false;
    options
}

/// An update as the model has it; nothing for an ingested file.
fn model_op(update: &Update<'_>) -> Option<Op> {
    let name = update.family.expect("the family is there");
    let family = FAMILIES.iter().position(|family| *family == name).unwrap();
    Some(match &update.op {
        UpdateOp::Put { key, value, expires_at_ms } => {
            let (key, value) = (key.to_vec(), value.to_vec());
            Op::Put { family, key, value, expiry_ms: *expires_at_ms }
        }
        UpdateOp::Delete { key } => Op::Delete { family, key: key.to_vec() },
        UpdateOp::DeleteRange { start, end } => {
            Op::DeleteRange { family, start: start.to_vec(), end: end.to_vec() }
        }
        UpdateOp::Merge { key, operand } => {
            Op::Merge { family, key: key.to_vec(), operand: operand.to_vec() }
        }
        _ => return None,
    })
}

fn model_batch(batch: &UpdateBatch) -> Batch {
    batch.updates().filter_map(|update| model_op(&update.unwrap())).collect()
}

/// What the feed has now.
fn rest(feed: &mut Updates) -> Vec<UpdateBatch> {
    feed.map(|batch| batch.unwrap()).collect()
}

/// The keys that a feed of puts has now.
fn keys(feed: &mut Updates) -> Vec<String> {
    let mut keys = Vec::new();
    for batch in rest(feed) {
        for update in batch.updates() {
            match update.unwrap().op {
                UpdateOp::Put { key, .. } => keys.push(String::from_utf8(key.to_vec()).unwrap()),
                other => panic!("{other:?}"),
            }
        }
    }
    keys
}

/// Numbers and lengths of the log segments in the directory.
fn log_files(sim: &SimVfs) -> Vec<(u64, u64)> {
    let dir = Path::new(DIR);
    let number = |name: &String| match names::parse(name) {
        FileName::Log(number) => Some((number.get(), sim.len(&dir.join(name)).ok()?)),
        _ => None,
    };
    sim.list(dir).unwrap().iter().filter_map(number).collect()
}

/// A store, and a second one that is made of its feed.
struct Pair {
    sim: SimVfs,
    clock: ManualClock,
    options: Options,
    source: Store,
    replica: Store,
    generator: Generator,
    /// What was written and not ingested.
    written: Vec<Batch>,
    given: Vec<Batch>,
    /// What the replica wants next.
    next: u64,
    feed: Option<Updates>,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let clock = stopped_clock();
        let mut rng = SplitMix64::new(seed);
        let sim = SimVfs::new(seed);
        let mut options = crate::harness::drawn_options(Arc::new(sim.clone()), &clock, &mut rng);
        options.advanced.log_retention_bytes = 1 << 30;
        let source = Store::open(options.clone()).unwrap();
        let replica = Store::open(small_options(Arc::new(SimVfs::new(seed)), &clock)).unwrap();
        let generator = Generator::new(seed, Mix::default(), &clock);
        let (written, given) = (Vec::new(), Vec::new());
        Self {
            sim,
            clock,
            options,
            source,
            replica,
            generator,
            written,
            given,
            next: 1,
            feed: None,
        }
    }

    fn write(&mut self) {
        let batch = self.generator.batch();
        let sync = self.generator.rng.one_in(8).then_some(SyncMode::Batch);
        self.source.write(&batch, sync, self.clock.now_ms()).unwrap();
        let is_nothing = |op: &Op| matches!(op, Op::DeleteRange { start, end, .. } if start >= end);
        let batch: Batch = batch.into_iter().filter(|op| !is_nothing(op)).collect();
        if !batch.is_empty() {
            self.written.push(batch);
        }
    }

    /// Closes the source, or kills it, and opens it again.
    fn reopen(&mut self) {
        self.feed = None;
        let is_killed = self.options.sync != SyncMode::Buffered && self.generator.rng.one_in(2);
        match is_killed {
            true => self.sim = self.sim.kill_image(),
            false => self.source.db.close().unwrap(),
        }
        draw_separation(&mut self.options, &mut self.generator.rng);
        self.options.advanced.vfs = Arc::new(self.sim.clone());
        self.source = Store::open(self.options.clone()).unwrap();
    }

    /// Gives the replica up to `most` batches, by a fresh feed or the one that is open.
    fn follow(&mut self, most: usize) {
        if self.feed.is_none() || self.generator.rng.one_in(3) {
            self.feed = Some(self.source.db.updates_since(self.next).unwrap());
        }
        for _ in 0..most {
            let Some(batch) = self.feed.as_mut().and_then(Iterator::next) else { return };
            let batch = batch.unwrap();
            assert_eq!(batch.first_seqno(), self.next, "no number is left out, none comes twice");
            self.next = batch.last_seqno() + 1;
            if batch.updates().any(|u| matches!(u.unwrap().op, UpdateOp::Ingested { .. })) {
                self.copy_ranges(&batch);
                continue;
            }
            self.given.push(model_batch(&batch));
            self.replica.db.write(batch.to_write_batch(&self.replica.db).unwrap()).unwrap();
        }
    }

    /// Copies the ranges of ingested files: nothing was written since.
    fn copy_ranges(&mut self, batch: &UpdateBatch) {
        assert!(batch.to_write_batch(&self.replica.db).is_err(), "the log does not have them");
        for update in batch.updates() {
            let update = update.unwrap();
            let UpdateOp::Ingested { smallest, largest } = update.op else { panic!("{update:?}") };
            let index = FAMILIES.iter().position(|name| Some(*name) == update.family).unwrap();
            let (from, to) = (&self.source.families[index], &self.replica.families[index]);
            let end = [largest, &[0]].concat();
            let mut copy = terrace::WriteBatch::new();
            copy.delete_range_cf(to, smallest, &end);
            let options = Default::default();
            for entry in from.range(smallest.to_vec()..end).unwrap().entries() {
                let (key, _) = entry.unwrap();
                let found = from.get_entry(&key, &options).unwrap().unwrap();
                match found.expires_at_ms {
                    Some(at) => copy.put_until_cf(to, &key, &found.value, at),
                    None => copy.put_cf(to, &key, &found.value),
                }
            }
            self.replica.db.write(copy).unwrap();
        }
    }

    fn step(&mut self) {
        match self.generator.rng.below(60) {
            0 | 1 => self.source.db.flush().unwrap(),
            2 => self.source.db.collect_garbage(0.0).unwrap(),
            3 => self.source.families[0].compact_range::<&[u8]>(..).unwrap(),
            4 => self.reopen(),
            5 => {
                self.follow(usize::MAX);
                let (family, files) = self.generator.ingestion(Mix::default());
                self.source.ingest(family, &files).unwrap();
                self.follow(usize::MAX);
            }
            6..=12 => {
                let most = self.generator.rng.below(12) as usize;
                self.follow(most);
            }
            13 => self.clock.advance(300),
            _ => self.write(),
        }
    }
}

#[test]
fn a_second_store_made_of_the_feed_equals_the_first() {
    over_seeds("change_feed", effort(12), |seed, _| {
        let mut pair = Pair::new(seed);
        (0..400).for_each(|_| pair.step());
        pair.follow(usize::MAX);
        assert_eq!(pair.next, pair.source.db.latest_seqno() + 1);
        assert_eq!(pair.given.len(), pair.written.len(), "moved values are no writes");
        assert!(pair.given == pair.written, "the batches are those that were written");
        assert_eq!(pair.replica.contents().unwrap(), pair.source.contents().unwrap());
        pair.source.db.verify().unwrap();
        // From any number that was given out.
        let latest = pair.source.db.latest_seqno();
        for _ in 0..10 {
            let since = 1 + pair.generator.rng.below(latest);
            let batches = rest(&mut pair.source.db.updates_since(since).unwrap());
            let (first, last) = (&batches[0], &batches[batches.len() - 1]);
            assert!((first.first_seqno()..=first.last_seqno()).contains(&since));
            assert_eq!(last.last_seqno(), latest);
        }
        1
    });
}

#[test]
fn what_the_log_has_no_more_is_an_error_that_names_the_oldest_number() {
    let sim = SimVfs::new(1);
    let db = Db::open(DIR, options(&sim)).unwrap();
    assert_eq!((db.oldest_update().unwrap(), db.latest_seqno()), (1, 0));
    for n in 0..100 {
        db.put(format!("{n:03}"), [7; 300]).unwrap();
    }
    db.flush().unwrap();
    eventually("the log is short", || db.oldest_update().unwrap() > 100);
    let error = db.updates_since(1).unwrap_err();
    let Error::UpdatesGone { since: 1, oldest } = error else { panic!("{error}") };
    assert_eq!(oldest, db.oldest_update().unwrap());
    assert!(error.to_string().contains(&format!("the oldest there is {oldest}")), "{error}");
    let mut feed = db.updates_since(oldest).unwrap();
    db.put("new", "value").unwrap();
    assert_eq!(keys(&mut feed), ["new"]);
    let error = db.updates_since(db.latest_seqno() + 2).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    db.close().unwrap();
    assert!(matches!(feed.next(), Some(Err(Error::Closed))));
    // Nothing was kept for the next open.
    let db = Db::open(DIR, options(&sim)).unwrap();
    assert_eq!(db.oldest_update().unwrap(), db.latest_seqno() + 1);
    assert!(matches!(db.updates_since(oldest), Err(Error::UpdatesGone { .. })));
}

#[test]
fn what_is_kept_stays_within_its_bound_also_when_that_changes() {
    const LIMIT: u64 = 100 << 10;
    let sim = SimVfs::new(1);
    let mut options = options(&sim);
    options.default_family.value_separation_threshold = usize::MAX;
    options.advanced.log_retention_bytes = LIMIT;
    let mut db = Db::open(DIR, options.clone()).unwrap();
    let mut written = 0;
    for round in 0..3 {
        for _ in 0..800 {
            db.put(format!("{written:06}"), [7; 300]).unwrap();
            written += 1;
        }
        db.flush().unwrap();
        // What was flushed is retired: only the segment that was begun then, without a record, is in force.
        let is_full = || {
            let metrics = db.metrics();
            let kept = metrics.retained_log_bytes;
            kept > LIMIT / 2 && kept <= LIMIT && (1..1 << 10).contains(&metrics.live_log_bytes)
        };
        eventually("the log is kept as far as it may be", is_full);
        // It is shown as none while somebody leads.
        let live = || db.metrics().live_log_bytes;
        let on_disk = || log_files(&sim).iter().map(|(_, len)| len).sum::<u64>();
        eventually("older segments are gone", || on_disk() <= LIMIT + live());
        let oldest = db.oldest_update().unwrap();
        let have = keys(&mut db.updates_since(oldest).unwrap());
        let want: Vec<String> = (oldest - 1..written).map(|n| format!("{n:06}")).collect();
        assert_eq!(have, want, "round {round}");
        if round == 1 {
            db.close().unwrap();
            db = Db::open(DIR, options.clone()).unwrap();
            assert_eq!(db.oldest_update().unwrap(), oldest, "kept over a close");
        }
    }
    db.set_option("log_retention_bytes", "0").unwrap();
    eventually("nothing is kept", || db.metrics().retained_log_bytes == 0);
    eventually("one segment is left", || log_files(&sim).len() == 1);
    assert_eq!(db.oldest_update().unwrap(), written + 1);
}

#[test]
fn an_open_feed_keeps_what_it_has_not_read() {
    let sim = SimVfs::new(1);
    let db = Db::open(DIR, options(&sim)).unwrap();
    let mut feed = db.updates_since(1).unwrap();
    let mut want = Vec::new();
    for n in 0..400 {
        want.push(format!("{n:06}"));
        // One in ten stays in the log.
        db.put(&want[n], vec![7; if n % 10 == 0 { 2000 } else { 300 }]).unwrap();
    }
    db.flush().unwrap();
    // They die before they are read.
    db.delete_range("0", "1").unwrap();
    db.flush().unwrap();
    db.compact_range::<&[u8]>(..).unwrap();
    db.collect_garbage(0.0).unwrap();
    assert!(db.updates_since(1).is_ok(), "it is pinned, so others may have it too");
    let first = feed.next().unwrap().unwrap();
    assert_eq!(first.first_seqno(), 1);
    let batches = rest(&mut feed);
    let (range, puts) = batches.split_last().unwrap();
    let range: Vec<_> = range.updates().map(|update| update.unwrap().op).collect();
    assert_eq!(range, [UpdateOp::DeleteRange { start: b"0", end: b"1" }]);
    assert_eq!(puts.len(), 399);
    for (batch, want) in puts.iter().zip(&want[1..]) {
        let update = batch.updates().next().unwrap().unwrap();
        let UpdateOp::Put { key, value, .. } = update.op else { panic!("{update:?}") };
        assert_eq!(key, want.as_bytes());
        assert!(value.iter().all(|byte| *byte == 7) && value.len() >= 300);
    }
    drop(feed);
    eventually("the log is short", || log_files(&sim).len() == 1);
}

/// One that was opened while segments were let go of said that it has them, and had them no more.
#[test]
fn a_feed_that_is_opened_while_the_log_is_let_go_of_has_what_it_says() {
    // The house thread may be faster than the caller, where nothing is at the step.
    let met = (0..100).find_map(|_| feed_at_the_step());
    match met.expect("the step was not met") {
        Err(Error::UpdatesGone { since: 1, .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(mut feed) => assert_eq!(rest(&mut feed).len(), 101),
    };
}

fn feed_at_the_step() -> Option<terrace::Result<Updates>> {
    let sim = SimVfs::new(1);
    let db = Db::open(DIR, options(&sim)).unwrap();
    let family = db.create_column_family("family", CfOptions::default()).unwrap();
    family.put("needs the log", "1").unwrap();
    for n in 0..100 {
        db.put(format!("{n:06}"), [7; 300]).unwrap();
    }
    eventually("the default family has flushed", || db.metrics().flushes > 0);
    let opened = Arc::new(Mutex::new(None));
    let (meanwhile, place) = (db.clone(), opened.clone());
    at_step("retire:out_of_force", move || {
        *place.lock().unwrap() = Some(meanwhile.updates_since(1));
    });
    db.drop_column_family("family").unwrap();
    // What was not met would keep the store.
    at_step("", || ());
    opened.lock().unwrap().take()
}

#[test]
fn ingested_files_are_in_the_feed_as_ranges_of_keys() {
    let sim = SimVfs::new(1);
    let store = Store::of(Db::open(DIR, options(&sim)).unwrap());
    let db = &store.db;
    let mut feed = db.updates_since(1).unwrap();
    db.put("m", "before").unwrap();
    let entries = [("a", Some("1")), ("b", Some("2")), ("c", Some("3"))];
    let one = write_file(&store, "/one.sst", &entries);
    let two = write_file(&store, "/two.sst", &[("x", Some("4"))]);
    let done = db.ingest(&[&one, &two], &IngestOptions::default()).unwrap();
    db.put("m", "between").unwrap();
    let below = write_file(&store, "/below.sst", &[("n", Some("5")), ("o", Some("6"))]);
    let options = IngestOptions { position: IngestPosition::Below, ..IngestOptions::default() };
    db.ingest(&[&below], &options).unwrap();
    db.put("m", "after").unwrap();
    let batches = rest(&mut feed);
    let ranges = |batch: &UpdateBatch| -> Vec<(Vec<u8>, Vec<u8>)> {
        let range = |update: terrace::Result<Update<'_>>| match update.unwrap().op {
            UpdateOp::Ingested { smallest, largest } => Some((smallest.to_vec(), largest.to_vec())),
            _ => None,
        };
        batch.updates().filter_map(range).collect()
    };
    let pair = |from: &str, to: &str| (from.as_bytes().to_vec(), to.as_bytes().to_vec());
    let all: Vec<_> = batches.iter().map(ranges).collect();
    let of_above = vec![pair("a", "c"), pair("x", "x")];
    assert_eq!(all, [vec![], of_above, vec![], vec![pair("n", "o")], vec![]]);
    assert_eq!(batches[1].last_seqno(), done.seqno);
    let numbers: Vec<u64> = batches.iter().map(UpdateBatch::first_seqno).collect();
    assert_eq!(numbers, [1, 2, 4, 5, 6]);
    assert_eq!(db.latest_seqno(), 6);
    // They are no deletions when the log is replayed.
    for image in [sim.kill_image(), sim.crash_image(3)] {
        let db = Db::open(DIR, self::options(&image)).unwrap();
        let seen: Vec<_> = ["a", "b", "c", "n", "o", "x"]
            .iter()
            .filter(|key| db.get(key).unwrap().is_some())
            .collect();
        assert_eq!(seen.len(), 6, "{seen:?}");
        assert!(db.latest_seqno() >= 5);
    }
}

/// The note that a feed has of it is in the log before the files have their names.
#[test]
fn an_ingestion_whose_file_name_is_taken_is_in_no_feed() {
    for position in [IngestPosition::Above, IngestPosition::Below] {
        let sim = SimVfs::new(1);
        let store = Store::of(Db::open(DIR, options(&sim)).unwrap());
        let db = &store.db;
        let mut feed = db.updates_since(1).unwrap();
        db.put("m", "before").unwrap();
        let path = write_file(&store, "/one.sst", &[("a", Some("1"))]);
        let options = IngestOptions { position, ..IngestOptions::default() };
        let (vfs, source) = (sim.clone(), path.clone());
        at_step("ingest:finished", move || {
            let names = vfs.list(Path::new(DIR)).unwrap();
            let temps = names.iter().filter(|name| names::parse(name) == FileName::Temp);
            for temp in temps {
                let taken = Path::new(DIR).join(temp).with_extension("sst");
                vfs.copy(Path::new(&source), &taken).unwrap();
            }
        });
        let refused = db.ingest(&[&path], &options).unwrap_err();
        assert!(refused.to_string().contains("somebody has put a file there"), "{refused}");
        db.put("m", "after").unwrap();
        let batches = rest(&mut feed);
        let is_ingested = |update: terrace::Result<Update<'_>>| {
            matches!(update.unwrap().op, UpdateOp::Ingested { .. })
        };
        assert!(!batches.iter().any(|batch| batch.updates().any(is_ingested)), "{position:?}");
        assert!(batches.len() == 2 && db.get("a").unwrap().is_none());
        // Another number.
        db.ingest(&[&path], &options).unwrap();
        assert!(db.get("a").unwrap().is_some());
    }
}

#[test]
fn values_come_whole_whatever_the_log_has_of_them() {
    let sim = SimVfs::new(1);
    let mut options = options(&sim);
    options.default_family.value_compression = terrace::Compression::Zstd;
    let db = Db::open(DIR, options).unwrap();
    let gone = db.create_column_family("gone", CfOptions::default()).unwrap();
    let mut batch = terrace::WriteBatch::new();
    batch.put("short", "value");
    batch.put("long", vec![b'l'; 50_000]);
    batch.put_until("until", vec![b'u'; 3000], 9_000_000);
    batch.put_until("until too", "u", 9_000_001);
    batch.delete("short");
    batch.delete_range("a", "b");
    batch.put_cf(&gone, "key", "value");
    db.write(batch).unwrap();
    let read = db.updates_since(1).unwrap().next().unwrap().unwrap();
    let ops: Vec<_> = read.updates().map(|update| update.unwrap()).collect();
    let put = |key: &'static str, value: Vec<u8>, expires_at_ms| UpdateOp::Put {
        key: key.as_bytes(),
        value: value.into(),
        expires_at_ms,
    };
    let want = [
        put("short", b"value".to_vec(), None),
        put("long", vec![b'l'; 50_000], None),
        put("until", vec![b'u'; 3000], Some(9_000_000)),
        put("until too", b"u".to_vec(), Some(9_000_001)),
        UpdateOp::Delete { key: b"short" },
        UpdateOp::DeleteRange { start: b"a", end: b"b" },
        put("key", b"value".to_vec(), None),
    ];
    assert!(ops.iter().map(|update| &update.op).eq(&want), "{ops:?}");
    assert_eq!(ops.iter().map(|update| update.seqno).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((ops[5].family, ops[6].family), (Some("default"), Some("gone")));
    drop(gone);
    db.drop_column_family("gone").unwrap();
    let read = db.updates_since(3).unwrap().next().unwrap().unwrap();
    assert_eq!(read.updates().last().unwrap().unwrap().family, None);
    let replica = Db::open("/replica", self::options(&SimVfs::new(2))).unwrap();
    replica.write(read.to_write_batch(&replica).unwrap()).unwrap();
    assert_eq!(replica.get("long").unwrap().unwrap().len(), 50_000);
}

#[test]
fn a_damaged_record_ends_the_feed_with_an_error() {
    let sim = SimVfs::new(1);
    let mut options = options(&sim);
    options.advanced.log_retention_bytes = 1 << 30;
    let db = Db::open(DIR, options.clone()).unwrap();
    for n in 0..20 {
        db.put(format!("{n:03}"), "value").unwrap();
    }
    db.close().unwrap();
    let db = Db::open(DIR, options).unwrap();
    let (number, len) = log_files(&sim)[0];
    let path = names::log_path(Path::new(DIR), terrace_base::SegmentNumber::new(number));
    assert!(sim.corrupt(&path, len / 2, 0x41));
    let mut feed = db.updates_since(1).unwrap();
    let read: Vec<_> = feed.by_ref().take(20).map_while(|batch| batch.ok()).collect();
    assert!((1..20).contains(&read.len()), "{}", read.len());
    let error = feed.next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Corruption(_)), "{error}");
    assert!(error.to_string().contains(&format!("{number:06}.log")), "{error}");
    assert_eq!(db.get("015").unwrap().as_deref(), Some(&b"value"[..]), "reads need no log");
}
