//! What the simulated file system promises: which data survives which crash, and that faults
//! strike where they are aimed.

use super::*;
use std::collections::BTreeSet;
use std::io::ErrorKind;

fn path(name: &str) -> PathBuf {
    Path::new("/db").join(name)
}

fn synced_dir() -> SimVfs {
    let sim = SimVfs::new(1);
    sim.create_dir_all(Path::new("/db")).unwrap();
    sim
}

fn create(sim: &SimVfs, name: &str) -> Box<dyn AppendFile> {
    sim.create(&path(name), &CreateOptions::default()).unwrap()
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Err(Error::Io { source, .. }) => source.kind(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it did not fail"),
    }
}

#[test]
fn reads_back_what_was_appended() {
    let sim = synced_dir();
    let mut file = create(&sim, "a");
    file.append(b"hello ").unwrap();
    file.append(b"world").unwrap();
    let reader = sim.open(&path("a"), OpenMode::default()).unwrap();
    let mut buf = [0; 5];
    reader.read_at(6, &mut buf).unwrap();
    assert_eq!(&buf, b"world");
    assert_eq!(kind(reader.read_at(7, &mut buf)), ErrorKind::UnexpectedEof);
    assert_eq!(kind(reader.read_at(u64::MAX, &mut buf)), ErrorKind::UnexpectedEof);
    assert_eq!(reader.len(), 11);
    sim.remove(&path("a")).unwrap();
    sim.sync_dir(Path::new("/db")).unwrap();
    reader.read_at(0, &mut buf).unwrap();
    assert_eq!(&buf, b"hello");
    assert!(!sim.exists(&path("a")).unwrap());
}

#[test]
fn synced_data_survives_every_power_cut_and_the_rest_varies() {
    let sim = synced_dir();
    let data: Vec<u8> = (0..5000u32).map(|i| (i % 250 + 1) as u8).collect();
    let mut file = create(&sim, "a");
    file.append(&data[..1300]).unwrap();
    file.sync().unwrap();
    sim.sync_dir(Path::new("/db")).unwrap();
    file.append(&data[1300..]).unwrap();
    let (mut lengths, mut torn, mut whole) = (BTreeSet::new(), 0, 0);
    for seed in 0..300 {
        let image = sim.crash_image(seed);
        let bytes = image.read_file(path("a")).unwrap();
        assert!(bytes.len() >= 1300 && bytes.len() <= 5000);
        assert_eq!(bytes[..1300], data[..1300]);
        torn += usize::from(bytes != data[..bytes.len()]);
        whole += usize::from(bytes == data);
        lengths.insert(bytes.len());
        assert_eq!(sim.crash_image(seed).read_file(path("a")).unwrap(), bytes, "same seed");
        // What an image holds is on its device: another power cut changes nothing.
        assert_eq!(image.crash_image(seed + 1).read_file(path("a")).unwrap(), bytes);
    }
    assert!(lengths.len() > 50 && lengths.contains(&1300), "{} lengths", lengths.len());
    assert!(torn > 30 && whole > 30, "torn {torn}, whole {whole}");
}

#[test]
fn a_file_can_be_synced_by_its_name() {
    let sim = synced_dir();
    let options = CreateOptions { preallocate_bytes: 4096, ..Default::default() };
    let mut file = sim.create(&path("a"), &options).unwrap();
    sim.sync_dir(Path::new("/db")).unwrap();
    file.append(&[1; 2000]).unwrap();
    sim.sync_file(&path("a")).unwrap();
    file.append(&[2; 2000]).unwrap();
    for seed in 0..50 {
        let bytes = sim.crash_image(seed).read_file(path("a")).unwrap();
        assert!(bytes.len() == 4096 && bytes[..2000] == [1; 2000]);
    }
    assert_eq!(kind(sim.sync_file(&path("b"))), ErrorKind::NotFound);
}

