//! Loading entries in any order.

use crate::arguments::{bytes, exclusive, place};
use crate::error::{Error, call, free};
use crate::family::Family;
use crate::ingest::TERRACE_INGEST_BELOW;
use crate::store::Db;
use terrace::{BulkOptions, IngestPosition};
use terrace_binding::{Failure, Kept, Outcome};

/// A load of entries in any order, as one write: what is not finished is not there. One thread at a time may use it. It keeps
/// the store open.
pub struct BulkLoader {
    kept: Kept<Option<terrace::BulkLoader>>,
}

impl BulkLoader {
    /// # Safety
    /// NULL, or a handle that lives and that no other thread uses.
    unsafe fn unfinished<'a>(pointer: *mut Self) -> Outcome<&'a mut terrace::BulkLoader> {
        // SAFETY: said above.
        let loader = unsafe { exclusive(pointer, "loader") }?.kept.get_mut()?;
        loader.as_mut().ok_or_else(finished)
    }
}

fn finished() -> Failure {
    Failure::argument("the load is finished; begin another")
}

/// Begins a load of a column family. The entries go past the log and the memtables: they are sorted with `memory_bytes` of
/// memory, 1 MiB or more, 0 for the default, in temporary files if need be, and ingested. Of entries with the same
/// key the last one counts. `how` is TERRACE_INGEST_DEFAULT, or TERRACE_INGEST_BELOW if existing entries count. Free it with
/// terrace_bulk_loader_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_bulk_loader_new(
    db: *const Db,
    family: *const Family,
    memory_bytes: usize,
    how: i32,
    loader: *mut *mut BulkLoader,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(loader, "loader") }?;
        out.set(std::ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let family = unsafe { Family::of(family, Db::of(db)?) }?;
        let mut options = BulkOptions::default();
        if memory_bytes != 0 {
            options.memory_bytes = memory_bytes;
        }
        options.position = match how {
            0 => IngestPosition::Above,
            TERRACE_INGEST_BELOW => IngestPosition::Below,
            _ => {
                let text = format!("how is {how}, and a load goes above or below what is there");
                return Err(Failure::argument(text));
            }
        };
        out.give(BulkLoader { kept: Kept::new(Some(family.bulk_loader(&options)?)) });
        Ok(())
    })
}

/// Sets a key to a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_bulk_loader_put(
    loader: *mut BulkLoader,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (loader, key, value) = unsafe {
            let loader = BulkLoader::unfinished(loader)?;
            (loader, bytes(key, key_len, "key")?, bytes(value, value_len, "value")?)
        };
        Ok(loader.put(key, value)?)
    })
}

/// As terrace_bulk_loader_put, until `expires_at_ms`, in milliseconds since 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_bulk_loader_put_until(
    loader: *mut BulkLoader,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    expires_at_ms: u64,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (loader, key, value) = unsafe {
            let loader = BulkLoader::unfinished(loader)?;
            (loader, bytes(key, key_len, "key")?, bytes(value, value_len, "value")?)
        };
        Ok(loader.put_until(key, value, expires_at_ms)?)
    })
}

/// Deletes a key, also if the store has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_bulk_loader_delete(
    loader: *mut BulkLoader,
    key: *const u8,
    key_len: usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (loader, key) =
            unsafe { (BulkLoader::unfinished(loader)?, bytes(key, key_len, "key")?) };
        Ok(loader.delete(key)?)
    })
}

/// Sorts what was given and makes it part of the store, all of it or nothing, durably. *entries is how many entries and
/// deletions there were; NULL if that is of no interest. Whatever the outcome, only terrace_bulk_loader_free may follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_bulk_loader_finish(
    loader: *mut BulkLoader,
    entries: *mut u64,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let loader = unsafe { exclusive(loader, "loader") }?.kept.get_mut()?;
        let ingested = loader.take().ok_or_else(finished)?.finish()?;
        // SAFETY: the rules of terrace.h.
        if let Ok(out) = unsafe { place(entries, "entries") } {
            out.set(ingested.entry_count);
        }
        Ok(())
    })
}

/// Frees a load; one that is not finished is as if it had never been. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_bulk_loader_free(loader: *mut BulkLoader) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(loader) };
}
