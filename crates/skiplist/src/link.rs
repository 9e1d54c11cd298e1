//! What names nodes and versions, and the words of the arena that hold the names.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The tallest tower.
#[cfg(not(loom))]
pub(crate) const MAX_HEIGHT: usize = 20;
/// The tallest tower; low, so that the model checker gets through.
#[cfg(loom)]
pub(crate) const MAX_HEIGHT: usize = 2;

/// Bits of the place of a node.
pub(crate) const NODE_BITS: u32 = 30;
const NODE_MASK: u64 = (1 << NODE_BITS) - 1;
const EPOCH_MASK: u64 = 0b11 << NODE_BITS;

/// A node and the head of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link(u64);

impl Link {
    /// No node: the end of a level.
    pub(crate) const NULL: Self = Self(u64::MAX);
    /// The node before the first.
    pub(crate) const HEAD: Self = Self::untagged(MAX_HEIGHT as u32 - 1);

    #[inline]
    pub(crate) fn is_null(self) -> bool {
        self == Self::NULL
    }

    #[inline]
    pub(crate) fn node(self) -> usize {
        (self.0 & NODE_MASK) as usize
    }

    #[inline]
    pub(crate) fn tag(self) -> Tag {
        Tag(self.0 & !NODE_MASK)
    }

    /// `node`, as [`Self::node`] gives it, without a tag: for access only, not for comparisons.
    #[inline]
    pub(crate) const fn untagged(node: u32) -> Self {
        Self(node as u64)
    }

    /// The same node under another tag, which must be of its key.
    #[inline]
    pub(crate) fn with_tag(self, tag: Tag) -> Self {
        Self(tag.0 | (self.0 & NODE_MASK))
    }
}

/// What a link says about a key: its head, and the epoch of the scheme that made it. Tags of the
/// same epoch compare like their keys; equal ones say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tag(u64);

impl Tag {
    #[inline]
    pub(crate) fn new(head: u32, epoch: u32) -> Self {
        Self(u64::from(head) << 32 | (u64::from(epoch) << NODE_BITS & EPOCH_MASK))
    }

    /// Another head of the same epoch.
    #[inline]
    pub(crate) fn with_head(self, head: u32) -> Self {
        Self(u64::from(head) << 32 | self.epoch())
    }

    /// The epoch, for comparison with other epochs only.
    #[inline]
    pub(crate) fn epoch(self) -> u64 {
        self.0 & EPOCH_MASK
    }
}

/// A version of a key: its place, and whether a jump lies before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version(u32);

/// In a version beside its place, which takes [`NODE_BITS`].
const HAS_JUMP: u32 = 1 << 31;

impl Version {
    /// No version: the end of those of a key.
    pub(crate) const NONE: Self = Self(0);

    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The version at `place`, in front of which a jump may lie.
    #[inline]
    pub(crate) fn new(place: u32, has_jump: bool) -> Self {
        Self(place | if has_jump { HAS_JUMP } else { 0 })
    }

    /// The version in a jump.
    #[inline]
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// For [`Self::from_bits`].
    #[inline]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    #[inline]
    pub(crate) fn has_jump(self) -> bool {
        self.0 & HAS_JUMP != 0
    }

    /// Its place.
    #[inline]
    pub(crate) fn at(self) -> usize {
        (self.0 & !HAS_JUMP) as usize
    }
}

/// Where a version's search for an older one may go on, over those between, and how many versions its
/// key had when it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Jump {
    pub(crate) to: Version,
    pub(crate) depth: u32,
}

/// One link of one node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkWord<'a>(pub(crate) &'a AtomicU64);

impl LinkWord<'_> {
    /// The link. Acquire: pairs with the release in `replace`, so the node it names is written.
    #[inline]
    pub(crate) fn load(self) -> Link {
        Link(self.0.load(Ordering::Acquire))
    }

    /// Sets a link of a node that is not reachable at this level yet. Relaxed: the link that makes
    /// it reachable is released after it.
    #[inline]
    pub(crate) fn prepare(self, link: Link) {
        self.0.store(link.0, Ordering::Relaxed);
    }

    /// Replaces `old` by `new` if it still stands. Release: a thread that loads `new` sees the node it
    /// names with its links prepared.
    #[inline]
    pub(crate) fn replace(self, old: Link, new: Link) -> bool {
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        self.0.compare_exchange(old.0, new.0, success, failure).is_ok()
    }
}

/// What names a version, in the first half of a word of the arena.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VersionWord<'a>(pub(crate) &'a AtomicU32);

impl VersionWord<'_> {
    /// The version. Acquire: pairs with the release in `replace`, so it is written.
    #[inline]
    pub(crate) fn load(self) -> Version {
        Version(self.0.load(Ordering::Acquire))
    }

    /// Sets it where nobody else can reach it yet. Relaxed, as in [`LinkWord::prepare`].
    #[inline]
    pub(crate) fn prepare(self, version: Version) {
        self.0.store(version.0, Ordering::Relaxed);
    }

    /// Replaces `old` by `new` if it still stands. Release: a thread that loads `new` sees it written.
    #[inline]
    pub(crate) fn replace(self, old: Version, new: Version) -> bool {
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        self.0.compare_exchange(old.0, new.0, success, failure).is_ok()
    }
}
