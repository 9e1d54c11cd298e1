//! The bundled data: real package names, how often each is downloaded, and what it is.

use anyhow::{Context, Result};
use std::collections::HashSet;
use terrace_base::{Rng, SplitMix64};
use terrace_workload::distribution::Alias;

/// Lines `name TAB downloads a month TAB summary`.
const PACKED: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/packages.tsv.zst"));

/// The same names are misspelled in the same way in every run.
const SEED: u64 = 7;

/// Tries before a misspelling is made by appending.
const TRIES: u32 = 24;

/// The keys of a typewriter, row by row: a slip hits a neighbour.
const ROWS: [&[u8]; 4] = [b"1234567890-", b"qwertyuiop", b"asdfghjkl", b"zxcvbnm_."];

/// One name.
pub struct Package {
    pub name: Box<[u8]>,
    /// What is stored under it: downloads, a tab, the summary.
    pub value: Box<[u8]>,
    /// A misspelling of it that is no name in the data.
    pub misspelled: Box<[u8]>,
}

/// All names.
pub struct Data {
    /// In the order in which they are loaded, which is random.
    pub packages: Vec<Package>,
    /// Draws an index into `packages` by the downloads.
    pub popularity: Alias,
    /// The index of the name with the most downloads.
    pub most_popular: usize,
    /// Bytes of all names and values.
    pub raw_bytes: u64,
}

impl Data {
    /// Unpacks the data that was compiled in.
    pub fn bundled() -> Result<Self> {
        let text = zstd::decode_all(PACKED).context("unpacking the bundled data")?;
        Self::parse(&text)
    }

    fn parse(text: &[u8]) -> Result<Self> {
        let mut lines: Vec<(&[u8], &[u8], f64)> = Vec::new();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let parsed = line.iter().position(|byte| *byte == b'\t').and_then(|tab| {
                let (name, value) = (&line[..tab], &line[tab + 1..]);
                let count = value.split(|byte| *byte == b'\t').next()?;
                Some((name, value, std::str::from_utf8(count).ok()?.parse().ok()?))
            });
            let malformed = || format!("bundled data: {}", String::from_utf8_lossy(line));
            lines.push(parsed.with_context(malformed)?);
        }
        let mut rng = SplitMix64::new(SEED);
        for at in (1..lines.len()).rev() {
            lines.swap(at, rng.below(at as u64 + 1) as usize);
        }
        let names: HashSet<&[u8]> = lines.iter().map(|(name, ..)| *name).collect();
        let counts: Vec<f64> = lines.iter().map(|(.., count)| *count).collect();
        let package = |(name, value, _): &(&[u8], &[u8], f64)| Package {
            name: (*name).into(),
            value: (*value).into(),
            misspelled: misspell(name, &names, &mut rng).into(),
        };
        let raw_bytes =
            lines.iter().map(|(name, value, _)| (name.len() + value.len()) as u64).sum();
        let most_popular = (0..counts.len()).max_by(|a, b| counts[*a].total_cmp(&counts[*b]));
        Ok(Self {
            packages: lines.iter().map(package).collect(),
            popularity: Alias::new(&counts)?,
            most_popular: most_popular.context("the bundled data is empty")?,
            raw_bytes,
        })
    }
}

/// A plausible slip of the fingers that makes no name in `names`.
fn misspell(name: &[u8], names: &HashSet<&[u8]>, rng: &mut SplitMix64) -> Vec<u8> {
    for _ in 0..TRIES {
        let mut slip = name.to_vec();
        let at = rng.below(slip.len().max(1) as u64) as usize;
        match rng.below(4) {
            0 if at + 1 < slip.len() => slip.swap(at, at + 1),
            1 if slip.len() > 2 => drop(slip.remove(at)),
            2 if at < slip.len() => slip.insert(at, slip[at]),
            _ if at < slip.len() => slip[at] = neighbour(slip[at], rng),
            _ => {}
        }
        if !names.contains(slip.as_slice()) {
            return slip;
        }
    }
    let mut slip = name.to_vec();
    while names.contains(slip.as_slice()) {
        slip.push(b's');
    }
    slip
}

/// A key next to `key`; `key` itself if it is on none of the rows.
fn neighbour(key: u8, rng: &mut SplitMix64) -> u8 {
    for row in ROWS {
        if let Some(at) = row.iter().position(|k| *k == key) {
            let other = if rng.one_in(2) { at.wrapping_sub(1) } else { at + 1 };
            return *row.get(other).or(row.get(1)).unwrap_or(&key);
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_data_is_whole_and_no_misspelling_is_a_name() {
        let data = Data::bundled().unwrap();
        assert_eq!(data.packages.len(), 226_889);
        let names: HashSet<&[u8]> = data.packages.iter().map(|p| &*p.name).collect();
        assert_eq!(names.len(), data.packages.len());
        let near = data.packages.iter().filter(|p| {
            assert!(!names.contains(&*p.misspelled), "{:?}", p.misspelled);
            p.misspelled.len().abs_diff(p.name.len()) <= 1
        });
        assert!(near.count() > 226_000);
    }

    #[test]
    fn popularity_follows_the_downloads() {
        let data = Data::parse(b"rare\t1\tx\ncommon\t999\ty\n").unwrap();
        assert_eq!(&*data.packages[data.most_popular].name, b"common");
        assert_eq!(&*data.packages[data.most_popular].value, b"999\ty");
        assert_eq!(data.raw_bytes, 4 + 3 + 6 + 5);
        let mut rng = SplitMix64::new(1);
        let draws =
            (0..1000).filter(|_| data.popularity.index(&mut rng) as usize == data.most_popular);
        assert!(draws.count() > 980);
        assert!(Data::parse(b"no count\n").is_err() && Data::parse(b"").is_err());
    }
}
