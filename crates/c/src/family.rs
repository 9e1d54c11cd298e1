//! Column families.

use crate::arguments::{place, shared, text};
use crate::error::{Error, call, free};
use crate::options::Options;
use crate::store::{Db, Opened};
use crate::text::handed_out;
use std::ffi::{CString, c_char};
use terrace::ColumnFamily;
use terrace_binding::{Failure, Kept, Outcome};

/// A column family: a key space of its own within a store. NULL stands for the default one wherever a
/// function takes a family. Any number of threads may use a handle at the same time.
pub struct Family {
    kept: Kept<Named>,
}

struct Named {
    family: ColumnFamily,
    /// The number of the open store that it is of.
    store: u64,
    name: CString,
}

impl Family {
    fn handle(store: &Opened, family: ColumnFamily) -> Self {
        let name = CString::new(family.name().replace('\0', "\\0")).unwrap_or_default();
        Self { kept: Kept::new(Named { family, store: store.id, name }) }
    }

    /// The family behind `pointer`, the default one of `store` for NULL.
    ///
    /// # Safety
    /// NULL, or a handle that lives until the function returns.
    #[inline]
    pub(crate) unsafe fn of(pointer: *const Self, store: &Opened) -> Outcome<&ColumnFamily> {
        // SAFETY: said above.
        let Some(handle) = (unsafe { pointer.as_ref() }) else { return Ok(&store.default) };
        let named = handle.kept.get()?;
        if named.store != store.id {
            return Err(Failure::argument("the column family is of another store"));
        }
        Ok(&named.family)
    }

    /// The family behind `pointer`, whichever store it is of; none for NULL.
    ///
    /// # Safety
    /// As [`Family::of`].
    pub(crate) unsafe fn of_any<'a>(pointer: *const Self) -> Outcome<Option<&'a ColumnFamily>> {
        // SAFETY: said above.
        let handle = unsafe { pointer.as_ref() };
        handle.map(|handle| Ok(&handle.kept.get()?.family)).transpose()
    }
}

/// The column family called `name`; TERRACE_NO_SUCH_FAMILY if there is none. Free it with
/// terrace_family_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_family_get(
    db: *const Db,
    name: *const c_char,
    family: *mut *mut Family,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(family, "family") }?;
        out.set(std::ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let (opened, name) = unsafe { (Db::of(db)?, text(name, "name")?) };
        let found = opened.db.column_family(name);
        let found = found.ok_or_else(|| terrace::Error::NoSuchFamily(name.to_string()))?;
        out.give(Family::handle(opened, found));
        Ok(())
    })
}

/// Creates a column family with the options that `options` has for the default family; NULL are the
/// defaults. They are stored with it. Free it with terrace_family_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_family_create(
    db: *const Db,
    name: *const c_char,
    options: *const Options,
    family: *mut *mut Family,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(family, "family") }?;
        out.set(std::ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let (opened, name, options) =
            unsafe { (Db::of(db)?, text(name, "name")?, Options::of(options)?) };
        let created = opened.db.create_column_family(name, options.default_family)?;
        out.give(Family::handle(opened, created));
        Ok(())
    })
}

/// Drops a column family with all its keys; calls with its handles fail from then on. The handles are
/// still to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_family_drop(db: *const Db, name: *const c_char) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (opened, name) = unsafe { (Db::of(db)?, text(name, "name")?) };
        Ok(opened.db.drop_column_family(name)?)
    })
}

/// Changes an option of one column family, the default one for NULL, and stores it with the family: "compression",
/// "filter", "prefix_len", "value_separation_threshold", "value_compression" or "learning". Sizes may have a unit:
/// 64MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_family_set_option(
    db: *const Db,
    family: *const Family,
    name: *const c_char,
    value: *const c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (family, name, value) = unsafe {
            let family = Family::of(family, Db::of(db)?)?;
            (family, text(name, "name")?, text(value, "value")?)
        };
        Ok(family.set_option(name, value)?)
    })
}

/// What an option of a column family, the default one for NULL, is now: those of terrace_family_set_option, and
/// "compaction". Free *value with terrace_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_family_get_option(
    db: *const Db,
    family: *const Family,
    name: *const c_char,
    value: *mut *mut c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(value, "value") }?;
        out.set(std::ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let (family, name) = unsafe { (Family::of(family, Db::of(db)?)?, text(name, "name")?) };
        let value = family.option(name).ok_or_else(|| {
            let all = terrace::LIVE_FAMILY_OPTIONS.join(", ");
            Failure::argument(format!("there is no option `{name}` of column families, but {all}"))
        })?;
        out.set(handed_out(&value));
        Ok(())
    })
}

/// The name of a family, which lives as long as its handle. NULL for NULL, and after a fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_family_name(family: *const Family) -> *const c_char {
    // SAFETY: the rules of terrace.h.
    let named = unsafe { shared(family, "family") }.and_then(|handle| handle.kept.get());
    named.map_or(std::ptr::null(), |named| named.name.as_ptr())
}

/// The names of all column families, "default" among them, one a line. Free *names with
/// terrace_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_family_names(
    db: *const Db,
    names: *mut *mut c_char,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let out = unsafe { place(names, "names") }?;
        out.set(std::ptr::null_mut());
        // SAFETY: the rules of terrace.h.
        let opened = unsafe { Db::of(db) }?;
        out.set(handed_out(&opened.db.column_families().join("\n")));
        Ok(())
    })
}

/// Frees a family's handle; the family stays. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_family_free(family: *mut Family) {
    // SAFETY: NULL, or a handle that is given back.
    unsafe { free(family) };
}
