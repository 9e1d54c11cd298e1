//! The filters of RocksDB and Speedb outside of any store, through their C++ objects.
//!
//! The C API makes a `FilterPolicy` but has no function to build a filter with it or to ask one, so
//! this goes where the engine itself goes: through the object's virtual functions.
//!
//! ```text
//! FilterPolicy      0, 1 destructors  14 Name  19 CompatibilityName
//!                   20 GetBuilderWithContext(const FilterBuildingContext&)
//!                   21 GetFilterBitsReader(const Slice&)   22 the end
//! FilterBitsBuilder 0, 1 destructors  2 AddKey(const Slice&)
//!                   then, from RocksDB 9.9 on, AddKeyAndAlt(const Slice&, const Slice&)
//!                   then EstimateEntriesAdded(), Finish(std::unique_ptr<const char[]>*)
//! FilterBitsReader  0, 1 destructors  2 MayMatch(const Slice&)
//! ```
//!
//! (`include/rocksdb/{configurable,customizable,filter_policy}.h`, `table/block_based/
//! filter_policy_internal.h`; the same in RocksDB 7 to 10 and Speedb 2.8, Itanium C++ ABI.) That a
//! library is built so is not taken on trust: the table's length and the policy's names are looked
//! at before anything else is called, where `Finish` is is found out by what the calls do, and
//! the workload checks that no key is denied and that the false positive rate is a filter's
//! of that kind ([`FilterKit::model_fpr`]). Speedb's paired policy has no C function; its
//! constructor is exported.
#![allow(unsafe_code, reason = "calls into a C++ library")]

use super::{Handle, ROCKSDB};
use crate::engine::c_library::{self, c_api};
use crate::engine::filter_kit::{FilterKit, Keys};
use crate::filter::{FilterSpec, PeerFilter, rocksdb_bloom_fpr};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

const POLICY_NAME: usize = 14;
const POLICY_COMPATIBILITY_NAME: usize = 19;
const POLICY_BUILDER: usize = 20;
const POLICY_READER: usize = 21;
const POLICY_SLOTS: usize = 22;
const DELETE: usize = 1;
const ADD_KEY: usize = 2;
const MAY_MATCH: usize = 2;
/// `kCompactionStyleNone`: the policy then asks for no level.
const COMPACTION_STYLE_NONE: u8 = 3;
/// The mangled name of `rocksdb::SpdbPairedBloomFilterPolicy(double)`.
const PAIRED_CONSTRUCTOR: &[u8] = b"_ZN7rocksdb27SpdbPairedBloomFilterPolicyC1Ed";
/// Several times the size of any filter policy.
const POLICY_WORDS: usize = 128;

c_api! {
    /// The functions of `rocksdb/c.h` in use.
    Api, "rocksdb_" {
        filterpolicy_create_bloom_full(f64) -> Handle;
        filterpolicy_create_ribbon_hybrid(f64, c_int) -> Handle;
        block_based_options_create() -> Handle;
    }
}

/// `rocksdb::Slice`.
#[repr(C)]
struct Slice {
    data: *const u8,
    len: usize,
}

impl Slice {
    fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), len: bytes.len() }
    }
}

/// The beginning of `rocksdb::FilterBuildingContext`; what follows is only read for compaction
/// styles with levels, and is zero.
#[repr(C)]
struct BuildingContext {
    table_options: Handle,
    compaction_style: u8,
    level_count: c_int,
    info_log: Handle,
    rest: [u64; 16],
}

/// The function in slot `number` of an object's table.
///
/// # Safety
/// `object` is a live C++ object whose table has that many slots.
unsafe fn slot(object: Handle, number: usize) -> *const c_void {
    // SAFETY: the first word of an object with virtual functions points at their table.
    unsafe { *(*object.cast::<*const *const c_void>()).add(number) }
}

/// Filters of one policy. Objects live as long as the process: there are few, and the library
/// does, too.
pub struct PeerFilters {
    policy: Handle,
    builder: Handle,
    finish: usize,
    /// The `std::unique_ptr` that holds the bytes of the filter built last, which `Finish` frees.
    built: Box<*mut c_char>,
    wanted: PeerFilter,
    description: String,
}

/// A filter that can be asked.
pub struct PeerFilterBits {
    reader: Handle,
    bytes: Vec<u8>,
}

