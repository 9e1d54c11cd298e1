//! The options of a store by name and text, for callers that cannot fill Rust's structs: the engine's, and the file of keys
//! of a store that is encrypted.

use crate::failure::{Failure, Outcome};
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{PosixVfs, Vfs};
use terrace::{CfOptions, OPTIONS, Options};
use terrace_encryption::{EncryptedVfs, KeyRing};

/// The name of the option whose value is a file of keys.
const KEY_FILE_OPTION: &str = "encryption_key_file";

/// Sets the option `name` of a store, or of its default column family, to what `text` says:
/// `encryption_key_file`, which is read at once, or what [`Options::set_option`] takes.
///
/// # Errors
/// An unknown name; a file that has no keys; text that is none of what the option can be.
pub fn set_store_option(options: &mut Options, name: &str, text: &str) -> Outcome<()> {
    if name == KEY_FILE_OPTION {
        options.advanced.vfs = encrypted_vfs(text.as_ref())?;
        return Ok(());
    }
    if !OPTIONS.contains(&name) {
        let all = [&[KEY_FILE_OPTION], &OPTIONS[..]].concat().join(", ");
        return Err(Failure::argument(format!("there is no option `{name}`, but {all}")));
    }
    Ok(options.set_option(name, text)?)
}

/// What a column family that is named begins with: the plain options of the default one. Its merge operator and its compaction
/// filter are code that knows what its own entries mean.
pub fn plain_options(default_family: &CfOptions) -> CfOptions {
    CfOptions { merge_operator: None, compaction_filter: None, ..default_family.clone() }
}

/// The file system of what is encrypted with the keys in `key_file`, which is read at once: a store, a directory of backups,
/// sorted files.
///
/// # Errors
/// A file that is missing or has no keys; the message names the option `encryption_key_file`.
pub fn encrypted_vfs(key_file: &Path) -> Outcome<Arc<dyn Vfs>> {
    let refused = |error| Failure::argument(format!("{KEY_FILE_OPTION}: {error}"));
    let keys = KeyRing::load(key_file).map_err(refused)?;
    Ok(Arc::new(EncryptedVfs::new(PosixVfs::shared(), keys)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_engine_are_set_and_other_names_refused_with_all_that_there_are() {
        let mut options = Options::default();
        set_store_option(&mut options, "memory_budget", "64MiB").unwrap();
        set_store_option(&mut options, "prefix_len", "4").unwrap();
        assert_eq!((options.memory_budget, options.default_family.prefix_len), (64 << 20, Some(4)));
        for (name, text) in [("memory_budget", "much"), ("colour", "1")] {
            let failure = set_store_option(&mut options, name, text).unwrap_err();
            assert_eq!(failure.code, crate::Code::InvalidArgument);
            assert!(failure.message.contains(name), "{failure}");
        }
        let failure = set_store_option(&mut options, "colour", "1").unwrap_err();
        let mut all = OPTIONS.iter().chain([&KEY_FILE_OPTION]);
        assert!(all.all(|name| failure.message.contains(name)), "{failure}");
    }

    #[test]
    fn a_key_file_encrypts_the_store_or_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, format!("1 {}\n", "0123456789abcdef".repeat(4))).unwrap();
        let mut options = Options::default();
        assert!(!options.advanced.vfs.is_encrypted());
        set_store_option(&mut options, "encryption_key_file", path.to_str().unwrap()).unwrap();
        assert!(options.advanced.vfs.is_encrypted());
        std::fs::write(&path, "1 abc\n").unwrap();
        for file in [path.to_str().unwrap(), "", "/nowhere"] {
            let failure = set_store_option(&mut options, "encryption_key_file", file).unwrap_err();
            assert!(failure.message.contains("encryption_key_file: "), "{failure}");
            assert_eq!(failure.code, crate::Code::InvalidArgument);
        }
    }
}
