//! Comparators, filter policies, caches, environments and logs: objects that options refer to.

use crate::memory::{copied, free, handle, shown, string};
use crate::order::{self, Order};
use libc::{c_char, c_int, c_uchar, c_void, size_t};
use std::cmp::Ordering;

/// How a comparator's function is declared.
type CompareFn =
    unsafe extern "C" fn(*mut c_void, *const c_char, size_t, *const c_char, size_t) -> c_int;

/// A comparator of the caller's.
pub struct Comparator {
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    compare: CompareFn,
    name: unsafe extern "C" fn(*mut c_void) -> *const c_char,
}

/// The state and function of a comparator, for all threads.
struct Calls {
    state: *mut c_void,
    compare: CompareFn,
}

// SAFETY: LevelDB asks of a comparator that any threads may use it at the same time.
unsafe impl Send for Calls {}
// SAFETY: as above.
unsafe impl Sync for Calls {}

impl Calls {
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let (a, a_len, b, b_len) = (shown(a), a.len(), shown(b), b.len());
        // SAFETY: the caller keeps the comparator while a store is open, and both are bytes.
        unsafe { (self.compare)(self.state, a, a_len, b, b_len) }.cmp(&0)
    }
}

impl Comparator {
    /// Its order, which is good until the comparator is destroyed.
    pub(crate) fn order(&self) -> Order {
        let calls = Calls { state: self.state, compare: self.compare };
        // SAFETY: the caller's function gives a string that ends with zero.
        let name = unsafe { string((self.name)(self.state)) };
        // The name promises the order, which the engine has.
        if name == order::BYTES {
            return Order::bytes();
        }
        Order::custom(name, move |a, b| calls.compare(a, b))
    }
}

/// A filter policy.
pub struct FilterPolicy {
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    /// Of the built-in policy.
    pub(crate) bits_per_key: Option<c_int>,
}

/// How large a cache is.
pub struct Cache {
    pub(crate) capacity: usize,
}

/// The one environment that there is.
pub struct Env {
    _private: u8,
}

/// A log, which nothing is written to.
pub struct Logger {
    _private: u8,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    compare: Option<
        unsafe extern "C" fn(*mut c_void, *const c_char, size_t, *const c_char, size_t) -> c_int,
    >,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> *mut Comparator {
    // A comparator that cannot compare is none.
    let (Some(compare), Some(name)) = (compare, name) else { return std::ptr::null_mut() };
    handle(Comparator { state, destructor, compare, name })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_comparator_destroy(comparator: *mut Comparator) {
    // SAFETY: the rules of LevelDB: a live comparator, whose destructor takes its state.
    unsafe {
        if let Some(Comparator { state, destructor: Some(destructor), .. }) = comparator.as_ref() {
            destructor(*state);
        }
        free(comparator);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    _create_filter: Option<
        unsafe extern "C" fn(
            *mut c_void,
            *const *const c_char,
            *const size_t,
            c_int,
            *mut size_t,
        ) -> *mut c_char,
    >,
    _key_may_match: Option<
        unsafe extern "C" fn(*mut c_void, *const c_char, size_t, *const c_char, size_t) -> c_uchar,
    >,
    _name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> *mut FilterPolicy {
    handle(FilterPolicy { state, destructor, bits_per_key: None })
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut FilterPolicy {
    let state = std::ptr::null_mut();
    handle(FilterPolicy { state, destructor: None, bits_per_key: Some(bits_per_key) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_filterpolicy_destroy(policy: *mut FilterPolicy) {
    // SAFETY: the rules of LevelDB: a live policy, whose destructor takes its state.
    unsafe {
        if let Some(FilterPolicy { state, destructor: Some(destructor), .. }) = policy.as_ref() {
            destructor(*state);
        }
        free(policy);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_cache_create_lru(capacity: size_t) -> *mut Cache {
    handle(Cache { capacity })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_cache_destroy(cache: *mut Cache) {
    // SAFETY: the rules of LevelDB.
    unsafe { free(cache) };
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_default_env() -> *mut Env {
    handle(Env { _private: 0 })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_destroy(env: *mut Env) {
    // SAFETY: the rules of LevelDB.
    unsafe { free(env) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_get_test_directory(_env: *mut Env) -> *mut c_char {
    let named = std::env::var_os("TEST_TMPDIR").filter(|dir| !dir.is_empty());
    let dir = named.unwrap_or_else(|| {
        // SAFETY: it has no arguments and does not fail.
        let user = unsafe { libc::geteuid() };
        format!("/tmp/leveldbtest-{user}").into()
    });
    // What is missing shows when it is used.
    let _ = std::fs::create_dir(&dir);
    copied(dir.as_encoded_bytes())
}
