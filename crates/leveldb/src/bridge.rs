//! What the interface for C++ in `cxx/` uses beside `leveldb/c.h`; not a part of it. Declared in `cxx/bridge.h`.

use crate::batch::ops;
use crate::db::Db;
use crate::memory::{bytes, call, shown};
use crate::snapshot::Snapshot;
use libc::{c_char, c_uchar, c_void, size_t};
use terrace::{ReadOptions, SyncMode, WriteOptions};

/// Writes a batch, given as LevelDB's bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_leveldb_write(
    db: *const Db,
    sync: c_uchar,
    batch: *const c_char,
    len: size_t,
    errptr: *mut *mut c_char,
) {
    let write = || {
        let sync = if sync != 0 { SyncMode::Batch } else { SyncMode::None };
        // SAFETY: a live store and `len` bytes.
        let (db, batch) = unsafe { (Db::of(db)?, bytes(batch, len)) };
        db.write(ops(batch)?, &WriteOptions { sync: Some(sync) })
    };
    // SAFETY: as in LevelDB.
    unsafe { call(errptr, (), write) };
}

/// Calls `found` with the value of a key, if there is one; whether there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_leveldb_get(
    db: *const Db,
    snapshot: *const Snapshot,
    fill_cache: c_uchar,
    key: *const c_char,
    len: size_t,
    found: unsafe extern "C" fn(*mut c_void, *const c_char, size_t),
    state: *mut c_void,
    errptr: *mut *mut c_char,
) -> c_uchar {
    let get = || {
        // SAFETY: a live store, none or a live snapshot, `len` bytes.
        let (db, snapshot, key) = unsafe { (Db::of(db)?, snapshot.as_ref(), bytes(key, len)) };
        let snapshot = snapshot.map(Snapshot::held).transpose()?;
        let fill_cache = fill_cache != 0;
        db.get(key, &ReadOptions { snapshot, fill_cache, ..ReadOptions::default() })
    };
    // SAFETY: as in LevelDB; the value lives for the call.
    unsafe {
        let value = call(errptr, None, get);
        if let Some(value) = &value {
            found(state, shown(value), value.len());
        }
        c_uchar::from(value.is_some())
    }
}
