//! Metadata in a store on disk: the tests of every kind, and what is left when the store is opened again.

use crate::conformance::{Compact, Subject, check};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace::vfs::SimVfs;
use terrace::{Db, Options};
use terrace_base::ManualClock;
use terrace_metadata::{Embedded, Error, Metadata, Transaction};
use terrace_vfs::{BeforeCalls, Call, Interposed};

struct ByWriting;

#[async_trait::async_trait(?Send)]
impl Compact for ByWriting {
    async fn compact(&self, metadata: &dyn Metadata, revision: u64) {
        let last = revision + 5000;
        while metadata.commit(Transaction::new().put("noise", "")).await.unwrap().unwrap() < last {}
    }
}

fn open(db: &Db) -> (Embedded, ManualClock) {
    let clock = ManualClock::at(0);
    (Embedded::open(db, Arc::new(clock.clone())).unwrap(), clock)
}

#[tokio::test]
async fn it_does_what_every_metadata_does() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let (metadata, clock) = open(&db);
    let advance = move |time: Duration| clock.advance(time.as_millis() as u64);
    let metadata = Arc::new(metadata);
    let advance: Option<Box<dyn Fn(Duration)>> = Some(Box::new(advance));
    check(&Subject { metadata, advance, compact: Box::new(ByWriting) }).await;
}

#[tokio::test]
async fn what_has_no_lease_survives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let (metadata, _) = open(&db);
    let grant = metadata.grant(Duration::from_secs(60)).await.unwrap();
    let write = Transaction::new().put("owner", "me").put("gone", "1").put("claim", "1");
    let first = metadata.commit(write).await.unwrap().unwrap();
    let write = Transaction::new().delete("gone").put_leased("claim", "2", grant.lease);
    let second = metadata.commit(write).await.unwrap().unwrap();
    let before = metadata.snapshot(b"").await.unwrap();
    assert_eq!((before.entries.len(), before.revision), (2, second));
    drop(metadata);
    db.close().unwrap();
    drop(db);

    let db = Db::open(dir.path(), Options::default()).unwrap();
    let (metadata, _) = open(&db);
    let after = metadata.snapshot(b"").await.unwrap();
    assert_eq!(after.revision, second, "revisions never go back");
    assert_eq!(after.entries.len(), 1, "the lease ended with the process");
    assert_eq!((&after.entries[0].key[..], after.entries[0].mod_revision), (&b"owner"[..], first));
    assert!(metadata.keep_alive(grant.lease).await.is_err());
    let next = Transaction::new().when("claim", 0).put("claim", "3");
    assert_eq!(metadata.commit(next).await.unwrap(), Some(second + 1));
}

#[tokio::test]
async fn a_family_with_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let family = db.create_column_family("metadata", Default::default()).unwrap();
    family.put(b"r", b"not a revision").unwrap();
    let opened = Embedded::open(&db, Arc::new(ManualClock::at(0)));
    assert!(opened.unwrap_err().to_string().contains("something else"));
    family.put(b"r", 7u64.to_le_bytes()).unwrap();
    family.put(b"kx", b"short").unwrap();
    assert!(Embedded::open(&db, Arc::new(ManualClock::at(0))).is_err());
}

/// A file system in memory whose syncs wait for the gate.
#[derive(Clone)]
struct SlowDevice {
    files: SimVfs,
    gate: Arc<Mutex<()>>,
    /// Syncs that have come to the gate.
    syncs: Arc<AtomicUsize>,
}

impl Interposed for SlowDevice {
    type Files = SimVfs;

    fn files(&self) -> &SimVfs {
        &self.files
    }

    fn around<T>(
        &self,
        call: Call<'_>,
        _: &Path,
        work: impl FnOnce() -> terrace_base::Result<T>,
    ) -> terrace_base::Result<T> {
        if matches!(call, Call::Sync(_)) {
            self.syncs.fetch_add(1, Ordering::SeqCst);
            drop(self.gate.lock().unwrap());
        }
        work()
    }
}

#[test]
fn leases_are_kept_alive_while_a_device_takes_long_to_sync() {
    let (files, gate) = (SimVfs::new(1), Arc::default());
    let device = SlowDevice { files, gate, syncs: Arc::default() };
    let mut options = Options::default();
    options.advanced.vfs = Arc::new(device.clone());
    let db = Db::open("db", options).unwrap();
    let (metadata, clock) = open(&db);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let ttl = Duration::from_secs(3);
    let kept = runtime.block_on(metadata.grant(ttl)).unwrap().lease;
    let left = runtime.block_on(metadata.grant(ttl)).unwrap().lease;
    let alive = Transaction::new().put_leased("a", "", kept).put_leased("b", "", left);
    runtime.block_on(metadata.commit(alive)).unwrap();

    let closed = device.gate.lock().unwrap();
    let before = device.syncs.load(Ordering::SeqCst);
    let waiting = metadata.clone();
    let write = runtime.spawn(async move { waiting.commit(Transaction::new().put("c", "")).await });
    while device.syncs.load(Ordering::SeqCst) == before {
        std::thread::yield_now();
    }
    for _ in 0..4 {
        clock.advance(2000);
        // What waits for the device hangs here.
        runtime.block_on(metadata.keep_alive(kept)).unwrap();
        let fresh = runtime.block_on(metadata.grant(ttl)).unwrap().lease;
        assert!(fresh != left && fresh != kept);
    }
    assert!(runtime.block_on(metadata.keep_alive(left)).is_err(), "nobody kept it alive");
    drop(closed);
    assert!(runtime.block_on(write).unwrap().unwrap().is_some());
    let entries = runtime.block_on(metadata.snapshot(b"")).unwrap().entries;
    let keys: Vec<&[u8]> = entries.iter().map(|entry| &entry.key[..]).collect();
    assert_eq!(keys, [&b"a"[..], b"c"]);
}

