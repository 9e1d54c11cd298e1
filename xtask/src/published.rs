//! The crates that go to a registry, packed as for one. That they compile from their packages is not tried here: it
//! would compile everything again. What could be missing are files outside of a crate, which `tidy` refuses.

use crate::dependencies::is_published;
use crate::output::run_shown;
use crate::packages::Packages;
use crate::steps::cargo;
use anyhow::{Result, ensure};
use std::path::Path;

/// Packs them all.
pub fn run(root: &Path) -> Result<()> {
    let packages = Packages::read(root)?;
    let ours = packages.all().filter(|package| is_published(package));
    let names: Vec<&str> = ours.flat_map(|package| ["-p", package.name.as_str()]).collect();
    ensure!(!names.is_empty(), "no crate is published");
    let pack = ["package", "--no-verify", "--allow-dirty", "--locked"];
    run_shown(cargo(&pack).args(names).current_dir(root))
}
