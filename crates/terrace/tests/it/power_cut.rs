//! R1: the power is cut at any file-system operation. Every synced write is there, what is there
//! is a prefix of the writes, every value in the log can be read, and the store opens and takes
//! writes.

use crate::camera::{Camera, Shot, dump};
use crate::harness::{
    DIR, Generator, Mix, Run, Store, drawn_options, effort, over_seeds, stopped_clock,
};
use crate::model::History;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{Db, Error, Options, SyncMode};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

/// What a crash left.
pub struct Left {
    /// Batches that are there.
    pub count: usize,
    /// Segments with values that SSTs refer to.
    pub value_segments: u64,
}

/// Opens what a crash left and says what is wrong with it, or what it holds.
pub fn check(
    shot: &Shot,
    history: &History,
    options: &Options,
    clock: &ManualClock,
) -> Result<Left, String> {
    let mut options = options.clone();
    options.advanced.vfs = Arc::new(shot.image.clone());
    let now = clock.now_ms();
    let (floor, ceiling) = (shot.floor as usize, shot.ceiling as usize);
    if shot.seed % 4 == 1 {
        match Store::open_read_only(options.clone()) {
            // The power was cut before there was a store.
            Err(Error::NotAStore { .. }) if floor == 0 => {}
            Err(error) => return Err(format!("the read-only open failed: {error}")),
            Ok(store) => {
                let contents = store.contents();
                let contents = contents.map_err(|e| format!("a read-only scan failed: {e}"))?;
                let prefix = history.prefix_of(&contents, floor, ceiling, now);
                prefix.map_err(|e| format!("read-only: {e}"))?;
            }
        }
    }
    let store = Store::open(options.clone()).map_err(|e| format!("the open failed: {e}"))?;
    let value_segments = store.db.metrics().value_segments;
    let contents = store.contents().map_err(|e| format!("a scan failed: {e}"))?;
    let count = history.prefix_of(&contents, floor, ceiling, now).map_err(|e| e.to_string())?;
    let keys: Vec<Vec<u8>> = contents.iter().flat_map(|f| f.keys().cloned()).collect();
    store.compare(&contents, &keys).map_err(|e| format!("a read failed: {e}"))??;
    store.db.verify().map_err(|e| format!("verify failed: {e}"))?;
    let fresh = terrace::WriteOptions { sync: Some(SyncMode::Batch) };
    let mut batch = terrace::WriteBatch::new();
    batch.put(b"after the crash", b"written");
    store.db.write_with(batch, &fresh).map_err(|e| format!("a write failed: {e}"))?;
    if shot.seed.is_multiple_of(4) {
        // What was recovered and written must survive the next crash too.
        options.advanced.vfs = Arc::new(shot.image.crash_image(shot.seed));
        let again =
            Store::open(options.clone()).map_err(|e| format!("the second open failed: {e}"))?;
        let mut want = contents;
        want[0].insert(b"after the crash".to_vec(), b"written".to_vec());
        let got = again.contents().map_err(|e| format!("a second scan failed: {e}"))?;
        if got != want {
            return Err("the second crash changed what the first recovery had".into());
        }
    }
    store.db.close().map_err(|e| format!("the close failed: {e}"))?;
    for (path, held) in &shot.checkpoints {
        options.advanced.vfs = Arc::new(shot.image.clone());
        let db = Db::open_read_only(path, options.clone())
            .map_err(|e| format!("{} does not open: {e}", path.display()))?;
        db.verify().map_err(|e| format!("{} is damaged: {e}", path.display()))?;
        let got = Store::of(db).contents().map_err(|e| format!("a checkpoint scan failed: {e}"))?;
        let held = *held as usize;
        history.prefix_of(&got, held, held, now).map_err(|e| format!("checkpoint: {e}"))?;
    }
    Ok(Left { count, value_segments })
}

/// A device on which, in every third store, zeros stand behind the records of logs that are not synced all the time.
fn device(seed: u64) -> SimVfs {
    let sim = SimVfs::new(seed);
    if seed % 3 == 1 {
        sim.write_zeros_ahead(512);
    }
    sim
}

/// A workload filmed at random operations: history, images, options, clock.
pub fn filmed(seed: u64, images: u64) -> (History, Vec<Shot>, Options, ManualClock) {
    let mut rng = SplitMix64::new(seed);
    let clock = stopped_clock();
    let camera = Camera::new(device(seed), rng.next_u64(), 12, images);
    let mut options = drawn_options(Arc::new(camera.clone()), &clock, &mut rng);
    // With and without a log that is kept and gone on with.
    options.advanced.log_retention_bytes = (seed % 3) * (40 << 10);
    let mix = Mix {
        sync_one_in: [0, 2, 8, 30][rng.below(4) as usize],
        maintain_one_in: [10, 25, 100][rng.below(3) as usize],
        value_bytes: [40, 250, 600][rng.below(3) as usize],
        ..Mix::default()
    };
    let steps = 150 + rng.below(250);
    let mut run =
        Run::new(options, &clock, Generator::new(seed, mix, &clock), camera.marks.clone());
    for _ in 0..steps {
        run.step();
    }
    let Run { store, history, .. } = run;
    let options = store.db.options().clone();
    if seed.is_multiple_of(2) {
        store.db.close().unwrap();
    }
    drop(store);
    (history, camera.take_film(), options, clock)
}

