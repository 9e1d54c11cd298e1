//! Which store a command works on, and opening it.

use crate::arguments;
use crate::files;
use anyhow::{Context, Result, bail};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::{ColumnFamily, Db, Options};
use terrace_inspect::Contents;
use terrace_keyspace::{Keyspace, MAX_DATABASES, StoreKind};

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

/// Which part of a store a command reads.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PartArgs {
    /// Read this column family, as plain keys and values
    #[arg(long, value_name = "NAME", conflicts_with = "db")]
    pub family: Option<String>,

    /// Of a store that `terrace serve` made: read this database [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..MAX_DATABASES as i64))]
    pub db: Option<u8>,
}

/// Whether something is there that is no directory: a file, or a link to nothing. Of what cannot be looked at that is not known:
/// the next call says why.
pub fn is_no_directory(path: &Path) -> bool {
    match path.metadata() {
        Ok(found) => !found.is_dir(),
        Err(error) => {
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
                && path.is_symlink()
        }
    }
}

/// Refuses what is there and is no directory, where `wanted` is to be named.
///
/// # Errors
/// It is such a thing.
pub fn check_directory(path: &Path, wanted: &str) -> Result<()> {
    match is_no_directory(path) {
        true => bail!("{} is no directory; name {wanted}", path.display()),
        false => Ok(()),
    }
}

/// What a command that reads has opened.
pub enum Part {
    /// A column family, which keeps its store open.
    Plain(ColumnFamily),
    /// A database of a server's store.
    Database(Arc<Keyspace>, u8),
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
        Options { memory_budget: self.memory, ..files::options() }
    }

    /// Opens the store for writing; nobody else may have it open.
    pub fn open(&self, options: Options, if_missing: IfMissing) -> Result<Db> {
        let create_if_missing = match self.contents()? {
            Contents::Missing if is_no_directory(&self.dir) => {
                bail!(self.no_store(&Contents::Missing))
            }
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

    /// Opens a part of the store for reading; another process may have it open.
    pub fn open_part(&self, part: &PartArgs) -> Result<Part> {
        let db = self.open_read_only()?;
        if let Some(name) = &part.family {
            return Ok(Part::Plain(self.family(&db, name)?));
        }
        match (self.kind(&db)?, part.db) {
            (StoreKind::Keyspace, number) => {
                Ok(Part::Database(Keyspace::read_only(db)?, number.unwrap_or(0)))
            }
            (_, None) => Ok(Part::Plain(db.default_family())),
            (_, Some(_)) => bail!(
                "{} holds plain keys and values, which are in no database; leave --db out",
                self.dir.display()
            ),
        }
    }

    /// Opens a column family for writing plain keys and values, the default one if none is named.
    /// Nobody else may have the store open. A family that is not there is made as a store is.
    pub fn open_family(
        &self,
        options: Options,
        if_missing: IfMissing,
        name: Option<&str>,
    ) -> Result<(Db, ColumnFamily)> {
        let mut options = options;
        if let Some(name) = name.filter(|_| if_missing == IfMissing::Create)
            && !matches!(self.contents()?, Contents::Store)
        {
            // A name that is refused is known before a store is made for it.
            options.column_families.push((name.into(), options.default_family.clone()));
        }
        let db = self.open(options, if_missing)?;
        if self.kind(&db)? == StoreKind::Keyspace {
            let dir = self.dir.display();
            bail!(
                "{dir} holds the data of a server; run `terrace serve --dir {dir}` and write with a \
                 Redis client, or name another directory with --dir"
            );
        }
        let family = match name {
            None => db.default_family(),
            Some(name) if if_missing == IfMissing::Create && db.column_family(name).is_none() => {
                db.create_column_family(name, db.options().default_family.clone())?
            }
            Some(name) => self.family(&db, name)?,
        };
        Ok((db, family))
    }

    fn kind(&self, db: &Db) -> Result<StoreKind> {
        StoreKind::of(db).with_context(|| format!("cannot read {}", self.dir.display()))
    }

    /// The column family called `name`.
    pub fn family(&self, db: &Db, name: &str) -> Result<ColumnFamily> {
        db.column_family(name).with_context(|| {
            let (dir, mut names) = (self.dir.display(), db.column_families());
            names.sort();
            format!("{dir} has no column family `{name}`, but {}", names.join(", "))
        })
    }

    fn contents(&self) -> Result<Contents> {
        Ok(terrace_inspect::contents(&*files::vfs(), &self.dir)?)
    }

    fn no_store(&self, contents: &Contents) -> String {
        let dir = self.dir.display();
        match contents {
            Contents::Missing if is_no_directory(&self.dir) => {
                format!("{dir} is no directory; name that of a store with --dir")
            }
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
