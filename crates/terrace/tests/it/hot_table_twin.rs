//! Two stores side by side, one with a hot table and one without: whatever is done to both, nobody can tell
//! them apart. Families, expiries, range deletes, batches, snapshots, iterators, checkpoint directories,
//! readers beside the writer, kills, other options at every open, and the option itself while the store is open.

use crate::harness::{SeedNote, Store, drawn_options, effort};
use crate::model::FAMILIES;
use std::path::PathBuf;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{
    Clock, ColumnFamily, Db, HotTableMode, Iter, Options, ReadOptions, Snapshot, WriteBatch,
};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

/// Keys that there are, and how many of them are written most of the time.
const KEYS: u64 = 300;
const HOT: u64 = 12;

/// What is left of the iterators and snapshots of both.
struct Held {
    snapshots: [Snapshot; 2],
    iters: [Iter; 2],
    family: usize,
}

struct Twins {
    sims: [SimVfs; 2],
    clock: ManualClock,
    stores: [Store; 2],
    held: Vec<Held>,
    rng: SplitMix64,
    from: u64,
    checkpoints: u64,
    swaps: u64,
}

fn key(n: u64) -> Vec<u8> {
    format!("key-{n:04}").into_bytes()
}

/// The same options for both, but for the hot table.
fn options(sims: &[SimVfs; 2], clock: &ManualClock, rng: &mut SplitMix64) -> [Options; 2] {
    let mut drawn = drawn_options(Arc::new(sims[0].clone()), clock, rng);
    // Nothing that was acknowledged is lost by a kill.
    drawn.sync = terrace::SyncMode::None;
    drawn.advanced.memtable_bytes = [16 << 10, 24 << 10, 48 << 10][rng.below(3) as usize];
    drawn.advanced.l0_compaction_trigger = 1 + rng.below(4) as usize;
    if rng.one_in(4) {
        drawn.advanced.memory_shares.memtables = 0.01;
    }
    let inline = rng.one_in(2);
    let families = drawn.column_families.iter_mut().map(|(_, family)| family);
    for family in families.chain([&mut drawn.default_family]) {
        if inline {
            family.value_separation_threshold = usize::MAX;
        }
    }
    let mut twin = drawn.clone();
    twin.advanced.vfs = Arc::new(sims[1].clone());
    let modes = [HotTableMode::Auto, HotTableMode::Auto, HotTableMode::Off];
    drawn.advanced.hot_table = modes[rng.below(3) as usize];
    twin.advanced.hot_table = HotTableMode::Off;
    [drawn, twin]
}

fn entries(family: &ColumnFamily, snapshot: Option<&Snapshot>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let read = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
    family.iter_with(&read).unwrap().entries().map(Result::unwrap).collect()
}

fn compare(stores: &[Store; 2], snapshots: Option<&[Snapshot; 2]>) {
    for number in 0..FAMILIES.len() {
        let [hot, cold] = [0, 1]
            .map(|twin| entries(&stores[twin].families[number], snapshots.map(|pair| &pair[twin])));
        let differs = hot.iter().zip(&cold).position(|(a, b)| a != b);
        let at = differs.unwrap_or(hot.len().min(cold.len()));
        let name = |of: &[(Vec<u8>, Vec<u8>)]| {
            of.get(at).map(|(k, v)| (String::from_utf8_lossy(k).into_owned(), v.len()))
        };
        assert!(hot == cold, "family {number}: {:?}, {:?}", name(&hot), name(&cold));
        let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
        let [hot, cold] = [0, 1].map(|twin| {
            let snapshot = snapshots.map(|pair| pair[twin].clone());
            let read = ReadOptions { snapshot, ..ReadOptions::default() };
            stores[twin].families[number].multi_get_with(&keys, &read).unwrap()
        });
        for (n, (hot, cold)) in hot.iter().zip(&cold).enumerate() {
            assert_eq!(hot.as_deref(), cold.as_deref(), "family {number}, key {n}");
        }
    }
}

impl Twins {
    fn new(seed: u64) -> Self {
        let sims = [SimVfs::new(seed), SimVfs::new(seed)];
        let clock = ManualClock::wall_at(crate::harness::START_MS);
        let mut rng = SplitMix64::new(seed ^ 0x7213);
        let stores = options(&sims, &clock, &mut rng).map(|options| Store::open(options).unwrap());
        Self { sims, clock, stores, held: Vec::new(), rng, from: 0, checkpoints: 0, swaps: 0 }
    }

    fn draw_key(&mut self) -> u64 {
        match self.rng.below(10) {
            0..7 => self.from + self.rng.below(HOT),
            _ => self.rng.below(KEYS),
        }
    }

    fn draw_value(&mut self) -> Vec<u8> {
        let len = [8, 60, 200, 200, 700][self.rng.below(5) as usize];
        let mut value = self.rng.next_u64().to_be_bytes().to_vec();
        value.resize(len.max(8), b'.');
        value
    }

