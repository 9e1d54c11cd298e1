//! What a store says of itself is lost in one place, as damage and a repair can do, or in both.

use crate::range::harness::{small_options, stopped_clock};
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace::{Db, Options};
use terrace_keyspace::{
    COLLECTIONS, CommandBatch, ELEMENTS, Keyspace, Mode, Placement, PutOptions, StoreKind, convert,
    doubt_notes,
};

const MARK: &[u8] = b"\xFFkeyspace";
const IDS: &[u8] = b"\xFFids";
const FAMILIES: [&str; 2] = [COLLECTIONS, ELEMENTS];
const PLACEMENTS: [Placement; 2] = [Placement::Range, Placement::Slots];

struct Store {
    options: Options,
    placement: Placement,
}

impl Store {
    /// With a string in database 0, a set in database 0 and one in database 9.
    fn filled(placement: Placement) -> Self {
        let store = Self::of_strings(placement);
        let space = store.open(None).unwrap();
        write(&space, |batch| {
            add(batch, 0, b"old", b"of old");
            add(batch, 9, b"old", b"of old 9");
        });
        space.close().unwrap();
        store
    }

    fn of_strings(placement: Placement) -> Self {
        let options = small_options(&SimVfs::new(1), &stopped_clock());
        let store = Self { options, placement };
        let space = store.open(Some(placement)).unwrap();
        write(&space, |batch| {
            for number in 0..5 {
                let key = format!("string {number}").into_bytes();
                batch.put(0, &key, b"v", &PutOptions::default()).unwrap();
            }
        });
        space.close().unwrap();
        store
    }

    fn open(&self, wanted: Option<Placement>) -> terrace_keyspace::Result<Arc<Keyspace>> {
        Keyspace::open_without_active_expire("/db", self.options.clone(), wanted)
    }

    fn read(&self) -> terrace_keyspace::Result<Arc<Keyspace>> {
        Keyspace::read_only(Db::open_read_only("/db", self.options.clone()).unwrap())
    }

    fn damage(&self, damage: impl FnOnce(&Db)) {
        let db = Db::open("/db", self.options.clone()).unwrap();
        damage(&db);
        db.close().unwrap();
    }

    fn lose(&self, families: &[&str], keys: &[&[u8]]) {
        self.damage(|db| {
            for (name, key) in families.iter().flat_map(|name| keys.iter().map(move |k| (name, k)))
            {
                db.column_family(name).unwrap().delete(key).unwrap();
            }
        });
    }

    /// A new set has nothing of the old ones, and they nothing of it.
    fn check_new_set(&self, what: &str) {
        let space = self.open(None).unwrap();
        assert_eq!(space.layout().placement(), self.placement, "{what}");
        for db in [0, 9] {
            write(&space, |batch| add(batch, db, b"{old}new", b"of new"));
            let mut batch = space.command_batch(Mode::Device);
            assert_eq!(members(&mut batch, db, b"{old}new"), [b"of new"], "{what}");
            drop(batch);
            write(&space, |batch| {
                assert_eq!(batch.delete(db, [&b"{old}new"[..]].into_iter()).unwrap(), 1);
            });
        }
        let mut batch = space.command_batch(Mode::Device);
        assert_eq!(members(&mut batch, 0, b"old"), [b"of old"], "{what}");
        assert_eq!(members(&mut batch, 9, b"old"), [b"of old 9"], "{what}");
        drop(batch);
        space.close().unwrap();
    }
}

fn write(space: &Arc<Keyspace>, run: impl FnOnce(&mut CommandBatch)) {
    let mut batch = space.command_batch(Mode::Device);
    batch.lock_everything();
    run(&mut batch);
    batch.commit().unwrap();
}

fn add(batch: &mut CommandBatch, db: u8, key: &[u8], member: &[u8]) {
    batch.set_add(db, key, [member].into_iter()).unwrap();
}

fn members(batch: &mut CommandBatch, db: u8, key: &[u8]) -> Vec<Vec<u8>> {
    let mut members = Vec::new();
    let Some(set) = batch.set(db, key).unwrap() else {
        return members;
    };
    let see = |member: &[u8]| {
        members.push(member.to_vec());
        Ok(true)
    };
    batch.set_each(db, &set, see).unwrap();
    members
}

fn is_there(space: &Arc<Keyspace>, db: u8, key: &[u8]) -> bool {
    space.command_batch(Mode::Device).key_type(db, key).unwrap().is_some()
}

#[test]
fn an_id_is_not_used_again_when_the_note_of_ids_is_lost() {
    for placement in PLACEMENTS {
        for families in [&FAMILIES[..1], &FAMILIES[1..], &FAMILIES] {
            let store = Store::filled(placement);
            store.lose(families, &[IDS]);
            store.check_new_set(&format!("{placement}, {families:?}"));
        }
    }
}

