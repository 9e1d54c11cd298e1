//! The change feed: committed batches, read back from the log.
//!
//! The operations of the batch that a feed stands on are copied out of it, so that what C is shown stays where it
//! is until the feed moves.

use crate::arguments::{exclusive, place, shared};
use crate::batch::Batch;
use crate::error::{Error, call, free};
use crate::store::Db;
use std::ffi::{CString, c_char};
use std::ops::Range;
use std::ptr;
use terrace::{UpdateBatch, UpdateOp, UpdateOptions};
use terrace_binding::{Failure, Kept, Outcome, address};

/// The key was set to the value.
pub const TERRACE_UPDATE_PUT: i32 = 1;
/// The key was deleted.
pub const TERRACE_UPDATE_DELETE: i32 = 2;
/// The keys from "key" on and below "end" were deleted.
pub const TERRACE_UPDATE_DELETE_RANGE: i32 = 3;
/// The operand, which is the "value", was merged into the value of the key.
pub const TERRACE_UPDATE_MERGE: i32 = 4;
/// A file was ingested whose keys lie from "key" up to "end", that included. The log does not have its entries: read
/// these keys from the store.
pub const TERRACE_UPDATE_INGESTED: i32 = 5;

/// A change feed: it stands on one committed batch after the other. One thread at a time may use it. It keeps the log
/// that it has not read, so free it when it is not needed.
pub struct Updates {
    kept: Kept<Feed>,
}

struct Feed {
    updates: terrace::Updates,
    /// Nothing before the first batch, and where there is nothing new.
    current: Option<Current>,
    /// A batch whose operations could not be read: the next call tries it again.
    unread: Option<UpdateBatch>,
}

/// The batch that a feed stands on.
struct Current {
    batch: UpdateBatch,
    ops: Vec<CopiedOp>,
    /// Keys, values and ends of all operations.
    bytes: Vec<u8>,
}

/// An operation, with places in [`Current::bytes`].
struct CopiedOp {
    kind: i32,
    family: Option<CString>,
    key: Range<usize>,
    value: Option<Range<usize>>,
    end: Option<Range<usize>>,
    expires_at_ms: u64,
}

impl Current {
    /// The operations of `batch`, and their bytes.
    fn copy(batch: &UpdateBatch) -> terrace::Result<(Vec<CopiedOp>, Vec<u8>)> {
        let (mut bytes, mut ops) = (Vec::new(), Vec::with_capacity(batch.len()));
        let mut copied = |part: &[u8]| {
            let start = bytes.len();
            bytes.extend_from_slice(part);
            start..bytes.len()
        };
        for update in batch.updates() {
            let update = update?;
            let (kind, key, value, end, expires_at_ms) = match &update.op {
                UpdateOp::Put { key, value, expires_at_ms } => {
                    (TERRACE_UPDATE_PUT, *key, Some(&**value), None, expires_at_ms.unwrap_or(0))
                }
                UpdateOp::Delete { key } => (TERRACE_UPDATE_DELETE, *key, None, None, 0),
                UpdateOp::DeleteRange { start, end } => {
                    (TERRACE_UPDATE_DELETE_RANGE, *start, None, Some(*end), 0)
                }
                UpdateOp::Merge { key, operand } => {
                    (TERRACE_UPDATE_MERGE, *key, Some(*operand), None, 0)
                }
                UpdateOp::Ingested { smallest, largest } => {
                    (TERRACE_UPDATE_INGESTED, *smallest, None, Some(*largest), 0)
                }
                _ => {
                    let what = format!("update {} is of a kind without a name in C", update.seqno);
                    return Err(terrace::Error::InvalidArgument(what));
                }
            };
            let family = update.family.map(|name| name.replace('\0', "\\0"));
            ops.push(CopiedOp {
                kind,
                family: family.map(|name| CString::new(name).unwrap_or_default()),
                key: copied(key),
                value: value.map(&mut copied),
                end: end.map(&mut copied),
                expires_at_ms,
            });
        }
        Ok((ops, bytes))
    }
}

impl Feed {
    fn advance(&mut self) -> terrace::Result<()> {
        self.current = None;
        let batch = match self.unread.take() {
            Some(batch) => Some(batch),
            None => self.updates.next().transpose()?,
        };
        let Some(batch) = batch else { return Ok(()) };
        match Current::copy(&batch) {
            Ok((ops, bytes)) => {
                self.current = Some(Current { batch, ops, bytes });
                Ok(())
            }
            Err(error) => {
                self.unread = Some(batch);
                Err(error)
            }
        }
    }
}

impl Updates {
    /// # Safety
    /// NULL, or a handle that lives.
    unsafe fn current<'a>(pointer: *const Self) -> Outcome<&'a Current> {
        // SAFETY: said above.
        let feed = unsafe { shared(pointer, "updates") }?.kept.get()?;
        feed.current.as_ref().ok_or_else(|| Failure::argument("the feed stands on no batch"))
    }

    /// # Safety
    /// As [`Self::current`].
    unsafe fn op<'a>(pointer: *const Self, index: usize) -> Option<(&'a Current, &'a CopiedOp)> {
        // SAFETY: said above.
        let current = unsafe { Self::current(pointer) }.ok()?;
        Some((current, current.ops.get(index)?))
    }
}

