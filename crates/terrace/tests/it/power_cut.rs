//! R1: the power is cut at any file-system operation. Every synced write is there, what is there
//! is a prefix of the writes, and the store opens and takes writes.

use crate::camera::{Camera, Shot, dump};
use crate::harness::{
    DIR, FakeClock, Generator, Mix, Run, Store, drawn_options, effort, over_seeds,
};
use crate::model::History;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{Db, Options, SyncMode};
use terrace_base::rng::{Rng, SplitMix64};

/// Opens what a crash left and says what is wrong with it, or how many batches it holds.
pub fn check(
    shot: &Shot,
    history: &History,
    options: &Options,
    clock: &FakeClock,
) -> Result<usize, String> {
    let mut options = options.clone();
    options.advanced.vfs = Arc::new(shot.image.clone());
    let store = Store::open(options.clone()).map_err(|e| format!("the open failed: {e}"))?;
    let now = clock.now_ms();
    let contents = store.contents().map_err(|e| format!("a scan failed: {e}"))?;
    let (floor, ceiling) = (shot.floor as usize, shot.ceiling as usize);
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
        let got = Store::of(db).contents().map_err(|e| format!("a checkpoint scan failed: {e}"))?;
        let held = *held as usize;
        history.prefix_of(&got, held, held, now).map_err(|e| format!("checkpoint: {e}"))?;
    }
    Ok(count)
}

/// A workload filmed at random operations: history, images, options, clock.
pub fn filmed(seed: u64, images: u64) -> (History, Vec<Shot>, Options, FakeClock) {
    let mut rng = SplitMix64::new(seed);
    let clock = FakeClock::new();
    let camera = Camera::new(SimVfs::new(seed), rng.next_u64(), 12, images);
    let options = drawn_options(Arc::new(camera.clone()), &clock, &mut rng);
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
    let (mut killed, mut dropped) = (0, 0u64);
    let images = over_seeds("R1", wanted, |seed, left| {
        let (history, shots, options, clock) = filmed(seed, left.min(100));
        for shot in &shots {
            killed += u64::from(shot.killed);
            let left = shot.image.kill_image();
            match check(shot, &history, &options, &clock) {
                Ok(count) => dropped += shot.ceiling - count as u64,
                Err(why) => {
                    dump(&left);
                    panic!(
                        "R1: seed {seed}, image seed {}, operation {}, killed {}, sync {:?}, {} to {} batches: {why}\nfiles: {:?}",
                        shot.seed,
                        shot.op,
                        shot.killed,
                        options.sync,
                        shot.floor,
                        shot.ceiling,
                        left.files()
                    )
                }
            }
        }
        shots.len() as u64
    });
    println!(
        "R1: {images} images ({killed} of killed processes), 0 lost, 0 holes; \
         {dropped} batches that were not synced were dropped"
    );
    assert!(dropped > 0, "the images never lost anything: they test nothing ({DIR})");
}