#[test]
fn an_id_is_not_used_again_when_an_older_note_of_ids_is_left() {
    for placement in PLACEMENTS {
        for families in [&FAMILIES[..1], &FAMILIES[1..]] {
            let store = Store::filled(placement);
            store.damage(|db| {
                for name in families {
                    db.column_family(name).unwrap().put(IDS, 1_u64.to_le_bytes()).unwrap();
                }
            });
            store.check_new_set(&format!("{placement}, {families:?}"));
        }
    }
}

/// One damaged record of the log takes the note of ids from both families, and leaves the same older one in both.
#[test]
fn an_id_is_not_used_again_when_a_repair_has_left_out_the_note_of_ids() {
    for placement in PLACEMENTS {
        for older in [None, Some(1_u64)] {
            let store = Store::filled(placement);
            store.lose(&FAMILIES, &[IDS, b"\xFFdb\x09"]);
            store.damage(|db| {
                let families = FAMILIES.map(|name| db.column_family(name).unwrap());
                for (family, note) in families.iter().zip([older; 2]) {
                    note.into_iter().for_each(|note| family.put(IDS, note.to_le_bytes()).unwrap());
                }
                doubt_notes(db).unwrap();
                doubt_notes(db).unwrap();
            });
            assert!(is_there(&store.read().unwrap(), 9, b"old"));
            store.check_new_set(&format!("{placement}, {older:?}"));
        }
    }
    // A store that is no server's stays as it is.
    let options = small_options(&SimVfs::new(1), &stopped_clock());
    let db = Db::open("/db", options).unwrap();
    db.put("plain", "1").unwrap();
    doubt_notes(&db).unwrap();
    assert_eq!(StoreKind::of(&db).unwrap(), StoreKind::Plain);
}

/// As after a repair that an earlier build did, of which one kind of row is left.
#[test]
fn an_id_is_in_use_while_a_record_or_an_element_has_it() {
    for placement in PLACEMENTS {
        for left in FAMILIES {
            let store = Store::filled(placement);
            store.lose(&FAMILIES, &[IDS]);
            store.damage(|db| {
                let gone = if left == ELEMENTS { COLLECTIONS } else { ELEMENTS };
                db.column_family(gone).unwrap().delete_range([0], [0x80]).unwrap();
            });
            let space = store.open(None).unwrap();
            for db in [0, 9] {
                write(&space, |batch| add(batch, db, b"{old}new", b"of new"));
                let mut batch = space.command_batch(Mode::Device);
                assert_eq!(members(&mut batch, db, b"{old}new"), [b"of new"]);
                let of_old = members(&mut batch, db, b"old");
                assert!(of_old.is_empty(), "{placement}, {left}: {of_old:?}");
            }
        }
    }
}

#[test]
fn the_placement_is_known_while_one_of_the_marks_is_left() {
    for placement in PLACEMENTS {
        for lost in FAMILIES {
            for store in [Store::filled(placement), Store::of_strings(placement)] {
                // Also the notes of databases, which stand beside the mark.
                store.lose(&[lost], &[MARK, IDS, b"\xFFdb\x00", b"\xFFdb\x09"]);
                let read = store.read().unwrap();
                assert_eq!(read.layout().placement(), placement);
                assert!(is_there(&read, 0, b"string 3"));
                drop(read);
                let space = store.open(None).unwrap();
                assert_eq!(space.layout().placement(), placement);
                assert!(is_there(&space, 0, b"string 3"));
                space.close().unwrap();
                // It stands in both again.
                store.damage(|db| {
                    for name in FAMILIES {
                        assert!(db.column_family(name).unwrap().get(MARK).unwrap().is_some());
                    }
                });
            }
        }
    }
}

#[test]
fn a_placement_is_not_guessed() {
    let lost = [MARK, b"\xFFdb\x00", b"\xFFdb\x09"];
    for store in [Store::filled(Placement::Slots), Store::of_strings(Placement::Slots)] {
        store.lose(&FAMILIES, &lost);
        let refused = [
            store.read().err().unwrap(),
            store.open(None).err().unwrap(),
            store.open(Some(Placement::Range)).err().unwrap(),
        ];
        for refused in refused.map(|refused| refused.to_string()) {
            assert!(refused.contains("no mark") && refused.contains("restore"), "{refused}");
        }
        let space = store.open(Some(Placement::Slots)).unwrap();
        assert!(is_there(&space, 0, b"string 3"));
        space.close().unwrap();
        assert!(is_there(&store.read().unwrap(), 0, b"string 3"));
    }
    // Keys that have no slot prove the other one, as in stores from before the mark.
    let store = Store::of_strings(Placement::Range);
    store.lose(&FAMILIES, &lost);
    assert!(is_there(&store.read().unwrap(), 0, b"string 3"));
    assert!(store.open(Some(Placement::Slots)).is_err());
    // Databases in which something was written are noted with placement `slots` only.
    let store = Store::filled(Placement::Slots);
    store.lose(&FAMILIES, &lost[..2]);
    store.check_new_set("the note of database 9 is left");
}

