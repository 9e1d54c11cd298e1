//! Count sketch (Charikar, Chen, Farach-Colton: "Finding Frequent Items in Data Streams", ICALP 2002):
//! about how often a key came, without its name, in a fixed table.
//!
//! Every row adds a key to one of its counters, with a sign of the key's own. So keys that share a
//! counter cancel out on the average, and an estimate is unbiased; its standard deviation is about
//! sqrt(sum of the squared counts of the others / counters of a row), and of several rows the median is less often far
//! off.

/// Rows.
const ROWS: usize = 4;
/// Bits of a counter's number in its row.
const ROW_BITS: u32 = 14;
const ROW: usize = 1 << ROW_BITS;

/// A sketch of 65,536 counters in 4 rows: 256 KiB.
#[derive(Debug, Clone)]
pub(crate) struct CountSketch(Vec<i32>);

impl CountSketch {
    pub fn new() -> Self {
        Self(vec![0; ROWS * ROW])
    }

    /// The counters of a hash, with its sign in each row.
    fn places(hash: u64) -> impl Iterator<Item = (usize, i32)> {
        (0..ROWS).map(move |row| {
            let place = (hash >> (row as u32 * ROW_BITS)) as usize & (ROW - 1);
            let is_negative = hash >> (ROWS as u32 * ROW_BITS + row as u32) & 1 == 1;
            (row * ROW + place, if is_negative { -1 } else { 1 })
        })
    }

    /// The key of this hash came `times` more.
    pub fn add(&mut self, hash: u64, times: u32) {
        let times = i32::try_from(times).unwrap_or(i32::MAX);
        for (place, sign) in Self::places(hash) {
            self.0[place] = self.0[place].saturating_add(sign * times);
        }
    }

    /// About how often the key of this hash came.
    pub fn estimate(&self, hash: u64) -> u32 {
        let mut rows = [0; ROWS];
        for (row, (place, sign)) in rows.iter_mut().zip(Self::places(hash)) {
            *row = i64::from(self.0[place]) * i64::from(sign);
        }
        rows.sort_unstable();
        u32::try_from((rows[1] + rows[2]) / 2).unwrap_or(0)
    }

    pub fn halve(&mut self) {
        self.0.iter_mut().for_each(|count| *count /= 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_64;

    fn hash(number: u32) -> u64 {
        xxh3_64(&number.to_le_bytes())
    }

    #[test]
    fn estimates_are_near_and_not_to_one_side() {
        let mut sketch = CountSketch::new();
        // Key n comes 1 to 100 times: 100,000 keys, 5 million operations.
        (0..100_000).for_each(|number| sketch.add(hash(number), number % 100 + 1));
        sketch.add(hash(u32::MAX), 5_000);
        assert!(sketch.estimate(hash(u32::MAX)).abs_diff(5_000) < 600);
        // The standard deviation of a row: sqrt(100,000 * 3,383 / 16,384), about 144.
        let sum: i64 = (0..100_000)
            .map(|number| i64::from(sketch.estimate(hash(number))) - i64::from(number % 100 + 1))
            .sum();
        // Estimates below 0 are 0, which is half of the noise.
        assert!((0..60 * 100_000).contains(&sum), "{sum}");
    }

    #[test]
    fn halves_fade() {
        let mut sketch = CountSketch::new();
        sketch.add(hash(1), 1_000);
        sketch.halve();
        assert_eq!(sketch.estimate(hash(1)), 500);
        (0..10).for_each(|_| sketch.halve());
        assert_eq!(sketch.estimate(hash(1)), 0);
        sketch.add(hash(1), u32::MAX);
        sketch.add(hash(1), u32::MAX);
        assert!(sketch.estimate(hash(1)) >= i32::MAX as u32);
    }
}
