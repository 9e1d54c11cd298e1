//! Evidence on disks that fail.

use super::*;
use terrace_base::SegmentNumber;
use terrace_manifest::evidence::read;
use terrace_vfs::{Fault, FaultKind, OpClass, SimVfs};

const DIR: &str = "/store";

fn started() -> (SimVfs, Evidence, ManifestState) {
    let sim = SimVfs::new(1);
    sim.create_dir_all(Path::new(DIR)).unwrap();
    let state = ManifestState::fresh(7);
    let known = Claims { store_id: 7, ..Claims::default() };
    let evidence = Evidence::start(Arc::new(sim.clone()), Path::new(DIR), known);
    sim.sync_dir(Path::new(DIR)).unwrap();
    evidence.note_manifest(manifest(100), &state, Some(SegmentNumber::new(3)));
    (sim, evidence, state)
}

fn log(offset: u64) -> LogPosition {
    LogPosition { segment: SegmentNumber::new(3), offset }
}

fn manifest(offset: u64) -> LogPosition {
    LogPosition { segment: SegmentNumber::new(1), offset }
}

fn fail(sim: &SimVfs, kind: FaultKind, filter: OpClass) {
    let fault = Fault { at_op: sim.op_count(), kind, forever: true, filter: Some(filter) };
    sim.set_fault(Some(fault));
}

#[test]
fn every_claim_is_in_the_first_file_and_what_begins_something_in_both() {
    let (sim, evidence, _) = started();
    evidence.note_log(log(50), SeqNo::new(1));
    evidence.note_log(log(60), SeqNo::new(2));
    let found = read(&sim, Path::new(DIR)).unwrap();
    assert_eq!((found.claims, found.problems.len()), (evidence.claims(), 0));
    sim.remove(&terrace_manifest::names::evidence_path(Path::new(DIR), 1)).unwrap();
    let found = read(&sim, Path::new(DIR)).unwrap().claims;
    assert_eq!((found.log, found.manifest), (log(50), manifest(100)));
}

#[test]
fn evidence_that_cannot_be_written_stays_true_and_is_written_anew() {
    for (kind, filter) in [
        (FaultKind::Enospc, OpClass::Append),
        (FaultKind::ShortWrite, OpClass::Append),
        (FaultKind::SyncFails, OpClass::Sync),
    ] {
        let (sim, evidence, state) = started();
        evidence.note_log(log(50), SeqNo::new(1));
        fail(&sim, kind, filter);
        evidence.note_log(log(60), SeqNo::new(2));
        evidence.note_manifest(manifest(200), &state, None);
        evidence.settle();
        assert!(evidence.is_stale(), "{kind:?}");
        let found = read(&sim, Path::new(DIR)).unwrap().claims;
        assert!(found.log <= log(60) && found.log >= log(50), "{found:?}");
        sim.set_fault(None);
        evidence.note_manifest(manifest(300), &state, None);
        assert!(!evidence.is_stale());
        let found = read(&sim.crash_image(1), Path::new(DIR)).unwrap();
        assert_eq!((found.claims, found.problems.len()), (evidence.claims(), 0));
    }
}

#[test]
fn a_long_file_is_replaced() {
    let (sim, evidence, _) = started();
    let rounds = MAX_BYTES / 60;
    (1..rounds).for_each(|n| evidence.note_log(log(50 + n), SeqNo::new(n)));
    let path = terrace_manifest::names::evidence_path(Path::new(DIR), 1);
    assert!(sim.len(&path).unwrap() < MAX_BYTES / 2);
    assert_eq!(read(&sim, Path::new(DIR)).unwrap().claims, evidence.claims());
}

#[test]
fn on_a_full_disk_files_are_short() {
    let (sim, evidence, state) = started();
    let len = |number| {
        let path = terrace_manifest::names::evidence_path(Path::new(DIR), number);
        sim.len(&path).unwrap()
    };
    let rounds = 1000;
    let most = |reserve: u64| reserve + 256;
    let note = |n| {
        evidence.note_log(log(50 + n), SeqNo::new(n));
        evidence.note_manifest(manifest(100 + n), &state, None);
    };
    (0..rounds).for_each(note);
    assert!(len(1) > 50 * rounds && len(2) > 50 * rounds);
    let reserve = 1 << 20;
    evidence.keep_short(reserve);
    assert!(len(1) < 1 << 10 && len(2) < 1 << 10, "{} {}", len(1), len(2));
    for n in rounds..2 * rounds {
        note(n);
        assert!(len(1).max(len(2)) <= most(reserve / 32));
    }
    assert_eq!(read(&sim.crash_image(1), Path::new(DIR)).unwrap().claims, evidence.claims());
    evidence.may_be_long(reserve);
    (2 * rounds..3 * rounds).for_each(note);
    assert!(len(1) > 50 * rounds && len(1) <= most(reserve / 4));
    assert_eq!(read(&sim, Path::new(DIR)).unwrap().claims, evidence.claims());
    // A disk that takes nothing: the long file stays, and is true.
    fail(&sim, FaultKind::Enospc, OpClass::Append);
    evidence.keep_short(reserve);
    assert!(evidence.is_stale());
    let found = read(&sim, Path::new(DIR)).unwrap().claims;
    assert_eq!(found.log, log(50 + 3 * rounds - 1));
    sim.set_fault(None);
    note(3 * rounds);
    assert!(!evidence.is_stale() && len(1).max(len(2)) < 1 << 10);
}
