//! The key projection: an order-preserving map from byte strings to `u64`.
//!
//! A model is a function over numbers; keys are byte strings. Taking "the next eight bytes" wastes
//! most of the 64 bits: decimal keys jump after every `9`, and keys with a long field in front tie.
//! A projection is learned from keys instead. What they all start with costs nothing, nor does any
//! later position where they agree. At each other position the symbols seen there (bytes, and the
//! end of a key, which ranks lowest) are an alphabet; a symbol becomes its rank in it, and the
//! ranks are the digits of a mixed-radix number, as many as fit: the product of the alphabets'
//! sizes is at most 2^64. Decimal, hexadecimal and base-64 keys become the numbers they spell.
//!
//! Invariant: `a <= b` implies `project(a) <= project(b)`, for *all* keys, learned from or not. A
//! byte that its position has not seen takes the rank of the next lower symbol, and all later
//! digits are at their greatest; below the lowest, all digits from there on are zero.
//! Equal projections say nothing.

mod alphabet;
mod codec;
mod learn;
mod word;

pub use learn::ProjectionBuilder;

use alphabet::Alphabet;
use std::fmt;
use word::Ranges;

/// A projection, ready for use. 24 bytes per step, plus literals and rank tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    steps: Vec<Step>,
    /// The bytes of all [`Step::Literal`].
    literals: Vec<u8>,
    /// The tables of all [`Step::Sparse`]: per byte from `low` on its rank, or that of the next
    /// lower symbol, times two, plus one if the byte is in the alphabet.
    ranks: Vec<u16>,
    greatest: u64,
}

/// One or more positions of a key. `weight` is the product of the radixes of all later steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Bytes that all keys have; `above` is what is added for a key with greater ones.
    Literal { at: u32, len: u32, above: u64 },
    /// One position whose bytes are `low..=low + span`.
    Dense { weight: u64, low: u8, span: u8, has_end: bool },
    /// One position whose bytes are some of `low..=low + span`.
    Sparse { weight: u64, low: u8, span: u8, has_end: bool, at: u32 },
    /// A shortcut over the next `count` steps, which differ in weight only and whose alphabet has
    /// one or two ranges; `weight` is that of the last. Keys that end there or have other bytes
    /// take the steps.
    RangesWord { weight: u64, ranges: Ranges, has_end: bool, count: u8 },
    /// The same over [`Step::Sparse`] with any alphabet.
    SparseWord { weight: u64, low: u8, span: u8, radix: u16, count: u8, at: u32 },
}

/// Fewer positions than this are faster one by one.
const MIN_WORD_POSITIONS: usize = 3;

const _: () = assert!(size_of::<Step>() == 24);

/// What a projection is made of, as it is learned and as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Bytes that all keys have.
    Literal(Vec<u8>),
    /// Positions that share an alphabet of at least two symbols.
    Positions(Alphabet, u32),
}

impl Step {
    /// The shortcut over this step and the `count - 1` after it, all with `alphabet`.
    fn word(self, count: usize, alphabet: &Alphabet) -> Option<Self> {
        let radix = alphabet.radix();
        if count < MIN_WORD_POSITIONS || radix > word::MAX_RADIX {
            return None;
        }
        let (Self::Dense { weight, .. } | Self::Sparse { weight, .. }) = self else { return None };
        let (weight, count) = (weight / radix.pow(count as u32 - 1), count as u8);
        if let Some(ranges) = Ranges::of(&alphabet.ranges()) {
            return Some(Self::RangesWord { weight, ranges, has_end: alphabet.has_end(), count });
        }
        let Self::Sparse { low, span, at, .. } = self else { return None };
        Some(Self::SparseWord { weight, low, span, radix: radix as u16, count, at })
    }
}

