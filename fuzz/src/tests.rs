//! Tests of the rig: seeds that reach the parsers, a canary that is found, replays that repeat.

use super::*;
use crate::smoke::{check, hunt, input, watch_panics};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, Once};
use std::time::Duration;

/// Panics are watched process-wide: one hunt at a time.
fn watching() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    static WATCH: Once = Once::new();
    WATCH.call_once(watch_panics);
    guard
}

#[test]
fn every_seed_is_sound_for_its_target() {
    let _watching = watching();
    for (name, target) in TARGETS {
        let seeds = seeds::of(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for (at, seed) in seeds.iter().enumerate() {
            let outcome = check(*target, seed);
            assert!(matches!(outcome, Ok((true, _))), "{name}, seed {at}: {outcome:?}");
        }
    }
}

/// What the targets start from has values wherever values can be, and the inspector finds all of
/// them sound.
#[test]
fn the_template_store_has_separated_values_of_every_origin() {
    let vfs = store::template_image();
    let files = vfs.files();
    let has = |ending: &str| files.iter().any(|(path, _)| path.to_string_lossy().ends_with(ending));
    assert!(has(".vlog") && has(".log") && has(".sst"), "{files:?}");
    let vfs: std::sync::Arc<dyn terrace_vfs::Vfs> = std::sync::Arc::new(vfs);
    let report = terrace_inspect::check_store(&vfs, Path::new(manifest::DIR)).unwrap();
    assert!(report.is_sound(), "{report}");
    let counts = report.counts;
    assert!(counts.values >= 8 && counts.value_segments >= 1, "{report}");
    assert!(counts.value_bytes > counts.value_segment_bytes / 3, "{report}");
}

#[test]
fn nothing_and_noise_do_no_harm() {
    let _watching = watching();
    for (name, target) in TARGETS {
        for bytes in [&[][..], &[0; 100], &[0xff; 1000]] {
            let outcome = check(*target, bytes);
            assert!(outcome.is_ok(), "{name}: {outcome:?}");
        }
    }
}

#[test]
fn the_canary_is_found_and_replayed() {
    let _watching = watching();
    let (name, target) = CANARY;
    let finding = hunt(name, target, 1, Duration::from_secs(60)).unwrap_err();
    assert!(finding.what.contains("the canary sings"), "{}", finding.what);
    let again = input(1, name, &seeds::of(name), finding.iteration.unwrap());
    assert_eq!(again, finding.input);
    assert!(check(target, &again).is_err());
}

#[test]
fn a_panic_in_another_thread_is_found() {
    let _watching = watching();
    let hidden: Target = |data| {
        let first = data.first().copied();
        let _ = std::thread::spawn(move || assert!(first != Some(7), "in the dark")).join();
        true
    };
    assert!(check(hidden, &[6]).is_ok());
    assert!(check(hidden, &[7]).unwrap_err().contains("in the dark"));
    let caught: Target = |data| {
        std::panic::catch_unwind(|| assert!(data.is_empty(), "swept under the carpet")).is_ok()
    };
    assert!(check(caught, &[]).is_ok());
    assert!(check(caught, &[7]).is_err());
}

/// `fuzz_targets/` and `Cargo.toml` are made from the list; `UPDATE=1` makes them anew.
#[test]
fn the_entry_points_are_those_of_the_list() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = here.join("fuzz_targets");
    let manifest = fs::read_to_string(here.join("Cargo.toml")).unwrap();
    let mark =
        "# Made from the list of targets; `UPDATE=1 cargo test -p terrace-fuzz` rewrites it.\n";
    let kept = manifest.split(mark).next().unwrap().trim_end();
    let mut expected = format!("{kept}\n\n{mark}");
    let names = || TARGETS.iter().map(|(name, _)| *name);
    for name in names() {
        expected.push_str(&format!(
            "\n[[bin]]\nname = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\ntest = false\n\
             doc = false\nrequired-features = [\"libfuzzer\"]\n"
        ));
    }
    let entry = |name: &str| {
        format!(
            "//! libFuzzer's way into the target `{name}`.\n#![no_main]\n\n\
             libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_fuzz::run(\"{name}\", data));\n"
        )
    };
    if std::env::var_os("UPDATE").is_some() {
        fs::write(here.join("Cargo.toml"), &expected).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        fs::create_dir(&dir).unwrap();
        for name in names() {
            fs::write(dir.join(format!("{name}.rs")), entry(name)).unwrap();
        }
    }
    assert_eq!(fs::read_to_string(here.join("Cargo.toml")).unwrap(), expected);
    for name in names() {
        assert_eq!(fs::read_to_string(dir.join(format!("{name}.rs"))).unwrap(), entry(name));
    }
    let listed = fs::read_dir(&dir).unwrap().count();
    assert_eq!(listed, TARGETS.len(), "an entry point without a target");
}
