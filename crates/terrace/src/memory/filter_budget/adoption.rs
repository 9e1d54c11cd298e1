//! New files wait here until they can be opened and take over the heat of the files that they
//! replace, or lie above.

use super::OpenReader;
use super::inherit::{Heir, Source, Stretch, inherit};
use std::sync::{Arc, Weak};
use terrace_base::FileNumber;
use terrace_manifest::FileMeta;
use terrace_sst::SstReader;

/// An input file with the rates of its filter partitions. The reader is kept only for where these
/// begin and end.
struct Input {
    reader: Arc<SstReader>,
    smallest: Vec<u8>,
    rates: Vec<f64>,
}

/// New files and what they may inherit from.
pub(crate) struct Adoption {
    heirs: Vec<Weak<FileMeta>>,
    /// The weightiest last; the files of each in key order.
    runs: Vec<Vec<Input>>,
}

/// Where partition `at` of a file begins and ends.
fn stretch<'a>(reader: &'a SstReader, smallest: &'a [u8], at: usize) -> Stretch<'a> {
    let before = at.checked_sub(1).map(|before| reader.filter_partition(before).separator);
    Stretch {
        start: before.unwrap_or(smallest),
        from_start: before.is_none(),
        end: reader.filter_partition(at).separator,
    }
}

fn sources(run: &[Input]) -> Vec<Source<'_>> {
    let of = |input: &'_ Input| 0..input.rates.len();
    let parts = run.iter().flat_map(|input| of(input).map(move |at| (input, at)));
    parts
        .map(|(input, at)| Source {
            stretch: stretch(&input.reader, &input.smallest, at),
            rate: input.rates[at],
        })
        .collect()
}

impl Adoption {
    /// Heirs in key order, and inputs as far as something is known of them.
    pub(super) fn new(
        heirs: &[Arc<FileMeta>],
        runs: &[Vec<Arc<FileMeta>>],
        known: impl Fn(FileNumber) -> Option<(Arc<SstReader>, Vec<f64>)>,
    ) -> Self {
        let input = |file: &Arc<FileMeta>| {
            let (reader, rates) = known(file.number)?;
            Some(Input { reader, smallest: file.smallest.clone(), rates })
        };
        let run = |files: &Vec<Arc<FileMeta>>| files.iter().filter_map(input).collect();
        Self {
            heirs: heirs.iter().map(Arc::downgrade).collect(),
            runs: runs.iter().map(run).collect(),
        }
    }

    /// Whether there is nothing to inherit.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.iter().all(Vec::is_empty)
    }

    /// Opens the heirs; gives the rates of the partitions of each by file number.
    pub(super) fn settle(&self, open: OpenReader<'_>) -> Vec<(FileNumber, Vec<Option<f64>>)> {
        let open = |file: &Weak<FileMeta>| {
            let file = file.upgrade()?;
            open(&file).map(|reader| (file, reader))
        };
        let files: Vec<(Arc<FileMeta>, Arc<SstReader>)> =
            self.heirs.iter().filter_map(open).collect();
        let mut heirs = Vec::new();
        for (file, reader) in &files {
            heirs.extend((0..reader.filter_partition_count()).map(|at| Heir {
                stretch: stretch(reader, &file.smallest, at),
                key_count: reader.filter_partition(at).key_count,
            }));
        }
        let runs: Vec<Vec<Source<'_>>> = self.runs.iter().map(|run| sources(run)).collect();
        let mut rates = inherit(&runs, &heirs).into_iter();
        let take = |(file, reader): &(Arc<FileMeta>, Arc<SstReader>)| {
            let count = reader.filter_partition_count();
            (file.number, rates.by_ref().take(count).collect())
        };
        files.iter().map(take).collect()
    }
}