impl Projection {
    /// Puts the parts together. `None` if the product of the radixes is over 2^64, an alphabet has
    /// fewer than two symbols, or the literals are longer than 4 GiB.
    fn from_parts(parts: &[Part]) -> Option<Self> {
        let mut product = 1u128;
        for part in parts {
            if let Part::Positions(alphabet, count) = part {
                let radix = u128::from(alphabet.radix());
                if radix < 2 || *count == 0 || *count > u64::BITS {
                    return None;
                }
                for _ in 0..*count {
                    product = product.checked_mul(radix).filter(|product| *product <= 1 << 64)?;
                }
            }
        }
        let greatest = (product - 1) as u64;
        let mut built =
            Self { steps: Vec::new(), literals: Vec::new(), ranks: Vec::new(), greatest };
        let mut tables: Vec<(Alphabet, u32)> = Vec::new();
        for part in parts {
            match part {
                Part::Literal(bytes) => {
                    let at = u32::try_from(built.literals.len()).ok()?;
                    let len = u32::try_from(bytes.len()).ok()?;
                    built.literals.extend_from_slice(bytes);
                    built.steps.push(Step::Literal { at, len, above: (product - 1) as u64 });
                }
                Part::Positions(alphabet, count) => {
                    for at in 0..*count as usize {
                        product /= u128::from(alphabet.radix());
                        let step = built.position(alphabet, product as u64, &mut tables);
                        if at.is_multiple_of(word::MAX_DIGITS) {
                            let positions = (*count as usize - at).min(word::MAX_DIGITS);
                            built.steps.extend(step.word(positions, alphabet));
                        }
                        built.steps.push(step);
                    }
                }
            }
        }
        Some(built)
    }

    fn position(
        &mut self,
        alphabet: &Alphabet,
        weight: u64,
        tables: &mut Vec<(Alphabet, u32)>,
    ) -> Step {
        let ranges = alphabet.ranges();
        let has_end = alphabet.has_end();
        let (low, high) = match (ranges.first(), ranges.last()) {
            (Some((low, _)), Some((_, high))) => (*low, *high),
            _ => (0, 0),
        };
        let span = high - low;
        if ranges.len() == 1 {
            return Step::Dense { weight, low, span, has_end };
        }
        let known = tables.iter().find(|(seen, _)| seen == alphabet).map(|(_, at)| *at);
        let at = known.unwrap_or_else(|| {
            let at = self.ranks.len() as u32;
            let mut rank = u16::from(has_end);
            for byte in low..=high {
                let present = alphabet.contains(byte);
                rank += u16::from(present && byte != low);
                self.ranks.push(rank << 1 | u16::from(present));
            }
            tables.push((*alphabet, at));
            at
        });
        Step::Sparse { weight, low, span, has_end, at }
    }

    /// The parts, as given to [`Self::from_parts`] but for neighbours with the same alphabet,
    /// which are one.
    fn parts(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for step in &self.steps {
            let alphabet = match *step {
                Step::Literal { at, len, .. } => {
                    parts.push(Part::Literal(self.literal(at, len).to_vec()));
                    continue;
                }
                Step::RangesWord { .. } | Step::SparseWord { .. } => continue,
                Step::Dense { low, span, has_end, .. } => {
                    let mut alphabet =
                        if has_end { Alphabet::of(None) } else { Alphabet::default() };
                    alphabet.insert_range(low, low + span);
                    alphabet
                }
                Step::Sparse { low, span, has_end, at, .. } => {
                    let mut alphabet =
                        if has_end { Alphabet::of(None) } else { Alphabet::default() };
                    let ranks = self.table(at, span);
                    for (byte, _) in (low..=u8::MAX).zip(ranks).filter(|(_, rank)| *rank & 1 == 1) {
                        alphabet.insert(Some(byte));
                    }
                    alphabet
                }
            };
            match parts.last_mut() {
                Some(Part::Positions(last, count)) if *last == alphabet => *count += 1,
                _ => parts.push(Part::Positions(alphabet, 1)),
            }
        }
        parts
    }

    #[inline]
    fn table(&self, at: u32, span: u8) -> &[u16] {
        &self.ranks[at as usize..][..=usize::from(span)]
    }

    #[inline]
    fn literal(&self, at: u32, len: u32) -> &[u8] {
        &self.literals[at as usize..][..len as usize]
    }

