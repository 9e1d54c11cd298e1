//! New keys for an encrypted store while it is served.

use super::Server;
use std::path::Path;
use std::sync::Arc;
use terrace_encryption::{EncryptedVfs, KeyRing};

/// The option that names the key file.
pub(super) const KEY_FILE: &str = "encryption-key-file";

impl Server {
    /// The store is on this file system.
    pub(crate) fn note_encryption(&self, vfs: Arc<EncryptedVfs>) {
        // Once, at the start.
        let _first = self.encrypted.set(vfs);
    }

    /// Reads the key file again: new files get its newest key.
    ///
    /// # Errors
    /// Why not; the keys are as they were.
    pub(super) fn read_keys(&self, file: Option<&Path>) -> Result<(), String> {
        let Some(vfs) = self.encrypted.get() else {
            // As it is shown.
            if file.is_none() {
                return Ok(());
            }
            let why =
                "the store is not encrypted; encrypt it with `terrace encrypt` while it is closed";
            return Err(why.into());
        };
        let file = file.ok_or("the store is encrypted and needs its keys")?;
        // Anything else might never answer.
        if std::fs::metadata(file).is_ok_and(|what| !what.is_file()) {
            return Err(format!("{} is no regular file", file.display()));
        }
        let keys = KeyRing::load(file).map_err(|error| error.to_string())?;
        let (before, after) = (vfs.keys().active(), keys.active());
        vfs.set_keys(self.space.db().path(), keys).map_err(|error| error.to_string())?;
        tracing::info!(before, after, "new files get the newest key of the key file");
        Ok(())
    }

    /// Reads the key file of an encrypted store again. One that cannot be read, or lacks a key, changes nothing.
    pub(super) fn read_keys_again(&self) {
        let settings = self.config.settings();
        if let Some(file) = &settings.encryption_key_file
            && let Err(why) = self.read_keys(Some(file))
        {
            tracing::error!(why, "the keys stay as they were");
        }
    }
}