/// Opens the feed of what was committed from sequence number `seqno` on, in all column families; the first batch may
/// begin before it. With `synced_only` it gives only what no crash takes back. TERRACE_UPDATES_GONE if the log
/// does not go back that far: see terrace_oldest_update, and the option "log_retention_bytes". It stands on no batch
/// before terrace_updates_next. Free it with terrace_updates_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_since(
    db: *const Db,
    seqno: u64,
    synced_only: bool,
    updates: *mut *mut Updates,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(updates, "updates") }?;
        out.set(ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let opened = unsafe { Db::of(db) }?;
        let updates = opened.db.updates_with(seqno, &UpdateOptions { synced_only })?;
        out.give(Updates { kept: Kept::new(Feed { updates, current: None, unread: None }) });
        Ok(())
    })
}

/// Moves to the next batch. *is_there is false if there is nothing new; a later call looks again. After an error the feed
/// stands on no batch, and the next call tries again; none is passed over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_next(
    updates: *mut Updates,
    is_there: *mut bool,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(is_there, "is_there") }?;
        out.set(false);
        // SAFETY: the rules of terrace.h.
        let feed = unsafe { exclusive(updates, "updates") }?.kept.get_mut()?;
        feed.advance()?;
        out.set(feed.current.is_some());
        Ok(())
    })
}

/// The sequence number of the first operation of the batch; 0 if the feed stands on none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_first_seqno(updates: *const Updates) -> u64 {
    // SAFETY: the rules of terrace.h.
    unsafe { Updates::current(updates) }.map_or(0, |current| current.batch.first_seqno())
}

/// The sequence number of the last operation of the batch: when all of it is done, go on with the one after it. 0 if the
/// feed stands on none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_last_seqno(updates: *const Updates) -> u64 {
    // SAFETY: the rules of terrace.h.
    unsafe { Updates::current(updates) }.map_or(0, |current| current.batch.last_seqno())
}

/// The number of operations of the batch, which have consecutive sequence numbers; 0 if the feed stands on none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_len(updates: *const Updates) -> usize {
    // SAFETY: the rules of terrace.h.
    unsafe { Updates::current(updates) }.map_or(0, |current| current.ops.len())
}

/// What operation `index` of the batch, from 0 on, did: one of TERRACE_UPDATE_; 0 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_kind(updates: *const Updates, index: usize) -> i32 {
    // SAFETY: the rules of terrace.h.
    unsafe { Updates::op(updates, index) }.map_or(0, |(_, op)| op.kind)
}

/// The name of the column family of an operation, until the feed moves or is freed; NULL if that was dropped since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_family(
    updates: *const Updates,
    index: usize,
) -> *const c_char {
    // SAFETY: the rules of terrace.h.
    let op = unsafe { Updates::op(updates, index) };
    let name = op.and_then(|(_, op)| op.family.as_ref());
    name.map_or(ptr::null(), |name| name.as_ptr())
}

/// The key of an operation, of *len bytes, which stays until the feed moves or is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_key(
    updates: *const Updates,
    index: usize,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: the rules of terrace.h.
    unsafe { part(updates, index, len, |op| Some(&op.key)) }
}

/// The value or operand of an operation, as terrace_updates_key; NULL if it has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_value(
    updates: *const Updates,
    index: usize,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: the rules of terrace.h.
    unsafe { part(updates, index, len, |op| op.value.as_ref()) }
}

/// The end of the range of an operation, as terrace_updates_key; NULL if it has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_end(
    updates: *const Updates,
    index: usize,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: the rules of terrace.h.
    unsafe { part(updates, index, len, |op| op.end.as_ref()) }
}

/// When the value that an operation put expires, in milliseconds since 1970; 0 if it does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_expires_at_ms(
    updates: *const Updates,
    index: usize,
) -> u64 {
    // SAFETY: the rules of terrace.h.
    unsafe { Updates::op(updates, index) }.map_or(0, |(_, op)| op.expires_at_ms)
}

/// Makes a batch for `target`, another store, of the operations that the feed stands on, in the column families of the
/// same names; those of families that were dropped since are left out. TERRACE_NO_SUCH_FAMILY if the target lacks one,
/// TERRACE_INVALID_ARGUMENT for ingested files. Write it with terrace_write, free it with terrace_batch_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_to_batch(
    updates: *const Updates,
    target: *const Db,
    batch: *mut *mut Batch,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(batch, "batch") }?;
        out.set(ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let (current, target) = unsafe { (Updates::current(updates)?, Db::of(target)?) };
        out.give(Batch::filled(current.batch.to_write_batch(&target.db)?));
        Ok(())
    })
}

/// Frees a feed. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_updates_free(updates: *mut Updates) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(updates) };
}

/// The sequence number of the newest write that reads see; 0 in an empty store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_latest_seqno(db: *const Db, seqno: *mut u64) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (opened, out) = unsafe { (Db::of(db)?, place(seqno, "seqno")?) };
        out.set(opened.db.latest_seqno());
        Ok(())
    })
}

/// The oldest sequence number that terrace_updates_since takes now; one above the newest if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_oldest_update(db: *const Db, seqno: *mut u64) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (opened, out) = unsafe { (Db::of(db)?, place(seqno, "seqno")?) };
        out.set(opened.db.oldest_update()?);
        Ok(())
    })
}

/// # Safety
/// As the functions of the interface.
unsafe fn part(
    updates: *const Updates,
    index: usize,
    len: *mut usize,
    which: impl FnOnce(&CopiedOp) -> Option<&Range<usize>>,
) -> *const u8 {
    // SAFETY: said above.
    let (op, len) = unsafe { (Updates::op(updates, index), place(len, "len")) };
    let Ok(len) = len else { return ptr::null() };
    let range = op.and_then(|(current, op)| current.bytes.get(which(op)?.clone()));
    len.set(range.map_or(0, <[u8]>::len));
    range.map_or(ptr::null(), address)
}
