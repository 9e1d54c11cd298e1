//! Random edits against a model, crashes and faults at any operation, damage at every byte.

use super::*;
use crate::{FamilyEdit, FileMeta, MAX_OPTIONS_BYTES};
use terrace_base::{FileNumber, Rng, SegmentNumber, SeqNo, SplitMix64};
use terrace_vfs::{Fault, FaultKind, SimVfs};

fn dir() -> &'static Path {
    Path::new("/store")
}

fn vfs() -> SimVfs {
    let vfs = SimVfs::new(3);
    vfs.create_dir_all(dir()).unwrap();
    vfs
}

fn shared(vfs: &SimVfs) -> Arc<dyn Vfs> {
    Arc::new(vfs.clone())
}

fn file(number: FileNumber, slot: u64, rng: &mut SplitMix64) -> FileMeta {
    let smallest_seqno = rng.below(1000);
    FileMeta {
        number,
        size_bytes: rng.below(64 << 20),
        smallest: format!("user{slot:04}").into_bytes(),
        largest: format!("user{slot:04}zz").into_bytes(),
        largest_exclusive: rng.one_in(4),
        smallest_seqno: SeqNo::new(smallest_seqno),
        largest_seqno: SeqNo::new(smallest_seqno + rng.below(1000)),
        entry_count: rng.below(1 << 20),
        tombstone_count: rng.below(9),
        range_tombstone_count: rng.below(9),
        raw_bytes: rng.below(1 << 30),
        created_ms: rng.below(1 << 41),
        ttl_due_ms: rng.one_in(3).then(|| rng.below(1 << 41)),
        value_refs: Vec::new(),
    }
}

/// An edit that fits `state`.
fn fitting_edit(state: &ManifestState, rng: &mut SplitMix64) -> VersionEdit {
    let mut edit = VersionEdit::default();
    if rng.one_in(3) {
        edit.last_seqno = Some(state.last_seqno + rng.below(100));
    }
    let mut next_file = state.next_file_number + rng.below(3);
    if rng.one_in(8) {
        let id = state.next_family_id;
        let create = Some(format!("family {id}"));
        edit.families.push(FamilyEdit { id, create, ..FamilyEdit::default() });
    }
    for family in state.families.values() {
        if rng.one_in(3) {
            continue;
        }
        let mut change = FamilyEdit { id: family.id, ..FamilyEdit::default() };
        if family.id > 0 && rng.one_in(10) {
            change.drop = true;
            edit.families.push(change);
            continue;
        }
        for (level, file) in family.version.files() {
            if rng.one_in(5) {
                change.removed.push((level, file.number));
            }
        }
        for _ in 0..rng.below(4) {
            let level = rng.below(7) as u8;
            let slot = rng.below(40);
            let taken = |other: &FileMeta| other.smallest == format!("user{slot:04}").into_bytes();
            let live = family.version.level(usize::from(level)).files();
            let added = change.added.iter().filter(|(at, _)| *at == level).map(|(_, file)| file);
            if level == 0 || !live.iter().map(|file| &**file).chain(added).any(taken) {
                change.added.push((level, file(next_file, slot, rng)));
                next_file += 1;
            }
        }
        change.min_log_segment = rng.one_in(3).then(|| family.min_log_segment + rng.below(3));
        change.flushed_seqno = rng.one_in(3).then(|| family.flushed_seqno + rng.below(30));
        change.options = rng.one_in(4).then(|| format!("size={}", rng.below(9)).into());
        edit.families.push(change);
    }
    edit.next_file_number = rng.one_in(2).then_some(next_file);
    edit
}

/// A life of a store: opens or creates it and appends edits. `last` is the state that is durable,
/// `in_flight` the one that may be instead.
fn live(vfs: &SimVfs, rng: &mut SplitMix64, model: &mut Model) {
    let opened = match Manifest::recover(shared(vfs), dir()) {
        Err(error) if error.is_not_found() => {
            assert!(model.last.is_none(), "an existing store was not found");
            model.in_flight = Some(ManifestState::fresh(7));
            Manifest::create(shared(vfs), dir(), 7)
        }
        opened => opened,
    };
    let Ok((mut manifest, mut state)) = opened else { return };
    model.accept(Some(state.clone()));
    manifest.set_min_rotate_bytes(rng.below(4) * 600);
    for _ in 0..rng.below(25) {
        let edit = fitting_edit(&state, rng);
        let mut after = state.clone();
        after.commit(after.prepare(&edit).unwrap());
        model.in_flight = Some(after.clone());
        if manifest.append(&mut state, &edit).is_err() {
            assert_eq!(Some(&state), model.last.as_ref(), "a failed edit was applied");
            return;
        }
        assert_eq!(state, after);
        model.accept(Some(after));
    }
}

