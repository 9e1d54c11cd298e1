//! R3: the power is cut again while a store recovers, several times in a row. Nothing that the
//! first crash left, or that a recovery showed, is lost.

use crate::camera::Shot;
use crate::harness::{Store, effort, over_seeds};
use crate::model::History;
use crate::power_cut::{check, filmed};
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{Error, Options};
use terrace_base::ManualClock;
use terrace_base::rng::{Rng, SplitMix64};

/// Opens `image` on a device that dies after `ops` operations. What a recovery that got through
/// showed raises the floor: it is durable then.
fn interrupted_open(
    image: &SimVfs,
    ops: u64,
    shot: &mut Shot,
    history: &History,
    options: &Options,
    clock: &ManualClock,
) -> Result<bool, String> {
    image.crash_after(ops);
    let mut options = options.clone();
    options.advanced.vfs = Arc::new(image.clone());
    match Store::open(options) {
        Ok(store) => {
            let Ok(contents) = store.contents() else { return Ok(false) };
            let (floor, ceiling) = (shot.floor as usize, shot.ceiling as usize);
            let count = history
                .prefix_of(&contents, floor, ceiling, clock.now_ms())
                .map_err(|e| format!("after an interrupted open: {e}"))?;
            shot.floor = count as u64;
            Ok(false)
        }
        Err(Error::Io(_) | Error::Poisoned(_)) => Ok(true),
        Err(other) => Err(format!("the interrupted open failed as {other:?}")),
    }
}

/// Operations that an undisturbed open of `image` takes.
fn ops_of_open(image: &SimVfs, options: &Options) -> u64 {
    let rehearsal = image.kill_image();
    let mut options = options.clone();
    options.advanced.vfs = Arc::new(rehearsal.clone());
    let store = Store::open(options).unwrap();
    let ops = rehearsal.op_count();
    drop(store);
    ops
}

#[test]
fn r3_a_crash_during_recovery_is_recovered_from() {
    let wanted = effort(200);
    let mut failed_opens = 0;
    let crashes = over_seeds("R3", wanted, |seed, left| {
        let mut rng = SplitMix64::new(seed ^ 0x33);
        let (history, shots, options, clock) = filmed(seed + 500, 8);
        let mut crashes = 0;
        for mut shot in shots {
            for _ in 0..1 + rng.below(4) {
                let ops = rng.below(ops_of_open(&shot.image, &options) * 5 / 4 + 1);
                let image = shot.image.clone();
                let outcome = interrupted_open(&image, ops, &mut shot, &history, &options, &clock);
                failed_opens += u64::from(outcome.unwrap_or_else(|why| {
                    panic!("R3: seed {seed}, image seed {}, operation {ops}: {why}", shot.seed)
                }));
                shot.image = match rng.one_in(5) {
                    true if shot.killed => shot.image.kill_image(),
                    _ if shot.killed => {
                        // What only the kernel had may go with the power.
                        shot.floor = 0;
                        shot.image.crash_image(rng.next_u64())
                    }
                    _ => shot.image.crash_image(rng.next_u64()),
                };
                crashes += 1;
            }
            shot.checkpoints.clear();
            if let Err(why) = check(&shot, &history, &options, &clock) {
                panic!(
                    "R3: seed {seed}, image seed {}: {why}\n{:?}",
                    shot.seed,
                    shot.image.files()
                );
            }
            if crashes >= left {
                break;
            }
        }
        crashes
    });
    println!(
        "R3: {crashes} crashes during recovery ({failed_opens} opens failed), 0 lost, 0 holes"
    );
    assert!(failed_opens > crashes / 3, "most crashes came too late: {failed_opens} of {crashes}");
}
