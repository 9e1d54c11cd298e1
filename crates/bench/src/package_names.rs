//! Where the real package names are.

use anyhow::Result;
use std::path::{Path, PathBuf};

const FILE: &str = "crates/cli/data/packages.tsv.zst";

/// The data file: below the current directory or one of its parents, else where this was built.
pub fn find_packages() -> Result<PathBuf> {
    let current = std::env::current_dir()?;
    let built = Path::new(env!("CARGO_MANIFEST_DIR"));
    current
        .ancestors()
        .chain(built.ancestors())
        .map(|dir| dir.join(FILE))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            anyhow::anyhow!(
                "{FILE} is to be found neither in {} nor above; run from the project's directory",
                current.display()
            )
        })
}
