//! Optimistic transactions.

use crate::arguments::{bytes, exclusive, place, range};
use crate::batch::write_options;
use crate::entries::Entries;
use crate::error::{Error, call, free};
use crate::family::Family;
use crate::read::Value;
use crate::store::Db;
use std::time::Duration;
use terrace::{ColumnFamily, SavePoint, Slice};
use terrace_binding::{Failure, Kept, Outcome};

/// A transaction: reads the store as of its begin, sees its own writes, and commits whole or not at all.
/// Nothing is locked: if a key that it read has been written since, terrace_transaction_commit fails with
/// TERRACE_CONFLICT, and the caller runs it again. One thread at a time may use it. While it lives, what is
/// overwritten meanwhile keeps its disk space.
pub struct Transaction {
    kept: Kept<Open>,
}

struct Open {
    /// Nothing after the commit.
    transaction: Option<terrace::Transaction>,
    save_points: Vec<SavePoint>,
}

impl Transaction {
    /// # Safety
    /// NULL, or a handle that lives and that no other thread uses.
    unsafe fn of<'a>(pointer: *mut Self) -> Outcome<&'a mut Open> {
        // SAFETY: said above.
        unsafe { exclusive(pointer, "transaction") }?.kept.get_mut()
    }
}

impl Open {
    fn running(&mut self) -> Outcome<&mut terrace::Transaction> {
        self.transaction.as_mut().ok_or_else(ended)
    }
}

fn ended() -> Failure {
    Failure::argument("the transaction has ended; begin another")
}

/// Begins a transaction that reads the store as of now. Free it with terrace_transaction_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_transaction_begin(
    db: *const Db,
    transaction: *mut *mut Transaction,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(transaction, "transaction") }?;
        out.set(std::ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let opened = unsafe { Db::of(db) }?;
        let transaction = Some(opened.db.transaction());
        out.give(Transaction { kept: Kept::new(Open { transaction, save_points: Vec::new() }) });
        Ok(())
    })
}

/// The value of a key as the transaction sees it; see terrace_get for *value. Unless the transaction has
/// written the key itself, it must not change until the commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_transaction_get(
    transaction: *mut Transaction,
    family: *const Family,
    key: *const u8,
    key_len: usize,
    value: *mut Value,
) -> *mut Error {
    let read = |transaction: &mut terrace::Transaction, family: Option<&_>, key: &[u8]| match family
    {
        None => transaction.get(key),
        Some(family) => transaction.get_cf(family, key),
    };
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { get(transaction, family, (key, key_len), value, read) })
}

/// As terrace_transaction_get, but the key may change: for values that the outcome does not depend on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_transaction_get_untracked(
    transaction: *mut Transaction,
    family: *const Family,
    key: *const u8,
    key_len: usize,
    value: *mut Value,
) -> *mut Error {
    let read = |transaction: &mut terrace::Transaction, family: Option<&_>, key: &[u8]| match family
    {
        None => transaction.get_untracked(key),
        Some(family) => transaction.get_untracked_cf(family, key),
    };
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { get(transaction, family, (key, key_len), value, read) })
}

/// # Safety
/// As the functions of the interface.
unsafe fn get(
    transaction: *mut Transaction,
    family: *const Family,
    (key, key_len): (*const u8, usize),
    value: *mut Value,
    read: impl FnOnce(
        &mut terrace::Transaction,
        Option<&ColumnFamily>,
        &[u8],
    ) -> terrace::Result<Option<Slice>>,
) -> Outcome<()> {
    // SAFETY: said above.
    let out = unsafe { place(value, "value") }?;
    out.set(Value::ABSENT);
    // SAFETY: said above.
    let (open, family, key) = unsafe {
        (Transaction::of(transaction)?, Family::of_any(family)?, bytes(key, key_len, "key")?)
    };
    out.set(Value::of(read(open.running()?, family, key)?));
    Ok(())
}

/// Reads the first `limit` entries from `start` on and below `end` in the order of keys, as the transaction sees
/// them. A NULL bound with length 0 is none. Free *entries with terrace_entries_free. The range that was read must not
/// change until the commit: a key that others put into it or delete is a conflict, also one that was absent. With
/// `limit` entries it ends after the last of them; to go on, scan from behind that key.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "two bounds, a limit and a result")]
pub unsafe extern "C" fn terrace_transaction_scan(
    transaction: *mut Transaction,
    family: *const Family,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
    limit: usize,
    entries: *mut *mut Entries,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(entries, "entries") }?;
        out.set(std::ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let (open, family, range) = unsafe {
            let range = range((start, start_len), (end, end_len))?;
            (Transaction::of(transaction)?, Family::of_any(family)?, range)
        };
        let running = open.running()?;
        let found = match family {
            None => running.scan::<&[u8]>(range, limit)?,
            Some(family) => running.scan_cf::<&[u8]>(family, range, limit)?,
        };
        out.give(Entries::new(found));
        Ok(())
    })
}

