//! `terrace repair` on stores that do not open.

use crate::program::Program;
use terrace::{Db, Error, Options, RepairOptions, RepairReport, repair_telling};
use terrace_keyspace::{COLLECTIONS, CommandBatch, ELEMENTS, Keyspace, Mode, Placement};

fn manifest(program: &Program) -> std::path::PathBuf {
    let is_one = |path: &std::path::PathBuf| path.to_string_lossy().contains("MANIFEST-");
    program.files("").into_iter().find(is_one).unwrap()
}

#[test]
fn a_cut_manifest_is_made_anew() {
    let program = Program::with_store();
    let before = program.ok(&["scan"]);
    let path = manifest(&program);
    let bytes = std::fs::read(&path).unwrap();
    // The file that a clean close leaves: the cut takes the edit that names the SSTs of the last open.
    std::fs::write(&path, &bytes[..bytes.len() / 3]).unwrap();
    let said = program.fails(1, &["get", "key000001"]);
    assert!(said.contains("terrace repair"), "{said}");
    let dry = program.run(&["repair", "terrace-data", "--dry-run"]);
    assert!(dry.code == 3 && dry.out.contains("dry run"), "{}{}", dry.out, dry.err);
    assert_eq!(std::fs::read(&path).unwrap().len(), bytes.len() / 3);
    let ran = program.run(&["repair", "terrace-data"]);
    assert!(ran.code == 3 && ran.out.contains("LOST: "), "{}{}", ran.out, ran.err);
    assert_eq!(program.ok(&["scan"]), before);
    assert!(program.ok(&["verify"]).ends_with("sound\n"));
    assert!(program.store().join("lost").join(path.file_name().unwrap()).exists());
}

/// As when the command is killed after it has repaired the store and before it has said so.
#[test]
fn what_a_killed_repair_found_is_told_by_the_next() {
    let program = Program::with_store();
    let path = manifest(&program);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 3]).unwrap();
    let mut found = Vec::new();
    let killed = |report: &RepairReport| {
        found.clone_from(&report.lost);
        Err(Error::InvalidArgument("killed".into()))
    };
    let how = RepairOptions::default();
    repair_telling(program.store(), Options::default(), how, killed).unwrap_err();
    assert!(!found.is_empty());
    for arguments in [&["repair", "terrace-data", "--dry-run"][..], &["repair", "terrace-data"]] {
        let ran = program.run(arguments);
        let is_told = |loss: &String| ran.out.contains(&format!("LOST: {loss}\n"));
        assert!(ran.code == 3 && found.iter().all(is_told), "{}{}", ran.out, ran.err);
    }
    assert!(program.store().join("lost/REPORT.1").exists());
    assert!(program.ok(&["repair", "terrace-data"]).contains("the store is sound"));
}

/// What has been moved to `lost` does not stand in the way of what comes after it.
#[test]
fn a_link_to_nothing_is_moved_as_often_as_there_is_one() {
    let program = Program::with_store();
    let before = program.ok(&["scan"]);
    let (current, lost) = (program.store().join("CURRENT"), program.store().join("lost"));
    for moved in ["CURRENT.misplaced", "CURRENT.misplaced.1"] {
        std::fs::remove_file(&current).unwrap();
        std::os::unix::fs::symlink("/nonexistent/manifest", &current).unwrap();
        let out = program.ok(&["repair", "terrace-data"]);
        assert!(out.contains("CURRENT is a link to nothing"), "{out}");
        assert!(lost.join(moved).is_symlink(), "{out}");
        assert_eq!(program.ok(&["scan"]), before);
        assert!(program.ok(&["repair", "terrace-data"]).contains("the store is sound"));
    }
}

#[test]
fn what_has_the_name_of_lost_and_is_no_directory_is_named() {
    let program = Program::with_store();
    for is_link in [true, false] {
        let lost = program.store().join("lost");
        match is_link {
            true => std::os::unix::fs::symlink("/nonexistent/lost", &lost).unwrap(),
            false => std::fs::write(&lost, b"mine").unwrap(),
        }
        for arguments in [&["repair", "terrace-data"][..], &["repair", "terrace-data", "--dry-run"]]
        {
            let said = program.fails(1, arguments);
            assert!(
                said.contains("lost is no directory") && said.contains("move it away"),
                "{said}"
            );
        }
        std::fs::remove_file(&lost).unwrap();
    }
}

