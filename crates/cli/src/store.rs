//! Which store a command works on, and opening it.

use crate::arguments;
use anyhow::{Result, bail};
use std::path::PathBuf;
use terrace::vfs::PosixVfs;
use terrace::{Db, Options};
use terrace_inspect::Contents;

/// The directory that is used when none is named.
pub const DEFAULT_DIR: &str = "./terrace-data";

/// The environment variable that names the directory.
pub const DIR_VARIABLE: &str = "TERRACE_DIR";

/// Which store, and how much memory it may take.
#[derive(Debug, Clone, clap::Args)]
pub struct StoreArgs {
    /// Directory of the store
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIR, env = DIR_VARIABLE)]
    pub dir: PathBuf,

    /// Memory that the store may take, such as 64M or 2G
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = arguments::size)]
    pub memory: usize,
}

/// What a command that writes does where there is no store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfMissing {
    /// Make one, in a new or empty directory.
    Create,
    /// Refuse.
    Fail,
}

impl StoreArgs {
    /// The options that the arguments ask for.
    pub fn options(&self) -> Options {
        Options { memory_budget: self.memory, ..Options::default() }
    }

    /// Opens the store for writing; nobody else may have it open.
    pub fn open(&self, options: Options, if_missing: IfMissing) -> Result<Db> {
        let create_if_missing = match self.contents()? {
            Contents::Missing | Contents::Empty if if_missing == IfMissing::Create => true,
            Contents::Store => false,
            contents => bail!(self.no_store(&contents)),
        };
        Ok(Db::open(&self.dir, Options { create_if_missing, ..options })?)
    }

    /// Opens the store for reading; another process may have it open.
    pub fn open_read_only(&self) -> Result<Db> {
        match self.contents()? {
            Contents::Store => Ok(Db::open_read_only(&self.dir, self.options())?),
            contents => bail!(self.no_store(&contents)),
        }
    }

    fn contents(&self) -> Result<Contents> {
        Ok(terrace_inspect::contents(&*PosixVfs::shared(), &self.dir)?)
    }

    fn no_store(&self, contents: &Contents) -> String {
        let dir = self.dir.display();
        match contents {
            Contents::Missing => format!(
                "there is no directory {dir}; name a store with --dir, or make one with `terrace \
                 load`"
            ),
            Contents::Foreign(name) => format!(
                "{dir} holds no store, but other files ({name}); name a store, or a new directory, \
                 with --dir"
            ),
            Contents::Remains => format!(
                "{dir} has lost its CURRENT file, so it is unknown which of its files are live; \
                 see `terrace verify --dir {dir}`, and restore the store from a checkpoint"
            ),
            Contents::Empty | Contents::Store => {
                format!("{dir} holds no store; make one with `terrace load` or `terrace put`")
            }
        }
    }
}
