//! Value bytes, made as db_bench makes them: pieces of 100 bytes that compress to half.
//!
//! Values are slices of one buffer made once, at a moving offset, so that making a value costs
//! next to nothing beside writing it.

use terrace_base::{Rng, SplitMix64};

const BUFFER_BYTES: usize = 1 << 20;
const PIECE_BYTES: usize = 100;
/// db_bench's `--compression_ratio`: the share of a piece that is random.
const COMPRESSED_SHARE: f64 = 0.5;

/// An endless source of values.
#[derive(Debug)]
pub struct Values {
    buffer: Vec<u8>,
    position: usize,
    size: usize,
}

impl Values {
    /// A source of values of `size` bytes; equal seeds give equal values.
    pub fn new(size: usize, seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed);
        let random_bytes = (PIECE_BYTES as f64 * COMPRESSED_SHARE) as usize;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES.max(size) + PIECE_BYTES);
        while buffer.len() < BUFFER_BYTES.max(size) {
            let random: Vec<u8> = (0..random_bytes).map(|_| b' ' + rng.below(95) as u8).collect();
            buffer.extend(random.iter().cycle().take(PIECE_BYTES));
        }
        Self { buffer, position: 0, size }
    }

    /// The next value.
    pub fn next_value(&mut self) -> &[u8] {
        if self.position + self.size > self.buffer.len() {
            self.position = 0;
        }
        let start = self.position;
        self.position += self.size;
        &self.buffer[start..start + self.size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_size_and_repeat_for_a_seed() {
        for size in [0, 1, 100, 1000, 3 << 20] {
            let (mut a, mut b) = (Values::new(size, 3), Values::new(size, 3));
            for _ in 0..50 {
                assert_eq!(a.next_value().len(), size);
                assert_eq!(a.next_value(), {
                    b.next_value();
                    b.next_value()
                });
            }
        }
    }

    #[test]
    fn values_compress_to_about_half() {
        let mut values = Values::new(1 << 19, 1);
        let value = values.next_value();
        let packed = zstd::bulk::compress(value, 1).unwrap().len() as f64;
        let share = packed / value.len() as f64;
        assert!((0.35..0.6).contains(&share), "compresses to {share}");
    }
}
