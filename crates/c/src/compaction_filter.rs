//! Compaction filters of the program: a callback with a context.

use crate::arguments::{bytes, place, text};
use crate::callback::{Context, FreeContext};
use crate::error::{Error, call};
use crate::options::{Options, family_name};
use std::cell::OnceCell;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;
use terrace::{CompactionFilter, FilterContext, FilterDecision, FilterError, FilterJob};
use terrace_binding::{Failure, address, guard};

/// The entry stays as it is.
pub const TERRACE_FILTER_KEEP: i32 = 0;
/// The key is absent from now on; older versions of it do not come back.
pub const TERRACE_FILTER_REMOVE: i32 = 1;
/// The entry has the value that terrace_filter_entry_change was given from now on.
pub const TERRACE_FILTER_CHANGE: i32 = 2;

/// Flushes ask the filter, too.
pub const TERRACE_FILTER_FLUSHES: i32 = 1;
/// Entries that a snapshot sees are given to the filter as well, so that reads at a snapshot can find less than before.
pub const TERRACE_FILTER_IGNORES_SNAPSHOTS: i32 = 2;

/// The entry that a filter decides on. It lives until the callback returns.
pub struct FilterEntry {
    /// Both live as long as this does.
    entry: *const terrace::FilterEntry<'static>,
    job: *const FilterContext,
    changed: Option<Result<Vec<u8>, String>>,
    /// The first panic of the library while the filter looked at the entry.
    panic: OnceCell<Failure>,
}

impl FilterEntry {
    fn of(job: &FilterContext, entry: &terrace::FilterEntry<'_>) -> Self {
        let entry = ptr::from_ref(entry).cast();
        Self { entry, job: ptr::from_ref(job), changed: None, panic: OnceCell::new() }
    }

    /// What becomes of the entry if the filter has said `decision`. After a panic it stays: the filter may not have seen
    /// what it decides on.
    fn decided(self, decision: i32) -> Result<FilterDecision, FilterError> {
        if let Some(failure) = self.panic.into_inner() {
            return Err(FilterError(failure.message));
        }
        match (decision, self.changed) {
            (TERRACE_FILTER_KEEP, _) => Ok(FilterDecision::Keep),
            (TERRACE_FILTER_REMOVE, _) => Ok(FilterDecision::Remove),
            (TERRACE_FILTER_CHANGE, Some(value)) => {
                value.map(FilterDecision::Change).map_err(FilterError)
            }
            (TERRACE_FILTER_CHANGE, None) => {
                Err(FilterError("it changes the entry and gave no value".into()))
            }
            _ => Err(FilterError(format!("it said {decision}, which is no TERRACE_FILTER_"))),
        }
    }
}

/// Says what becomes of an entry: one of TERRACE_FILTER_KEEP, _REMOVE and _CHANGE. Any other number is a failure of the filter,
/// which keeps the entry and is counted in the metrics.
///
/// Background threads call it, several at the same time. It must not call the store, nor leave by longjmp or an exception.
pub type Filter =
    Option<unsafe extern "C" fn(context: *mut c_void, entry: *mut FilterEntry) -> i32>;

/// A filter that asks C.
struct CallbackFilter {
    name: String,
    context: Context,
    filter: unsafe extern "C" fn(*mut c_void, *mut FilterEntry) -> i32,
    flags: i32,
}

impl CompactionFilter for CallbackFilter {
    fn name(&self) -> &str {
        &self.name
    }

    fn filter(
        &self,
        job: &FilterContext,
        entry: &terrace::FilterEntry<'_>,
    ) -> Result<FilterDecision, FilterError> {
        let mut shown = FilterEntry::of(job, entry);
        // SAFETY: the caller of terrace_options_set_compaction_filter gave the function for this context, to be called by any
        // thread; the entry lives until it returns.
        let decision = unsafe { (self.filter)(self.context.get(), &raw mut shown) };
        shown.decided(decision)
    }

    fn applies_to(&self, job: &FilterContext) -> bool {
        job.job == FilterJob::Compaction || self.flags & TERRACE_FILTER_FLUSHES != 0
    }

    fn ignores_snapshots(&self) -> bool {
        self.flags & TERRACE_FILTER_IGNORES_SNAPSHOTS != 0
    }
}

/// The key of the entry, of *len bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_filter_entry_key(
    entry: *const FilterEntry,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: the rules of terrace.h.
    unsafe { part(entry, len, |entry| Some(entry.key())) }
}

/// The value of the entry, of *len bytes. One that terrace_filter_entry_is_separated costs a read of the device: ask only if the
/// key does not decide. NULL if it cannot be read; then the entry stays, whatever the filter says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_filter_entry_value(
    entry: *const FilterEntry,
    len: *mut usize,
) -> *const u8 {
    // SAFETY: the rules of terrace.h.
    unsafe { part(entry, len, |entry| entry.value().ok()) }
}

/// Whether the value lies in the log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_filter_entry_is_separated(entry: *const FilterEntry) -> bool {
    // SAFETY: the rules of terrace.h.
    unsafe { shown(entry) }.is_some_and(|(entry, _)| entry.is_separated())
}

/// When the entry expires, in milliseconds since 1970; 0 if it does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_filter_entry_expires_at_ms(entry: *const FilterEntry) -> u64 {
    // SAFETY: the rules of terrace.h.
    let expiry = unsafe { shown(entry) }.and_then(|(entry, _)| entry.expires_at_ms());
    expiry.unwrap_or(0)
}

/// The level that is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_filter_entry_output_level(entry: *const FilterEntry) -> u32 {
    // SAFETY: the rules of terrace.h.
    let level = unsafe { shown(entry) }.map_or(0, |(_, job)| job.output_level);
    u32::try_from(level).unwrap_or(u32::MAX)
}

