//! The bulk loader and ingestion of Terrace as the bench uses them.

use crate::store::{INGESTED_FILE_BYTES, Loader};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use terrace::{BulkLoader, CfOptions, Db, IngestOptions, IngestSource, SstWriter};

/// Entries in any order.
pub struct Bulk(pub BulkLoader);

impl Loader for Bulk {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.0.finish()?;
        Ok(())
    }
}

/// Entries in key order, in files that are moved into the store.
pub struct Ingester<'a> {
    db: &'a Db,
    family: CfOptions,
    dir: PathBuf,
    files: Vec<PathBuf>,
    writer: Option<SstWriter>,
}

impl<'a> Ingester<'a> {
    /// A writer of files in `dir`, with the options of the default family.
    pub fn new(db: &'a Db, dir: &Path) -> Self {
        let family = db.options().default_family.clone();
        Self { db, family, dir: dir.to_owned(), files: Vec::new(), writer: None }
    }
}

impl Loader for Ingester<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.writer.as_ref().is_none_or(|it| it.estimated_bytes() >= INGESTED_FILE_BYTES) {
            if let Some(writer) = self.writer.take() {
                writer.finish()?;
            }
            let path = self.dir.join(format!("{}.sst", self.files.len()));
            self.writer = Some(SstWriter::create(&path, &self.family)?);
            self.files.push(path);
        }
        let writer = self.writer.as_mut().context("a file was just begun")?;
        Ok(writer.put(key, value)?)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            writer.finish()?;
        }
        let options = IngestOptions { source: IngestSource::Move, ..IngestOptions::default() };
        self.db.ingest(&self.files, &options)?;
        Ok(())
    }
}
