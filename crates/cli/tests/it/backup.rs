//! `terrace backup`: a full circle, damage, and what is refused.

use crate::program::Program;
use std::fs;

/// A store with keys of two rounds, a backup after each.
fn two_backups(program: &Program) {
    for round in ["1", "2"] {
        program.ok(&["put", "key", round]);
        program.ok(&["put", &format!("only-{round}"), "v"]);
        let told = program.ok(&["backup", "create", "terrace-data", "backups"]);
        assert!(told.starts_with(&format!("backup {round} of terrace-data: ")), "{told}");
    }
}

#[test]
fn a_store_is_backed_up_twice_and_restored_as_it_was() {
    let program = Program::new();
    two_backups(&program);
    let listed = program.ok(&["backup", "list", "backups"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.starts_with("1\t20"), "{listed}");
    let verified = program.ok(&["backup", "verify", "backups"]);
    assert_eq!(verified, "backup 1 is sound\nbackup 2 is sound\n");
    fs::create_dir_all(program.path("none/backups")).unwrap();
    let verified = program.ok(&["backup", "verify", "none"]);
    assert!(verified.contains("nothing was verified"), "{verified}");
    for (id, dir, value) in [("1", "one", "1"), ("2", "two", "2"), ("latest", "last", "2")] {
        program.ok(&["backup", "restore", "backups", id, dir]);
        assert_eq!(program.ok(&["get", "key", "--dir", dir]).trim_end(), value);
        program.ok(&["verify", "--dir", dir]);
    }
    assert_eq!(program.run(&["get", "only-2", "--dir", "one"]).code, 1);
    program.ok(&["backup", "remove", "backups", "1"]);
    assert_eq!(program.ok(&["backup", "list", "backups"]).lines().count(), 1);
    program.ok(&["put", "key", "3"]);
    program.ok(&["backup", "create", "terrace-data", "backups", "--keep", "1"]);
    let listed = program.ok(&["backup", "list", "backups"]);
    assert!(listed.starts_with("3\t") && listed.lines().count() == 1, "{listed}");
}

#[test]
fn damage_is_told_and_nothing_is_restored() {
    let program = Program::new();
    two_backups(&program);
    for entry in fs::read_dir(program.path("backups/files")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let verified = program.run(&["backup", "verify", "backups"]);
    assert_eq!(verified.code, 1);
    assert_eq!(verified.out.matches("is damaged").count(), 2, "{}", verified.out);
    let restored = program.run(&["backup", "restore", "backups", "1", "new"]);
    assert_eq!(restored.code, 1);
    assert!(restored.err.contains("is damaged"), "{}", restored.err);
    assert!(!program.path("new").exists());
}

#[test]
fn a_backup_that_cannot_be_read_keeps_no_other_from_being_verified() {
    let program = Program::new();
    two_backups(&program);
    let entries = fs::read_dir(program.path("backups/files")).unwrap();
    let files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    for file in files {
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
    }
    let verified = program.run(&["backup", "verify", "backups"]);
    assert_eq!((verified.code, verified.err.as_str()), (1, ""));
    for (line, id) in verified.out.lines().zip(["1", "2"]) {
        assert!(line.starts_with(&format!("backup {id}: ")), "{}", verified.out);
    }
    assert_eq!(verified.out.lines().count(), 2, "{}", verified.out);
}

#[test]
fn a_damaged_store_drives_no_sound_backups_out() {
    let program = Program::with_store();
    program.ok(&["backup", "create", "terrace-data", "backups"]);
    let sst = program.files(".sst").into_iter().next().unwrap();
    let sound = fs::read(&sst).unwrap();
    let mut bytes = sound.clone();
    bytes[9] ^= 1;
    fs::write(&sst, bytes).unwrap();
    let create = ["backup", "create", "terrace-data", "backups", "--keep", "1"];
    let said = program.fails(1, &create);
    let name = sst.file_name().unwrap().to_str().unwrap();
    assert!(said.contains(name) && said.contains("is damaged: at offset"), "{said}");
    let listed = program.ok(&["backup", "list", "backups"]);
    assert!(listed.starts_with("1\t") && listed.lines().count() == 1, "{listed}");
    program.ok(&["backup", "create", "terrace-data", "backups", "--as-is"]);
    assert_eq!(program.ok(&["backup", "list", "backups"]).lines().count(), 2);
    fs::write(&sst, sound).unwrap();
    program.ok(&create);
    let listed = program.ok(&["backup", "list", "backups"]);
    assert!(listed.starts_with("3\t") && listed.lines().count() == 1, "{listed}");
}

#[test]
fn what_cannot_be_done_is_refused_with_a_reason() {
    let program = Program::new();
    two_backups(&program);
    for (arguments, why) in [
        (&["backup", "restore", "backups", "7", "new"][..], "there is no backup 7"),
        (&["backup", "restore", "backups", "x", "new"], "is no number of a backup"),
        (&["backup", "restore", "backups", "1", "terrace-data"], "is not empty"),
        (&["backup", "create", "nowhere", "backups"], "nowhere"),
        (&["backup", "create", "terrace-data", "terrace-data"], "is inside of the store"),
        (&["backup", "list", "nowhere"], "holds no backups"),
        (&["backup", "remove", "backups", "7"], "there is no backup 7"),
    ] {
        let ran = program.run(arguments);
        assert_eq!(ran.code, 1, "{arguments:?}");
        assert!(ran.err.contains(why), "{arguments:?}: {}", ran.err);
    }
    assert!(!program.path("nowhere").exists());
}

#[test]
fn a_store_is_not_backed_up_into_its_own_directory() {
    let program = Program::new();
    program.ok(&["put", "key", "1"]);
    let names = || {
        let entries = fs::read_dir(program.store()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    std::os::unix::fs::symlink(program.store(), program.path("link")).unwrap();
    for inside in ["terrace-data/backup-work", "terrace-data/backups/daily", "link/new", "link"] {
        let said = program.fails(1, &["backup", "create", "terrace-data", inside]);
        assert!(said.contains("is inside of the store"), "{inside}: {said}");
    }
    assert_eq!(names(), before);
    program.ok(&["backup", "create", "terrace-data", "backups"]);
    for own in ["lost", "backup-work", "backup-work.partial"] {
        let target = format!("terrace-data/{own}");
        for arguments in
            [&["backup", "restore", "backups", "1", target.as_str()][..], &["checkpoint", &target]]
        {
            let said = program.fails(1, arguments);
            assert!(said.contains("for its own use"), "{arguments:?}: {said}");
        }
    }
    program.ok(&["backup", "create", "terrace-data", "backups"]);
}

#[test]
fn a_link_where_a_backup_has_its_checkpoint_is_not_followed() {
    let program = Program::new();
    program.ok(&["put", "key", "1"]);
    fs::create_dir(program.path("out")).unwrap();
    fs::write(program.path("out/000001.sst"), b"mine").unwrap();
    for name in ["terrace-data/backup-work", "terrace-data/backup-work.partial"] {
        std::os::unix::fs::symlink(program.path("out"), program.path(name)).unwrap();
        program.ok(&["put", "key", "2"]);
        let said = program.fails(1, &["backup", "create", "terrace-data", "backups"]);
        assert!(said.contains(name) && said.contains("move it away"), "{said}");
        assert_eq!(fs::read(program.path("out/000001.sst")).unwrap(), b"mine");
        fs::remove_file(program.path(name)).unwrap();
    }
    program.ok(&["backup", "create", "terrace-data", "backups"]);
}
