//! Heat as the manifest keeps it, so that a store that is opened again knows where it was hot.
//!
//! ```text
//! heat      version      1   1
//!           shift        1   this many neighbouring partitions, as a power of two, share a code
//!           file count   v
//!           files            to the end
//!
//! file      number       v   minus the number of the file before
//!           code count   v
//!           codes            1 each, see `heat::pack`
//! ```
//!
//! Advisory: a version or bytes that this build does not know are ignored.

use super::heat::{pack, unpack};
use std::collections::HashMap;
use terrace_base::codec::put_varint;
use terrace_base::{Decoder, FileNumber};

const VERSION: u8 = 1;
/// Most codes; beyond, neighbours share one.
const MAX_CODES: usize = 192 << 10;
/// Most files; the others are left out, the coldest first.
const MAX_FILES: usize = 16 << 10;

/// The rates of the filter partitions of some files, in key order; 0 where nothing is known.
pub(super) type Rates = Vec<(FileNumber, Vec<f64>)>;

/// The bytes of `rates`; at most some 300 KB.
pub(super) fn encode(mut rates: Rates) -> Vec<u8> {
    if rates.len() > MAX_FILES {
        let heat = |file: &(FileNumber, Vec<f64>)| file.1.iter().sum::<f64>();
        rates.sort_by(|a, b| heat(b).total_cmp(&heat(a)));
        rates.truncate(MAX_FILES);
    }
    rates.sort_by_key(|(number, _)| *number);
    let codes = |shift: u8| rates.iter().map(|(_, r)| r.len().div_ceil(1 << shift)).sum::<usize>();
    let shift = (0..20).find(|shift| codes(*shift) <= MAX_CODES).unwrap_or(20);
    let mut out = vec![VERSION, shift];
    put_varint(&mut out, rates.len() as u64);
    let mut before = FileNumber::ZERO;
    for (number, rates) in &rates {
        put_varint(&mut out, *number - before);
        before = *number;
        let groups = rates.chunks(1 << shift);
        put_varint(&mut out, groups.len() as u64);
        out.extend(groups.map(|group| pack(group.iter().sum::<f64>() / group.len() as f64)));
    }
    out
}

/// What [`encode`] wrote.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Restored {
    shift: u8,
    files: HashMap<FileNumber, Vec<u8>>,
}

impl Restored {
    /// Reads `bytes`; nothing if they make no sense.
    pub fn decode(bytes: &[u8]) -> Self {
        Self::read(bytes).unwrap_or_default()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let (version, shift) = (decoder.u8()?, decoder.u8()?);
        if version != VERSION || shift > 20 {
            return None;
        }
        let count = usize::try_from(decoder.varint()?).ok()?;
        let mut files = HashMap::with_capacity(count.min(decoder.rest().len() / 2));
        let mut number = FileNumber::ZERO;
        for _ in 0..count {
            number = number.checked_add(decoder.varint()?)?;
            files.insert(number, decoder.bytes()?.to_vec());
        }
        Some(Self { shift, files })
    }

    /// Takes out the rates of a file with this many partitions; `None` if it has others or is not
    /// known. The rate of partitions that share a code is the same.
    pub fn take(&mut self, number: FileNumber, partitions: usize) -> Option<Vec<Option<f64>>> {
        let codes = self.files.remove(&number)?;
        if codes.len() != partitions.div_ceil(1 << self.shift) {
            return None;
        }
        Some(
            (0..partitions)
                .map(|at| codes.get(at >> self.shift).copied().and_then(unpack))
                .collect(),
        )
    }

    /// Forgets all files but those that are wanted.
    pub fn retain(&mut self, wanted: impl Fn(FileNumber) -> bool) {
        self.files.retain(|number, _| wanted(*number));
    }

    /// The files, the one with the hottest partition first.
    pub fn hottest_first(&self) -> Vec<FileNumber> {
        let heat = |codes: &Vec<u8>| codes.iter().copied().max().unwrap_or(0);
        let mut files: Vec<(u8, FileNumber)> =
            self.files.iter().map(|(n, codes)| (heat(codes), *n)).collect();
        files.sort_by_key(|(heat, number)| (std::cmp::Reverse(*heat), *number));
        files.into_iter().map(|(_, number)| number).collect()
    }
}

#[cfg(test)]
mod tests;
