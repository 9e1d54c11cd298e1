//! What the tests share: a clock to turn, small stores on a simulated file system, comparison of a
//! store with a model.

use super::model::{Data, Model};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Compression, Options};
use terrace_base::rng::{Rng, SplitMix64};
use terrace_base::{Clock, ManualClock};
use terrace_keyspace::{AddRule, CommandBatch, KeyRange, Keyspace, Kind, Mode, Placement, Type};

/// All tests of `all.rs` run under each.
pub const PLACEMENT: Placement = match module_path!().as_bytes() {
    [b'i', b't', b':', b':', b'r', b'a', b'n', b'g', b'e', ..] => Placement::Range,
    _ => Placement::Slots,
};

/// What takes longer hangs.
const HANG_GUARD: Duration = Duration::from_secs(600);

/// When the tests happen.
pub const START_MS: u64 = 1_000_000;

/// A clock whose wall stands at [`START_MS`].
pub fn stopped_clock() -> ManualClock {
    ManualClock::wall_at(START_MS)
}

/// Its wall clock is another's; its monotonic time is the machine's, and leaps.
pub struct LeapingClock {
    wall: ManualClock,
    start: Instant,
    ahead_us: AtomicU64,
}

impl LeapingClock {
    pub fn with_wall(wall: &ManualClock) -> Self {
        Self { wall: wall.clone(), start: Instant::now(), ahead_us: AtomicU64::new(0) }
    }

    pub fn leap(&self, us: u64) {
        self.ahead_us.fetch_add(us, Ordering::SeqCst);
    }
}

impl Clock for LeapingClock {
    fn wall_ms(&self) -> u64 {
        self.wall.now_ms()
    }

    fn monotonic_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64 + self.ahead_us.load(Ordering::SeqCst)
    }
}

/// Options under which a few hundred writes make flushes and levels.
pub fn small_options(vfs: &SimVfs, clock: &ManualClock) -> Options {
    let mut options = Options { memory_budget: 4 << 20, ..Options::default() };
    let a = &mut options.advanced;
    a.vfs = Arc::new(vfs.clone()) as Arc<dyn Vfs>;
    a.clock = Arc::new(clock.clone());
    a.memtable_bytes = 16 << 10;
    a.block_size = 512;
    a.metadata_block_size = 256;
    a.l0_compaction_trigger = 2;
    a.level_base_bytes = 16 << 10;
    a.level_multiplier = 4.0;
    a.target_file_bytes = 8 << 10;
    a.reserve_bytes = 8 << 10;
    options
}

/// An empty store whose expired collections are swept when the test says so.
pub fn store() -> (Arc<Keyspace>, SimVfs, ManualClock) {
    let (vfs, clock) = (SimVfs::new(1), stopped_clock());
    let space =
        Keyspace::open_without_active_expire("/db", small_options(&vfs, &clock), Some(PLACEMENT))
            .unwrap();
    (space, vfs, clock)
}

/// A batch that holds the locks of keys.
pub fn locked(space: &Arc<Keyspace>, keys: &[&[u8]]) -> CommandBatch {
    let mut turn = space.command_batch(Mode::Device);
    turn.lock(0, keys.iter().copied()).unwrap();
    turn
}

/// A store that large values fit into.
pub fn roomy_store(compression: Compression) -> Arc<Keyspace> {
    let mut options = small_options(&SimVfs::new(1), &stopped_clock());
    options.memory_budget = 64 << 20;
    options.advanced.memtable_bytes = 16 << 20;
    options.default_family.value_compression = compression;
    Keyspace::open_without_active_expire("/db", options, Some(PLACEMENT)).unwrap()
}

/// Adds as many members to the sorted set `z` of the first database, with rising scores. Gives their names, in that order.
pub fn add_sorted_members(space: &Arc<Keyspace>, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|at| format!("{at:05}")).collect();
    let mut turn = locked(space, &[b"z"]);
    let pairs = names.iter().enumerate().map(|(at, name)| (at as f64, name.as_bytes()));
    turn.sorted_set_add(0, b"z", AddRule::default(), pairs).unwrap();
    turn.commit().unwrap();
    names
}

/// Waits until `is_so`; panics if that never comes.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < HANG_GUARD, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Below `end`.
pub fn below(rng: &mut SplitMix64, end: u64) -> u64 {
    rng.next_u64() % end
}

pub fn one_in(rng: &mut SplitMix64, times: u64) -> bool {
    below(rng, times) == 0
}

/// Everything that a keyspace shows, in the databases of the tests.
pub fn contents(space: &Arc<Keyspace>) -> BTreeMap<(u8, Vec<u8>), Data> {
    let mut turn = space.command_batch(Mode::Device);
    let mut all = BTreeMap::new();
    for db in 0..3 {
        turn.next_command();
        let mut keys = Vec::new();
        turn.walk_keys(db, KeyRange::default(), true, |seen| {
            keys.push((seen.key.to_vec(), seen.kind, seen.value.map(<[u8]>::to_vec)));
            true
        })
        .unwrap();
        for (key, kind, value) in keys {
            turn.next_command();
            let data = match kind {
                Type::String => Data::Text(value.unwrap()),
                Type::Collection(Kind::Hash) => {
                    let hash = turn.hash(db, &key).unwrap().unwrap();
                    let mut fields = BTreeMap::new();
                    turn.hash_each(db, &hash, |field, value| {
                        fields.insert(field.to_vec(), value.to_vec());
                        Ok(true)
                    })
                    .unwrap();
                    assert_eq!(fields.len() as u64, hash.count);
                    Data::Hash(fields)
                }
                other => panic!("{other:?} in a test without any"),
            };
            all.insert((db, key), data);
        }
    }
    all
}

/// Compares all that a keyspace shows with a model.
#[track_caller]
pub fn compare(space: &Arc<Keyspace>, model: &Model, now_ms: u64) {
    let wanted: BTreeMap<_, _> =
        model.live(now_ms).map(|(place, item)| (place.clone(), item.data.clone())).collect();
    assert_eq!(contents(space), wanted);
}
