//! Finding the segment of a number: the heads of all segments in order, and a table over the
//! leading bits that says where to look.
//!
//! The table has about as many slots as there are heads, so that a slot holds one or none when
//! numbers are spread evenly. The first few are compared without a branch between them; where
//! heads crowd, the slot's are halved.

/// Heads that are compared at once. Those beyond the slot's are above every number in it.
const COUNTED: usize = 4;

/// Ascending heads, and the table over them. 8 bytes per head and 4 to 8 for the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heads {
    /// With [`COUNTED`] more at the end, which are no heads.
    heads: Vec<u64>,
    /// Slot `i`: how many heads are in the slots before it. One more than there are slots.
    table: Vec<u32>,
    shift: u32,
}

impl Heads {
    /// A table over `heads`, which strictly ascend and are fewer than 2^32.
    pub fn new(mut heads: Vec<u64>) -> Self {
        let slots = heads.len().next_power_of_two();
        let (first, span) = match (heads.first(), heads.last()) {
            (Some(first), Some(last)) => (*first, last - first),
            _ => (0, 0),
        };
        let span_bits = u64::BITS - span.leading_zeros();
        let shift = span_bits.saturating_sub(slots.trailing_zeros());
        let mut table = vec![0u32; slots + 1];
        for head in &heads {
            table[((head - first) >> shift) as usize + 1] += 1;
        }
        let mut sum = 0;
        for count in &mut table {
            sum += *count;
            *count = sum;
        }
        heads.extend([u64::MAX; COUNTED]);
        heads.shrink_to_fit();
        Self { heads, table, shift }
    }

    /// How many heads are at or below `x`.
    #[inline]
    pub fn at_or_below(&self, x: u64) -> usize {
        let Some(above) = x.checked_sub(self.heads[0]) else { return 0 };
        let slot = ((above >> self.shift) as usize).min(self.table.len() - 2);
        let (from, to) = (self.table[slot] as usize, self.table[slot + 1] as usize);
        let near = self.heads[from..].first_chunk::<COUNTED>().unwrap_or(&[u64::MAX; COUNTED]);
        let count = near.iter().map(|head| usize::from(*head <= x)).sum::<usize>();
        if count < COUNTED {
            // Only the greatest number is at or above what stands after the last head.
            return (from + count).min(self.len());
        }
        from + self.heads[from..to].partition_point(|head| *head <= x)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.heads.len() - COUNTED
    }

    pub fn get(&self, at: usize) -> u64 {
        self.heads[at]
    }

    pub fn as_slice(&self) -> &[u64] {
        &self.heads[..self.len()]
    }

    /// Memory beyond `size_of::<Heads>()`.
    pub fn memory_bytes(&self) -> usize {
        self.heads.capacity() * size_of::<u64>() + self.table.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    #[test]
    fn no_heads_and_one() {
        assert_eq!(Heads::new(Vec::new()).at_or_below(u64::MAX), 0);
        let one = Heads::new(vec![5]);
        assert_eq!([0, 4, 5, u64::MAX].map(|x| one.at_or_below(x)), [0, 0, 1, 1]);
    }

    #[test]
    fn crowded_heads_are_halved() {
        let mut heads: Vec<u64> = (1000..2000).collect();
        heads.push(u64::MAX);
        let table = Heads::new(heads);
        assert_eq!(
            [999, 1000, 1500, 5000, u64::MAX].map(|x| table.at_or_below(x)),
            [0, 1, 501, 1000, 1001]
        );
    }

    proptest! {
        #[test]
        fn counts_are_right(
            shift in 0u32..60,
            heads in btree_set(any::<u64>(), 1..200),
            probes in proptest::collection::vec(any::<u64>(), 50),
        ) {
            let mut heads: Vec<u64> = heads.iter().map(|head| head >> shift).collect();
            heads.dedup();
            let table = Heads::new(heads.clone());
            let near = heads.iter().flat_map(|x| [x.saturating_sub(1), *x, x.saturating_add(1)]);
            for x in near.chain(probes.iter().map(|x| x >> shift)).chain([0, u64::MAX]) {
                prop_assert_eq!(table.at_or_below(x), heads.partition_point(|head| *head <= x));
            }
        }
    }
}
