//! Batches: writes that become visible together.

use crate::arguments::{bytes, exclusive, shared};
use crate::error::{Error, call, free};
use crate::family::Family;
use crate::store::Db;
use std::time::Duration;
use terrace::{ColumnFamily, SavePoint, SyncMode, WriteBatch, WriteOptions};
use terrace_binding::{Failure, Kept, Outcome};

/// A write is durable as the store's option "sync" says.
pub const TERRACE_SYNC_DEFAULT: i32 = 0;
/// The write survives a killed process, not a power cut.
pub const TERRACE_SYNC_NONE: i32 = 1;
/// The write may stay in the process for a while. Only in a store that was opened with "buffered".
pub const TERRACE_SYNC_BUFFERED: i32 = 2;
/// The write is on the device when the function returns.
pub const TERRACE_SYNC_BATCH: i32 = 3;

/// What one of the TERRACE_SYNC_ constants means.
pub(crate) fn write_options(sync: i32) -> Outcome<WriteOptions> {
    let sync = match sync {
        TERRACE_SYNC_DEFAULT => None,
        TERRACE_SYNC_NONE => Some(SyncMode::None),
        TERRACE_SYNC_BUFFERED => Some(SyncMode::Buffered),
        TERRACE_SYNC_BATCH => Some(SyncMode::Batch),
        _ => return Err(Failure::argument(format!("sync is {sync}, which is no TERRACE_SYNC_"))),
    };
    Ok(WriteOptions { sync })
}

/// Writes that become visible together or not at all. One thread at a time may use it. A batch that names a
/// family belongs to the open store of that family.
pub struct Batch {
    kept: Kept<Filled>,
}

struct Filled {
    batch: WriteBatch,
    save_points: Vec<SavePoint>,
}

impl Batch {
    /// # Safety
    /// NULL, or a handle that lives and that no other thread uses.
    unsafe fn of<'a>(pointer: *mut Self) -> Outcome<&'a mut Filled> {
        // SAFETY: said above.
        unsafe { exclusive(pointer, "batch") }?.kept.get_mut()
    }

    /// One that has the operations of `batch`.
    pub(crate) fn filled(batch: WriteBatch) -> Self {
        Self { kept: Kept::new(Filled { batch, save_points: Vec::new() }) }
    }
}

/// An empty batch. Free it with terrace_batch_free.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_batch_new() -> *mut Batch {
    Box::into_raw(Box::new(Batch::filled(WriteBatch::new())))
}

/// Sets a key to a value. What is over a limit is refused by terrace_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_put(
    batch: *mut Batch,
    family: *const Family,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
) -> *mut Error {
    let put = |batch: &mut WriteBatch, family: Option<&_>, key: &[u8], value: &[u8]| match family {
        None => batch.put(key, value),
        Some(family) => batch.put_cf(family, key, value),
    };
    // SAFETY: the rules of terrace.h.
    call(|| unsafe {
        write_by(put, batch, family, (key, key_len, "key"), (value, value_len, "value"))
    })
}

/// Sets a key to a value until `ttl_ms` milliseconds from the write on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_put_with_ttl(
    batch: *mut Batch,
    family: *const Family,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    ttl_ms: u64,
) -> *mut Error {
    let ttl = Duration::from_millis(ttl_ms);
    let put = |batch: &mut WriteBatch, family: Option<&_>, key: &[u8], value: &[u8]| match family {
        None => batch.put_with_ttl(key, value, ttl),
        Some(family) => batch.put_with_ttl_cf(family, key, value, ttl),
    };
    // SAFETY: the rules of terrace.h.
    call(|| unsafe {
        write_by(put, batch, family, (key, key_len, "key"), (value, value_len, "value"))
    })
}

/// Sets a key to a value until the clock shows `expires_at_ms`, in milliseconds since 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_put_until(
    batch: *mut Batch,
    family: *const Family,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    expires_at_ms: u64,
) -> *mut Error {
    let put = |batch: &mut WriteBatch, family: Option<&_>, key: &[u8], value: &[u8]| match family {
        None => batch.put_until(key, value, expires_at_ms),
        Some(family) => batch.put_until_cf(family, key, value, expires_at_ms),
    };
    // SAFETY: the rules of terrace.h.
    call(|| unsafe {
        write_by(put, batch, family, (key, key_len, "key"), (value, value_len, "value"))
    })
}

