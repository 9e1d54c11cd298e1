//! A file system that has room, and no inode for another file: writes are refused, reads go on, the store opens, and all of it
//! goes on by itself when a file can be created again.

use crate::harness::{Store, eventually, key, small_options, stopped_clock};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::vfs::SimVfs;
use terrace::{BackgroundError, Error, EventListener, Options};
use terrace_vfs::{BeforeCalls, Call};

/// Files that a file system may have; `u64::MAX` for any number.
#[derive(Clone)]
struct Inodes {
    sim: SimVfs,
    most: Arc<AtomicU64>,
    /// Creations that were refused.
    refused: Arc<AtomicU64>,
}

impl Inodes {
    fn of(sim: SimVfs) -> Self {
        Self { sim, most: Arc::new(AtomicU64::new(u64::MAX)), refused: Arc::default() }
    }

    /// From now on there are `more` free ones.
    fn leave(&self, more: u64) {
        self.most.store(self.sim.files().len() as u64 + more, Ordering::SeqCst);
    }

    fn refused(&self) -> u64 {
        self.refused.load(Ordering::SeqCst)
    }

    fn options(&self) -> Options {
        let this = self.clone();
        let act = move |call: Call<'_>, path: &Path| {
            let is_used_up = || this.sim.files().len() as u64 >= this.most.load(Ordering::SeqCst);
            if !matches!(call, Call::Create) || !is_used_up() {
                return Ok(());
            }
            this.refused.fetch_add(1, Ordering::SeqCst);
            let why = io::Error::from(io::ErrorKind::StorageFull);
            Err(terrace_base::Error::io("create", path, why))
        };
        let vfs = Arc::new(BeforeCalls::new(self.sim.clone(), act));
        let mut options = small_options(vfs, &stopped_clock());
        // Merges would make one file of several, and so some inodes free.
        let a = &mut options.advanced;
        (a.l0_compaction_trigger, a.l0_slowdown, a.l0_stop) = (200, 300, 400);
        a.compact_when_idle = false;
        options
    }
}

/// How often the store has found the disk to be full.
#[derive(Default)]
struct FullDisks(AtomicU64);

impl EventListener for FullDisks {
    fn on_background_error(&self, event: &BackgroundError) {
        if matches!(event.error, Error::DiskFull(_)) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Files that cannot be created while a store is watched.
const TRIED: u64 = 40;
/// Times that the disk may be found full meanwhile: files of the log that are not needed any more leave inodes for some others.
const MOST_FOUND: u64 = 6;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Puts one key after the other until that is refused; that it is refused for want of room is what the writer sees.
fn fill(store: &Store, there: &mut Contents) {
    for number in there.len() as u64..100_000 {
        let value = number.to_string().repeat(40).into_bytes();
        match store.db.put(key(number), &value) {
            Ok(()) => drop(there.insert(key(number), value)),
            Err(Error::DiskFull(_)) => return,
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("files are needed for so much");
}

fn check(store: &Store, there: &Contents) {
    assert_eq!(store.contents().unwrap()[0], *there);
    for (key, value) in there.iter().step_by(17) {
        assert_eq!(store.db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

fn goes_on(store: &Store, there: &mut Contents) {
    eventually("writes go on", || store.db.put(b"after", b"inodes").is_ok());
    there.insert(b"after".to_vec(), b"inodes".to_vec());
    eventually("a flush goes on", || store.db.flush().is_ok());
    assert!(!store.db.metrics().poisoned);
    check(store, there);
}

#[test]
fn without_inodes_writes_are_refused_until_there_are_some() {
    let inodes = Inodes::of(SimVfs::new(1));
    let full_disks = Arc::new(FullDisks::default());
    let mut options = inodes.options();
    let listener: Arc<dyn EventListener> = full_disks.clone();
    options.advanced.event_listeners = vec![listener];
    let store = Store::open(options).unwrap();
    let mut there = Contents::new();
    store.db.put(key(0), b"0").unwrap();
    there.insert(key(0), b"0".to_vec());
    store.db.flush().unwrap();
    inodes.leave(0);
    fill(&store, &mut there);
    // There is room, in bytes: to take that for an end of it would be an error at every look.
    let before = inodes.refused();
    eventually("more files are tried", || {
        fill(&store, &mut there);
        inodes.refused() >= before + TRIED
    });
    let found = full_disks.0.load(Ordering::SeqCst);
    assert!((1..=MOST_FOUND).contains(&found), "the disk was found full {found} times");
    check(&store, &there);
    inodes.leave(20);
    goes_on(&store, &mut there);
    store.db.close().unwrap();
}

#[test]
fn a_store_opens_without_inodes_is_read_and_goes_on_when_there_are_some() {
    for free in 0..4 {
        let inodes = Inodes::of(SimVfs::new(2));
        let store = Store::open(inodes.options()).unwrap();
        let mut there = Contents::new();
        for number in 0..200 {
            store.db.put(key(number), [7_u8; 200]).unwrap();
            there.insert(key(number), vec![7; 200]);
        }
        // All that is in the log needs files when it is replayed.
        let left = Inodes::of(inodes.sim.kill_image());
        store.db.close().unwrap();
        left.leave(free);
        let store = Store::open(left.options()).unwrap();
        check(&store, &there);
        match store.db.put(key(0), b"new") {
            Ok(()) => drop(there.insert(key(0), b"new".to_vec())),
            Err(Error::DiskFull(_)) => {}
            Err(other) => panic!("{free} free: {other:?}"),
        }
        check(&store, &there);
        if free == 0 {
            assert!(left.refused() > 0, "no file was needed");
        }
        left.leave(20);
        goes_on(&store, &mut there);
        store.db.close().unwrap();
    }
}