#[derive(Default, Clone)]
struct Model {
    last: Option<ManifestState>,
    in_flight: Option<ManifestState>,
}

impl Model {
    /// What was found is one of the two states allowed.
    fn check(&self, found: &Option<ManifestState>) {
        assert!(
            *found == self.last || *found == self.in_flight && found.is_some(),
            "found neither the state before nor after the edit"
        );
    }

    /// What was found becomes what is durable, if it is one of the two states allowed.
    fn accept(&mut self, found: Option<ManifestState>) {
        self.check(&found);
        (self.last, self.in_flight) = (found, None);
    }
}

fn read(vfs: &SimVfs) -> Option<ManifestState> {
    match Manifest::read(vfs, dir()) {
        Ok(state) => Some(state),
        Err(error) if error.is_not_found() => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn after_crashes_at_any_operation_the_state_is_the_one_before_or_after_the_edit() {
    let mut cut_in_recovery = 0;
    for seed in 0..250 {
        let mut rng = SplitMix64::new(seed);
        let mut vfs = vfs();
        let mut model = Model::default();
        for _ in 0..6 {
            let budget = if rng.one_in(3) { 20 } else { 150 };
            vfs.crash_after(vfs.op_count() + rng.below(budget));
            live(&vfs, &mut rng, &mut model);
            cut_in_recovery += u64::from(budget == 20);
            if rng.one_in(4) {
                // What the kernel has is seen, but a later power cut may still lose it.
                vfs = vfs.kill_image();
                model.check(&read(&vfs));
            } else {
                vfs = vfs.crash_image(rng.next_u64());
                model.accept(read(&vfs));
            }
        }
    }
    assert!(cut_in_recovery > 200);
}

#[test]
fn after_any_failed_operation_the_manifest_refuses_until_it_is_rewritten() {
    let kinds = [FaultKind::Eio, FaultKind::Enospc, FaultKind::ShortWrite, FaultKind::SyncFails];
    let mut failed = 0;
    for seed in 0..300 {
        let mut rng = SplitMix64::new(seed);
        let vfs = vfs();
        let (mut manifest, mut state) = Manifest::create(shared(&vfs), dir(), 1).unwrap();
        manifest.set_min_rotate_bytes(rng.below(3) * 500);
        let kind = kinds[rng.below(4) as usize];
        let at_op = vfs.op_count() + rng.below(60);
        vfs.set_fault(Some(Fault { at_op, kind, forever: rng.one_in(2), filter: None }));
        for _ in 0..12 {
            let edit = fitting_edit(&state, &mut rng);
            let mut after = state.clone();
            after.commit(after.prepare(&edit).unwrap());
            if manifest.append(&mut state, &edit).is_ok() {
                assert_eq!(state, after);
                continue;
            }
            failed += 1;
            assert!(manifest.is_poisoned());
            assert!(manifest.append(&mut state, &edit).is_err());
            vfs.set_fault(None);
            let mut model = Model { last: Some(state.clone()), in_flight: Some(after) };
            model.accept(read(&vfs.crash_image(seed)));
            manifest.rewrite(&state).unwrap();
            assert_eq!(read(&vfs.crash_image(seed)), Some(state.clone()));
            manifest.append(&mut state, &edit).unwrap();
            assert_eq!(read(&vfs.crash_image(seed)), Some(state.clone()));
        }
    }
    assert!(failed > 100, "only {failed} edits failed");
}

/// A store with some history in one manifest file.
fn sample() -> (SimVfs, ManifestState, PathBuf) {
    let vfs = vfs();
    let mut rng = SplitMix64::new(5);
    let (mut manifest, mut state) = Manifest::create(shared(&vfs), dir(), 0xfeed).unwrap();
    for _ in 0..6 {
        let edit = fitting_edit(&state, &mut rng);
        manifest.append(&mut state, &edit).unwrap();
    }
    assert!(state.families.values().any(|family| family.version.file_count() > 2));
    (vfs, state, names::manifest_path(dir(), manifest.number()))
}

#[test]
fn every_flipped_byte_is_an_error_or_changes_nothing() {
    let (vfs, state, path) = sample();
    let mut errors = 0;
    for path in [path, names::current_path(dir())] {
        let len = vfs.len(&path).unwrap();
        for offset in 0..len {
            for xor in [1, 0x20, 0xff] {
                vfs.corrupt(&path, offset, xor);
                match Manifest::read(&vfs, dir()) {
                    Ok(found) => assert_eq!(found, state, "byte {offset} of {}", path.display()),
                    Err(error) => {
                        assert!(!error.is_not_found(), "{error}");
                        errors += 1;
                    }
                }
                vfs.corrupt(&path, offset, xor);
            }
        }
        // Only the marker at the very end may be damaged without harm.
        assert!(errors >= 3 * (len - 25), "{errors} errors");
        errors = 0;
    }
}

#[test]
fn every_truncation_is_an_error_or_an_earlier_state() {
    let (vfs, _, path) = sample();
    let len = vfs.len(&path).unwrap();
    let mut counts = Vec::new();
    for cut in (0..len).rev() {
        vfs.truncate(&path, cut);
        match Manifest::read(&vfs, dir()) {
            Ok(found) => counts.push(found.next_file_number),
            Err(error) => assert!(error.is_corruption(), "{error}"),
        }
    }
    assert!(counts.is_sorted_by(|a, b| a >= b), "going back in time must not add files");
    counts.dedup();
    assert!(counts.len() > 3);
}

#[test]
fn what_is_missing_or_garbage_is_said_with_what_to_do() {
    let nothing = vfs();
    let error = Manifest::recover(shared(&nothing), dir()).err().unwrap();
    assert!(error.is_not_found() && error.to_string().contains("create a store"), "{error}");

    let (vfs, _, path) = sample();
    let (manifest, current) = (vfs.read_file(&path).unwrap(), names::current_path(dir()));
    vfs.remove(&path).unwrap();
    let error = Manifest::recover(shared(&vfs), dir()).err().unwrap();
    let text = error.to_string();
    assert!(error.is_corruption() && text.contains("MANIFEST-000001"), "{text}");
    assert!(text.contains("checkpoint"), "{text}");

    for garbage in [&b""[..], b"MANIFEST-000001\n", b"\0\0\0\0", &[0xff; 100]] {
        vfs.write_file(&current, garbage);
        let error = Manifest::recover(shared(&vfs), dir()).err().unwrap();
        assert!(error.is_corruption() && error.to_string().contains("CURRENT"), "{error}");
    }

    vfs.write_file(&current, current::encode(1));
    for (garbage, why) in
        [(&b"not a log"[..], "snapshot"), (b"", "snapshot"), (&manifest[..60], "snapshot")]
    {
        vfs.write_file(&path, garbage);
        let error = Manifest::recover(shared(&vfs), dir()).err().unwrap();
        assert!(error.is_corruption() && error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_store_that_lost_its_current_is_not_taken_for_a_new_one() {
    let (vfs, ..) = sample();
    vfs.write_file(names::sst_path(dir(), FileNumber::new(4)), b"data");
    vfs.remove(&names::current_path(dir())).unwrap();
    for error in [
        Manifest::recover(shared(&vfs), dir()).err().unwrap(),
        Manifest::create(shared(&vfs), dir(), 1).err().unwrap(),
        Manifest::read(&vfs, dir()).err().unwrap(),
    ] {
        assert!(error.is_corruption() && error.to_string().contains("000004.sst"), "{error}");
    }
}

#[test]
fn create_refuses_a_store_and_continues_after_a_cut_short_create() {
    let (vfs, ..) = sample();
    let error = Manifest::create(shared(&vfs), dir(), 1).err().unwrap();
    assert!(
        matches!(&error, Error::Io { source, .. }
        if source.kind() == io::ErrorKind::AlreadyExists),
        "{error}"
    );
    vfs.remove(&names::current_path(dir())).unwrap();
    let (manifest, _) = Manifest::create(shared(&vfs), dir(), 1).unwrap();
    assert_eq!(manifest.number(), 2);
    assert!(!vfs.exists(&names::manifest_path(dir(), 1)).unwrap(), "the leftover is removed");
}

#[test]
fn recovery_moves_to_a_new_file_and_reading_writes_nothing() {
    let (vfs, state, path) = sample();
    let (before, ops) = (vfs.files(), vfs.files().len());
    assert_eq!(Manifest::read(&vfs, dir()).unwrap(), state);
    assert_eq!(vfs.files(), before);
    let (manifest, recovered) = Manifest::recover(shared(&vfs), dir()).unwrap();
    assert_eq!((recovered, manifest.number()), (state, 2));
    assert!(!vfs.exists(&path).unwrap());
    assert_eq!(vfs.files().len(), ops, "one manifest, one CURRENT, nothing temporary");
}

#[test]
fn the_file_is_replaced_when_it_has_outgrown_its_snapshot() {
    let vfs = vfs();
    let (mut manifest, mut state) = Manifest::create(shared(&vfs), dir(), 1).unwrap();
    manifest.set_min_rotate_bytes(2000);
    let mut rng = SplitMix64::new(1);
    let mut most = 0;
    for n in 0..400 {
        let family = FamilyEdit {
            added: vec![(0, file(FileNumber::new(n + 10), n, &mut rng))],
            removed: if n > 5 { vec![(0, FileNumber::new(n + 4))] } else { Vec::new() },
            ..FamilyEdit::default()
        };
        manifest
            .append(&mut state, &VersionEdit { families: vec![family], ..Default::default() })
            .unwrap();
        most = most.max(manifest.len_bytes());
    }
    assert!(manifest.number() > 10 && most < 2300, "{} files, {most} bytes", manifest.number());
    assert_eq!(read(&vfs), Some(state));
    assert_eq!(vfs.files().len(), 2);
}

#[test]
fn an_edit_that_does_not_fit_changes_nothing_and_does_no_harm() {
    let (vfs, _, path) = sample();
    let (mut manifest, mut state) = Manifest::recover(shared(&vfs), dir()).unwrap();
    let (before, len) = (state.clone(), manifest.len_bytes());
    let family = |change: FamilyEdit| VersionEdit { families: vec![change], ..Default::default() };
    let base = FamilyEdit::default;
    let next = state.next_family_id;
    let ghost = file(FileNumber::new(99), 1, &mut SplitMix64::new(1));
    for (edit, why) in [
        (family(FamilyEdit { id: 77, ..base() }), "no family 77"),
        (family(FamilyEdit { id: 77, drop: true, ..base() }), "no family 77"),
        (family(FamilyEdit { create: Some("again".into()), ..base() }), "used before"),
        (family(FamilyEdit { id: next, create: Some("default".into()), ..base() }), "`default`"),
        (
            family(FamilyEdit { drop: true, flushed_seqno: Some(SeqNo::new(1)), ..base() }),
            "dropped and changed",
        ),
        (
            family(FamilyEdit { drop: true, options: Some("size=1".into()), ..base() }),
            "dropped and changed",
        ),
        (
            family(FamilyEdit {
                options: Some("o".repeat(MAX_OPTIONS_BYTES + 1).into()),
                ..base()
            }),
            "4097 bytes",
        ),
        (family(FamilyEdit { removed: vec![(0, FileNumber::new(9999))], ..base() }), "9999"),
        (family(FamilyEdit { added: vec![(8, ghost)], ..base() }), "no level"),
        (VersionEdit { families: vec![base(), base()], ..Default::default() }, "twice"),
        (
            VersionEdit { last_seqno: Some(SeqNo::new(u64::MAX)), ..Default::default() },
            "out of range",
        ),
        (
            VersionEdit { next_file_number: Some(FileNumber::new(u64::MAX)), ..Default::default() },
            "out of range",
        ),
    ] {
        let error = manifest.append(&mut state, &edit).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!((&state, manifest.len_bytes()), (&before, len));
    manifest.append(&mut state, &VersionEdit::default()).unwrap();
    assert!(!vfs.exists(&path).unwrap());
}

#[test]
fn counters_rise_past_every_number_in_use_and_never_fall() {
    let vfs = vfs();
    let (mut manifest, mut state) = Manifest::create(shared(&vfs), dir(), 1).unwrap();
    let mut rng = SplitMix64::new(9);
    let added =
        FileMeta { largest_seqno: SeqNo::new(5000), ..file(FileNumber::new(50), 1, &mut rng) };
    let family = FamilyEdit {
        added: vec![(0, added)],
        min_log_segment: Some(SegmentNumber::new(40)),
        flushed_seqno: Some(SeqNo::new(4000)),
        ..FamilyEdit::default()
    };
    let edit = VersionEdit { families: vec![family], ..Default::default() };
    manifest.append(&mut state, &edit).unwrap();
    assert_eq!((state.next_file_number, state.last_seqno), (FileNumber::new(51), SeqNo::new(5000)));
    let family = FamilyEdit {
        min_log_segment: Some(SegmentNumber::new(3)),
        flushed_seqno: Some(SeqNo::new(3)),
        ..FamilyEdit::default()
    };
    let lower = VersionEdit {
        next_file_number: Some(FileNumber::new(2)),
        last_seqno: Some(SeqNo::new(2)),
        families: vec![family],
        ..Default::default()
    };
    manifest.append(&mut state, &lower).unwrap();
    assert_eq!((state.next_file_number, state.last_seqno), (FileNumber::new(51), SeqNo::new(5000)));
    let family = &state.families[&0];
    assert_eq!(
        (family.min_log_segment, family.flushed_seqno),
        (SegmentNumber::new(40), SeqNo::new(4000))
    );
    assert_eq!(read(&vfs), Some(state));
}

#[test]
fn the_id_of_a_dropped_family_is_not_used_again() {
    let vfs = vfs();
    let (mut manifest, mut state) = Manifest::create(shared(&vfs), dir(), 1).unwrap();
    let create = |id| VersionEdit {
        families: vec![FamilyEdit { id, create: Some("a".into()), ..FamilyEdit::default() }],
        ..Default::default()
    };
    manifest.append(&mut state, &create(1)).unwrap();
    let options = FamilyEdit { id: 1, options: Some("size=1".into()), ..FamilyEdit::default() };
    let drop_it = FamilyEdit { id: 1, drop: true, ..FamilyEdit::default() };
    for change in [options, drop_it] {
        let edit = VersionEdit { families: vec![change], ..Default::default() };
        manifest.append(&mut state, &edit).unwrap();
    }
    let (mut manifest, mut state) = Manifest::recover(shared(&vfs), dir()).unwrap();
    assert_eq!(state.next_family_id, 2);
    assert!(manifest.append(&mut state, &create(1)).is_err());
    manifest.append(&mut state, &create(2)).unwrap();
    let again = state.family_named("a").map(|family| (family.id, family.options.clone()));
    assert_eq!(again, Some((2, None)), "with options of the one before");
    assert_eq!(read(&vfs), Some(state));
}

#[test]
fn a_manifest_of_many_files_is_read_quickly() {
    let vfs = vfs();
    let (mut manifest, mut state) = Manifest::create(shared(&vfs), dir(), 1).unwrap();
    let mut rng = SplitMix64::new(2);
    let number = |n: u64| 2 + n;
    let added = (0..300_000)
        .map(|n| {
            let mut file = file(FileNumber::new(number(n)), 0, &mut rng);
            file.smallest = format!("tenant-00042/user{:012}", 2 * n).into_bytes();
            file.largest = format!("tenant-00042/user{:012}", 2 * n + 1).into_bytes();
            (6, file)
        })
        .collect();
    let family = FamilyEdit { added, ..FamilyEdit::default() };
    manifest
        .append(&mut state, &VersionEdit { families: vec![family], ..Default::default() })
        .unwrap();
    manifest.rewrite(&state).unwrap();
    let start = std::time::Instant::now();
    let found = Manifest::read(&vfs, dir()).unwrap();
    let took = start.elapsed();
    println!("{} bytes read in {took:?}", manifest.len_bytes());
    // Far above what it takes, to hold on a loaded machine; a cost per pair of files would show.
    assert!(took.as_secs() < 120, "{took:?}");
    assert!(found == state);
    assert!(manifest.len_bytes() < 60 * 300_000);
}

#[test]
fn the_newest_filter_heat_survives_edits_moves_and_recovery() {
    let vfs = vfs();
    let (mut manifest, mut state) = Manifest::create(shared(&vfs), dir(), 1).unwrap();
    assert!(state.filter_heat.is_empty());
    for heat in [&[1u8, 2, 3][..], &[4; 100]] {
        let edit = VersionEdit { filter_heat: Some(heat.into()), ..Default::default() };
        manifest.append(&mut state, &edit).unwrap();
        assert_eq!(&*state.filter_heat, heat);
    }
    manifest.append(&mut state, &VersionEdit::default()).unwrap();
    assert_eq!(&*state.filter_heat, [4; 100]);
    assert_eq!(read(&vfs), Some(state.clone()));
    manifest.rewrite(&state).unwrap();
    assert_eq!(read(&vfs), Some(state.clone()));
    let (_, recovered) = Manifest::recover(shared(&vfs), dir()).unwrap();
    assert_eq!(recovered, state);
}

/// Rotation needs room for a whole snapshot, an edit a few bytes: with room for the edit only, the file grows on.
#[test]
fn an_edit_that_fits_is_written_although_a_new_manifest_would_not_fit() {
    let vfs = vfs();
    let (mut manifest, mut state) = Manifest::create(shared(&vfs), dir(), 7).unwrap();
    let edit = |id| {
        let family =
            FamilyEdit { id, create: Some(format!("{id:0>200}")), ..FamilyEdit::default() };
        VersionEdit { families: vec![family], ..VersionEdit::default() }
    };
    manifest.set_min_rotate_bytes(4000);
    for id in 1..100 {
        manifest.append(&mut state, &edit(id)).unwrap();
    }
    let (number, used) =
        (manifest.number(), vfs.len(&names::manifest_path(dir(), manifest.number())));
    manifest.set_min_rotate_bytes(1);
    let used: u64 = used.unwrap() + vfs.len(&names::current_path(dir())).unwrap();
    vfs.set_capacity_bytes(Some(used + 6000));
    let from = vfs.op_count();
    for id in 100..120 {
        manifest.append(&mut state, &edit(id)).unwrap();
        assert!(!manifest.is_poisoned());
    }
    // It has not tried again with every edit.
    assert!(vfs.op_count() - from < 200, "{}", vfs.op_count() - from);
    assert_eq!(manifest.number(), number);
    assert_eq!(Manifest::read(&vfs, dir()).unwrap(), state);
    assert_eq!(vfs.list(dir()).unwrap().len(), 2, "nothing is left of the attempt");
    vfs.set_capacity_bytes(None);
    for id in 120..300 {
        manifest.append(&mut state, &edit(id)).unwrap();
    }
    assert!(manifest.number() > number, "with room it moves on");
    assert_eq!(Manifest::read(&vfs, dir()).unwrap(), state);
}

#[test]
fn a_manifest_that_has_grown_gives_room_back_if_there_is_some_for_the_next_one() {
    let vfs = vfs();
    let (mut manifest, mut state) = Manifest::create(shared(&vfs), dir(), 7).unwrap();
    let edit = |segment| {
        let min_log_segment = Some(SegmentNumber::new(segment));
        let family = FamilyEdit { id: 0, min_log_segment, ..FamilyEdit::default() };
        VersionEdit { families: vec![family], ..VersionEdit::default() }
    };
    manifest.shrink(&state).unwrap();
    let number = manifest.number();
    for segment in 10..1000 {
        manifest.append(&mut state, &edit(segment)).unwrap();
    }
    assert_eq!(manifest.number(), number, "it has not moved on by itself, nor for nothing");
    let (long, current) = (manifest.len_bytes(), vfs.len(&names::current_path(dir())).unwrap());
    // No room for a single byte: it goes on as it is, and does not try again at every look.
    vfs.set_capacity_bytes(Some(long + current));
    manifest.shrink(&state).unwrap();
    let from = vfs.op_count();
    (0..10).for_each(|_| manifest.shrink(&state).unwrap());
    assert_eq!((vfs.op_count(), manifest.number()), (from, number));
    // Nor for some bytes, or for the next manifest and not for the `CURRENT` that names it.
    let mut room = 0;
    while manifest.number() == number {
        vfs.set_capacity_bytes(Some(long + current + room));
        manifest.full_until_bytes = 0;
        manifest.shrink(&state).unwrap();
        assert!(!manifest.is_poisoned());
        assert_eq!(vfs.list(dir()).unwrap().len(), 2, "nothing is left of an attempt");
        assert_eq!(Manifest::read(&vfs, dir()).unwrap(), state);
        room += 1;
    }
    assert!(room > current, "{room}");
    let number = manifest.number();
    vfs.set_capacity_bytes(None);
    for segment in 1000..2000 {
        manifest.append(&mut state, &edit(segment)).unwrap();
    }
    manifest.shrink(&state).unwrap();
    assert!(manifest.number() > number && manifest.len_bytes() < long / 10);
    assert_eq!(Manifest::read(&vfs, dir()).unwrap(), state);
    manifest.append(&mut state, &edit(2000)).unwrap();
    assert_eq!(Manifest::read(&vfs, dir()).unwrap(), state);
}
