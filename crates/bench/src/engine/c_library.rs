//! Shared libraries with a C API: finding them, loading their functions, and the two
//! conventions LevelDB's and RocksDB's C APIs share (error strings, returned buffers).
//!
//! Unsafe code is confined to this module, `c_database` and the two adapters, which call foreign
//! functions.
#![allow(unsafe_code, reason = "calls into C libraries")]

use anyhow::{Context, Result, anyhow, ensure};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How one engine's library is found.
pub struct Lookup {
    /// For messages.
    pub engine: &'static str,
    /// An environment variable with the path.
    pub variable: &'static str,
    /// File names inside `target/peers/`.
    pub peer_files: &'static [&'static str],
    /// Their names in the system's directories.
    pub system_names: &'static [&'static str],
    /// A function every usable library exports.
    pub probe: &'static str,
    /// How to get it.
    pub advice: &'static str,
}

/// The first usable library: `given` or the variable (and then nothing else), `target/peers/`
/// below the current directory and its parents or beside the executable, the system's.
///
/// Nothing is loaded here: RocksDB and Speedb share C++ symbols that the loader unifies, so a
/// process must load at most one of them, and the driver looks for both.
pub fn find(lookup: &Lookup, given: Option<&Path>) -> Result<PathBuf> {
    let variable = std::env::var_os(lookup.variable).map(PathBuf::from);
    if let Some(path) = given.map(Path::to_path_buf).or(variable) {
        ensure!(
            mentions(&path, lookup.probe),
            "{} is no library that exports {}, as {} needs it",
            path.display(),
            lookup.probe,
            lookup.engine
        );
        return Ok(path);
    }
    let in_dirs = |dirs: Vec<PathBuf>, names: &'static [&'static str]| {
        dirs.into_iter().flat_map(move |dir| names.iter().map(move |name| dir.join(name)))
    };
    in_dirs(peer_dirs(), lookup.peer_files)
        .chain(in_dirs(system_dirs(), lookup.system_names))
        .find(|path| mentions(path, lookup.probe))
        .with_context(|| {
            format!(
                "no {} library is to be found in target/peers or the system. {}; or set {} to \
                 the path of one",
                lookup.engine, lookup.advice, lookup.variable
            )
        })
}

/// True if `path` is a file that contains the name `symbol`, as every library that exports it does,
/// or reads an option of that name.
pub fn mentions(path: &Path, symbol: &str) -> bool {
    let is_file = path.is_file();
    let bytes = if is_file { std::fs::read(path).unwrap_or_default() } else { Vec::new() };
    bytes.windows(symbol.len()).any(|window| window == symbol.as_bytes())
}

fn peer_dirs() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for dir in std::env::current_dir().iter().flat_map(|dir| dir.ancestors()) {
        dirs.push(dir.join("target/peers"));
    }
    for dir in std::env::current_exe().iter().flat_map(|exe| exe.ancestors()) {
        dirs.push(dir.join("peers"));
    }
    dirs.retain(|dir| dir.is_dir());
    dirs
}

/// Where the system keeps libraries.
fn system_dirs() -> Vec<PathBuf> {
    let listed = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let triple = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let usual = ["/usr/local/lib", "/usr/lib64", "/usr/lib", "/lib"].map(PathBuf::from);
    std::env::split_paths(&listed).chain([PathBuf::from(triple)]).chain(usual).collect()
}

/// Loads a library that exports `probe`. It stays loaded for the life of the process: engines
/// start threads and register exit handlers, so unloading one is not sound.
pub fn load(path: &Path, probe: &str) -> Result<&'static Library> {
    // SAFETY: the library is named by the user or found where the build puts it; its
    // initialisers are those of a database engine and have no preconditions.
    let library = unsafe { Library::new(path) }?;
    // SAFETY: the symbol is only looked up, never called through this type.
    unsafe { library.get::<*const c_void>(probe.as_bytes()) }
        .with_context(|| format!("it does not export {probe}"))?;
    Ok(Box::leak(Box::new(library)))
}

/// Declares a struct of C functions and its loader. A field `x` is the function `x` after the prefix
/// that the loader gets.
macro_rules! c_api {
    ($(#[$meta:meta])* $name:ident { $($field:ident($($arg:ty),* $(,)?) $(-> $ret:ty)?;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub struct $name { $(pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)* }

        impl $name {
            pub fn load(library: &'static libloading::Library, prefix: &str) -> anyhow::Result<Self> {
                Ok(Self {
                    $($field: {
                        let name = format!("{prefix}{}", stringify!($field));
                        // SAFETY: the signatures are those of the library's public C header.
                        *unsafe { library.get(name.as_bytes()) }
                            .map_err(|_| anyhow::anyhow!("the library does not export {name}"))?
                    },)*
                })
            }
        }
    };
}
pub(super) use c_api;

/// Turns the error string a call may have left into a result, freeing it with `free`.
pub fn check(error: *mut c_char, free: unsafe extern "C" fn(*mut c_void)) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: a non-null error is a NUL-terminated string made by the library's allocator and
    // handed to the caller, who frees it once with the library's function.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        free(error.cast());
        text
    };
    Err(anyhow!(text))
}

/// A path as a C string.
pub fn c_path(path: &Path) -> Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Text the library returned for the caller to free.
pub fn take_text(text: *mut c_char, free: unsafe extern "C" fn(*mut c_void)) -> Option<String> {
    check(text, free).err().map(|text| text.to_string())
}
