//! The file system that stores are opened on: the machine's, or an encrypted one over it if a key file is named.

use anyhow::{Result, anyhow};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use terrace::vfs::{PosixVfs, Vfs};
use terrace::{AdvancedOptions, Options};
use terrace_encryption::{EncryptedVfs, KeyError, KeyRing};

/// The environment variable that names the key file; of a server, the one of its option.
pub const KEY_FILE_VARIABLE: &str = "TERRACE_ENCRYPTION_KEY_FILE";

/// The option of a server that names it.
pub const KEY_FILE_OPTION: &str = "encryption-key-file";

struct Files {
    key_file: PathBuf,
    vfs: Arc<dyn Vfs>,
}

/// Set once, before a command runs.
static ENCRYPTED: OnceLock<Files> = OnceLock::new();

/// Makes the stores of this process encrypted by the keys in this file.
///
/// # Errors
/// The file is none of keys.
pub fn use_keys(key_file: PathBuf) -> Result<()> {
    let vfs = Arc::new(EncryptedVfs::new(PosixVfs::shared(), load_keys(&key_file)?));
    // A process has one command line.
    let _ = ENCRYPTED.set(Files { key_file, vfs });
    Ok(())
}

/// The keys in this file.
///
/// # Errors
/// It is none of keys; the file is named.
pub fn load_keys(key_file: &Path) -> Result<KeyRing> {
    KeyRing::load(key_file).map_err(|error| match error {
        KeyError::Io { .. } | KeyError::TooLong { .. } => error.into(),
        error => anyhow!("{}: {error}", key_file.display()),
    })
}

/// The key file that [`KEY_FILE_VARIABLE`] names; none if that is empty.
pub fn key_file_of_environment() -> Option<PathBuf> {
    std::env::var_os(KEY_FILE_VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from)
}

/// The file system.
pub fn vfs() -> Arc<dyn Vfs> {
    ENCRYPTED.get().map_or_else(|| PosixVfs::shared() as Arc<dyn Vfs>, |files| files.vfs.clone())
}

/// The key file, if one is named.
pub fn key_file() -> Option<&'static Path> {
    ENCRYPTED.get().map(|files| files.key_file.as_path())
}

/// The default options on this file system.
pub fn options() -> Options {
    let advanced = AdvancedOptions { vfs: vfs(), ..AdvancedOptions::default() };
    Options { advanced, ..Options::default() }
}

/// Adds the key file to the flags of a server, unless they name one.
pub fn add_key_file(flags: &mut Vec<(String, String)>) {
    let is_named = flags.iter().any(|(name, _)| name == KEY_FILE_OPTION);
    if let Some(file) = key_file().filter(|_| !is_named) {
        flags.push((KEY_FILE_OPTION.into(), file.to_string_lossy().into_owned()));
    }
}
