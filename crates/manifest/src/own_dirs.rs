//! The directories in that of a store that it has for its own use: a store that somebody made there would be removed, or taken
//! for what the other one lacks. Asked before a checkpoint, and by all who make a store of something else.

use crate::{backup_work, names};
use std::path::Path;
use terrace_base::Result;
use terrace_vfs::Vfs;

/// Why no store can be made in `dir`, if it is one of them.
///
/// # Errors
/// I/O.
pub fn refusal(vfs: &dyn Vfs, dir: &Path) -> Result<Option<String>> {
    let dir = vfs.absolute(dir);
    let Some(store) = dir.parent() else { return Ok(None) };
    let mut own = [names::lost_dir(store)].into_iter().chain(backup_work::dirs(store));
    if !own.any(|own| own.file_name() == dir.file_name())
        || !vfs.exists(&names::current_path(store))?
    {
        return Ok(None);
    }
    Ok(Some(format!(
        "{} is a directory that the store {} has for its own use; name another one",
        dir.display(),
        store.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_vfs::SimVfs;

    #[test]
    fn only_what_a_store_uses_is_refused() {
        let sim = SimVfs::new(1);
        let own = ["lost", "backup-work", "backup-work.partial"];
        let is_refused = |dir: String| refusal(&sim, Path::new(&dir)).unwrap().is_some();
        assert!(!own.iter().any(|name| is_refused(format!("/store/{name}"))), "there is no store");
        assert!(sim.write_file("/store/CURRENT", b"x"));
        assert!(own.iter().all(|name| is_refused(format!("/store/{name}"))));
        for dir in ["/store", "/store/copy", "/lost", "/store/copy/lost", "/", ""] {
            assert!(!is_refused(dir.into()), "{dir}");
        }
    }
}