#[test]
fn r1_no_power_cut_loses_a_synced_write_or_leaves_a_hole() {
    let wanted = effort(2000);
    let (mut killed, mut dropped, mut segments) = (0, 0u64, 0);
    let images = over_seeds("R1", wanted, |seed, left| {
        let (history, shots, options, clock) = filmed(seed, left.min(100));
        for shot in &shots {
            killed += u64::from(shot.killed);
            let left = checked(seed, shot, &history, &options, &clock);
            dropped += shot.ceiling - left.count as u64;
            segments += left.value_segments;
        }
        shots.len() as u64
    });
    println!(
        "R1: {images} images ({killed} of killed processes), 0 lost, 0 holes; \
         {dropped} batches that were not synced were dropped, {segments} value segments were left"
    );
    assert!(dropped > 0, "the images never lost anything: they test nothing ({DIR})");
    assert!(segments > images / 4, "few values lay in the log");
}

/// As [`check`], but what is wrong fails the test and can be looked at.
fn checked(
    seed: u64,
    shot: &Shot,
    history: &History,
    options: &Options,
    clock: &ManualClock,
) -> Left {
    let left = shot.image.kill_image();
    check(shot, history, options, clock).unwrap_or_else(|why| {
        dump(&left);
        panic!(
            "R1: seed {seed}, image seed {}, operation {}, killed {}, sync {:?}, {} to {} batches: \
             {why}\nfiles: {:?}",
            shot.seed,
            shot.op,
            shot.killed,
            options.sync,
            shot.floor,
            shot.ceiling,
            left.files()
        )
    })
}

/// A short workload of large values in small segments, with an image around every operation of
/// the file system.
#[test]
fn r1_an_sst_never_refers_to_a_value_that_a_power_cut_takes() {
    let wanted = effort(1200);
    let (mut dropped, mut segments, mut moved) = (0, 0, 0);
    let modes = [
        SyncMode::None,
        SyncMode::Batch,
        SyncMode::Interval(std::time::Duration::from_millis(1)),
        SyncMode::Buffered,
    ];
    let mut images_by_mode = [0u64; 4];
    let images = over_seeds("R1 values", wanted, |seed, left| {
        let mut rng = SplitMix64::new(seed ^ 0x7a1);
        let clock = stopped_clock();
        let camera = Camera::new(device(seed), rng.next_u64(), 1, left.min(250));
        let mut options = crate::harness::small_options(Arc::new(camera.clone()), &clock);
        let mode = seed as usize % modes.len();
        options.sync = modes[mode];
        options.default_family.value_separation_threshold = 16;
        options.column_families[0].1.value_separation_threshold = 100;
        options.column_families[0].1.value_compression = terrace::Compression::Lz4;
        options.column_families[1].1.value_separation_threshold = usize::MAX;
        options.advanced.segment_bytes = 4 << 10;
        options.advanced.gc_garbage_ratio = [0.05, 0.3][rng.below(2) as usize];
        options.advanced.memtable_bytes = 16 << 10;
        let mix = Mix {
            keys: 30,
            value_bytes: 500,
            maintain_one_in: 5,
            sync_one_in: 6,
            checkpoints: rng.one_in(2),
            ..Mix::default()
        };
        let generator = Generator::new(seed, mix, &clock);
        let mut run = Run::new(options, &clock, generator, camera.marks.clone());
        for _ in 0..60 {
            run.step();
        }
        let Run { store, history, .. } = run;
        let options = store.db.options().clone();
        moved += store.db.metrics().gc_moved_values;
        drop(store);
        let shots = camera.take_film();
        for shot in &shots {
            let left = checked(seed, shot, &history, &options, &clock);
            dropped += shot.ceiling - left.count as u64;
            segments += left.value_segments;
        }
        images_by_mode[mode] += shots.len() as u64;
        shots.len() as u64
    });
    println!(
        "R1: {images} images at every operation ({images_by_mode:?} by sync mode), {segments} value \
         segments left, every value in them could be read; {moved} values were moved, {dropped} \
         batches dropped"
    );
    if std::env::var("SEED").is_err() {
        assert!(images_by_mode.iter().all(|images| *images > 0) && dropped > 0);
        assert!(segments > images / 2, "few values lay in the log");
        assert!(moved > 0, "no value was moved");
    }
}
