//! Encryption at rest: [`EncryptedVfs`] is a file system over another that keeps the content of every file
//! encrypted. The engine above it knows nothing of keys, the disk below it sees nothing of the content.
//!
//! ```no_run
//! use std::sync::Arc;
//! use terrace::vfs::PosixVfs;
//! use terrace_encryption::{EncryptedVfs, KeyRing};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = KeyRing::load("terrace.keys".as_ref())?;
//! let mut options = terrace::Options::default();
//! options.advanced.vfs = Arc::new(EncryptedVfs::new(PosixVfs::shared(), keys));
//! let db = terrace::Db::open("data", options)?;
//! # Ok(()) }
//! ```
//!
//! Every file has a key of its own, derived from a key of the [`KeyRing`] and 32 random bytes in the file's header
//! (HKDF-SHA-256, RFC 5869); all content is sealed by AES-256-GCM (NIST SP 800-38D). Files that are written once and then
//! read are divided into pages, the last one marked as the last: a changed, moved or missing page is noticed (`pages.rs`;
//! the construction is STREAM of Hoang, Reyhanitabar, Rogaway and Vizár, CRYPTO 2015, section 5). Of files that are read
//! while they grow, log segments, manifests and the evidence of what was synced, each append is sealed by itself
//! (`frames.rs`): what is changed or moved is damage, which the formats in them know to judge.
//!
//! Names, lengths and times of files are not hidden, nor which files share a key. What is deleted or put back in an
//! older state is noticed only as far as the engine notices it. Decrypted blocks lie in memory in the clear.
//!
//! Floor 4: uses `terrace-base`, `terrace-vfs` and the names of `terrace-manifest`; its tests use the engine.

mod encrypted_vfs;
mod frames;
mod header;
mod keys;
mod kind;
mod pages;
mod places;
mod rewrite;
mod shared_ring;

pub use encrypted_vfs::EncryptedVfs;
pub use keys::{Key, KeyError, KeyRing, read_key_file};
pub use rewrite::{Rewritten, Target, UsedKey, UsedKeys, rewrite, used_keys};

/// The code of the page, compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/encryption.md")]
struct Page;