fn in_memory(files: &SimVfs) -> Options {
    let mut options = Options::default();
    options.advanced.vfs = Arc::new(files.clone());
    options
}

/// Nothing more fits on the disk than this many bytes.
fn fill(files: &SimVfs, room_bytes: u64) {
    let used: u64 = files.files().into_iter().map(|(_, bytes)| bytes).sum();
    files.set_capacity_bytes(Some(used + room_bytes));
}

/// The disk has room again, which the store notices by and by.
fn make_room(files: &SimVfs, db: &Db) {
    files.set_capacity_bytes(None);
    for _ in 0..60_000 {
        if db.check_writable().is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the store never finds room: {:?}", db.check_writable());
}

fn is_disk_full(db: &Db) -> bool {
    matches!(db.check_writable(), Err(terrace::Error::DiskFull(_)))
}

/// A full disk passes, and a commit that it refused has done nothing: the next one is taken when there is room. A short one
/// is taken before.
#[tokio::test]
async fn a_store_that_was_opened_on_a_full_disk_takes_commits_when_there_is_room() {
    let files = SimVfs::new(1);
    let db = Db::open("db", in_memory(&files)).unwrap();
    let (metadata, _) = open(&db);
    let first = metadata.commit(Transaction::new().put("owner", "me")).await.unwrap().unwrap();
    drop(metadata);
    db.close().unwrap();
    drop(db);
    // Too little for the reserve.
    files.truncate("db/RESERVE", 0);
    fill(&files, 64 << 10);
    let db = Db::open("db", in_memory(&files)).unwrap();
    assert!(is_disk_full(&db));
    let (metadata, _) = open(&db);
    for _ in 0..2 {
        metadata.commit(Transaction::new().put("owner", "lost".repeat(500))).await.unwrap_err();
    }
    let mut tries = 0;
    while let Err(error) = metadata.commit(Transaction::new().put("alive", "me")).await {
        // A flush may hold what room there is, for a moment.
        tries += 1;
        assert!(tries < 600_000, "{error}");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(is_disk_full(&db));
    make_room(&files, &db);
    let claim = Transaction::new().when("owner", first).put("claim", "1");
    assert_eq!(metadata.commit(claim).await.unwrap(), Some(first + 2));
}

/// The keys that are there.
async fn keys(metadata: &Embedded) -> Vec<Vec<u8>> {
    let entries = metadata.snapshot(b"").await.unwrap().entries;
    entries.into_iter().map(|entry| entry.key).collect()
}

/// Else the shards of a node that has died had no owner until there is room, which nobody could make there.
#[tokio::test]
async fn leases_end_while_the_disk_is_full() {
    let files = SimVfs::new(1);
    let db = Db::open("db", in_memory(&files)).unwrap();
    let (metadata, clock) = open(&db);
    let mut leases = Vec::new();
    for (name, seconds) in [("ended", 3), ("revoked", 60), ("kept", 60)] {
        let lease = metadata.grant(Duration::from_secs(seconds)).await.unwrap().lease;
        // Their names are longer than a batch that uses the reserve.
        let of = |transaction: Transaction, n: u32| {
            transaction.put_leased(format!("{name} {n} {}", "long".repeat(50)), "", lease)
        };
        let all = (0..20).fold(Transaction::new(), of);
        metadata.commit(all.put_leased(name, "", lease)).await.unwrap();
        leases.push(lease);
    }
    fill(&files, 0);
    for number in 0..10_000 {
        if db.put(format!("filler {number}"), [7; 4096]).is_err() {
            break;
        }
    }
    assert!(is_disk_full(&db));
    clock.advance(4000);
    // A flush may hold what room there is, for a moment: then one of the next calls does it.
    let _ = metadata.revoke(leases[1]).await;
    let mut tries = 0;
    while keys(&metadata).await.len() > 21 {
        tries += 1;
        assert!(tries < 600_000, "leases do not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(is_disk_full(&db));
    assert!(keys(&metadata).await.iter().all(|key| key.starts_with(b"kept")));
    let revision = metadata.snapshot(b"").await.unwrap().revision;
    drop(metadata);
    files.set_capacity_bytes(None);
    drop(db);
    let db = Db::open("db", in_memory(&files.kill_image())).unwrap();
    let found = open(&db).0.snapshot(b"").await.unwrap();
    assert_eq!((found.entries.len(), found.revision), (0, revision), "leases end with the process");
}

/// What is bound to a lease goes when it can be written, if not even the reserve had room when the lease ended.
#[tokio::test]
async fn leases_whose_end_cannot_be_written_are_gone_when_there_is_room() {
    let (files, takes_nothing) = (SimVfs::new(1), Arc::new(AtomicBool::new(false)));
    let is_full = takes_nothing.clone();
    let device = BeforeCalls::new(files.clone(), move |call, path| match call {
        Call::Append(_) if is_full.load(Ordering::SeqCst) => {
            Err(terrace_base::Error::io("append to", path, ErrorKind::StorageFull.into()))
        }
        _ => Ok(()),
    });
    let mut options = Options::default();
    options.advanced.vfs = Arc::new(device);
    let db = Db::open("db", options).unwrap();
    let (metadata, clock) = open(&db);
    let mut leases = Vec::new();
    for (key, seconds) in [("a", 3), ("b", 3), ("revoked", 60), ("kept", 60)] {
        let lease = metadata.grant(Duration::from_secs(seconds)).await.unwrap().lease;
        metadata.commit(Transaction::new().put_leased(key, "", lease)).await.unwrap();
        leases.push(lease);
    }
    takes_nothing.store(true, Ordering::SeqCst);
    clock.advance(4000);
    metadata.revoke(leases[2]).await.unwrap_err();
    // Who looks meanwhile sees what was there last.
    for _ in 0..2 {
        assert_eq!(keys(&metadata).await.len(), 4);
    }
    for lease in &leases[..3] {
        assert!(metadata.keep_alive(*lease).await.is_err(), "it has ended");
    }
    takes_nothing.store(false, Ordering::SeqCst);
    make_room(&files, &db);
    assert_eq!(keys(&metadata).await, [b"kept"]);
}

#[tokio::test]
async fn a_commit_with_a_key_that_is_too_long_is_refused_and_those_after_it_are_not() {
    let files = SimVfs::new(1);
    let db = Db::open("db", in_memory(&files)).unwrap();
    let (metadata, clock) = open(&db);
    let lease = metadata.grant(Duration::from_secs(3)).await.unwrap().lease;
    let first = metadata.commit(Transaction::new().put_leased("alive", "", lease)).await.unwrap();
    for key in [vec![b'k'; 100_000], vec![b'k'; 1 << 20]] {
        let leased = Transaction::new().put_leased(key.clone(), "", lease);
        for refused in [Transaction::new().put("owner", "lost").put(key, ""), leased] {
            let refused = metadata.commit(refused).await;
            let is_argument =
                matches!(refused, Err(Error::Store(terrace::Error::InvalidArgument(_))));
            assert!(is_argument, "{refused:?}");
        }
    }
    clock.advance(4000);
    assert!(metadata.commit(Transaction::new().put("owner", "me")).await.unwrap() > first);
    assert_eq!(keys(&metadata).await, [b"owner"]);
}

/// Nothing of it was written. Else nothing could be until the process ends, and no lease would end.
#[tokio::test]
async fn a_commit_that_the_system_was_short_of_something_for_does_not_end_those_after_it() {
    let (files, is_short) = (SimVfs::new(1), Arc::new(AtomicBool::new(false)));
    let refuses = is_short.clone();
    let device = BeforeCalls::new(files.clone(), move |call, path| match call {
        Call::Append(_) if refuses.load(Ordering::SeqCst) => {
            Err(terrace_base::Error::io("append to", path, ErrorKind::OutOfMemory.into()))
        }
        _ => Ok(()),
    });
    let mut options = Options::default();
    options.advanced.vfs = Arc::new(device);
    let db = Db::open("db", options).unwrap();
    let (metadata, clock) = open(&db);
    let lease = metadata.grant(Duration::from_secs(3)).await.unwrap().lease;
    let write = Transaction::new().put("owner", "me").put_leased("alive", "", lease);
    let first = metadata.commit(write).await.unwrap().unwrap();
    is_short.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let refused = metadata.commit(Transaction::new().put("owner", "lost")).await;
        assert!(matches!(refused, Err(Error::Store(terrace::Error::Io(_)))), "{refused:?}");
    }
    is_short.store(false, Ordering::SeqCst);
    clock.advance(4000);
    let write = Transaction::new().when("owner", first).put("owner", "other");
    assert!(metadata.commit(write).await.unwrap() > Some(first));
    assert_eq!(keys(&metadata).await, [b"owner"]);
    drop((metadata, db));
    let db = Db::open("db", in_memory(&files.kill_image())).unwrap();
    let found = open(&db).0.snapshot(b"").await.unwrap().entries;
    assert!(found.len() == 1 && found[0].value == b"other", "{found:?}");
}
