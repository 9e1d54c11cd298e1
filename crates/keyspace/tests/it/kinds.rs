//! What a store holds: told by the mark, by the families of stores before it, or by the one that wrote
//! first.

use crate::range::harness::{small_options, stopped_clock};
use terrace::vfs::SimVfs;
use terrace::{CfOptions, Db, Options};
use terrace_keyspace::{
    COLLECTIONS, ELEMENTS, Error, KeyLayout, KeyRange, Keyspace, Mode, Placement, SeenKey,
    StoreKind,
};

const MARK: &[u8] = b"\xFFkeyspace";

struct Store {
    options: Options,
    placement: Option<Placement>,
}

impl Store {
    fn new() -> Self {
        Self { options: small_options(&SimVfs::new(1), &stopped_clock()), placement: None }
    }

    fn engine(&self) -> Db {
        Db::open("/db", self.options.clone()).unwrap()
    }

    fn kind(&self) -> StoreKind {
        StoreKind::of(&self.engine()).unwrap()
    }

    /// A keyspace that runs these writes.
    fn keyspace(
        &self,
        write: impl FnOnce(&mut terrace_keyspace::CommandBatch),
    ) -> Result<(), Error> {
        let space =
            Keyspace::open_without_active_expire("/db", self.options.clone(), self.placement)?;
        let mut turn = space.command_batch(Mode::Device);
        write(&mut turn);
        turn.commit()?;
        space.close()
    }

    fn family(&self, name: &str) {
        let db = self.engine();
        drop(db.create_column_family(name, CfOptions::default()).unwrap());
    }
}

fn put_string(turn: &mut terrace_keyspace::CommandBatch) {
    turn.lock(0, std::iter::once(&b"k"[..])).unwrap();
    turn.put(0, b"k", b"v", &Default::default()).unwrap();
}

fn put_set(turn: &mut terrace_keyspace::CommandBatch) {
    turn.lock(0, std::iter::once(&b"s"[..])).unwrap();
    turn.set_add(0, b"s", std::iter::once(&b"m"[..])).unwrap();
}

/// No server has written it, but another program may have.
#[test]
fn a_key_without_bytes_hinders_no_open() {
    for placement in [Placement::Range, Placement::Slots] {
        let store = Store { placement: Some(placement), ..Store::new() };
        store.keyspace(put_set).unwrap();
        let db = store.engine();
        db.column_family(COLLECTIONS).unwrap().put(b"", b"").unwrap();
        db.close().unwrap();
        let found = |turn: &mut terrace_keyspace::CommandBatch| {
            assert!(turn.set(0, b"s").unwrap().is_some_and(|set| set.count == 1));
        };
        store.keyspace(found).unwrap();
    }
}

/// With slots a server's keys have the two bytes of a slot and that of a database in front.
#[test]
fn keys_of_less_than_a_slot_and_a_database_are_walked_by() {
    let store = Store { placement: Some(Placement::Slots), ..Store::new() };
    store.keyspace(put_string).unwrap();
    let db = store.engine();
    for key in [&b"\x01"[..], b"\0\0", b"\0\x01", b"\x3F\xFF"] {
        db.put(key, b"v").unwrap();
    }
    db.close().unwrap();
    let walk = |turn: &mut terrace_keyspace::CommandBatch| {
        let mut shown = Vec::new();
        let seen = |key: SeenKey<'_>| {
            shown.push(key.key.to_vec());
            true
        };
        turn.walk_keys(0, KeyRange::default(), true, seen).unwrap();
        assert_eq!(shown, [b"k"]);
    };
    store.keyspace(walk).unwrap();
}

#[test]
fn an_empty_store_belongs_to_the_first_writer() {
    let store = Store::new();
    assert_eq!(store.kind(), StoreKind::Empty);
    store.engine().put(b"k", b"v").unwrap();
    assert_eq!(store.kind(), StoreKind::Plain);
    let refused = store.keyspace(put_string).unwrap_err();
    assert!(matches!(&refused, Error::OtherStore(what) if what.contains("plain")), "{refused}");
    assert_eq!(store.engine().column_families(), ["default"], "a refused open left something");
    store.engine().delete(b"k").unwrap();
    assert_eq!(store.kind(), StoreKind::Empty);
    store.keyspace(|_| {}).unwrap();
    assert_eq!(store.kind(), StoreKind::Keyspace);
}

