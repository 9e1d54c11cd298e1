//! Options by name and text.

use crate::arguments::{exclusive, text};
use crate::error::{Error, call, free};
use std::ffi::c_char;
use terrace::CfOptions;
use terrace_binding::{Outcome, set_family_option, set_store_option};

/// How a store is opened, or a column family created. One thread at a time may change it; any number may
/// open stores with it.
pub struct Options {
    options: terrace::Options,
}

impl Options {
    /// Those behind `pointer`, the defaults for NULL.
    ///
    /// # Safety
    /// NULL, or a handle that lives.
    pub(crate) unsafe fn of(pointer: *const Self) -> terrace::Options {
        // SAFETY: said above.
        unsafe { pointer.as_ref() }.map_or_else(Default::default, |handle| handle.options.clone())
    }

    /// Those of the column family `name`, of the default one for NULL.
    ///
    /// # Safety
    /// As [`text`].
    pub(crate) unsafe fn family(&mut self, name: *const c_char) -> Outcome<&mut CfOptions> {
        if name.is_null() {
            return Ok(&mut self.options.default_family);
        }
        // SAFETY: said above.
        Ok(named(&mut self.options, unsafe { text(name, "family") }?))
    }
}

/// Options with their defaults. Free them with terrace_options_free.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_options_new() -> *mut Options {
    Box::into_raw(Box::new(Options { options: terrace::Options::default() }))
}

/// Sets an option of the store, or of its default column family, by its name: "memory_budget" to "64MiB",
/// "sync" to "none", "buffered", "batch" or "interval:100", "compression" to "none,none,lz4". docs/c.md
/// lists all. An unknown name and text that an option cannot be are TERRACE_INVALID_ARGUMENT; numbers out
/// of range are refused by terrace_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_options_set(
    options: *mut Options,
    name: *const c_char,
    value: *const c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (options, name, value) =
            unsafe { (exclusive(options, "options")?, text(name, "name")?, text(value, "value")?) };
        set_store_option(&mut options.options, name, value)
    })
}

/// Sets an option of the column family `family`, which the open creates if it does not exist. A family
/// that is not named here has the options of the default column family.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_options_set_family(
    options: *mut Options,
    family: *const c_char,
    name: *const c_char,
    value: *const c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (handle, family, name, value) = unsafe {
            let family = text(family, "family")?;
            let (name, value) = (text(name, "name")?, text(value, "value")?);
            (exclusive(options, "options")?, family, name, value)
        };
        // What is refused names no family.
        let mut chosen = present(&handle.options, family).clone();
        set_family_option(&mut chosen, name, value)?;
        *named(&mut handle.options, family) = chosen;
        Ok(())
    })
}

/// Names a column family for the open to create if it does not exist, with the options of the default one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_options_add_family(
    options: *mut Options,
    family: *const c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (handle, family) = unsafe { (exclusive(options, "options")?, text(family, "family")?) };
        named(&mut handle.options, family);
        Ok(())
    })
}

/// Frees options. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_options_free(options: *mut Options) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(options) };
}

/// The options of the family `name`, or those that it would begin with.
fn present<'a>(options: &'a terrace::Options, name: &str) -> &'a CfOptions {
    let found = options.column_families.iter().find(|(other, _)| other == name);
    found.map_or(&options.default_family, |(_, chosen)| chosen)
}

/// The options of the family `name`, which begin as those of the default family.
fn named<'a>(options: &'a mut terrace::Options, name: &str) -> &'a mut CfOptions {
    let at = options.column_families.iter().position(|(other, _)| other == name);
    let at = at.unwrap_or_else(|| {
        options.column_families.push((name.to_string(), options.default_family.clone()));
        options.column_families.len() - 1
    });
    &mut options.column_families[at].1
}