#[test]
fn a_failed_sync_by_name_makes_nothing_durable() {
    let sim = synced_dir();
    let mut file = create(&sim, "a");
    sim.sync_dir(Path::new("/db")).unwrap();
    file.append(&[1; 2000]).unwrap();
    let at_op = sim.op_count();
    sim.set_fault(Some(Fault {
        at_op,
        kind: FaultKind::SyncFails,
        forever: false,
        filter: Some(OpClass::Sync),
    }));
    assert!(sim.sync_file(&path("a")).is_err());
    assert_eq!((sim.op_count(), sim.executed_faults()), (at_op + 1, 1));
    let lost = |sim: &SimVfs| {
        (0..50).any(|seed| sim.crash_image(seed).read_file(path("a")).unwrap() != [1; 2000])
    };
    assert!(lost(&sim));
    sim.sync_file(&path("a")).unwrap();
    assert!(!lost(&sim));
}

#[test]
fn directory_entries_are_lost_until_the_directory_is_synced() {
    let sim = synced_dir();
    for name in ["a", "b", "c"] {
        create(&sim, name).sync().unwrap();
    }
    let seen: BTreeSet<Vec<PathBuf>> = (0..200)
        .map(|seed| sim.crash_image(seed).files().into_iter().map(|(path, _)| path).collect())
        .collect();
    assert_eq!(seen.len(), 8, "every subset: {seen:?}");
    sim.sync_dir(Path::new("/db")).unwrap();
    sim.remove(&path("b")).unwrap();
    let counts: BTreeSet<usize> = (0..50).map(|seed| sim.crash_image(seed).files().len()).collect();
    assert_eq!(counts, BTreeSet::from([2, 3]));
}

#[test]
fn a_rename_is_atomic() {
    let sim = synced_dir();
    sim.write_file(path("CURRENT"), b"old");
    let mut file = create(&sim, "tmp");
    file.append(b"new").unwrap();
    file.sync().unwrap();
    sim.rename(&path("tmp"), &path("CURRENT")).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let current = sim.crash_image(seed).read_file(path("CURRENT")).unwrap();
        assert!(current == b"old" || current == b"new", "{current:?}");
        seen.insert(current);
    }
    assert_eq!(seen.len(), 2);
    sim.sync_dir(Path::new("/db")).unwrap();
    // A later file under the old name must not be able to take the renamed one with it.
    create(&sim, "x").append(b"1").unwrap();
    sim.rename(&path("CURRENT"), &path("OTHER")).unwrap();
    create(&sim, "CURRENT").append(b"2").unwrap();
    for seed in 0..200 {
        let image = sim.crash_image(seed);
        let names = [image.read_file(path("CURRENT")), image.read_file(path("OTHER"))];
        assert!(names.contains(&Some(b"new".to_vec())), "seed {seed}: {names:?}");
    }
}

#[test]
fn a_killed_process_loses_nothing_but_leaves_it_unsynced() {
    let sim = synced_dir();
    let lock = sim.lock(&path("LOCK")).unwrap();
    sim.sync_dir(Path::new("/db")).unwrap();
    create(&sim, "a").append(&[7; 3000]).unwrap();
    let image = sim.kill_image();
    assert_eq!(image.read_file(path("a")).unwrap(), [7; 3000]);
    assert_eq!(image.op_count(), 0);
    assert!((0..50).any(|seed| image.crash_image(seed).read_file(path("a")).is_none()));
    assert_eq!(kind(sim.lock(&path("LOCK"))), ErrorKind::WouldBlock);
    assert!(image.lock(&path("LOCK")).is_ok(), "locks die with their process");
    drop(lock);
    assert!(sim.lock(&path("LOCK")).is_ok());
}

#[test]
fn shared_locks_are_held_together_but_not_beside_the_exclusive_one() {
    let sim = synced_dir();
    let readers = path("READERS");
    assert_eq!(kind(sim.lock_shared(&readers)), ErrorKind::NotFound);
    create(&sim, "READERS");
    let (one, two) = (sim.lock_shared(&readers).unwrap(), sim.lock_shared(&readers).unwrap());
    drop(one);
    assert_eq!(kind(sim.lock(&readers)), ErrorKind::WouldBlock, "one is left");
    drop(two);
    let exclusive = sim.lock(&readers).unwrap();
    assert_eq!(kind(sim.lock_shared(&readers)), ErrorKind::WouldBlock);
    drop(exclusive);
    assert!(sim.lock_shared(&readers).is_ok());
}

