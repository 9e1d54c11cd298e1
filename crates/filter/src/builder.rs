//! Building filters: one builder per SST being written, whose memory is reused from partition to
//! partition.

use crate::layout::{FilterKind, FilterShape};
use crate::policy::FilterPolicy;
use crate::{blocked_bloom, bloom, paired_bloom, ribbon};

/// What takes the place of a ribbon that cannot be built: one unit of this many bits per column.
const BITS_PER_COLUMN_OF_SUBSTITUTE: f64 = 1.0;

/// Builds the filters of a policy.
#[derive(Debug)]
pub struct FilterBuilder {
    policy: FilterPolicy,
    ribbon: ribbon::Banding,
    paired: paired_bloom::Scratch,
}

impl FilterBuilder {
    /// A builder that holds no memory yet.
    pub fn new(policy: FilterPolicy) -> Self {
        Self {
            policy,
            ribbon: ribbon::Banding::default(),
            paired: paired_bloom::Scratch::default(),
        }
    }

    /// What is built.
    pub fn policy(&self) -> FilterPolicy {
        self.policy
    }

    /// Appends the filter of `hashes` to `out`, unit after unit, and says what it is. `hashes` are
    /// those of all keys of the partition, in any order, repeats allowed; not empty, unless the
    /// policy is [`FilterPolicy::None`], of which nothing is built: callers do not ask for it.
    /// A ribbon that cannot be solved with any seed becomes a blocked Bloom filter of about the
    /// same size.
    pub fn build(&mut self, hashes: &[u64], out: &mut Vec<u8>) -> FilterShape {
        match self.policy {
            FilterPolicy::None | FilterPolicy::BlockedBloom { .. } => {
                let (bits, units) = self.policy.bits_and_units();
                blocked_bloom::build(hashes, bits, units, out)
            }
            FilterPolicy::Bloom { bits_per_unit, units } => {
                bloom::build(hashes, bits_per_unit, units, out)
            }
            FilterPolicy::PairedBloom { bits_per_unit, units } => {
                paired_bloom::build(hashes, bits_per_unit, units, &mut self.paired, out)
            }
            FilterPolicy::Ribbon { columns } => {
                ribbon::build(hashes, columns, &mut self.ribbon, out).unwrap_or_else(|| {
                    let bits = f64::from(columns) * BITS_PER_COLUMN_OF_SUBSTITUTE;
                    blocked_bloom::build(hashes, bits, 1, out)
                })
            }
        }
    }

    /// The kind that [`FilterBuilder::build`] makes unless it must fall back.
    pub fn kind(&self) -> Option<FilterKind> {
        self.policy.kind()
    }
}
