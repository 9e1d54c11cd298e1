//! The versions of one key, newest first: a list beside the levels, so that writing a key again is no
//! search among other keys, and costs no second copy of the key.
//!
//! A version that comes on top remembers, beside the next older one, one further down to jump to: the
//! skew-binary jumps of Myers (An applicative random-access stack, Information Processing Letters
//! 17(5), 1983), by which any of n versions is found in some 2 log n steps. So a snapshot of a counter
//! that has been counted a million times since costs no million steps. The first few versions do
//! without: working out a jump reads two more versions.
//!
//! Versions may come in any order; one that comes between others jumps nowhere. Called by `list`,
//! `group` and `iter`.

use crate::Full;
use crate::link::{Jump, Link, Version};
use crate::list::Skiplist;

/// Versions of a key up to which none jumps.
const FEW: u32 = 8;

/// Two neighbours: a trailer lies below that of `above`, and at or above that of `at`.
pub(crate) struct VersionGap {
    pub(crate) above: Version,
    pub(crate) at: Version,
}

impl Skiplist {
    /// The gap of `trailer` among the versions of `node`: the newest visible at `trailer` is its `at`.
    #[inline]
    pub(crate) fn version_gap(&self, node: Link, trailer: u64) -> VersionGap {
        let arena = &self.arena;
        let (mut above, mut at) = (Version::NONE, arena.newest(node));
        while !at.is_none() && arena.trailer(at) > trailer {
            above = at;
            let jump = arena.jump(at).to;
            let is_above = !jump.is_none() && arena.trailer(jump) > trailer;
            at = if is_above { jump } else { arena.older(at) };
        }
        VersionGap { above, at }
    }

    /// The oldest version of `node`.
    pub(crate) fn oldest(&self, node: Link) -> Version {
        let mut oldest = self.arena.newest(node);
        loop {
            let jump = self.arena.jump(oldest).to;
            let next = if jump.is_none() { self.arena.older(oldest) } else { jump };
            if next.is_none() {
                return oldest;
            }
            oldest = next;
        }
    }

    /// Adds a version to `node`; one with a trailer that is there is ignored.
    pub(crate) fn add_version(&self, node: Link, trailer: u64, value: &[u8]) -> Result<(), Full> {
        let mut written = None;
        loop {
            let VersionGap { above, at } = self.version_gap(node, trailer);
            if !at.is_none() && self.arena.trailer(at) == trailer {
                if written.is_some() {
                    self.arena.abandon();
                }
                return Ok(());
            }
            let version = match written {
                Some(version) => version,
                None => {
                    let version = self.arena.allocate_version(value.len()).ok_or(Full)?;
                    self.arena.write_version(version, trailer, value);
                    *written.insert(version)
                }
            };
            let is_in = if above.is_none() {
                self.arena.prepare_version(version, at, self.jump_over(at));
                self.arena.newest_word(node).replace(at, version)
            } else {
                self.arena.prepare_version(version, at, Jump { to: Version::NONE, depth: 0 });
                self.arena.older_word(above).replace(at, version)
            };
            if is_in {
                return Ok(());
            }
        }
    }

    /// The jump of a version that comes on top of `newest`.
    fn jump_over(&self, newest: Version) -> Jump {
        let over = self.arena.jump(newest);
        let depth = over.depth.saturating_add(1);
        if over.depth < FEW || over.to.is_none() {
            return Jump { to: newest, depth };
        }
        let next = self.arena.jump(over.to);
        let is_pair = !next.to.is_none()
            && over.depth.wrapping_sub(next.depth)
                == next.depth.wrapping_sub(self.arena.jump(next.to).depth);
        Jump { to: if is_pair { next.to } else { newest }, depth }
    }
}
