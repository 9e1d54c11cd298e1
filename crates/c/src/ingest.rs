//! Sorted files that are written outside a store, and their ingestion.

use crate::arguments::{bytes, exclusive, path, place};
use crate::error::{Error, call, free};
use crate::family::Family;
use crate::options::{Options, family_name};
use crate::store::Db;
use std::ffi::c_char;
use std::path::PathBuf;
use terrace::{IngestOptions, IngestPosition, IngestSource};
use terrace_binding::{Failure, Kept, Outcome};

/// The files stay, and what they have counts as written just then.
pub const TERRACE_INGEST_DEFAULT: i32 = 0;
/// The files are removed once the store has them durably.
pub const TERRACE_INGEST_MOVE: i32 = 1;
/// Existing entries count where both have a key: for filling up a store with old data.
pub const TERRACE_INGEST_BELOW: i32 = 2;

/// A sorted file that is being written, for terrace_ingest. It needs no store. One thread at a time may use it.
pub struct SstWriter {
    kept: Kept<Option<terrace::SstWriter>>,
}

impl SstWriter {
    /// # Safety
    /// NULL, or a handle that lives and that no other thread uses.
    unsafe fn of<'a>(pointer: *mut Self) -> Outcome<&'a mut Option<terrace::SstWriter>> {
        // SAFETY: said above.
        unsafe { exclusive(pointer, "writer") }?.kept.get_mut()
    }

    /// # Safety
    /// As [`Self::of`].
    unsafe fn unfinished<'a>(pointer: *mut Self) -> Outcome<&'a mut terrace::SstWriter> {
        // SAFETY: said above.
        unsafe { Self::of(pointer) }?.as_mut().ok_or_else(finished)
    }
}

fn finished() -> Failure {
    Failure::argument("the file is finished; create another")
}

/// Creates the file `path`, which must not exist. It is written as the options of the column family `family` say, of the
/// default one for NULL: compression, filters, and the merge operator, if it has operands. NULL options are the
/// defaults. With the option encryption_key_file the file is encrypted, which an encrypted store wants of what it
/// ingests. Free the writer with terrace_sst_writer_free, which removes a file that is not finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_sst_writer_create(
    path: *const c_char,
    options: *const Options,
    family: *const c_char,
    writer: *mut *mut SstWriter,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(writer, "writer") }?;
        out.set(std::ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let (path, options) = unsafe { (self::path(path)?, Options::of(options)?) };
        // SAFETY: the rules of terrace.h.
        let name = unsafe { family_name(family) }?;
        let named = options.column_families.iter().find(|(other, _)| other == name);
        let family = named.map_or(&options.default_family, |(_, family)| family);
        let vfs = options.advanced.vfs.clone();
        let created = terrace::SstWriter::create_on(vfs, path, family)?;
        out.give(SstWriter { kept: Kept::new(Some(created)) });
        Ok(())
    })
}

/// Adds a key with its value. Keys are added in ascending order, each once: another one is TERRACE_INVALID_ARGUMENT, and
/// the writer is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_sst_writer_put(
    writer: *mut SstWriter,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (writer, key, value) = unsafe {
            let writer = SstWriter::unfinished(writer)?;
            (writer, bytes(key, key_len, "key")?, bytes(value, value_len, "value")?)
        };
        Ok(writer.put(key, value)?)
    })
}

/// As terrace_sst_writer_put, until `expires_at_ms`, in milliseconds since 1970.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_sst_writer_put_until(
    writer: *mut SstWriter,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    expires_at_ms: u64,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (writer, key, value) = unsafe {
            let writer = SstWriter::unfinished(writer)?;
            (writer, bytes(key, key_len, "key")?, bytes(value, value_len, "value")?)
        };
        Ok(writer.put_until(key, value, expires_at_ms)?)
    })
}

/// Adds a key that the ingestion deletes. It takes its place among the keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_sst_writer_delete(
    writer: *mut SstWriter,
    key: *const u8,
    key_len: usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (writer, key) =
            unsafe { (SstWriter::unfinished(writer)?, bytes(key, key_len, "key")?) };
        Ok(writer.delete(key)?)
    })
}

