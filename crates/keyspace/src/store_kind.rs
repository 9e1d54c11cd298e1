//! What a store holds: Redis's data, plain keys and values, or nothing yet.
//!
//! A keyspace marks its store: under a key that no database has, it writes the version of the layout in `encode.rs`,
//! in `collections` and in `elements`: 1 is placement `range`, 2 is `slots`. Stores of builds before the mark are known
//! by their families, and are of layout 1. An empty store belongs to the first writer.
//!
//! Where both marks are lost, which damage and a repair can do, the placement is not guessed: each key of a store with
//! slots carries its slot, so that one key without it proves `range`.

use crate::encode::{COLLECTIONS, ELEMENTS, IDS, WRITTEN};
use crate::error::{Error, Result};
use crate::families::{Families, of_keys};
use crate::key_layout::KeyLayout;
use terrace::{ColumnFamily, Db, ReadOptions};
use terrace_cluster::Placement;

/// The key of the mark.
pub(crate) const MARK: &[u8] = b"\xFFkeyspace";

/// Keys that are looked at for what they say of the placement.
const PROOFS: usize = 64;

/// The layouts of this build.
const LAYOUTS: [(u32, Placement); 2] = [(1, Placement::Range), (2, Placement::Slots)];

/// What to say of a store whose marks are lost.
const LOST: &str = "it has data of a server and no mark, as after the repair of a damaged store, and what is \
    left does not prove whether its keys lie by placement range or slots; restore a backup, or open it with the \
    placement that it had (`Keyspace::open_placed`)";

/// What a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// Nothing: the first writer decides.
    Empty,
    /// Keys and values as some program or command wrote them.
    Plain,
    /// Redis's data, written by a [`Keyspace`](crate::Keyspace).
    Keyspace,
}

impl StoreKind {
    /// Looks at an open store.
    ///
    /// # Errors
    /// The store cannot be read, or a later build has marked it with a layout that this one does not
    /// know.
    pub fn of(db: &Db) -> Result<Self> {
        let families = (db.column_family(COLLECTIONS), db.column_family(ELEMENTS));
        if mark_in([&families.0, &families.1].into_iter().flatten())?.is_some() {
            return Ok(Self::Keyspace);
        }
        if let (Some(collections), Some(elements)) = &families
            && looks_unmarked(collections, elements)?
        {
            return Ok(Self::Keyspace);
        }
        // What a crash leaves of a keyspace that was just being made has the first of its families.
        let names = db.column_families();
        let default = db.default_family();
        if names.iter().any(|name| name != default.name() && name != COLLECTIONS) {
            return Ok(Self::Plain);
        }
        let is_empty = is_empty(&default)? && families.0.as_ref().map_or(Ok(true), is_empty)?;
        Ok(if is_empty { Self::Empty } else { Self::Plain })
    }
}

impl KeyLayout {
    /// That of an open store that is of [`StoreKind::Keyspace`].
    ///
    /// # Errors
    /// As [`StoreKind::of`]; or its mark is lost.
    pub fn of_store(db: &Db) -> Result<Self> {
        placement_of(&families_to_read(db)?, None).map(Self::of)
    }
}

/// The families of a store that is read. One that is missing, as a repair may leave it, is stood for by another, if
/// nothing can be looked for in it.
///
/// # Errors
/// One is missing of which something may be looked for.
pub(crate) fn families_to_read(db: &Db) -> Result<Families> {
    let strings = db.default_family();
    match (db.column_family(COLLECTIONS), db.column_family(ELEMENTS)) {
        (Some(collections), Some(elements)) => Ok(Families { strings, collections, elements }),
        (Some(collections), None) => {
            let families = Families { strings, elements: collections.clone(), collections };
            let layout = KeyLayout::of(placement_of(&families, None)?);
            let mut iter = families.collections.iter_with(&of_keys(layout, true))?;
            iter.seek_to_first()?;
            match iter.valid() {
                true => Err(missing(ELEMENTS)),
                false => Ok(families),
            }
        }
        (None, _) => Err(missing(COLLECTIONS)),
    }
}

fn missing(family: &str) -> Error {
    Error::OtherStore(format!(
        "its family `{family}` is missing, as after the repair of a damaged store; \
         `terrace serve` makes it anew"
    ))
}

/// The mark, from where it is left.
pub(crate) fn stored_mark(families: &Families) -> Result<Option<Placement>> {
    mark_in([&families.collections, &families.elements].into_iter())
}

