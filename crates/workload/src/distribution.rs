//! Which item an operation touches: uniform, Zipf, latest, or a real popularity file.
//!
//! - `zipf:S`: rank `r` of `n` is drawn with probability proportional to `1 / r^S`, exactly, by
//!   rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from
//!   monotone discrete distributions", 1996), then ranks are scattered over the items. YCSB's
//!   scrambled Zipfian scatters by a hash, on which items collide; here it is a permutation, so
//!   the popularity of items is the Zipf law itself.
//! - `latest`: YCSB's: the newest item has rank 1, the one before it rank 2, with exponent 0.99.
//! - `real:FILE`: lines `name TAB count`, optionally zstd-compressed; item popularity is
//!   proportional to the counts, scattered over the items. Items beyond the file's lines are
//!   never touched.

use crate::hot_range::HotRange;
use crate::keys::Permutation;
use crate::zipf::Zipf;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_base::{Rng, SplitMix64};

/// YCSB's Zipfian constant.
pub const YCSB_EXPONENT: f64 = 0.99;
/// The most lines a popularity file may have.
const MAX_POPULARITY_LINES: usize = 50_000_000;

/// What `--distribution` names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Distribution {
    /// Every item alike.
    Uniform,
    /// Zipf's law with this exponent.
    Zipf(f64),
    /// The newer the likelier.
    Latest,
    /// Popularity read from a file.
    Real(PathBuf),
}

impl FromStr for Distribution {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "uniform" => Ok(Self::Uniform),
            None if text == "latest" => Ok(Self::Latest),
            None if text == "zipf" => Ok(Self::Zipf(YCSB_EXPONENT)),
            Some(("zipf", exponent)) => {
                let exponent: f64 = exponent
                    .parse()
                    .with_context(|| format!("`{exponent}` in --distribution {text}"))?;
                ensure!(
                    (0.0..=10.0).contains(&exponent),
                    "the exponent in --distribution {text} must be 0 to 10"
                );
                Ok(Self::Zipf(exponent))
            }
            Some(("real", path)) if !path.is_empty() => {
                ensure!(Path::new(path).is_file(), "--distribution {text}: there is no such file");
                Ok(Self::Real(PathBuf::from(path)))
            }
            _ => bail!("--distribution {text}: known are uniform, zipf:0.99, latest, real:FILE"),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => write!(f, "uniform"),
            Self::Zipf(exponent) => write!(f, "zipf:{exponent}"),
            Self::Latest => write!(f, "latest"),
            Self::Real(path) => write!(f, "real:{}", path.display()),
        }
    }
}

/// Draws items. Cloning is cheap; clones share tables and the newest item.
#[derive(Debug, Clone)]
pub struct Sampler {
    law: Law,
    items: u64,
    newest: Arc<AtomicU64>,
}

#[derive(Debug, Clone)]
enum Law {
    Uniform,
    Zipf(Zipf, Permutation),
    Latest(Zipf),
    Weighted(Arc<Alias>, Permutation),
    HotRange(HotRange),
}

impl Sampler {
    /// A sampler over items `0..items`; `seed` decides which items are the popular ones.
    pub fn new(distribution: &Distribution, items: u64, seed: u64) -> Result<Self> {
        ensure!(items > 0, "there are no keys to choose from; --keys must be at least 1");
        let scatter = || Permutation::new(items, seed ^ 0x5ca7_7e2d);
        let law = match distribution {
            Distribution::Uniform => Law::Uniform,
            Distribution::Zipf(exponent) => Law::Zipf(Zipf::new(items, *exponent), scatter()),
            Distribution::Latest => Law::Latest(Zipf::new(items, YCSB_EXPONENT)),
            Distribution::Real(path) => {
                let mut weights: Vec<f64> =
                    read_popularity(path)?.into_iter().map(|line| line.count).collect();
                weights.sort_by(|a, b| b.total_cmp(a));
                weights.truncate(usize::try_from(items)?);
                Law::Weighted(Arc::new(Alias::new(&weights)?), scatter())
            }
        };
        Ok(Self { law, items, newest: Arc::new(AtomicU64::new(items)) })
    }

    /// A sampler over items `0..items` whose popular ones are neighbours.
    pub fn contiguous(range: HotRange, items: u64) -> Self {
        let newest = Arc::new(AtomicU64::new(items));
        Self { law: Law::HotRange(range), items, newest }
    }

