//! Single writes.

use crate::arguments::bytes;
use crate::error::{Error, call};
use crate::family::Family;
use crate::store::Db;
use std::time::Duration;
use terrace::ColumnFamily;
use terrace_binding::Outcome;

/// Sets a key (at most 64 KiB) to a value (at most 1 GiB). It is durable as the store's option "sync" says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_put(
    db: *const Db,
    family: *const Family,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
) -> *mut Error {
    let put = |family: &ColumnFamily, key: &[u8], value: &[u8]| family.put(key, value);
    let (key, value) = ((key, key_len, "key"), (value, value_len, "value"));
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { write_by(put, db, family, key, value) })
}

/// Sets a key to a value until `ttl_ms` milliseconds from now; then it is absent, and its disk space is
/// freed by itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_put_with_ttl(
    db: *const Db,
    family: *const Family,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    ttl_ms: u64,
) -> *mut Error {
    let put = |family: &ColumnFamily, key: &[u8], value: &[u8]| {
        family.put_with_ttl(key, value, Duration::from_millis(ttl_ms))
    };
    let (key, value) = ((key, key_len, "key"), (value, value_len, "value"));
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { write_by(put, db, family, key, value) })
}

/// Looks at what a write of two byte strings was given, and does it with `write`.
///
/// # Safety
/// As the functions of the interface.
unsafe fn write_by(
    write: impl FnOnce(&ColumnFamily, &[u8], &[u8]) -> terrace::Result<()>,
    db: *const Db,
    family: *const Family,
    first: (*const u8, usize, &str),
    second: (*const u8, usize, &str),
) -> Outcome<()> {
    // SAFETY: said above.
    let (family, first, second) = unsafe {
        let family = Family::of(family, Db::of(db)?)?;
        (family, bytes(first.0, first.1, first.2)?, bytes(second.0, second.1, second.2)?)
    };
    Ok(write(family, first, second)?)
}

/// Removes a key. One that is absent is success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_delete(
    db: *const Db,
    family: *const Family,
    key: *const u8,
    key_len: usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (family, key) =
            unsafe { (Family::of(family, Db::of(db)?)?, bytes(key, key_len, "key")?) };
        Ok(family.delete(key)?)
    })
}

/// Merges an operand into the value of a key, as the merge operator of the family says (its option
/// "merge_operator", such as counter, max or append). Nothing is read: it costs what terrace_put costs.
/// TERRACE_INVALID_ARGUMENT if the family has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_merge(
    db: *const Db,
    family: *const Family,
    key: *const u8,
    key_len: usize,
    operand: *const u8,
    operand_len: usize,
) -> *mut Error {
    let merge = |family: &ColumnFamily, key: &[u8], operand: &[u8]| family.merge(key, operand);
    let (key, operand) = ((key, key_len, "key"), (operand, operand_len, "operand"));
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { write_by(merge, db, family, key, operand) })
}

/// Removes every key from `start` on and below `end`, at the cost of one write; none if start >= end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_delete_range(
    db: *const Db,
    family: *const Family,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
) -> *mut Error {
    let delete = |family: &ColumnFamily, start: &[u8], end: &[u8]| family.delete_range(start, end);
    let (start, end) = ((start, start_len, "start"), (end, end_len, "end"));
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { write_by(delete, db, family, start, end) })
}
