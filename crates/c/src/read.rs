//! Point reads. A value is a slice of the engine's memory that it keeps alive: a cached read copies
//! nothing and allocates nothing.

use crate::arguments::{bytes, place, shared};
use crate::error::{Error, call};
use crate::family::Family;
use crate::read_options::ReadOptions;
use crate::store::Db;
use std::mem::MaybeUninit;
use std::ptr;
use terrace::Slice;
use terrace_binding::{Failure, address, generation};

/// Words that a [`Slice`] takes.
const SLICE_WORDS: usize = 3;

const _: () = assert!(size_of::<Slice>() == SLICE_WORDS * size_of::<usize>());
const _: () = assert!(align_of::<Slice>() <= align_of::<usize>());

/// A value that was read: `len` bytes at `data`, which is NULL if the key is absent (and is not for a value
/// of no bytes). The bytes stay as they are until terrace_value_free. Not to be copied; a copy must not be
/// freed or used after the first was.
#[repr(C)]
pub struct Value {
    /// The bytes, or NULL.
    pub data: *const u8,
    /// How many.
    pub len: usize,
    /// What keeps the bytes alive. Only for the library.
    pub private_: [usize; 4],
}

impl Value {
    /// No value.
    pub(crate) const ABSENT: Self = Self { data: ptr::null(), len: 0, private_: [0; 4] };

    /// A value that keeps `slice`.
    #[inline]
    pub(crate) fn of(slice: Option<Slice>) -> Self {
        let Some(slice) = slice else { return Self::ABSENT };
        let (data, len) = (address(&slice), slice.len());
        let mut kept = MaybeUninit::<[usize; SLICE_WORDS]>::zeroed();
        // SAFETY: size and alignment are checked above. Every word of a slice is initialised: its
        // fields fill it.
        let [a, b, c] = unsafe {
            kept.as_mut_ptr().cast::<Slice>().write(slice);
            kept.assume_init()
        };
        Self { data, len, private_: [a, b, c, 1 + generation() as usize] }
    }

    /// Lets go of the slice, unless there is none or it is of before a fork.
    fn release(&mut self) {
        if self.private_[SLICE_WORDS] == 1 + generation() as usize {
            // SAFETY: `of` put a slice there, and below it is forgotten.
            drop(unsafe { self.private_.as_ptr().cast::<Slice>().read() });
        }
        *self = Self::ABSENT;
    }
}

/// Reads the value of a key. *value is always set: data is NULL if the key is absent, or on failure. Free it
/// with terrace_value_free in any case, or at least if data is not NULL. A read from memory copies nothing.
/// NULL options are the defaults; bounds and prefix mean nothing here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_get(
    db: *const Db,
    family: *const Family,
    options: *const ReadOptions,
    key: *const u8,
    key_len: usize,
    value: *mut Value,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(value, "value") }?;
        out.set(Value::ABSENT);
        // SAFETY: the rules of terrace.h.
        let (family, options, key) = unsafe {
            let family = Family::of(family, Db::of(db)?)?;
            (family, ReadOptions::of(options)?, bytes(key, key_len, "key")?)
        };
        let found = match options {
            None => family.get(key)?,
            Some(options) => family.get_with(key, options)?,
        };
        out.set(Value::of(found));
        Ok(())
    })
}

/// As terrace_get; *expires_at_ms is when the value expires, in milliseconds since 1970, 0 if it does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_get_with_expiry(
    db: *const Db,
    family: *const Family,
    options: *const ReadOptions,
    key: *const u8,
    key_len: usize,
    value: *mut Value,
    expires_at_ms: *mut u64,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(value, "value") }?;
        // Before anything else is refused: it is freed whatever the outcome.
        out.set(Value::ABSENT);
        // SAFETY: the rules of terrace.h.
        let expiry = unsafe { place(expires_at_ms, "expires_at_ms") }?;
        expiry.set(0);
        // SAFETY: the rules of terrace.h.
        let (family, options, key) = unsafe {
            let family = Family::of(family, Db::of(db)?)?;
            (family, ReadOptions::of(options)?, bytes(key, key_len, "key")?)
        };
        let default = terrace::ReadOptions::default();
        if let Some(found) = family.get_entry(key, options.unwrap_or(&default))? {
            expiry.set(found.expires_at_ms.unwrap_or(0));
            out.set(Value::of(Some(found.value)));
        }
        Ok(())
    })
}

/// Reads `count` keys as of one moment; device reads are batched. The value of each key goes to the same place
/// in `values`, and is to be freed; on failure all are absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_multi_get(
    db: *const Db,
    family: *const Family,
    options: *const ReadOptions,
    count: usize,
    keys: *const *const u8,
    key_lens: *const usize,
    values: *mut Value,
) -> *mut Error {
    call(|| {
        if count == 0 {
            return Ok(());
        }
        if isize::try_from(count.saturating_mul(size_of::<Value>())).is_err() {
            return Err(Failure::argument(format!("{count} keys are more than there can be")));
        }
        // SAFETY: `count` places, by the rules of terrace.h.
        let out = |at| unsafe { place(values.wrapping_add(at), "values") };
        // SAFETY: the rules of terrace.h.
        unsafe { place(values, "values") }?;
        for at in 0..count {
            out(at)?.set(Value::ABSENT);
        }
        // SAFETY: the rules of terrace.h.
        let (family, options) =
            unsafe { (Family::of(family, Db::of(db)?)?, ReadOptions::of(options)?) };
        // SAFETY: both arrays have `count` entries, by the rules of terrace.h.
        let (keys, lens) = unsafe {
            shared(keys, "keys")?;
            shared(key_lens, "key_lens")?;
            let keys = std::slice::from_raw_parts(keys, count);
            (keys, std::slice::from_raw_parts(key_lens, count))
        };
        let keys = keys.iter().zip(lens);
        // SAFETY: the rules of terrace.h, for every key.
        let keys = keys.map(|(key, len)| unsafe { bytes(*key, *len, "a key") });
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let default = terrace::ReadOptions::default();
        let found = family.multi_get_with(&keys, options.unwrap_or(&default))?;
        for (at, slice) in found.into_iter().enumerate() {
            out(at)?.set(Value::of(slice));
        }
        Ok(())
    })
}

/// Lets go of a value and makes it absent, so that a second call does nothing. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_value_free(value: *mut Value) {
    // SAFETY: NULL, or a value that a function of this library has set.
    if let Some(value) = unsafe { value.as_mut() } {
        value.release();
    }
}