/// Looks at what a write of two byte strings was given, and does it with `write`.
///
/// # Safety
/// As the functions of the interface.
unsafe fn write_by(
    write: impl FnOnce(&mut WriteBatch, Option<&ColumnFamily>, &[u8], &[u8]),
    batch: *mut Batch,
    family: *const Family,
    first: (*const u8, usize, &str),
    second: (*const u8, usize, &str),
) -> Outcome<()> {
    // SAFETY: said above.
    let (filled, family, first, second) = unsafe {
        let first = bytes(first.0, first.1, first.2)?;
        let second = bytes(second.0, second.1, second.2)?;
        (Batch::of(batch)?, Family::of_any(family)?, first, second)
    };
    write(&mut filled.batch, family, first, second);
    Ok(())
}

/// Removes a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_delete(
    batch: *mut Batch,
    family: *const Family,
    key: *const u8,
    key_len: usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (filled, family, key) =
            unsafe { (Batch::of(batch)?, Family::of_any(family)?, bytes(key, key_len, "key")?) };
        match family {
            None => filled.batch.delete(key),
            Some(family) => filled.batch.delete_cf(family, key),
        }
        Ok(())
    })
}

/// Merges an operand into the value of a key; see terrace_merge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_merge(
    batch: *mut Batch,
    family: *const Family,
    key: *const u8,
    key_len: usize,
    operand: *const u8,
    operand_len: usize,
) -> *mut Error {
    let merge =
        |batch: &mut WriteBatch, family: Option<&_>, key: &[u8], operand: &[u8]| match family {
            None => batch.merge(key, operand),
            Some(family) => batch.merge_cf(family, key, operand),
        };
    let (key, operand) = ((key, key_len, "key"), (operand, operand_len, "operand"));
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { write_by(merge, batch, family, key, operand) })
}

/// Removes every key from `start` on and below `end`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_delete_range(
    batch: *mut Batch,
    family: *const Family,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
) -> *mut Error {
    let delete_range =
        |batch: &mut WriteBatch, family: Option<&_>, start: &[u8], end: &[u8]| match family {
            None => batch.delete_range(start, end),
            Some(family) => batch.delete_range_cf(family, start, end),
        };
    let (start, end) = ((start, start_len, "start"), (end, end_len, "end"));
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { write_by(delete_range, batch, family, start, end) })
}

/// The number of operations; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_len(batch: *const Batch) -> usize {
    // SAFETY: the rules of terrace.h.
    let filled = unsafe { shared(batch, "batch") }.and_then(|batch| batch.kept.get());
    filled.map_or(0, |filled| filled.batch.len())
}

/// The encoded size in bytes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_size_bytes(batch: *const Batch) -> usize {
    // SAFETY: the rules of terrace.h.
    let filled = unsafe { shared(batch, "batch") }.and_then(|batch| batch.kept.get());
    filled.map_or(0, |filled| filled.batch.size_bytes())
}

/// Removes all operations and save points and keeps the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_clear(batch: *mut Batch) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let filled = unsafe { Batch::of(batch) }?;
        filled.batch.clear();
        filled.save_points.clear();
        Ok(())
    })
}

/// Notes what the batch is now, on top of earlier save points.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_set_save_point(batch: *mut Batch) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let filled = unsafe { Batch::of(batch) }?;
        filled.save_points.push(filled.batch.save_point());
        Ok(())
    })
}

/// Takes back every operation since the newest save point, and that save point.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_roll_back(batch: *mut Batch) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let filled = unsafe { Batch::of(batch) }?;
        let point = filled.save_points.pop();
        let point = point.ok_or_else(|| Failure::argument("the batch has no save point"))?;
        filled.batch.roll_back_to(point);
        Ok(())
    })
}

/// Writes a batch: all of it becomes visible together, or nothing. The batch is empty afterwards, whatever
/// the outcome. `sync` is one of TERRACE_SYNC_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_write(db: *const Db, batch: *mut Batch, sync: i32) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let filled = unsafe { Batch::of(batch) }?;
        // Taken before anything is refused.
        filled.save_points.clear();
        let taken = std::mem::take(&mut filled.batch);
        // SAFETY: the rules of terrace.h.
        let opened = unsafe { Db::of(db) }?;
        Ok(opened.db.write_with(taken, &write_options(sync)?)?)
    })
}

/// Frees a batch. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_batch_free(batch: *mut Batch) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(batch) };
}
