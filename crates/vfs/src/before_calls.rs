//! A file system over another with one action before each call, for tests that need no more: the frame of an
//! [`Interposed`] around a closure.

use crate::{Call, Interposed, Result, Vfs};
use std::path::Path;
use std::sync::Arc;

/// The file system `files` with an action before each call. If that fails, so does the call, which is not carried out. A clone
/// shares the action.
pub struct BeforeCalls<V, F> {
    files: V,
    act: Arc<F>,
    sees_reads: bool,
}

impl<V, F> BeforeCalls<V, F> {
    /// Reads of files are carried out as they are.
    pub fn new(files: V, act: F) -> Self
    where
        F: Fn(Call<'_>, &Path) -> Result<()>,
    {
        Self { files, act: Arc::new(act), sees_reads: false }
    }

    /// As [`Self::new`], and the action comes before reads of files, too.
    pub fn with_reads(files: V, act: F) -> Self
    where
        F: Fn(Call<'_>, &Path) -> Result<()>,
    {
        Self { files, act: Arc::new(act), sees_reads: true }
    }
}

impl<V: Clone, F> Clone for BeforeCalls<V, F> {
    fn clone(&self) -> Self {
        Self { files: self.files.clone(), act: self.act.clone(), sees_reads: self.sees_reads }
    }
}

impl<V, F> Interposed for BeforeCalls<V, F>
where
    V: Vfs + Clone,
    F: Fn(Call<'_>, &Path) -> Result<()> + Send + Sync + 'static,
{
    type Files = V;

    fn files(&self) -> &V {
        &self.files
    }

    fn around<T>(
        &self,
        call: Call<'_>,
        path: &Path,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        (self.act)(call, path)?;
        work()
    }

    fn sees_reads(&self, _: &Path) -> bool {
        self.sees_reads
    }
}
