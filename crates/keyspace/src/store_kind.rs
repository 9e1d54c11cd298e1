//! What a store holds: Redis's data, plain keys and values, or nothing yet.
//!
//! A keyspace marks its store: under a key of `collections` that no database has, it writes the
//! version of the layout in `encode.rs`: 1 is placement `range`, 2 is `slots`. Stores of builds before the mark are known
//! by their families, and are of layout 1. An empty store belongs to the first writer.

use crate::encode::{COLLECTIONS, ELEMENTS, IDS};
use crate::error::{Error, Result};
use crate::key_layout::KeyLayout;
use terrace::{ColumnFamily, Db};
use terrace_cluster::Placement;

/// The key of the mark, in `collections`.
const MARK: &[u8] = b"\xFFkeyspace";

/// The layouts of this build.
const LAYOUTS: [(u32, Placement); 2] = [(1, Placement::Range), (2, Placement::Slots)];

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
        if let Some(collections) = &families.0
            && let Some(mark) = collections.get(MARK)?
        {
            read_mark(&mark)?;
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
    /// As [`StoreKind::of`].
    pub fn of_store(db: &Db) -> Result<Self> {
        let mark = match db.column_family(COLLECTIONS) {
            Some(collections) => collections.get(MARK)?,
            None => None,
        };
        let placement = mark.map(|mark| read_mark(&mark)).transpose()?;
        Ok(Self::of(placement.unwrap_or(Placement::Range)))
    }
}

/// Marks the store, if it is not yet, and gives its layout. `wanted` is that of a new store, and what an
/// old one must have.
///
/// # Errors
/// The store has another placement, or cannot be read or written.
pub(crate) fn mark(families: [&ColumnFamily; 3], wanted: Option<Placement>) -> Result<KeyLayout> {
    let [_, collections, _] = families;
    let found = match collections.get(MARK)? {
        Some(mark) => read_mark(&mark)?,
        None => match wanted {
            Some(Placement::Slots) if are_empty(&families)? => {
                // In the log before any key: nothing else tells that the keys have slots.
                collections.put(MARK, number_of(Placement::Slots).to_le_bytes())?;
                Placement::Slots
            }
            _ => {
                // A full disk is no error: the families tell as well, and the next open marks it.
                let mark = number_of(Placement::Range).to_le_bytes();
                match collections.put(MARK, mark) {
                    Err(terrace::Error::DiskFull(_)) => {}
                    outcome => outcome?,
                }
                Placement::Range
            }
        },
    };
    match wanted {
        Some(wanted) if wanted != found => Err(Error::OtherStore(format!(
            "its keys lie by placement {found}, and {wanted} is asked for; \
             `terrace convert DIR TARGET --placement {wanted}` makes a store of it that has that"
        ))),
        _ => Ok(KeyLayout::of(found)),
    }
}

fn number_of(placement: Placement) -> u32 {
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

fn are_empty(families: &[&ColumnFamily]) -> Result<bool> {
    for family in families {
        if !is_empty(family)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether these are the families of a keyspace of a build before the mark: the first collection
/// that there ever was left the note of reserved ids.
fn looks_unmarked(collections: &ColumnFamily, elements: &ColumnFamily) -> Result<bool> {
    match collections.get(IDS)? {
        Some(ids) => Ok(ids.len() == 8),
        None => Ok(is_empty(collections)? && is_empty(elements)?),
    }
}

fn is_empty(family: &ColumnFamily) -> Result<bool> {
    let mut iter = family.iter()?;
    iter.seek_to_first()?;
    Ok(!iter.valid())
}
