//! The program as it is packaged: stripped, its debug information apart, and what it writes about itself:
//! completions for shells and manual pages.

use super::files::{gzip, read};
use crate::packages::output;
use crate::release;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Shells, with the names that their completion files have.
const SHELLS: [(&str, &str); 3] =
    [("bash", "terrace"), ("zsh", "_terrace"), ("fish", "terrace.fish")];

/// What is made of one built program.
pub struct Program {
    /// Without debug information.
    pub stripped: Vec<u8>,
    /// The debug information, which `stripped` refers to by its name.
    pub debug: Vec<u8>,
    /// By shell: name of the file, and the script.
    pub completions: Vec<(&'static str, &'static str, Vec<u8>)>,
    /// Manual pages by name, compressed.
    pub pages: Vec<(String, Vec<u8>)>,
}

impl Program {
    /// Of the program at `built`; `work` is an empty folder for what is made on the way.
    pub fn of(built: &Path, work: &Path) -> Result<Self> {
        release::split(built, work)?;
        let completions = SHELLS.iter().map(|(shell, name)| {
            let script = output(Command::new(built).args(["completions", shell]))?;
            Ok((*shell, *name, script))
        });
        Ok(Self {
            completions: completions.collect::<Result<_>>()?,
            pages: pages(built, &work.join("man"))?,
            stripped: read(&work.join(release::PROGRAM))?,
            debug: read(&work.join(release::DEBUG))?,
        })
    }
}

fn pages(built: &Path, dir: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    output(Command::new(built).arg("man-pages").arg(dir))?;
    let mut pages = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        pages.push((format!("{name}.gz"), gzip(&read(&entry.path())?)?));
    }
    ensure!(!pages.is_empty(), "{} has no page", dir.display());
    pages.sort();
    Ok(pages)
}