    /// The next item; below the initial count unless the law is `latest`.
    #[inline]
    pub fn item(&self, rng: &mut SplitMix64) -> u64 {
        match &self.law {
            Law::Uniform => rng.below(self.items),
            Law::Zipf(zipf, scatter) => scatter.apply(zipf.rank(rng)),
            Law::Latest(zipf) => {
                let newest = self.newest.load(Ordering::Relaxed);
                newest - 1 - zipf.rank(rng).min(newest - 1)
            }
            Law::Weighted(alias, scatter) => scatter.apply(alias.index(rng)),
            Law::HotRange(range) => range.item(rng),
        }
    }

    /// Notes that items below `count` now exist, for `latest`.
    pub fn grown_to(&self, count: u64) {
        self.newest.fetch_max(count, Ordering::Relaxed);
    }
}

/// A discrete law in constant time per draw (Walker's alias method, built as in Vose, 1991).
#[derive(Debug)]
pub struct Alias {
    /// Per slot: the chance to stay, and where to go otherwise.
    slots: Vec<(f64, u32)>,
}

impl Alias {
    /// Draws index `i` with probability proportional to `weights[i]`.
    pub fn new(weights: &[f64]) -> Result<Self> {
        let total: f64 = weights.iter().sum();
        ensure!(
            total.is_finite() && total > 0.0 && weights.iter().all(|w| *w >= 0.0),
            "popularity counts must be non-negative, and one of them positive"
        );
        let n = weights.len();
        u32::try_from(n)?;
        let mut chance: Vec<f64> = weights.iter().map(|w| w * n as f64 / total).collect();
        let mut alias: Vec<u32> = (0..n as u32).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..n).partition(|i| chance[*i] < 1.0);
        while let (Some(less), Some(more)) = (small.pop(), large.last().copied()) {
            alias[less] = more as u32;
            chance[more] -= 1.0 - chance[less];
            if chance[more] < 1.0 {
                large.pop();
                small.push(more);
            }
        }
        // What is left is 1 but for rounding.
        for rest in small.into_iter().chain(large) {
            chance[rest] = 1.0;
        }
        Ok(Self { slots: chance.into_iter().zip(alias).collect() })
    }

    /// The next index.
    #[inline]
    pub fn index(&self, rng: &mut SplitMix64) -> u64 {
        let slot = rng.below(self.slots.len() as u64);
        let (chance, alias) = self.slots[slot as usize];
        if rng.unit() < chance { slot } else { u64::from(alias) }
    }
}

/// One line of a popularity file.
#[derive(Debug)]
pub struct Popular {
    /// The first column.
    pub name: Vec<u8>,
    /// The second column.
    pub count: f64,
    /// The rest of the line, after its tab.
    pub rest: Vec<u8>,
}

