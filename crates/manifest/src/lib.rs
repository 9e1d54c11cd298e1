//! The manifest: which SSTs form which level of which column family, and the log of edits that
//! makes every change of that durable and atomic.
//!
//! Floor 3: uses `terrace-base`, `terrace-vfs` and `terrace-log`. Holds no open files but its own
//! log, so pickers that work on a [`Version`] are pure. In the engine only `install` and recovery
//! write a [`Manifest`].
//!
//! [`file_meta`], [`level`], [`version`] and [`edit`] are the data; [`codec`] their bytes;
//! [`state`] applies edits; [`manifest`] is the file and its switch; [`evidence`] says what was synced; [`shape`] prints and parses
//! LSM shapes; [`dump`] prints a manifest whatever its state; [`names`] are those of a store's files, [`renamed`] tells of files that have another, [`backup_work`] is a place for them, and [`own_dirs`] keeps new stores out of such places. The format is specified in
//! `docs/format/manifest.md`.

#![forbid(unsafe_code)]

pub mod backup_work;
pub mod codec;
pub mod current;
pub mod dump;
pub mod edit;
pub mod evidence;
pub mod file_meta;
pub mod level;
pub mod manifest;
pub mod names;
pub mod own_dirs;
pub mod renamed;
pub mod salvage;
pub mod shape;
pub mod state;
pub mod version;

pub use edit::{FamilyEdit, MAX_OPTIONS_BYTES, SegmentKind, SegmentMeta, VersionEdit};
pub use file_meta::FileMeta;
pub use level::Level;
pub use manifest::Manifest;
pub use salvage::Salvaged;
pub use state::{FamilyState, ManifestState};
pub use terrace_base::ValueRef;
pub use version::{HOT_LEVEL, LEVEL_COUNT, Version};
