//! What the two allocators, `price` and `multi_queue`, are asked and what they answer.
//!
//! An allocator sees the filter partitions of a store in slices, again and again, and says which
//! units to drop and which to load. It loads nothing itself and keeps no registry of memory: pure.

use super::curve::Curve;
use std::sync::Arc;
use terrace_base::FileNumber;

/// A filter partition: file number and index in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PartitionId {
    pub file: FileNumber,
    pub at: u32,
}

/// A filter partition whose units may be loaded and dropped now.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub id: PartitionId,
    pub curve: Arc<Curve>,
    /// Wasted lookups per lookup of the store.
    pub heat: f64,
    /// Lookups that reached it since it was offered last, those that found their key included.
    pub accesses: u32,
    /// Units resident now.
    pub units: u8,
}

/// What is there to be shared out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Most bytes of resident units.
    pub budget_bytes: usize,
    /// Bytes resident or about to be.
    pub used_bytes: usize,
    /// Most bytes to load in one step.
    pub load_bytes: usize,
    /// Wasted lookups saved per lookup and byte below which memory is of more use elsewhere; only
    /// [`Allocator::wanted_bytes`] heeds it.
    pub least_gain: f64,
    /// Lookups of the store so far.
    pub lookups: u64,
    /// Partitions of the store.
    pub partitions: usize,
    /// Whether the slice begins a new pass over all partitions, and whether it ends one.
    pub begins_pass: bool,
    pub ends_pass: bool,
}

impl Room {
    pub fn free_bytes(&self) -> usize {
        self.budget_bytes.saturating_sub(self.used_bytes)
    }
}

/// What is to be done: first the drops, then the loads, each with the units resident afterwards.
/// No partition is named twice. The bytes freed and taken keep within the budget.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Moves {
    pub drops: Vec<(PartitionId, u8)>,
    pub loads: Vec<(PartitionId, u8)>,
}

/// Decides who deserves memory.
pub(crate) trait Allocator: Send {
    /// Looks at the next slice of all partitions.
    fn decide(&mut self, offers: &[Offer], room: &Room) -> Moves;

    /// The partition `id` is gone, or none of its units are resident any more whatever was
    /// decided.
    fn forget(&mut self, id: PartitionId);

    /// Wasted lookups saved per lookup and byte by the least useful resident unit; 0 if there is
    /// no such price.
    fn lambda(&self) -> f64;

    /// Bytes of the units that are worth more than [`Room::least_gain`], as of the last pass.
    fn wanted_bytes(&self) -> usize;
}