#[test]
fn a_keyspace_is_marked_when_it_is_made_and_stays_so() {
    let store = Store::new();
    store.keyspace(put_set).unwrap();
    assert!(store.engine().column_family(COLLECTIONS).unwrap().get(MARK).unwrap().is_some());
    // FLUSHALL leaves the mark.
    store
        .keyspace(|turn| {
            turn.lock_everything();
            turn.flush_all().unwrap();
        })
        .unwrap();
    assert_eq!(store.kind(), StoreKind::Keyspace);
    let read = Db::open_read_only("/db", store.options.clone()).unwrap();
    let space = Keyspace::read_only(read).unwrap();
    assert_eq!(space.command_batch(Mode::Device).key_type(0, b"s").unwrap(), None);
}

#[test]
fn stores_from_before_the_mark_are_known_by_their_families() {
    let unmark = |store: &Store| {
        let db = store.engine();
        db.column_family(COLLECTIONS).unwrap().delete(MARK).unwrap();
        for key in [MARK, b"\xFFids"] {
            db.column_family(ELEMENTS).unwrap().delete(key).unwrap();
        }
    };
    for write in [put_string, put_set, |_: &mut terrace_keyspace::CommandBatch| {}] {
        let store = Store::new();
        store.keyspace(write).unwrap();
        unmark(&store);
        assert_eq!(store.kind(), StoreKind::Keyspace);
        store.keyspace(|_| {}).unwrap();
        let db = store.engine();
        assert!(db.column_family(COLLECTIONS).unwrap().get(MARK).unwrap().is_some());
    }
}

#[test]
fn families_of_others_are_not_taken_for_a_keyspace() {
    let store = Store::new();
    store.family(COLLECTIONS);
    // What a crash leaves of a keyspace that was just being made.
    assert_eq!(store.kind(), StoreKind::Empty);
    store.engine().column_family(COLLECTIONS).unwrap().put(b"k", b"v").unwrap();
    assert_eq!(store.kind(), StoreKind::Plain);
    store.family(ELEMENTS);
    assert_eq!(store.kind(), StoreKind::Plain);
    let other = Store::new();
    other.family("mine");
    assert_eq!(other.kind(), StoreKind::Plain);
}

#[test]
fn a_layout_of_a_later_build_is_refused() {
    let store = Store::new();
    store.keyspace(put_string).unwrap();
    let collections = || store.engine().column_family(COLLECTIONS).unwrap();
    for (mark, want) in [(&3_u32.to_le_bytes()[..], "layout 3"), (b"x", "does not know")] {
        collections().put(MARK, mark).unwrap();
        let refused = store.keyspace(|_| {}).unwrap_err().to_string();
        assert!(refused.contains(want), "{refused}");
    }
}

#[test]
fn a_store_keeps_the_placement_that_it_was_made_with() {
    for (made, other) in
        [(Placement::Range, Placement::Slots), (Placement::Slots, Placement::Range)]
    {
        for write in [put_string, put_set, |_: &mut terrace_keyspace::CommandBatch| {}] {
            let mut store = Store::new();
            store.placement = Some(made);
            store.keyspace(write).unwrap();
            store.placement = Some(other);
            let refused = store.keyspace(|_| {}).unwrap_err().to_string();
            let convert = format!("terrace convert DIR TARGET --placement {other}");
            assert!(refused.contains(&convert), "{refused}");
            // Who does not ask gets it as it is.
            store.placement = None;
            store.keyspace(put_set).unwrap();
            assert_eq!(KeyLayout::of_store(&store.engine()).unwrap().placement(), made);
        }
    }
}

#[test]
fn an_unmarked_store_becomes_one_with_slots_only_while_it_is_empty() {
    for (write, is_taken) in [(put_string as fn(&mut _), false), (put_set, false), (|_| {}, true)] {
        let mut store = Store::new();
        store.keyspace(write).unwrap();
        for family in [COLLECTIONS, ELEMENTS] {
            store.engine().column_family(family).unwrap().delete(MARK).unwrap();
        }
        store.placement = Some(Placement::Slots);
        assert_eq!(store.keyspace(|_| {}).is_ok(), is_taken);
    }
}