impl PeerFilters {
    /// Filters like `spec` of the engine whose library is at `library`.
    pub fn new(library: &Path, spec: FilterSpec) -> Result<Self> {
        let loaded = c_library::load(library, ROCKSDB.probe)?;
        let api = Api::load(loaded)?;
        let wanted = spec.for_peers().with_context(|| format!("only terrace has {spec}"))?;
        // SAFETY: constructors by their public signatures; -1 is a ribbon on every level.
        let (policy, words) = unsafe {
            match wanted {
                PeerFilter::None => bail!("there is nothing to build"),
                PeerFilter::Bloom(bits) => (
                    (api.filterpolicy_create_bloom_full)(bits),
                    format!("bloomfilter:{bits}:false"),
                ),
                PeerFilter::Ribbon(bits) => {
                    let policy = (api.filterpolicy_create_ribbon_hybrid)(bits, -1);
                    (policy, format!("ribbonfilter:{bits}:-1"))
                }
                PeerFilter::Paired(bits) => {
                    (paired_policy(loaded, bits)?, format!("speedb.PairedBloomFilter:{bits}"))
                }
            }
        };
        let name = check_policy(policy)?;
        let builder = make_builder(&api, policy)?;
        let mut built = Box::new(ptr::null_mut());
        let finish = find_finish(builder, &mut built)?;
        let description = format!("filter_policy={words};name={name};direct C++ calls");
        Ok(Self { policy, builder, finish, built, wanted, description })
    }

    /// A reader of `bytes`, which may move as long as its heap memory does not.
    fn reader(&self, bytes: Vec<u8>) -> Result<PeerFilterBits> {
        type GetReader = unsafe extern "C" fn(Handle, *const Slice) -> Handle;
        // SAFETY: the policy was checked; the reader keeps a pointer to the bytes, which live in
        // the same struct and are never changed.
        let reader = unsafe {
            let get: GetReader = std::mem::transmute(slot(self.policy, POLICY_READER));
            get(self.policy, &Slice::of(&bytes))
        };
        ensure!(!reader.is_null(), "the engine's filter policy reads no filter");
        Ok(PeerFilterBits { reader, bytes })
    }
}

/// Speedb's paired policy, in memory that is never freed.
fn paired_policy(library: &'static libloading::Library, bits: f64) -> Result<Handle> {
    type Construct = unsafe extern "C" fn(*mut u64, f64);
    // SAFETY: the symbol's mangled name says what it takes; the memory is larger than the object.
    unsafe {
        let construct = library
            .get::<Construct>(PAIRED_CONSTRUCTOR)
            .context("this library does not export its paired Bloom filter's constructor")?;
        let memory = Box::leak(Box::new([0u64; POLICY_WORDS]));
        construct(memory.as_mut_ptr(), bits);
        Ok(memory.as_mut_ptr().cast())
    }
}

/// Looks whether an object's table is as long as that of a `FilterPolicy`, and asks its name.
fn check_policy(policy: Handle) -> Result<String> {
    type Name = unsafe extern "C" fn(Handle) -> *const c_char;
    ensure!(!policy.is_null(), "the engine makes no filter policy");
    // SAFETY: a table ends with the 0 that begins the next one, or with the end of a section that
    // the linker fills up with zeros; no slot before is null.
    let known = unsafe {
        (0..POLICY_SLOTS).all(|number| !slot(policy, number).is_null())
            && slot(policy, POLICY_SLOTS).is_null()
    };
    ensure!(known, "this version's FilterPolicy has another layout than RocksDB 7 to 10");
    let ask = |number| {
        // SAFETY: the table has the known length; names are static strings.
        unsafe {
            let name: Name = std::mem::transmute(slot(policy, number));
            CStr::from_ptr(name(policy)).to_string_lossy().into_owned()
        }
    };
    let (name, compatible) = (ask(POLICY_NAME), ask(POLICY_COMPATIBILITY_NAME));
    ensure!(
        compatible.contains("Filter") || compatible.contains("filter"),
        "a filter policy calls itself {name:?}, {compatible:?}"
    );
    Ok(name)
}

fn make_builder(api: &Api, policy: Handle) -> Result<Handle> {
    type GetBuilder = unsafe extern "C" fn(Handle, *const BuildingContext) -> Handle;
    // SAFETY: the table options are an object of that type (`c.cc` wraps it in a struct of nothing
    // else); builder and context live as long as the process, whatever the builder keeps.
    let builder = unsafe {
        let context = Box::leak(Box::new(BuildingContext {
            table_options: (api.block_based_options_create)(),
            compaction_style: COMPACTION_STYLE_NONE,
            level_count: -1,
            info_log: ptr::null_mut(),
            rest: [0; 16],
        }));
        let get: GetBuilder = std::mem::transmute(slot(policy, POLICY_BUILDER));
        get(policy, context)
    };
    ensure!(!builder.is_null(), "the engine's filter policy builds no filter");
    Ok(builder)
}