/// Adds an operand that the ingestion merges into the value of a key; TERRACE_INVALID_ARGUMENT if the options name no merge
/// operator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_sst_writer_merge(
    writer: *mut SstWriter,
    key: *const u8,
    key_len: usize,
    operand: *const u8,
    operand_len: usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (writer, key, operand) = unsafe {
            let writer = SstWriter::unfinished(writer)?;
            (writer, bytes(key, key_len, "key")?, bytes(operand, operand_len, "operand")?)
        };
        Ok(writer.merge(key, operand)?)
    })
}

/// The ingestion deletes every key from `start` on and below `end` that the store has, none of this file. In any order,
/// beside the keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_sst_writer_delete_range(
    writer: *mut SstWriter,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (writer, start, end) = unsafe {
            let writer = SstWriter::unfinished(writer)?;
            (writer, bytes(start, start_len, "start")?, bytes(end, end_len, "end")?)
        };
        Ok(writer.delete_range(start, end)?)
    })
}

/// About how long the file would be if it were finished now: for beginning another one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_sst_writer_estimated_bytes(
    writer: *mut SstWriter,
    bytes: *mut u64,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (writer, out) = unsafe { (SstWriter::unfinished(writer)?, place(bytes, "bytes")?) };
        out.set(writer.estimated_bytes());
        Ok(())
    })
}

/// Finishes the file and makes it durable. *entries is how many keys it has, those that it deletes among them; NULL if
/// that is of no interest. A file without any is TERRACE_INVALID_ARGUMENT; after an error there is none. Only
/// terrace_sst_writer_free may follow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_sst_writer_finish(
    writer: *mut SstWriter,
    entries: *mut u64,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let writer = unsafe { SstWriter::of(writer) }?.take().ok_or_else(finished)?;
        let file = writer.finish()?;
        // SAFETY: the rules of terrace.h.
        if let Ok(out) = unsafe { place(entries, "entries") } {
            out.set(file.entry_count);
        }
        Ok(())
    })
}

/// Frees a writer; a file that is not finished is removed. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_sst_writer_free(writer: *mut SstWriter) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(writer) };
}

/// Makes `count` files that terrace_sst_writer_finish has finished part of a column family, all of them as one write, or
/// none. Durable when it returns. A file that is encrypted otherwise than the store is TERRACE_UNSUPPORTED. `how` is TERRACE_INGEST_DEFAULT, or TERRACE_INGEST_MOVE, TERRACE_INGEST_BELOW or
/// the sum of both. *entries is how many entries and deletions there were; NULL if that is of no interest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_ingest(
    db: *const Db,
    family: *const Family,
    count: usize,
    paths: *const *const c_char,
    how: i32,
    entries: *mut u64,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (family, files) = unsafe { (Family::of(family, Db::of(db)?)?, files(count, paths)?) };
        let ingested = family.ingest(&files, &ingest_options(how)?)?;
        // SAFETY: the rules of terrace.h.
        if let Ok(out) = unsafe { place(entries, "entries") } {
            out.set(ingested.entry_count);
        }
        Ok(())
    })
}

/// # Safety
/// `count` strings that end with a zero byte.
unsafe fn files(count: usize, paths: *const *const c_char) -> Outcome<Vec<PathBuf>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if paths.is_null() {
        return Err(Failure::argument("paths is NULL"));
    }
    // SAFETY: said above.
    let path = |at: usize| unsafe { self::path(*paths.add(at)) }.map(PathBuf::from);
    (0..count).map(path).collect()
}

fn ingest_options(how: i32) -> Outcome<IngestOptions> {
    if how & !(TERRACE_INGEST_MOVE | TERRACE_INGEST_BELOW) != 0 {
        return Err(Failure::argument(format!("how is {how}, which is no TERRACE_INGEST_")));
    }
    Ok(IngestOptions {
        source: match how & TERRACE_INGEST_MOVE {
            0 => IngestSource::Copy,
            _ => IngestSource::Move,
        },
        position: match how & TERRACE_INGEST_BELOW {
            0 => IngestPosition::Above,
            _ => IngestPosition::Below,
        },
    })
}