#[test]
fn after_the_power_cut_nothing_changes() {
    let sim = synced_dir();
    let mut file = create(&sim, "a");
    let ops = sim.op_count();
    sim.crash_after(ops + 1);
    file.append(b"1").unwrap();
    assert!(file.append(b"2").is_err() && file.sync().is_err());
    assert!(sim.remove(&path("a")).is_err() && sim.sync_dir(Path::new("/db")).is_err());
    assert!(sim.open(&path("a"), OpenMode::default()).is_err());
    assert_eq!(sim.op_count(), ops + 1);
    assert_eq!(sim.read_file(path("a")).unwrap(), b"1");
    assert!(sim.crash_image(3).list(Path::new("/db")).is_ok());
}

#[test]
fn a_fault_strikes_its_operation_once_or_for_ever() {
    let sim = synced_dir();
    let mut file = create(&sim, "a");
    let fault = |kind, forever, filter| Fault { at_op: sim.op_count(), kind, forever, filter };
    sim.set_fault(Some(fault(FaultKind::Eio, false, Some(OpClass::Append))));
    assert!(sim.exists(&path("a")).unwrap());
    assert!(file.append(b"x").is_err());
    file.append(b"y").unwrap();
    assert_eq!((sim.executed_faults(), sim.read_file(path("a")).unwrap()), (1, b"y".to_vec()));
    sim.set_fault(Some(fault(FaultKind::Enospc, true, None)));
    assert!(file.append(b"x").unwrap_err().is_no_space());
    assert!(file.append(b"x").unwrap_err().is_no_space());
    assert!(sim.open(&path("a"), OpenMode::default()).is_ok());
    sim.set_fault(Some(fault(FaultKind::Eintr, true, None)));
    file.append(b"z").unwrap();
    assert_eq!((sim.executed_faults(), file.len()), (4, 2));
    let late = Fault { at_op: sim.op_count() + 1, ..fault(FaultKind::SyncFails, false, None) };
    sim.set_fault(Some(late));
    file.sync().unwrap();
    assert!(file.sync().is_err());
    assert!(file.sync().is_err() && file.append(b"x").is_err(), "finished for ever");
    assert_eq!(sim.executed_faults(), 5);
}

#[test]
fn a_short_write_leaves_a_part_that_the_next_append_replaces() {
    let mut left = BTreeSet::new();
    for seed in 0..50 {
        let sim = SimVfs::new(seed);
        let mut file = sim.create(Path::new("f"), &CreateOptions::default()).unwrap();
        file.append(b"head").unwrap();
        let kind = FaultKind::ShortWrite;
        sim.set_fault(Some(Fault { at_op: 0, kind, forever: false, filter: None }));
        assert!(file.append(b"abcdef").is_err());
        let bytes = sim.read_file("f").unwrap();
        assert_eq!(file.len(), 4);
        assert!(b"headabcdef".starts_with(&bytes) && bytes.len() >= 4);
        left.insert(bytes.len());
        file.append(b"XY").unwrap();
        assert_eq!(sim.read_file("f").unwrap(), b"headXY");
        assert_eq!(sim.files(), [(PathBuf::from("f"), 6)]);
    }
    assert!(left.len() > 4);
}

