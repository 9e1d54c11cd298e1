//! Shared libraries with a C API: finding them, loading their functions, and the two
//! conventions LevelDB's and RocksDB's C APIs share (error strings, returned buffers).
//!
//! Unsafe code is confined to this module, `c_database` and the two adapters, which call foreign
//! functions.
#![allow(unsafe_code, reason = "calls into C libraries")]

use anyhow::{Result, anyhow};
use libloading::Library;
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// No function in use has a longer name.
const MAX_NAME_BYTES: usize = 128;

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
    /// What the names of its functions begin with.
    pub prefix: &'static str,
    /// Those that a usable library exports, without the prefix.
    pub functions: &'static [&'static [&'static str]],
    /// How to get it.
    pub advice: &'static str,
}

/// The first usable library: `given` or the variable (and then nothing else), `target/peers/`
/// below the current directory and its parents or beside the executable, the system's. One that lacks a function is not
/// usable, and is passed over.
///
/// Nothing is loaded here: RocksDB and Speedb share C++ symbols that the loader unifies, so a
/// process must load at most one of them, and the driver looks for both.
pub fn find(lookup: &Lookup, given: Option<&Path>) -> Result<PathBuf> {
    let variable = std::env::var_os(lookup.variable).map(PathBuf::from);
    if let Some(path) = given.map(Path::to_path_buf).or(variable) {
        return match lookup.lacks(&path) {
            None => Ok(path),
            Some(lacks) => Err(anyhow!("{lacks}, as {} needs it", lookup.engine)),
        };
    }
    let in_dirs = |dirs: Vec<PathBuf>, names: &'static [&'static str]| {
        dirs.into_iter().flat_map(move |dir| names.iter().map(move |name| dir.join(name)))
    };
    let places = in_dirs(peer_dirs(), lookup.peer_files)
        .chain(in_dirs(system_dirs(), lookup.system_names))
        .filter(|path| path.is_file());
    let mut passed_over = String::new();
    for path in places {
        match lookup.lacks(&path) {
            None => return Ok(path),
            Some(lacks) => passed_over.push_str(&format!("; {lacks}")),
        }
    }
    Err(anyhow!(
        "no usable {} library is to be found in target/peers or the system{passed_over}. {}; or set {} to the path of one",
        lookup.engine,
        lookup.advice,
        lookup.variable
    ))
}

impl Lookup {
    /// What the file at `path` lacks, in words; `None`: it has all functions.
    fn lacks(&self, path: &Path) -> Option<String> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) => return Some(format!("{} cannot be read: {error}", path.display())),
        };
        let exported = names_with(&bytes, self.prefix.as_bytes());
        let wanted = self.functions.iter().copied().flatten().copied();
        let missing: Vec<&str> =
            wanted.filter(|name| !exported.contains(name.as_bytes())).collect();
        let first = missing.first()?;
        let more = match missing.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more functions"),
        };
        Some(format!("{} is no library that exports {}{first}{more}", path.display(), self.prefix))
    }
}

/// What stands behind `prefix` in the file, up to a NUL: names of functions among it.
fn names_with<'a>(bytes: &'a [u8], prefix: &[u8]) -> HashSet<&'a [u8]> {
    let starts = bytes.windows(prefix.len()).enumerate();
    let behind = starts.filter(|(_, window)| *window == prefix);
    let name = |(at, _): (usize, &[u8])| {
        let rest = bytes.get(at + prefix.len()..)?;
        rest.iter().take(MAX_NAME_BYTES).position(|byte| *byte == 0).map(|end| &rest[..end])
    };
    behind.filter_map(name).collect()
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

/// Loads a library. It stays loaded for the life of the process: engines
/// start threads and register exit handlers, so unloading one is not sound.
pub fn load(path: &Path) -> Result<&'static Library> {
    // SAFETY: the library is named by the user or found where the build puts it; its
    // initialisers are those of a database engine and have no preconditions.
    let library = unsafe { Library::new(path) }?;
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
            /// The names of all, without the prefix.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];

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

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKUP: Lookup = Lookup {
        engine: "some",
        variable: "TERRACE_NO_SUCH_LIB",
        peer_files: &[],
        system_names: &[],
        prefix: "some_",
        functions: &[&["open", "close"], &["cache_create_clock"]],
        advice: "Make one",
    };

    #[test]
    fn a_library_that_lacks_a_function_is_not_usable_and_says_which() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lib.so");
        let find = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            find(&LOOKUP, Some(&path)).map_err(|error| error.to_string())
        };
        let all = b"\x7fELF\0some_open\0some_cache_create_clock\0prior_some_close\0";
        assert_eq!(find(all).unwrap(), path);
        // A longer name is another function.
        let old = find(b"\0some_open\0some_close\0some_cache_create_clock_of\0").unwrap_err();
        assert!(old.contains("exports some_cache_create_clock, as some needs it"), "{old}");
        let text = find(b"some_open some_close").unwrap_err();
        assert!(text.contains("some_open and 2 more functions"), "{text}");
        let nowhere = super::find(&LOOKUP, Some(&dir.path().join("none"))).unwrap_err().to_string();
        assert!(nowhere.contains("none cannot be read"), "{nowhere}");
        let nothing = super::find(&LOOKUP, None).unwrap_err().to_string();
        assert!(nothing.contains("Make one; or set TERRACE_NO_SUCH_LIB"), "{nothing}");
    }
}