    /// The number of `key`. Some nanoseconds for eight positions with one alphabet, two or three
    /// for a position alone; never more positions than 64, but for those where all keys agree.
    #[inline]
    pub fn project(&self, key: &[u8]) -> u64 {
        let (mut x, mut at, mut step) = (0u64, 0usize, 0usize);
        while let Some(current) = self.steps.get(step) {
            step += 1;
            let mut skip = 0;
            match *current {
                Step::Literal { at: start, len, above } => {
                    let literal = self.literal(start, len);
                    if !word::matches(key, at, literal) {
                        let below = key.get(at..).is_none_or(|rest| rest < literal);
                        return if below { x } else { x + above };
                    }
                    at += literal.len();
                    continue;
                }
                Step::RangesWord { weight, ranges, has_end, count } => {
                    let count = usize::from(count);
                    let digits = word::load(key, at, count)
                        .and_then(|word| word::ranked(word, count, ranges, u8::from(has_end)));
                    if let Some(digits) = digits {
                        let radix = ranges.len() + u64::from(has_end);
                        x += word::number(digits, radix) * weight;
                        skip = count;
                    }
                }
                Step::SparseWord { weight, low, span, radix, count, at: table } => {
                    let (count, ranks) = (usize::from(count), self.table(table, span));
                    let digits = word::load(key, at, count)
                        .and_then(|word| word::sparse(word, count, low, ranks));
                    if let Some(digits) = digits {
                        x += word::number(digits, u64::from(radix)) * weight;
                        skip = count;
                    }
                }
                Step::Dense { weight, low, span, has_end } => {
                    let Some(byte) = key.get(at) else { return x };
                    let place = byte.wrapping_sub(low);
                    if place > span {
                        return x + outside(*byte, low, weight, has_end, u64::from(span));
                    }
                    x += (u64::from(place) + u64::from(has_end)) * weight;
                    at += 1;
                }
                Step::Sparse { weight, low, span, has_end, at: table } => {
                    let Some(byte) = key.get(at) else { return x };
                    let ranks = self.table(table, span);
                    let Some(rank) = ranks.get(usize::from(byte.wrapping_sub(low))) else {
                        let last = u64::from(ranks[usize::from(span)] >> 1) - u64::from(has_end);
                        return x + outside(*byte, low, weight, has_end, last);
                    };
                    x += u64::from(rank >> 1) * weight;
                    if rank & 1 == 0 {
                        return x + (weight - 1);
                    }
                    at += 1;
                }
            }
            at += skip;
            step += skip;
        }
        x
    }

    /// The greatest number that any key has.
    pub fn greatest(&self) -> u64 {
        self.greatest
    }

    /// What all keys start with.
    pub fn prefix(&self) -> &[u8] {
        match self.steps.first() {
            Some(Step::Literal { at, len, .. }) => self.literal(*at, *len),
            _ => &[],
        }
    }

    /// Memory beyond `size_of::<Projection>()`.
    pub fn memory_bytes(&self) -> usize {
        self.steps.capacity() * size_of::<Step>()
            + self.literals.capacity()
            + self.ranks.capacity() * size_of::<u16>()
    }
}

/// What a byte outside `low..=low + span` adds; `last` is the greatest rank less the end's.
#[cold]
fn outside(byte: u8, low: u8, weight: u64, has_end: bool, last: u64) -> u64 {
    match (byte < low, has_end) {
        (true, false) => 0,
        (true, true) => weight - 1,
        (false, _) => (last + u64::from(has_end)) * weight + (weight - 1),
    }
}

/// Literals in quotes, alphabets in brackets with `$` for the end of a key, as in
/// `"user" [0-9]x16 [$0-9]x3`.
impl fmt::Display for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.parts().iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            match part {
                Part::Literal(bytes) => write!(f, "\"{}\"", bytes.escape_ascii())?,
                Part::Positions(alphabet, count) => {
                    f.write_str(if alphabet.has_end() { "[$" } else { "[" })?;
                    for (low, high) in alphabet.ranges() {
                        write!(f, "{}", low.escape_ascii())?;
                        if high > low {
                            write!(f, "-{}", high.escape_ascii())?;
                        }
                    }
                    f.write_str("]")?;
                    if *count > 1 {
                        write!(f, "x{count}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