    fn write(&mut self) {
        let mut batches = [WriteBatch::new(), WriteBatch::new()];
        let count = if self.rng.one_in(4) { 1 + self.rng.below(6) } else { 1 };
        for _ in 0..count {
            let family = if self.rng.one_in(4) { self.rng.below(FAMILIES.len() as u64) } else { 0 };
            let (n, value, what) = (self.draw_key(), self.draw_value(), self.rng.below(60));
            let expires_at = self.clock.wall_ms() + 1 + self.rng.below(3000);
            let end = n + 1 + self.rng.below(20);
            for (batch, store) in batches.iter_mut().zip(&self.stores) {
                let family = &store.families[family as usize];
                match what {
                    0 => batch.delete_range_cf(family, key(n), key(end)),
                    1..4 => batch.delete_cf(family, key(n)),
                    4..8 => batch.put_until_cf(family, key(n), &value, expires_at),
                    _ => batch.put_cf(family, key(n), &value),
                }
            }
        }
        for (batch, store) in batches.into_iter().zip(&self.stores) {
            store.db.write(batch).unwrap();
        }
    }

    /// Something other than a write.
    fn disturb(&mut self) {
        let each = |act: &dyn Fn(&Db)| self.stores.iter().for_each(|store| act(&store.db));
        match self.rng.below(16) {
            0 => each(&|db| db.flush().unwrap()),
            1 => each(&|db| db.wait_idle().unwrap()),
            2 => {
                let from = self.rng.below(KEYS);
                let range = key(from)..key(from + self.rng.below(100));
                each(&|db| db.compact_range(range.clone()).unwrap());
            }
            3 => each(&|db| db.collect_garbage(0.0).unwrap()),
            4 => self.clock.advance(self.rng.below(2000)),
            5 => self.from = self.rng.below(KEYS - HOT),
            6 | 7 => {
                let mode = [HotTableMode::Auto, HotTableMode::Off][self.rng.below(2) as usize];
                self.stores[0].db.set_hot_table(mode);
            }
            8 => {
                let bytes = (4 << 20) << self.rng.below(3);
                each(&|db| db.set_memory_budget(bytes).unwrap());
            }
            9 | 10 => {
                let family = self.rng.below(FAMILIES.len() as u64) as usize;
                let snapshots = [0, 1].map(|twin| self.stores[twin].db.snapshot());
                let iters = [0, 1].map(|twin| self.stores[twin].families[family].iter().unwrap());
                self.held.push(Held { snapshots, iters, family });
                if self.held.len() > 3 {
                    self.held.remove(self.rng.below(3) as usize);
                }
            }
            11 => self.read_held(),
            12 => self.checkpoint(),
            13 => self.read_beside(),
            14 => self.reopen(),
            _ => compare(&self.stores, None),
        }
    }

    fn read_held(&mut self) {
        for Held { snapshots, iters, family } in &mut self.held {
            compare(&self.stores, Some(snapshots));
            let from = key(self.rng.below(KEYS));
            let backward = self.rng.one_in(3);
            let seen = iters.each_mut().map(|iter| {
                let mut seen = Vec::new();
                iter.seek(&from).unwrap();
                while iter.valid() && seen.len() < 40 {
                    seen.push((iter.key().to_vec(), iter.value().to_vec()));
                    if backward { iter.prev().unwrap() } else { iter.next().unwrap() }
                }
                seen
            });
            assert_eq!(seen[0], seen[1], "iterators of family {family}");
        }
    }

    fn checkpoint(&mut self) {
        self.checkpoints += 1;
        let dir = PathBuf::from(format!("/checkpoint-{}", self.checkpoints));
        let opened = [0, 1].map(|twin| {
            self.stores[twin].db.checkpoint(&dir).unwrap();
            let all = options(&self.sims, &self.clock, &mut self.rng);
            let [_, mut cold] = all;
            cold.advanced.vfs = Arc::new(self.sims[twin].clone());
            Store::of(Db::open(&dir, cold).unwrap())
        });
        compare(&opened, None);
        compare(&self.stores, None);
    }

    fn read_beside(&mut self) {
        let readers = options(&self.sims, &self.clock, &mut self.rng)
            .map(|options| Store::open_read_only(options).unwrap());
        compare(&readers, None);
        for _ in 0..self.rng.below(200) {
            self.write();
        }
        for reader in &readers {
            reader.db.refresh().unwrap();
        }
        compare(&readers, None);
        compare(&self.stores, None);
    }

    /// Both are closed or killed, and opened with other options.
    fn reopen(&mut self) {
        self.held.clear();
        self.swaps += self.stores[0].db.metrics().hot_swaps;
        let is_killed = !self.rng.one_in(3);
        if is_killed {
            self.sims = [0, 1].map(|twin| self.sims[twin].kill_image());
        } else {
            self.stores.iter().for_each(|store| store.db.close().unwrap());
        }
        let opened = options(&self.sims, &self.clock, &mut self.rng);
        self.stores = opened.map(|options| Store::open(options).unwrap());
        compare(&self.stores, None);
        if self.rng.one_in(4) {
            for store in &self.stores {
                store.db.verify().unwrap();
            }
        }
    }
}

#[test]
fn a_store_with_a_hot_table_cannot_be_told_from_one_without() {
    let mut swaps = 0;
    for seed in 0..effort(24) {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(seed);
        let _note = SeedNote("twins", seed);
        let mut twins = Twins::new(seed);
        let disturb_one_in = [10, 40, 150][twins.rng.below(3) as usize];
        for _ in 0..2500 {
            twins.write();
            if twins.rng.one_in(disturb_one_in) {
                twins.disturb();
            }
        }
        compare(&twins.stores, None);
        twins.reopen();
        swaps += twins.swaps;
    }
    println!("{swaps} swaps of hot tables");
    assert!(swaps > effort(24), "{swaps} swaps of hot tables");
}