#[test]
fn a_full_device_refuses_appends_and_recovers() {
    let sim = synced_dir();
    sim.set_capacity_bytes(Some(1000));
    let mut file = create(&sim, "a");
    file.append(&[1; 600]).unwrap();
    assert_eq!(sim.free_space_bytes(Path::new("/db")).unwrap(), 400);
    let mut other = create(&sim, "b");
    assert!(other.append(&[2; 401]).unwrap_err().is_no_space());
    assert_eq!(sim.free_space_bytes(Path::new("/db")).unwrap(), 0);
    other.append(&[2; 400]).unwrap();
    sim.remove(&path("a")).unwrap();
    assert!(other.append(&[2]).unwrap_err().is_no_space(), "still open");
    drop(file);
    other.append(&[2]).unwrap();
    sim.set_capacity_bytes(None);
    other.append(&[2; 5000]).unwrap();
}

#[test]
fn a_file_system_may_hide_its_room_and_refuse_to_set_any_aside() {
    let sim = synced_dir();
    sim.set_capacity_bytes(Some(1000));
    sim.hide_free_space();
    assert_eq!(sim.free_space_bytes(Path::new("/db")).unwrap(), u64::MAX);
    let options = CreateOptions { preallocate_bytes: 800, ..CreateOptions::default() };
    drop(sim.create(&path("a"), &options).unwrap());
    assert_eq!(sim.len(&path("a")).unwrap(), 800);
    assert!(create(&sim, "b").append(&[2; 201]).unwrap_err().is_no_space());
    sim.remove(&path("a")).unwrap();
    sim.refuse_preallocation();
    let image = sim.kill_image();
    drop(image.create(&path("a"), &options).unwrap());
    assert_eq!(image.len(&path("a")).unwrap(), 0);
    assert_eq!(image.free_space_bytes(Path::new("/db")).unwrap(), u64::MAX);
}

#[test]
fn a_cut_takes_back_what_a_failed_append_has_left() {
    let sim = synced_dir();
    sim.set_capacity_bytes(Some(1000));
    let mut file = create(&sim, "a");
    file.append(&[1; 600]).unwrap();
    assert!(file.append(&[2; 500]).unwrap_err().is_no_space());
    assert_eq!((file.len(), sim.len(&path("a")).unwrap()), (600, 1000));
    file.cut(600).unwrap();
    assert_eq!((file.len(), sim.len(&path("a")).unwrap()), (600, 600));
    file.sync().unwrap();
    assert_eq!(kind(file.cut(601)), ErrorKind::InvalidInput);
    file.cut(400).unwrap();
    sim.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(sim.crash_image(1).read_file(path("a")).unwrap(), [1; 400]);
}

#[test]
fn preallocated_room_reads_as_zeros_until_finish() {
    let sim = synced_dir();
    sim.set_capacity_bytes(Some(1000));
    let options = CreateOptions { preallocate_bytes: 800, ..CreateOptions::default() };
    let mut file = sim.create(&path("log"), &options).unwrap();
    file.append(b"abc").unwrap();
    assert_eq!(sim.len(&path("log")).unwrap(), 800);
    assert_eq!(sim.read_file(path("log")).unwrap()[..5], *b"abc\0\0");
    assert_eq!(sim.free_space_bytes(Path::new("/db")).unwrap(), 200);
    file.append(&[1; 900]).unwrap();
    file.finish().unwrap();
    file.finish().unwrap();
    let mut short = sim.create(&path("log2"), &options).unwrap();
    short.append(b"d").unwrap();
    short.finish().unwrap();
    assert_eq!(sim.len(&path("log2")).unwrap(), 1);
    assert_eq!(sim.len(&path("log")).unwrap(), 903);
}