fn mark_in<'f>(families: impl Iterator<Item = &'f ColumnFamily>) -> Result<Option<Placement>> {
    let mut found = None;
    for family in families {
        let Some(mark) = family.get(MARK)? else {
            continue;
        };
        let placement = read_mark(&mark)?;
        if found.is_some_and(|found| found != placement) {
            return Err(Error::OtherStore("it has two marks, of different placements".into()));
        }
        found = Some(placement);
    }
    Ok(found)
}

/// How the keys of a store lie. `wanted` is for a new one, and for one that does not tell.
///
/// # Errors
/// It has data and no mark, and what is there does not prove one of the placements.
pub(crate) fn placement_of(families: &Families, wanted: Option<Placement>) -> Result<Placement> {
    if let Some(found) = stored_mark(families)? {
        return Ok(found);
    }
    let Families { strings, collections, elements } = families;
    // With placement `range` no such row is ever written.
    if has_written(collections)? || has_written(elements)? {
        return Ok(Placement::Slots);
    }
    let mut with_slot = 0;
    for family in [strings, collections] {
        match keys_with_slot(family)? {
            Some(keys) => with_slot += keys,
            None => return Ok(Placement::Range),
        }
    }
    let has_data = with_slot > 0 || has_elements(elements)?;
    match wanted {
        None if has_data => Err(Error::OtherStore(LOST.into())),
        // One key may look so by chance.
        Some(Placement::Range) if with_slot > 1 => Err(Error::OtherStore(LOST.into())),
        _ => Ok(wanted.unwrap_or(Placement::Range)),
    }
}

/// How many of the first keys carry their slot; `None` if there is one that does not.
fn keys_with_slot(family: &ColumnFamily) -> Result<Option<usize>> {
    let options = ReadOptions { keys_only: true, ..ReadOptions::default() };
    let mut iter = family.iter_with(&options)?;
    iter.seek_to_first()?;
    let slots = KeyLayout::of(Placement::Slots);
    let mut seen = 0;
    while iter.valid() && !iter.key().starts_with(&[0xFF]) && seen < PROOFS {
        match slots.parts(iter.key()) {
            Some((db, key)) if slots.user_key(db, key) == iter.key() => seen += 1,
            _ => return Ok(None),
        }
        iter.next()?;
    }
    Ok(Some(seen))
}

/// Whether there are elements, and not only what the store says of itself.
fn has_elements(elements: &ColumnFamily) -> Result<bool> {
    let mut iter = elements.iter()?;
    iter.seek_to_first()?;
    Ok(iter.valid() && !iter.key().starts_with(&[0xFF]))
}

pub(crate) fn number_of(placement: Placement) -> u32 {
    LAYOUTS.iter().find(|(_, of)| *of == placement).map_or(0, |(number, _)| *number)
}

fn read_mark(mark: &[u8]) -> Result<Placement> {
    let what = match mark.try_into().map(u32::from_le_bytes) {
        Ok(layout) => match LAYOUTS.iter().find(|(number, _)| *number == layout) {
            Some((_, placement)) => return Ok(*placement),
            None => format!("layout {layout}, and this build knows 1 and 2"),
        },
        Err(_) => "a mark that this build does not know".into(),
    };
    Err(Error::OtherStore(format!("the data of the server has {what}")))
}

/// Whether these are the families of a keyspace of a build before the mark: the first collection
/// that there ever was left the note of reserved ids. Or of one whose marks are lost: one with slots has notes of its
/// databases too.
fn looks_unmarked(collections: &ColumnFamily, elements: &ColumnFamily) -> Result<bool> {
    for family in [collections, elements] {
        if let Some(ids) = family.get(IDS)? {
            return Ok(ids.len() == 8);
        }
    }
    if has_written(collections)? || has_written(elements)? {
        return Ok(true);
    }
    Ok(is_empty(collections)? && is_empty(elements)?)
}

/// Whether there is a note of a database in which something was written.
fn has_written(family: &ColumnFamily) -> Result<bool> {
    let written = ReadOptions { prefix: Some(WRITTEN.to_vec()), ..ReadOptions::default() };
    let mut iter = family.iter_with(&written)?;
    iter.seek_to_first()?;
    Ok(iter.valid())
}

fn is_empty(family: &ColumnFamily) -> Result<bool> {
    let mut iter = family.iter()?;
    iter.seek_to_first()?;
    Ok(!iter.valid())
}
