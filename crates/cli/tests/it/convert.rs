//! `terrace convert`: a server's store there and back, and what is refused.

use crate::program::Program;
use terrace::Options;
use terrace_keyspace::{Keyspace, Kind, Mode, Placement};

/// A server's store with strings, also in another database, and a set.
fn made(program: &Program, dir: &str, placement: Placement) {
    let space = Keyspace::open_placed(program.path(dir), Options::default(), placement).unwrap();
    let mut batch = space.command_batch(Mode::Device);
    batch.lock_everything();
    for (db, key) in [(0, &b"b"[..]), (0, b"a"), (0, b"{t}1"), (3, b"c")] {
        batch.put(db, key, b"value", &Default::default()).unwrap();
    }
    batch.set_add(0, b"set", [&b"member"[..]].into_iter()).unwrap();
    assert_eq!(batch.set(0, b"set").unwrap().map(|meta| meta.kind), Some(Kind::Set));
    batch.commit().unwrap();
    space.close().unwrap();
}

#[test]
fn a_store_is_converted_there_and_back() {
    let program = Program::new();
    made(&program, "range", Placement::Range);
    let said = program.ok(&["convert", "range", "slots", "--placement", "slots"]);
    assert!(said.starts_with("converted 5 keys with 1 elements"), "{said}");
    program.ok(&["convert", "slots", "again", "--placement", "range"]);
    for (db, count) in [("0", 4), ("3", 1)] {
        let scan = |dir| program.ok(&["scan", "--dir", dir, "--db", db]);
        let lines = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(String::from).collect();
            lines.sort();
            lines
        };
        assert_eq!(scan("again"), scan("range"));
        assert_eq!(lines(&scan("slots")), lines(&scan("range")));
        assert_eq!(lines(&scan("slots")).len(), count);
    }
    let open = |dir, placement| {
        Keyspace::open_placed(program.path(dir), Options::default(), placement).map(drop)
    };
    open("slots", Placement::Slots).unwrap();
    let refused = open("range", Placement::Slots).unwrap_err().to_string();
    assert!(refused.contains("terrace convert DIR TARGET --placement slots"), "{refused}");
}

#[test]
fn what_cannot_be_converted_is_told_and_leaves_nothing() {
    let program = Program::new();
    program.ok(&["put", "key", "value"]);
    let convert =
        |from: &str, to: &str| program.fails(1, &["convert", from, to, "--placement", "slots"]);
    assert!(convert("terrace-data", "new").contains("no data of a server"));
    assert!(!program.path("new").exists() && !program.path("new.partial").exists());
    made(&program, "served", Placement::Range);
    assert!(convert("served", "terrace-data").contains("is not empty"));
    std::fs::create_dir(program.path("empty")).unwrap();
    for none in ["nowhere", "empty"] {
        let said = convert(none, "new");
        assert!(said.contains("holds no store; name the directory"), "{said}");
    }
    assert_eq!(std::fs::read_dir(program.path("empty")).unwrap().count(), 0);
    let open = Keyspace::open(program.path("served"), Options::default()).unwrap();
    assert!(!convert("served", "new").is_empty(), "somebody has it open");
    open.close().unwrap();
    let ran = program.run(&["convert", "served", "new", "--placement", "hash"]);
    assert!(ran.code == 2 && ran.err.contains("range and slots"), "{}", ran.err);
}