#[test]
fn zeros_go_ahead_of_appends_where_they_are_wanted_and_stand_behind_them_after_a_power_cut() {
    let sim = synced_dir();
    sim.write_zeros_ahead(512);
    let options = CreateOptions { zeros_ahead: true, ..CreateOptions::default() };
    let mut file = sim.create(&path("log"), &options).unwrap();
    let len = |file: &str| sim.len(&path(file)).unwrap();
    file.append(&[1; 100]).unwrap();
    assert_eq!((file.len(), len("log")), (100, 512));
    file.append(&[1; 412]).unwrap();
    assert_eq!(len("log"), 512);
    file.append(&[1; 1]).unwrap();
    assert_eq!(len("log"), 1024);
    assert!(sim.read_file(path("log")).unwrap()[513..].iter().all(|byte| *byte == 0));
    sim.sync_dir(Path::new("/db")).unwrap();
    let left = (0..100).map(|seed| sim.crash_image(seed).read_file(path("log")).unwrap());
    let followed = left.filter(|bytes| bytes.len() == 1024 && bytes[..513] == [1; 513]).count();
    assert!((1..100).contains(&followed), "{followed}");
    file.finish().unwrap();
    assert_eq!(len("log"), 513);
    create(&sim, "other").append(&[1; 1]).unwrap();
    assert_eq!(len("other"), 1);
    // Without room for zeros records take what there is.
    sim.set_capacity_bytes(Some(514 + 600));
    let mut file = sim.create(&path("next"), &options).unwrap();
    file.append(&[1; 500]).unwrap();
    assert_eq!(len("next"), 512);
    file.append(&[1; 100]).unwrap();
    assert_eq!(len("next"), 600);
}

#[test]
fn links_renames_and_directories_behave_like_a_file_system() {
    let sim = SimVfs::new(0);
    let missing = Path::new("/no/file");
    assert_eq!(kind(sim.create(missing, &CreateOptions::default())), ErrorKind::NotFound);
    sim.create_dir_all(Path::new("/a/b/c")).unwrap();
    sim.create_dir_all(Path::new("/a/b/c")).unwrap();
    assert!(sim.crash_image(1).exists(Path::new("/a/b/c")).unwrap());
    sim.create_dir_all(Path::new("/a/d/e")).unwrap();
    sim.rename(Path::new("/a/d"), Path::new("/a/b/c")).unwrap();
    assert!(sim.exists(Path::new("/a/b/c/e")).unwrap() && !sim.exists(Path::new("/a/d")).unwrap());
    sim.create_dir_all(Path::new("/a/d")).unwrap();
    let onto_a_full_one = sim.rename(Path::new("/a/d"), Path::new("/a/b/c"));
    assert_eq!(kind(onto_a_full_one), ErrorKind::AlreadyExists);
    sim.remove(Path::new("/a/d")).unwrap();
    sim.write_file("/a/f", b"1");
    let again = sim.create(Path::new("/a/f"), &CreateOptions::default());
    assert_eq!(kind(again), ErrorKind::AlreadyExists);
    sim.hard_link(Path::new("/a/f"), Path::new("/a/b/f")).unwrap();
    assert_eq!(
        kind(sim.hard_link(Path::new("/a/f"), Path::new("/a/b/f"))),
        ErrorKind::AlreadyExists
    );
    sim.remove(Path::new("/a/f")).unwrap();
    assert_eq!(sim.read_file("/a/b/f").unwrap(), b"1");
    assert_eq!(sim.list(Path::new("/a")).unwrap(), Vec::<String>::new());
    assert_eq!(kind(sim.remove(Path::new("/a/b"))), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(sim.open(Path::new("/a/b"), OpenMode::default())), ErrorKind::IsADirectory);
    sim.rename(Path::new("/a/b"), Path::new("/moved")).unwrap();
    assert_eq!(sim.list(Path::new("moved")).unwrap(), ["f"]);
    assert!((0..20).all(|seed| sim.crash_image(seed).exists(Path::new("/moved")).unwrap()));
    assert!(sim.corrupt("/moved/f", 0, 1) && !sim.corrupt("/moved/f", 1, 1));
    assert_eq!(sim.read_file("/moved/f").unwrap(), b"0");
    assert!(sim.truncate("/moved/f", 0) && !sim.truncate("/moved/g", 0));
    assert_eq!(sim.files(), [(PathBuf::from("/moved/f"), 0)]);
}