/// Sets a key to a value. What is over a limit is refused by the commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_transaction_put(
    transaction: *mut Transaction,
    family: *const Family,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
) -> *mut Error {
    let put = |transaction: &mut terrace::Transaction,
               family: Option<&_>,
               key: &[u8],
               value: &[u8]| match family {
        None => transaction.put(key, value),
        Some(family) => transaction.put_cf(family, key, value),
    };
    // SAFETY: the rules of terrace.h.
    call(|| unsafe {
        write_by(put, transaction, family, (key, key_len, "key"), (value, value_len, "value"))
    })
}

/// Sets a key to a value until `ttl_ms` milliseconds from the commit on; the transaction itself sees it
/// without an end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_transaction_put_with_ttl(
    transaction: *mut Transaction,
    family: *const Family,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    ttl_ms: u64,
) -> *mut Error {
    let ttl = Duration::from_millis(ttl_ms);
    let put = |transaction: &mut terrace::Transaction,
               family: Option<&_>,
               key: &[u8],
               value: &[u8]| match family {
        None => transaction.put_with_ttl(key, value, ttl),
        Some(family) => transaction.put_with_ttl_cf(family, key, value, ttl),
    };
    // SAFETY: the rules of terrace.h.
    call(|| unsafe {
        write_by(put, transaction, family, (key, key_len, "key"), (value, value_len, "value"))
    })
}

/// Looks at what a write of two byte strings was given, and does it with `write`.
///
/// # Safety
/// As the functions of the interface.
unsafe fn write_by(
    write: impl FnOnce(&mut terrace::Transaction, Option<&ColumnFamily>, &[u8], &[u8]),
    transaction: *mut Transaction,
    family: *const Family,
    first: (*const u8, usize, &str),
    second: (*const u8, usize, &str),
) -> Outcome<()> {
    // SAFETY: said above.
    let (open, family, first, second) = unsafe {
        let first = bytes(first.0, first.1, first.2)?;
        let second = bytes(second.0, second.1, second.2)?;
        (Transaction::of(transaction)?, Family::of_any(family)?, first, second)
    };
    write(open.running()?, family, first, second);
    Ok(())
}

/// Removes a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_transaction_delete(
    transaction: *mut Transaction,
    family: *const Family,
    key: *const u8,
    key_len: usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (open, family, key) = unsafe {
            (Transaction::of(transaction)?, Family::of_any(family)?, bytes(key, key_len, "key")?)
        };
        match family {
            None => open.running()?.delete(key),
            Some(family) => open.running()?.delete_cf(family, key),
        }
        Ok(())
    })
}

/// Removes every key from `start` on and below `end`, also those that others write before the commit; none if
/// start >= end. Later reads of the transaction find nothing there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_transaction_delete_range(
    transaction: *mut Transaction,
    family: *const Family,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
) -> *mut Error {
    let delete_range = |transaction: &mut terrace::Transaction,
                        family: Option<&_>,
                        start: &[u8],
                        end: &[u8]| match family {
        None => transaction.delete_range(start, end),
        Some(family) => transaction.delete_range_cf(family, start, end),
    };
    let (start, end) = ((start, start_len, "start"), (end, end_len, "end"));
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { write_by(delete_range, transaction, family, start, end) })
}

/// Merges an operand into the value of a key; see terrace_merge. Reads of the transaction see it, and then the
/// key must not change until the commit; without a read it may.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_transaction_merge(
    transaction: *mut Transaction,
    family: *const Family,
    key: *const u8,
    key_len: usize,
    operand: *const u8,
    operand_len: usize,
) -> *mut Error {
    let merge = |transaction: &mut terrace::Transaction,
                 family: Option<&_>,
                 key: &[u8],
                 operand: &[u8]| match family {
        None => transaction.merge(key, operand),
        Some(family) => transaction.merge_cf(family, key, operand),
    };
    let (key, operand) = ((key, key_len, "key"), (operand, operand_len, "operand"));
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { write_by(merge, transaction, family, key, operand) })
}

/// Notes what was written so far, on top of earlier save points.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_transaction_set_save_point(
    transaction: *mut Transaction,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let open = unsafe { Transaction::of(transaction) }?;
        let point = open.running()?.save_point();
        open.save_points.push(point);
        Ok(())
    })
}

/// Takes back what was written since the newest save point, and that save point. What was read since must
/// still not change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_transaction_roll_back(
    transaction: *mut Transaction,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let open = unsafe { Transaction::of(transaction) }?;
        open.running()?;
        let point = open.save_points.pop();
        let point = point.ok_or_else(|| Failure::argument("the transaction has no save point"))?;
        open.running()?.roll_back_to(point);
        Ok(())
    })
}

/// Commits: all writes become visible together, if no key that was read has changed; TERRACE_CONFLICT if one
/// has. Whatever the outcome, the transaction has ended and is to be freed. `sync` is one of TERRACE_SYNC_.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_transaction_commit(
    transaction: *mut Transaction,
    sync: i32,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let open = unsafe { Transaction::of(transaction) }?;
        // Taken before anything is refused.
        let taken = open.transaction.take().ok_or_else(ended)?;
        Ok(taken.commit_with(&write_options(sync)?)?)
    })
}

/// Frees a transaction; one that was not committed is as if it had never been. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_transaction_free(transaction: *mut Transaction) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(transaction) };
}