/// Reads `name TAB count [TAB rest]` lines, decompressing zstd if the file starts with its magic.
pub fn read_popularity(path: &Path) -> Result<Vec<Popular>> {
    let context = || format!("reading the popularity file {}", path.display());
    let mut file = BufReader::new(std::fs::File::open(path).with_context(context)?);
    let packed = file.fill_buf().with_context(context)?.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
    let reader: Box<dyn Read> =
        if packed { Box::new(zstd::Decoder::with_buffer(file)?) } else { Box::new(file) };
    let mut lines = Vec::new();
    for (number, line) in BufReader::new(reader).split(b'\n').enumerate() {
        let line = line.with_context(context)?;
        let mut columns = line.splitn(3, |byte| *byte == b'\t');
        let (Some(name), Some(count)) = (columns.next(), columns.next()) else {
            bail!("{}:{}: want NAME TAB COUNT", path.display(), number + 1);
        };
        let count = std::str::from_utf8(count)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .with_context(|| {
                format!("{}:{}: the second column is no number", path.display(), number + 1)
            })?;
        let rest = columns.next().unwrap_or_default().to_vec();
        lines.push(Popular { name: name.to_vec(), count, rest });
        ensure!(
            lines.len() <= MAX_POPULARITY_LINES,
            "{} has more than {MAX_POPULARITY_LINES} lines",
            path.display()
        );
    }
    ensure!(!lines.is_empty(), "{} is empty", path.display());
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 400_000;

    /// The largest deviation of counts from what `weights` predicts, in standard deviations.
    fn worst_deviation(counts: &[u64], weights: &[f64]) -> f64 {
        let total: f64 = weights.iter().sum();
        let draws = counts.iter().sum::<u64>() as f64;
        counts
            .iter()
            .zip(weights)
            .map(|(count, weight)| {
                let p = weight / total;
                (*count as f64 - draws * p).abs() / (draws * p * (1.0 - p)).sqrt().max(1.0)
            })
            .fold(0.0, f64::max)
    }

    #[test]
    fn zipf_frequencies_follow_the_law() {
        for exponent in [0.0, 0.5, 0.99, 1.0, 1.2, 2.0] {
            for items in [1u64, 2, 10, 300] {
                let zipf = Zipf::new(items, exponent);
                let mut rng = SplitMix64::new(5);
                let mut counts = vec![0u64; items as usize];
                (0..DRAWS).for_each(|_| counts[zipf.rank(&mut rng) as usize] += 1);
                let weights: Vec<f64> =
                    (1..=items).map(|rank| (rank as f64).powf(-exponent)).collect();
                let worst = worst_deviation(&counts, &weights);
                assert!(worst < 5.0, "s {exponent}, n {items}: {worst} standard deviations");
            }
        }
    }

    #[test]
    fn alias_frequencies_follow_the_weights() {
        let weights = [5.0, 0.0, 1.0, 1e-3, 90.0, 3.9];
        let alias = Alias::new(&weights).unwrap();
        let mut rng = SplitMix64::new(9);
        let mut counts = [0u64; 6];
        (0..DRAWS).for_each(|_| counts[alias.index(&mut rng) as usize] += 1);
        assert_eq!(counts[1], 0);
        assert!(worst_deviation(&counts, &weights) < 5.0, "{counts:?}");
        assert!(Alias::new(&[0.0]).is_err() && Alias::new(&[]).is_err());
        assert!(Alias::new(&[1.0, -1.0]).is_err());
    }

    #[test]
    fn scattered_zipf_keeps_the_law_over_items() {
        let sampler = Sampler::new(&Distribution::Zipf(0.99), 50, 3).unwrap();
        let mut rng = SplitMix64::new(1);
        let mut counts = vec![0u64; 50];
        (0..DRAWS).for_each(|_| counts[sampler.item(&mut rng) as usize] += 1);
        assert!(counts.windows(2).any(|pair| pair[0] < pair[1]), "not scattered: {counts:?}");
        counts.sort_by(|a, b| b.cmp(a));
        let weights: Vec<f64> = (1..=50).map(|rank| f64::from(rank).powf(-0.99)).collect();
        // Sorting favours the luckier of close ranks, hence the wider bound.
        assert!(worst_deviation(&counts, &weights) < 8.0, "{counts:?}");
    }

    #[test]
    fn latest_follows_growth() {
        let sampler = Sampler::new(&Distribution::Latest, 1000, 3).unwrap();
        let mut rng = SplitMix64::new(1);
        assert!((0..1000).all(|_| sampler.item(&mut rng) < 1000));
        sampler.clone().grown_to(5000);
        let newest = (0..1000).filter(|_| sampler.item(&mut rng) == 4999).count();
        assert!(newest > 50, "the newest of 5000 was drawn {newest} times in 1000");
    }

    #[test]
    fn real_popularity_is_read_plain_and_packed() {
        let dir = tempfile::tempdir().unwrap();
        let text = b"left-pad\t900\tpads\nother\t100\n";
        let plain = dir.path().join("a.tsv");
        std::fs::write(&plain, text).unwrap();
        let packed = dir.path().join("a.tsv.zst");
        std::fs::write(&packed, zstd::bulk::compress(text, 1).unwrap()).unwrap();
        for path in [&plain, &packed] {
            let lines = read_popularity(path).unwrap();
            assert_eq!((lines.len(), lines[0].count), (2, 900.0));
            assert_eq!((&lines[0].rest[..], &lines[1].rest[..]), (&b"pads"[..], &b""[..]));
            let sampler = Sampler::new(&Distribution::Real(path.clone()), 10, 1).unwrap();
            let mut rng = SplitMix64::new(1);
            let mut counts = vec![0u64; 10];
            (0..10_000).for_each(|_| counts[sampler.item(&mut rng) as usize] += 1);
            counts.sort_unstable();
            assert!(counts[7] == 0 && (900..1100).contains(&counts[8]), "{counts:?}");
        }
        std::fs::write(&plain, b"name without count\n").unwrap();
        assert!(read_popularity(&plain).unwrap_err().to_string().contains(":1:"));
        std::fs::write(&plain, b"").unwrap();
        assert!(read_popularity(&plain).is_err());
    }

    #[test]
    fn names_parse_and_print() {
        for text in ["uniform", "latest", "zipf:0.99", "zipf:1.2"] {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        for bad in ["normal", "zipf:x", "zipf:-1", "real:", "real:/no/such/file", ""] {
            assert!(bad.parse::<Distribution>().is_err(), "{bad} was accepted");
        }
    }
}
