//! stub
use crate::{Entry, Lookup, SstReader};
use terrace_base::{Error, Result};
/// One lookup of a batch, in one file.
pub struct BatchLookup<'a> {
    /// The file to look in.
    pub reader: &'a SstReader,
    /// What to look for.
    pub lookup: Lookup<'a>,
    /// Filled by the batch: the newest visible version, if the file has one.
    pub found: Option<Entry>,
}
impl<'a> BatchLookup<'a> {
    /// A lookup not executed yet.
    pub fn new(reader: &'a SstReader, lookup: Lookup<'a>) -> Self { Self { reader, lookup, found: None } }
}
/// Many lookups in any number of files of one file system: filters first, then index and data;
/// in every round all partitions and blocks that are missing are read together.
pub fn multi_get(_lookups: &mut [BatchLookup<'_>]) -> Result<()> { Err(Error::InvalidArgument("not written yet".into())) }