/// The slot of `Finish(buf)`: 4, or 5 if `AddKeyAndAlt` is in between. Slot 3 is called as if it
/// were the latter and slot 4 as if it were `Finish`; what takes fewer arguments ignores the rest.
fn find_finish(builder: Handle, built: &mut *mut c_char) -> Result<usize> {
    type AddKey = unsafe extern "C" fn(Handle, *const Slice);
    type AddKeyAndAlt = unsafe extern "C" fn(Handle, *const Slice, *const Slice) -> usize;
    type Finish = unsafe extern "C" fn(Handle, *mut *mut c_char) -> Slice;
    let key = Slice::of(b"a key");
    let other = Slice::of(b"another key");
    // SAFETY: slot 2 is AddKey in every version; 3 and 4 as said above.
    unsafe {
        let add: AddKey = std::mem::transmute(slot(builder, ADD_KEY));
        let third: AddKeyAndAlt = std::mem::transmute(slot(builder, ADD_KEY + 1));
        let fourth: Finish = std::mem::transmute(slot(builder, ADD_KEY + 2));
        add(builder, &raw const key);
        third(builder, &raw const other, &raw const other);
        fourth(builder, built);
        if !built.is_null() {
            return Ok(ADD_KEY + 2);
        }
        let fifth: Finish = std::mem::transmute(slot(builder, ADD_KEY + 3));
        fifth(builder, built);
    }
    ensure!(!built.is_null(), "this version's FilterBitsBuilder has another layout than known");
    Ok(ADD_KEY + 3)
}

impl FilterKit for PeerFilters {
    type Filter = PeerFilterBits;

    fn build(&mut self, keys: Keys<'_>) -> Result<(PeerFilterBits, Duration)> {
        type AddKey = unsafe extern "C" fn(Handle, *const Slice);
        type Finish = unsafe extern "C" fn(Handle, *mut *mut c_char) -> Slice;
        // SAFETY: the slots were found by `new`; keys are read only during their call. `Finish`
        // frees what `built` held before and returns a part of what it holds then.
        let (bytes, duration) = unsafe {
            let add: AddKey = std::mem::transmute(slot(self.builder, ADD_KEY));
            let finish: Finish = std::mem::transmute(slot(self.builder, self.finish));
            let start = Instant::now();
            for key in keys.iter() {
                add(self.builder, &Slice::of(key));
            }
            let filter = finish(self.builder, &raw mut *self.built);
            let duration = start.elapsed();
            ensure!(!filter.data.is_null() && filter.len > 0, "the engine built an empty filter");
            (std::slice::from_raw_parts(filter.data, filter.len).to_vec(), duration)
        };
        Ok((self.reader(bytes)?, duration))
    }

    fn copy(&self, filter: &PeerFilterBits) -> Result<PeerFilterBits> {
        self.reader(filter.bytes.clone())
    }

    fn len(&self, filter: &PeerFilterBits) -> usize {
        filter.bytes.len()
    }

    #[inline]
    fn may_contain(&self, filter: &PeerFilterBits, key: &[u8]) -> bool {
        type MayMatch = unsafe extern "C" fn(Handle, *const Slice) -> u8;
        // SAFETY: the reader is live and so are the bytes it reads.
        unsafe {
            let may_match: MayMatch = std::mem::transmute(slot(filter.reader, MAY_MATCH));
            may_match(filter.reader, &Slice::of(key)) != 0
        }
    }

    /// RocksDB's own estimate; Speedb publishes none for its paired filter.
    fn model_fpr(&self, _filter: &PeerFilterBits) -> Option<f64> {
        match self.wanted {
            PeerFilter::Bloom(bits) | PeerFilter::Ribbon(bits) => Some(rocksdb_bloom_fpr(bits)),
            PeerFilter::None | PeerFilter::Paired(_) => None,
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

impl Drop for PeerFilterBits {
    fn drop(&mut self) {
        type Delete = unsafe extern "C" fn(Handle);
        // SAFETY: slot 1 is the destructor that also frees; the reader goes before its bytes.
        unsafe {
            let delete: Delete = std::mem::transmute(slot(self.reader, DELETE));
            delete(self.reader);
        }
    }
}
