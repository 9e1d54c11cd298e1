//! Single writes.

use crate::arguments::bytes;
use crate::error::{Error, call};
use crate::family::Family;
use crate::store::Db;
use std::time::Duration;

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
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (family, key, value) = unsafe {
            let family = Family::of(family, Db::of(db)?)?;
            (family, bytes(key, key_len, "key")?, bytes(value, value_len, "value")?)
        };
        Ok(family.put(key, value)?)
    })
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
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (family, key, value) = unsafe {
            let family = Family::of(family, Db::of(db)?)?;
            (family, bytes(key, key_len, "key")?, bytes(value, value_len, "value")?)
        };
        Ok(family.put_with_ttl(key, value, Duration::from_millis(ttl_ms))?)
    })
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
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (family, key, operand) = unsafe {
            let family = Family::of(family, Db::of(db)?)?;
            (family, bytes(key, key_len, "key")?, bytes(operand, operand_len, "operand")?)
        };
        Ok(family.merge(key, operand)?)
    })
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
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (family, start, end) = unsafe {
            let family = Family::of(family, Db::of(db)?)?;
            (family, bytes(start, start_len, "start")?, bytes(end, end_len, "end")?)
        };
        Ok(family.delete_range(start, end)?)
    })
}
