//! What a store holds: Redis's data, plain keys and values, or nothing yet.
//!
//! A keyspace marks its store: under a key of `collections` that no database has, it writes the
//! version of the layout in `encode.rs`. Stores of builds before the mark are known by their families. An empty store
//! belongs to the first writer.

use crate::encode::{COLLECTIONS, ELEMENTS, IDS};
use crate::error::{Error, Result};
use terrace::{ColumnFamily, Db};

/// The key of the mark, in `collections`.
const MARK: &[u8] = b"\xFFkeyspace";

/// The layout of this build.
const LAYOUT: u32 = 1;

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
            check_layout(&mark)?;
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

/// Marks the store that `collections` is of, if it is not yet. A full disk is no error: the families
/// tell as well, and the next open marks it.
pub(crate) fn mark(collections: &ColumnFamily) -> Result<()> {
    if collections.get(MARK)?.is_some() {
        return Ok(());
    }
    match collections.put(MARK, LAYOUT.to_le_bytes()) {
        Err(terrace::Error::DiskFull(_)) => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn check_layout(mark: &[u8]) -> Result<()> {
    let what = match mark.try_into().map(u32::from_le_bytes) {
        Ok(LAYOUT) => return Ok(()),
        Ok(layout) => format!("layout {layout}, and this build knows {LAYOUT}"),
        Err(_) => "a mark that this build does not know".into(),
    };
    Err(Error::OtherStore(format!("the data of the server has {what}")))
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
