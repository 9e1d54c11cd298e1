//! Options that are looked at for each decision, so that another value needs nothing but to be there: when and how merges are
//! picked, when writes are slowed, what is kept on disk.

use crate::env::reserve;
use crate::error::Result;
use crate::inner::Inner;
use crate::options::{AdvancedOptions, Options};

/// Changes some of them as `change` says. Everything else is as it was at open, so that what is refused is what an open
/// refuses.
///
/// # Errors
/// That of `change`, and `InvalidArgument` for what no store opens with: nothing has changed.
pub(super) fn change(inner: &Inner, change: impl FnOnce(&mut Options) -> Result<()>) -> Result<()> {
    // Families are made under it.
    let _manifest = inner.versions.manifest.lock();
    let before = inner.base.dynamic.options();
    let mut options = before.clone();
    change(&mut options)?;
    options.check()?;
    for family in inner.read.families.load().iter() {
        family.choose(&options, family.chosen());
    }
    let AdvancedOptions { max_reader_pinned_bytes, reserve_bytes, .. } = options.advanced;
    inner.versions.reader_pins.set_max_bytes(max_reader_pinned_bytes);
    if options.max_open_files != before.max_open_files {
        let (sst_files, value_files) = options.open_files();
        inner.read.table_cache.set_max_open(sst_files);
        inner.read.value_log.set_max_open(value_files);
    }
    inner.base.dynamic.set_options(options);
    if reserve_bytes != before.advanced.reserve_bytes {
        fit_reserve(inner, reserve_bytes);
    }
    // Writers that wait for fewer files, and threads that wait for work, look again.
    inner.jobs.scheduler.job_ended();
    Ok(())
}

/// Makes the reserve file as large as it is to be. Best effort: where there is no room for a larger one, or the disk is full,
/// the house thread sees to it when there is.
fn fit_reserve(inner: &Inner, bytes: u64) {
    let (vfs, dir) = (&*inner.base.vfs, &*inner.base.dir);
    if inner.base.read_only || inner.base.health.check_writable().is_err() {
        return;
    }
    let is_larger = reserve::kept_bytes(vfs, dir).is_ok_and(|kept| kept > bytes);
    if is_larger {
        let _best_effort = reserve::release(vfs, dir);
    }
    if bytes > 0 {
        let _best_effort = reserve::take(vfs, dir, bytes);
    }
}