/// Whether every sorted file of the column family is read: no other version of the key is in any file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_filter_entry_is_full(entry: *const FilterEntry) -> bool {
    // SAFETY: the rules of terrace.h.
    unsafe { shown(entry) }.is_some_and(|(_, job)| job.is_full)
}

/// Gives the entry another value, which is copied, if the filter then says TERRACE_FILTER_CHANGE. When it expires does not
/// change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_filter_entry_change(
    entry: *mut FilterEntry,
    value: *const u8,
    value_len: usize,
) {
    // SAFETY: the rules of terrace.h.
    let (entry, value) = unsafe { (entry.as_mut(), bytes(value, value_len, "the value")) };
    if let Some(entry) = entry {
        entry.changed = Some(value.map(<[u8]>::to_vec).map_err(|failure| failure.message));
    }
}

/// Sets the compaction filter of the column family `family`, of the default one for NULL: compactions ask it about the
/// newest version of each key that they read, and it keeps, removes or changes the entry. See docs/compaction-filter.md. It
/// is not stored: it applies as long as the store is open with it. `name` is for the log, `context` is passed to the
/// callback, `flags` is 0 or the sum of TERRACE_FILTER_FLUSHES and TERRACE_FILTER_IGNORES_SNAPSHOTS. `free_context` as
/// in terrace_options_set_merge_operator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_options_set_compaction_filter(
    options: *mut Options,
    family: *const c_char,
    name: *const c_char,
    context: *mut c_void,
    filter: Filter,
    flags: i32,
    free_context: FreeContext,
) -> *mut Error {
    call(|| {
        // SAFETY: the rules of terrace.h.
        let (chosen, name) = unsafe { (Options::to_change(options)?, text(name, "name")?) };
        let filter = filter.ok_or_else(|| Failure::argument("filter is NULL"))?;
        if flags & !(TERRACE_FILTER_FLUSHES | TERRACE_FILTER_IGNORES_SNAPSHOTS) != 0 {
            let text = format!("flags is {flags}, which is no sum of TERRACE_FILTER_");
            return Err(Failure::argument(text));
        }
        // SAFETY: the rules of terrace.h.
        let family = unsafe { family_name(family) }?;
        let name = name.to_string();
        let context = Context::new(context, free_context);
        let filter: Arc<dyn CompactionFilter> =
            Arc::new(CallbackFilter { name, context, filter, flags });
        chosen.set_callback(family, "compaction_filter", move |family| {
            family.compaction_filter = Some(filter.clone());
            Ok(())
        })
    })
}

/// What an entry shows.
///
/// # Safety
/// NULL, or what a filter was given, during its call.
unsafe fn shown<'a>(
    entry: *const FilterEntry,
) -> Option<(&'a terrace::FilterEntry<'a>, &'a FilterContext)> {
    // SAFETY: said above; both live until the callback returns.
    unsafe {
        let entry = entry.as_ref()?;
        Some((&*entry.entry.cast(), &*entry.job))
    }
}

/// # Safety
/// As [`shown`], and `len` as in the functions of the interface.
unsafe fn part(
    entry: *const FilterEntry,
    len: *mut usize,
    which: impl for<'a> FnOnce(&'a terrace::FilterEntry<'a>) -> Option<&'a [u8]>,
) -> *const u8 {
    // SAFETY: said above.
    let (handle, shown, len) = unsafe { (entry.as_ref(), shown(entry), place(len, "len")) };
    let Ok(len) = len else { return ptr::null() };
    let found = guard(|| Ok(shown.and_then(|(entry, _)| which(entry))));
    let found = found.unwrap_or_else(|failure| {
        if let Some(handle) = handle {
            handle.panic.get_or_init(|| failure);
        }
        None
    });
    len.set(found.map_or(0, <[u8]>::len));
    found.map_or(ptr::null(), address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Looks at an entry as C does, and the library panics.
    struct Panicking {
        decisions: Mutex<Vec<(i32, String)>>,
    }

    impl CompactionFilter for Panicking {
        fn name(&self) -> &str {
            "panicking"
        }

        fn filter(
            &self,
            job: &FilterContext,
            entry: &terrace::FilterEntry<'_>,
        ) -> Result<FilterDecision, FilterError> {
            for decision in [TERRACE_FILTER_KEEP, TERRACE_FILTER_REMOVE, TERRACE_FILTER_CHANGE] {
                let mut shown = FilterEntry::of(job, entry);
                let mut len = 7;
                // SAFETY: the entry lives until this returns.
                unsafe {
                    assert!(part(&raw const shown, &raw mut len, |_| panic!("here")).is_null());
                    assert_eq!(len, 0);
                    terrace_filter_entry_change(&raw mut shown, b"new".as_ptr(), 3);
                }
                let error = shown.decided(decision).unwrap_err();
                self.decisions.lock().unwrap().push((decision, error.0));
            }
            Ok(FilterDecision::Keep)
        }
    }

    #[test]
    fn a_panic_while_a_filter_looks_at_an_entry_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let filter = Arc::new(Panicking { decisions: Mutex::default() });
        let mut options = terrace::Options::default();
        options.default_family.compaction_filter = Some(filter.clone());
        let db = terrace::Db::open(dir.path(), options).unwrap();
        db.put(b"key", b"value").unwrap();
        db.compact_range::<&[u8]>(..).unwrap();
        db.close().unwrap();
        let decisions = filter.decisions.lock().unwrap();
        assert!(decisions.len() >= 3);
        assert!(decisions.iter().all(|(_, why)| why.ends_with("here")), "{decisions:?}");
    }
}
