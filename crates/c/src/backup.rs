//! Incremental backups.

use crate::arguments::{path, place, shared};
use crate::error::{Error, call, free};
use crate::options::Options;
use crate::store::Db;
use std::ffi::c_char;
use terrace_backup::Error as BackupError;
use terrace_binding::{Code, Failure, Kept, Outcome};

/// A directory of backups, which share the files that did not change between them. Any number of threads may use it: what
/// changes the directory takes turns. No other process can open it meanwhile.
pub struct Backups {
    kept: Kept<terrace_backup::Backups>,
}

impl Backups {
    /// # Safety
    /// NULL, or a handle that lives.
    unsafe fn of<'a>(pointer: *const Self) -> Outcome<&'a terrace_backup::Backups> {
        // SAFETY: said above.
        unsafe { shared(pointer, "backups") }?.kept.get()
    }
}

fn failure(error: BackupError) -> Failure {
    let message = error.to_string();
    let code = match error {
        BackupError::Store(error) => return error.into(),
        BackupError::Busy(_) => Code::Locked,
        BackupError::Damaged { .. } => Code::Corruption,
        _ => Code::InvalidArgument,
    };
    Failure { code, message }
}

/// Opens the backups in directory `path`, which is created if it is missing. TERRACE_LOCKED if another process has them open;
/// TERRACE_INVALID_ARGUMENT if the directory holds something else. Free it with terrace_backups_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_backups_open(
    path: *const c_char,
    backups: *mut *mut Backups,
) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { open(path, std::ptr::null(), backups) })
}

/// As terrace_backups_open, for backups that are encrypted with the keys that the option encryption_key_file names; other options
/// make no difference, and without this one, or with NULL, it is terrace_backups_open. A store that is restored is encrypted, too.
/// What opens or makes a backup is TERRACE_UNSUPPORTED if the directory has backups under keys that are not
/// given, or backups that are not encrypted while keys are given, and the reverse.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_backups_open_with(
    path: *const c_char,
    options: *const Options,
    backups: *mut *mut Backups,
) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { open(path, options, backups) })
}

/// # Safety
/// As the functions of the interface.
unsafe fn open(
    at: *const c_char,
    options: *const Options,
    backups: *mut *mut Backups,
) -> Outcome<()> {
    // SAFETY: said above.
    let out = unsafe { place(backups, "backups") }?;
    out.set(std::ptr::null_mut());
    // SAFETY: said above.
    let (at, options) = unsafe { (path(at)?, Options::of(options)?) };
    let opened = terrace_backup::Backups::open_with(options.advanced.vfs, at).map_err(failure)?;
    out.give(Backups { kept: Kept::new(opened) });
    Ok(())
}

/// Backs an open store up: what was acknowledged before the call is in it, and writes go on meanwhile. *id is the number of
/// the backup, above all before it; NULL if that is of no interest. An encrypted store is backed up only into backups that are
/// encrypted (TERRACE_INVALID_ARGUMENT), and one with a damaged SST that no backup has is not (TERRACE_CORRUPTION).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_backups_create(
    backups: *const Backups,
    db: *const Db,
    id: *mut u64,
) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { create(backups, db, id, false) })
}

/// As terrace_backups_create, also of a store with damaged SSTs: they are in the backup as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_backups_create_as_is(
    backups: *const Backups,
    db: *const Db,
    id: *mut u64,
) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { create(backups, db, id, true) })
}

/// # Safety
/// As the functions of the interface.
unsafe fn create(
    backups: *const Backups,
    db: *const Db,
    id: *mut u64,
    is_as_is: bool,
) -> Outcome<()> {
    // SAFETY: said above.
    let (backups, opened) = unsafe { (Backups::of(backups)?, Db::of(db)?) };
    let created = match is_as_is {
        true => backups.create_as_is(&opened.db, &mut |_| {}),
        false => backups.create(&opened.db, &mut |_| {}),
    };
    let created = created.map_err(failure)?;
    // SAFETY: said above.
    if let Ok(out) = unsafe { place(id, "id") } {
        out.set(created.backup.id);
    }
    Ok(())
}

/// Puts the numbers of the backups, the oldest first, into `ids`, at most `capacity` of them. *count is how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_backups_list(
    backups: *const Backups,
    ids: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (backups, count) = unsafe { (Backups::of(backups)?, place(count, "count")?) };
        count.set(0);
        if capacity != 0 {
            // SAFETY: the rules of terrace.h.
            unsafe { place(ids, "ids") }?;
        }
        let listed = backups.list().map_err(failure)?;
        for (at, backup) in listed.iter().enumerate().take(capacity) {
            // SAFETY: `capacity` places, by the rules of terrace.h.
            unsafe { place(ids.wrapping_add(at), "ids") }?.set(backup.id);
        }
        count.set(listed.len());
        Ok(())
    })
}

/// When a backup was made, in milliseconds since 1970, and the bytes that a restore writes. Each may be NULL.
/// TERRACE_CORRUPTION if its record is damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_backups_describe(
    backups: *const Backups,
    id: u64,
    created_ms: *mut u64,
    size_bytes: *mut u64,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let backup = unsafe { Backups::of(backups) }?.get(id).map_err(failure)?;
        // SAFETY: the rules of terrace.h.
        let (created, size) =
            unsafe { (place(created_ms, "created_ms"), place(size_bytes, "size_bytes")) };
        if let Ok(out) = created {
            out.set(backup.created_ms);
        }
        if let Ok(out) = size {
            out.set(backup.size_bytes());
        }
        Ok(())
    })
}

/// Reads every byte of a backup and compares it with what was written. The first damage is TERRACE_CORRUPTION.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_backups_verify(backups: *const Backups, id: u64) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { Backups::of(backups) }?.verify(id, &mut |_| {}).map_err(failure))
}

/// Makes directory `target`, new or empty, the store that was backed up; every byte is compared. After an error nothing is left
/// there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_backups_restore(
    backups: *const Backups,
    id: u64,
    target: *const c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (backups, target) = unsafe { (Backups::of(backups)?, path(target)?) };
        backups.restore(id, target, &mut |_| {}).map_err(failure)
    })
}

/// Removes a backup, and the files that no other one has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_backups_remove(backups: *const Backups, id: u64) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { Backups::of(backups) }?.remove(id).map(drop).map_err(failure))
}

/// Removes all backups but the `keep` latest; none if the record of one that would stay is damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_backups_keep_latest(
    backups: *const Backups,
    keep: usize,
) -> *mut Error {
    // SAFETY: the rules of terrace.h.
    call(|| unsafe { Backups::of(backups) }?.keep_latest(keep).map(drop).map_err(failure))
}

/// Closes a directory of backups. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_backups_free(backups: *mut Backups) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(backups) };
}