#[test]
fn images_share_what_has_not_changed() {
    let sim = synced_dir();
    let mut file = create(&sim, "big");
    file.append(&vec![3; 4 << 20]).unwrap();
    file.sync().unwrap();
    sim.sync_dir(Path::new("/db")).unwrap();
    let image = sim.crash_image(5);
    let content = |sim: &SimVfs| {
        let state = sim.shared.state.lock();
        state.file(state.find(&path("big")).unwrap()).unwrap().content.clone()
    };
    assert!(content(&sim).shares_with(&content(&image)));
    file.append(b"more").unwrap();
    assert_eq!(image.len(&path("big")).unwrap(), 4 << 20);
    let start = std::time::Instant::now();
    for seed in 0..1000 {
        assert!(sim.crash_image(seed).exists(&path("big")).unwrap());
    }
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

#[test]
fn removed_files_are_freed_once_no_durable_state_names_them() {
    let sim = synced_dir();
    for round in 0..20 {
        let name = format!("{round}");
        create(&sim, &name).append(&[1; 100]).unwrap();
        sim.sync_dir(Path::new("/db")).unwrap();
        sim.remove(&path(&name)).unwrap();
    }
    sim.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(sim.shared.state.lock().nodes.len(), 2, "the root and the directory");
}

#[test]
fn around_a_lost_sector_the_rest_is_read() {
    let sim = SimVfs::new(1);
    let bytes: Vec<u8> = (0..20_000u32).map(|at| at as u8 | 1).collect();
    assert!(sim.write_file("/file", &bytes));
    assert!(sim.lose_sector("/file", 5000..5001) && sim.lose_sector("/file", 9000..9512));
    assert!(sim.lose_sector("/file", 19_999..20_000) && sim.know_damage("/file", 13_000..13_010));
    let file = sim.open(Path::new("/file"), OpenMode::default()).unwrap();
    let read = |from: usize, len: usize| {
        let (mut buf, mut damaged) = (vec![0xaa; len], Vec::new());
        assert!(file.read_at(from as u64, &mut buf).is_err());
        let page = crate::LOST_PAGE_BYTES;
        file.read_around_loss(from as u64, &mut buf, &mut damaged, page).unwrap();
        for (at, byte) in buf.iter().enumerate() {
            let at = (from + at) as u64;
            if !damaged.iter().any(|range| range.contains(&at)) {
                assert_eq!(*byte, bytes[at as usize], "{at}");
            }
        }
        damaged
    };
    // Neighbouring pages are one range.
    assert_eq!(read(0, 20_000), [4096..12_288, 13_000..13_010, 16_384..20_000]);
    assert_eq!(read(4990, 100).first(), Some(&(4990..5090)));
    let mut past_the_end = [0; 10];
    let sector = crate::LOST_SECTOR_BYTES;
    let mut damaged = Vec::new();
    let error = file.read_around_loss(19_995, &mut past_the_end, &mut damaged, sector);
    assert!(!crate::is_unreadable(&error.unwrap_err()));
}

#[test]
fn a_file_can_be_synced_beside_who_appends() {
    let sim = synced_dir();
    let mut file = create(&sim, "a");
    sim.sync_dir(Path::new("/db")).unwrap();
    let handle = file.sync_handle().unwrap();
    file.append(b"durable").unwrap();
    handle.sync().unwrap();
    file.append(b", not so").unwrap();
    let lengths: BTreeSet<u64> =
        (0..50).map(|seed| sim.crash_image(seed).len(&path("a")).unwrap()).collect();
    assert!(lengths.len() > 1 && lengths.first() == Some(&7), "{lengths:?}");
}

#[test]
fn after_a_failed_sync_beside_who_appends_nobody_syncs_or_appends() {
    for by_handle in [true, false] {
        let sim = synced_dir();
        let mut file = create(&sim, "a");
        let handle = file.sync_handle().unwrap();
        let (at_op, kind) = (sim.op_count(), FaultKind::SyncFails);
        sim.set_fault(Some(Fault { at_op, kind, forever: false, filter: None }));
        let failed = if by_handle { handle.sync() } else { file.sync() };
        assert!(failed.is_err() && sim.executed_faults() == 1);
        assert!(handle.sync().is_err() && file.sync().is_err() && file.append(b"x").is_err());
    }
}