#[test]
fn a_sound_store_stays_as_it_is() {
    let program = Program::with_store();
    let before = program.ok(&["scan"]);
    let out = program.ok(&["repair", "terrace-data"]);
    assert!(out.contains("the store is sound"), "{out}");
    assert_eq!(program.ok(&["scan"]), before);
}

#[test]
fn what_is_no_store_is_refused() {
    let program = Program::new();
    program.fails(2, &["repair", "nowhere"]);
    std::fs::create_dir(program.path("empty")).unwrap();
    program.fails(2, &["repair", "empty"]);
}

/// The store says of itself what is older than its data, as when a record of the log is left out: after a repair that has
/// lost something a new collection has nothing of an old one all the same.
#[test]
fn ids_of_a_servers_store_are_not_used_again_after_a_repair_with_losses() {
    let program = Program::new();
    let add = |key: &[u8], member: &[u8]| {
        let store = program.store();
        let space = Keyspace::open_placed(store, Options::default(), Placement::Slots).unwrap();
        let mut batch = space.command_batch(Mode::Device);
        batch.lock_everything();
        batch.set_add(0, key, [member].into_iter()).unwrap();
        batch.commit().unwrap();
        let counts = [&b"{t}old"[..], b"{t}new"].map(|key| size(&mut batch, key));
        drop(batch);
        space.close().unwrap();
        counts
    };
    assert_eq!(add(b"{t}old", b"of old"), [1, 0]);
    let db = Db::open(program.store(), Options::default()).unwrap();
    for name in [COLLECTIONS, ELEMENTS] {
        db.column_family(name).unwrap().put(b"\xFFids", 1_u64.to_le_bytes()).unwrap();
    }
    db.close().unwrap();
    drop(db);
    let path = manifest(&program);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 3]).unwrap();
    let ran = program.run(&["repair", "terrace-data"]);
    assert!(ran.code == 3 && ran.out.contains("LOST: "), "{}{}", ran.out, ran.err);
    assert_eq!(add(b"{t}new", b"of new"), [1, 1]);
}

/// Of a store whose writes are still all in the log nothing else tells the names of its families.
#[test]
fn a_servers_store_without_a_manifest_is_one_after_its_repair() {
    for placement in [Placement::Range, Placement::Slots] {
        let program = Program::new();
        let open = |path| Keyspace::open_placed(path, Options::default(), placement).unwrap();
        let space = open(program.store());
        let mut batch = space.command_batch(Mode::Device);
        batch.lock_everything();
        batch.set_add(0, b"set", [&b"member"[..]].into_iter()).unwrap();
        batch.commit().unwrap();
        drop(batch);
        // What a killed server leaves.
        let left = program.path("left");
        std::fs::create_dir(&left).unwrap();
        for file in std::fs::read_dir(program.store()).unwrap() {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            assert!(!name.ends_with(".sst"), "{name}");
            if !["MANIFEST", "CURRENT", "SYNCED"].iter().any(|part| name.starts_with(part)) {
                std::fs::copy(file.path(), left.join(name)).unwrap();
            }
        }
        space.close().unwrap();
        let ran = program.run(&["repair", "left"]);
        assert!(ran.code == 3 && !ran.out.contains("`family-"), "{}{}", ran.out, ran.err);
        let space = open(left);
        assert_eq!(size(&mut space.command_batch(Mode::Device), b"set"), 1, "{}", ran.out);
        space.close().unwrap();
    }
}

/// How many members are found, of all that the elements say.
fn size(batch: &mut CommandBatch, key: &[u8]) -> usize {
    let Some(set) = batch.set(0, key).unwrap() else { return 0 };
    let mut members = 0;
    let see = |_: &[u8]| {
        members += 1;
        Ok(true)
    };
    batch.set_each(0, &set, see).unwrap();
    members
}
