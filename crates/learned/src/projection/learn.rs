//! Learning a projection from keys: the keys of a file, or a sample of them.
//!
//! Invariant: the alphabets from `prefix_len` up to [`ProjectionBuilder::reach`] hold the symbols
//! of every key added. The reach only shrinks: alphabets only grow, and the positions from the
//! front whose radixes multiply to at most 2^64 get fewer. What a key has beyond it is forgotten.

use super::alphabet::Alphabet;
use super::{Part, Projection};
use terrace_base::key::common_prefix;

/// Positions after the common prefix that a projection looks at, at most.
pub(super) const MAX_POSITIONS: usize = 256;

/// Gathers the alphabets of keys, in any order. Memory: 40 bytes for each of at most 256
/// positions, and the first key.
#[derive(Debug, Clone)]
pub struct ProjectionBuilder {
    /// The first key; `None` before there is one.
    first: Option<Vec<u8>>,
    prefix_len: usize,
    /// Of the positions from `prefix_len` on.
    alphabets: Vec<Alphabet>,
    /// The first position that does not fit into 64 bits.
    full_at: usize,
}

impl Default for ProjectionBuilder {
    fn default() -> Self {
        Self { first: None, prefix_len: 0, alphabets: Vec::new(), full_at: usize::MAX }
    }
}

impl ProjectionBuilder {
    /// A builder that has seen no key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key. Costs a comparison with the first key and about a nanosecond per position.
    pub fn add(&mut self, key: &[u8]) {
        let shared = self.first.as_deref().map_or(0, |first| common_prefix(first, key));
        self.add_after(key, shared);
    }

    /// Adds a key whose first `shared` bytes are exactly those it has in common with some key
    /// added before, as far as [`Self::reach`] was then. Only the bytes after them cost time.
    pub(crate) fn add_after(&mut self, key: &[u8], shared: usize) {
        let Some(first) = &self.first else {
            self.prefix_len = key.len();
            self.alphabets = vec![Alphabet::of(None)];
            self.first = Some(key.to_vec());
            return;
        };
        if shared < self.prefix_len {
            let singles = first[shared..self.prefix_len].iter().take(MAX_POSITIONS);
            self.alphabets.splice(0..0, singles.map(|byte| Alphabet::of(Some(*byte))));
            self.alphabets.truncate(MAX_POSITIONS);
            self.prefix_len = shared;
        }
        let mut grown = false;
        let end = self.reach().min(key.len() + 1);
        for position in shared.max(self.prefix_len)..end {
            let symbol = key.get(position).copied();
            match self.alphabets.get_mut(position - self.prefix_len) {
                Some(alphabet) => grown |= alphabet.insert(symbol),
                None => self.alphabets.push(Alphabet::of(symbol)),
            }
        }
        if grown {
            self.shrink();
        }
    }

    /// Forgets the positions that do not fit any more.
    fn shrink(&mut self) {
        let mut product = 1u128;
        for (at, alphabet) in self.alphabets.iter().enumerate() {
            product *= u128::from(alphabet.radix());
            if product > 1 << 64 {
                self.full_at = self.prefix_len + at;
                self.alphabets.truncate(at);
                return;
            }
        }
    }

    /// How many bytes of a key can matter to the projection. Never grows once there is a key.
    pub(crate) fn reach(&self) -> usize {
        self.full_at.min(self.prefix_len.saturating_add(MAX_POSITIONS))
    }

    /// The projection for the keys so far. Without any, all keys are 0.
    pub fn build(&self) -> Projection {
        let prefix = self.first.as_deref().map_or(&[][..], |first| &first[..self.prefix_len]);
        let mut parts = Vec::new();
        let mut literal = prefix.to_vec();
        for alphabet in self.alphabets.iter().take_while(|alphabet| !alphabet.ranges().is_empty()) {
            if let Some(byte) = alphabet.literal() {
                literal.push(byte);
                continue;
            }
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            match parts.last_mut() {
                Some(Part::Positions(last, count)) if last == alphabet => *count += 1,
                _ => parts.push(Part::Positions(*alphabet, 1)),
            }
        }
        // Bytes that all keys agree on after the last difference distinguish no key of the file.
        if parts.is_empty() && !prefix.is_empty() {
            parts.push(Part::Literal(prefix.to_vec()));
        }
        let built = Projection::from_parts(&parts);
        debug_assert!(built.is_some(), "the alphabets fit into 64 bits");
        built.unwrap_or_else(|| Self::new().build())
    }
}