/// A flush of one database must not take another one for empty.
#[test]
fn databases_that_have_something_are_found_when_their_notes_are_lost() {
    for families in [&FAMILIES[..1], &FAMILIES[1..], &FAMILIES] {
        let store = Store::filled(Placement::Slots);
        let mut lost = vec![&b"\xFFdb\x00"[..]];
        if families.len() == 2 {
            lost.push(b"\xFFdb\x09");
            lost.push(MARK);
        }
        store.lose(families, &lost);
        let space = store.open(Some(Placement::Slots)).unwrap();
        write(&space, |batch| batch.flush(9).unwrap());
        assert!(is_there(&space, 0, b"string 3") && is_there(&space, 0, b"old"), "{families:?}");
        assert!(!is_there(&space, 9, b"old"));
    }
}

/// One damaged record of the log can take the note of a database from both families, and leave what was written there later.
#[test]
fn a_flush_spares_a_database_whose_notes_are_lost() {
    for is_text in [true, false] {
        let store = Store::filled(Placement::Slots);
        let space = store.open(None).unwrap();
        write(&space, |batch| match is_text {
            true => drop(batch.put(20, b"there", b"v", &PutOptions::default()).unwrap()),
            false => add(batch, 20, b"there", b"v"),
        });
        space.close().unwrap();
        for (flushed, lost) in
            [(0, [b"\xFFdb\x09", b"\xFFdb\x14"]), (9, [b"\xFFdb\x00", b"\xFFdb\x14"])]
        {
            store.lose(&FAMILIES, &lost.map(|key| &key[..]));
            let space = store.open(None).unwrap();
            assert!(is_there(&space, 20, b"there"), "its kind is looked for");
            write(&space, |batch| batch.flush(flushed).unwrap());
            assert!(!is_there(&space, flushed, b"old"));
            assert!(is_there(&space, 20, b"there"), "{is_text}, {flushed}");
            space.close().unwrap();
            let space = store.open(None).unwrap();
            assert!(is_there(&space, 20, b"there"), "{is_text}, {flushed}");
            write(&space, |batch| add(batch, flushed, b"old", b"again"));
            space.close().unwrap();
        }
    }
}

#[test]
fn the_note_of_a_database_that_is_lost_in_one_family_is_put_back() {
    for lost in FAMILIES {
        let store = Store::filled(Placement::Slots);
        store.lose(&[lost], &[b"\xFFdb\x09"]);
        store.open(None).unwrap().close().unwrap();
        store.damage(|db| {
            for name in FAMILIES {
                let family = db.column_family(name).unwrap();
                assert!(family.get(b"\xFFdb\x09").unwrap().is_some(), "{lost}, {name}");
            }
        });
    }
}

/// Notes of databases prove the placement, and that the store is a server's.
#[test]
fn a_store_of_strings_that_has_lost_its_marks_is_known_by_the_notes_of_databases() {
    for left in FAMILIES {
        let store = Store::of_strings(Placement::Slots);
        store.lose(&FAMILIES, &[MARK]);
        let gone = FAMILIES.into_iter().find(|name| *name != left).unwrap();
        store.lose(&[gone], &[b"\xFFdb\x00"]);
        store.damage(|db| assert_eq!(StoreKind::of(db).unwrap(), StoreKind::Keyspace));
        assert!(is_there(&store.read().unwrap(), 0, b"string 3"));
        let space = store.open(None).unwrap();
        assert_eq!(space.layout().placement(), Placement::Slots);
        assert!(is_there(&space, 0, b"string 3"));
        space.close().unwrap();
    }
}

/// As after a repair without a manifest, of a store of strings of an earlier build: families without a file are gone.
#[test]
fn a_store_without_the_family_of_elements_can_be_read() {
    for placement in PLACEMENTS {
        let store = Store::of_strings(placement);
        store.damage(|db| db.drop_column_family(ELEMENTS).unwrap());
        assert!(is_there(&store.read().unwrap(), 0, b"string 3"));
        let space = store.open(None).unwrap();
        assert!(is_there(&space, 0, b"string 3"));
        space.close().unwrap();
        let store = Store::filled(placement);
        store.damage(|db| db.drop_column_family(ELEMENTS).unwrap());
        let refused = store.read().err().unwrap().to_string();
        assert!(refused.contains("`elements` is missing"), "{refused}");
    }
}

#[test]
fn a_converted_store_has_both_copies() {
    for placement in PLACEMENTS {
        for lost in FAMILIES {
            let from = Store::filled(placement);
            from.lose(&[lost], &[IDS, MARK]);
            let other = PLACEMENTS.into_iter().find(|other| *other != placement).unwrap();
            let options = small_options(&SimVfs::new(2), &stopped_clock());
            let to = Store { options, placement: other };
            from.damage(|from| {
                to.damage(|to| assert_eq!(convert(from, to, other).unwrap().keys, 7))
            });
            to.damage(|db| {
                let rows = FAMILIES.map(|name| {
                    let family = db.column_family(name).unwrap();
                    [MARK, IDS].map(|key| family.get(key).unwrap().unwrap().to_vec())
                });
                assert_eq!(rows[0], rows[1]);
            });
            to.check_new_set("converted");
        }
    }
}
