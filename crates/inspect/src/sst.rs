//! `terrace inspect sst`: every structure of an SST with its place in the file.

use crate::directory::number_of;
use crate::model_drawing;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use terrace_base::{Error, FileNumber, Result};
use terrace_sst::{
    BlockCache, DumpDetail, FilterMemory, ReadCounters, ReaderOptions, SstReader, dump,
};
use terrace_vfs::{OpenMode, Vfs};

/// Of the cache that a picture is drawn through.
const PLOT_CACHE_BYTES: usize = 1 << 20;

/// What the lines of a dump start with that state damage.
const DAMAGE_MARK: &str = "! ";

/// Prints the SST at `path`; returns the number of problems. The file number is that of its name;
/// if the name has none, the footer is believed.
///
/// # Errors
/// I/O, printing included.
pub fn sst(vfs: &dyn Vfs, path: &Path, detail: DumpDetail, out: &mut dyn io::Write) -> Result<u64> {
    let file = vfs.open(path, OpenMode::default())?;
    let number = Some(number_of(path)).filter(|number| *number != 0).map(FileNumber::new);
    let mut lines = Lines { out, line: String::new(), problems: 0, error: None };
    let printed = dump(&*file, number, detail, &mut lines);
    match (printed, lines.error) {
        (Ok(()), _) => Ok(lines.problems),
        (Err(_), Some(source)) => Err(Error::io("print", path, source)),
        (Err(_), None) => Err(Error::io("print", path, io::Error::other("formatting failed"))),
    }
}

/// A picture of the learned index of the SST at `path`, as SVG; `None` if the file has none.
///
/// # Errors
/// I/O, and corruption.
pub fn plot_sst(vfs: &Arc<dyn Vfs>, path: &Path) -> Result<Option<String>> {
    let options = ReaderOptions {
        cache: Arc::new(BlockCache::new(PLOT_CACHE_BYTES)),
        filter_memory: FilterMemory::Cached,
        models: true,
        direct: false,
        counters: Arc::new(ReadCounters::new()),
    };
    let size_bytes = vfs.len(path)?;
    let number = FileNumber::new(number_of(path));
    let points = SstReader::open(vfs, path, number, size_bytes, &options)?.model_points()?;
    Ok(points.map(|(model, points)| model_drawing::draw(&model, &points, number)))
}

/// Problems that a dump of the SST at `path` finds.
pub(crate) fn count_problems(vfs: &dyn Vfs, path: &Path) -> u64 {
    sst(vfs, path, DumpDetail::Blocks, &mut io::sink()).unwrap_or(0)
}

/// Hands whole lines on and counts those that state damage.
struct Lines<'a> {
    out: &'a mut dyn io::Write,
    line: String,
    problems: u64,
    error: Option<io::Error>,
}

impl Lines<'_> {
    fn end_line(&mut self) -> fmt::Result {
        let text = match self.line.strip_prefix(DAMAGE_MARK) {
            Some(damage) => {
                self.problems += 1;
                writeln!(self.out, "DAMAGE: {damage}")
            }
            None => writeln!(self.out, "{}", self.line),
        };
        self.line.clear();
        text.map_err(|error| {
            self.error = Some(error);
            fmt::Error
        })
    }
}

impl fmt::Write for Lines<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut pieces = text.split('\n');
        self.line.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            self.end_line()?;
            self.line.push_str(piece);
        }
        Ok(())
    }
}
