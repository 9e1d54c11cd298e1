//! A plan as data: for each shard, those of its keys that shall be at another instance, and at which.

use crate::id::ShardId;
use crate::key::DbKey;
use crate::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// At most this many keys may be away from home by one plan.
pub const MAX_PLAN_KEYS: usize = 100_000;
/// Keys that are longer are not moved.
pub const MAX_MOVED_KEY_BYTES: usize = 16 * 1024;

/// A key, and the shard at whose instance it shall be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Assignment {
    /// The key.
    pub key: DbKey,
    /// Never the shard that the key belongs to: such a key needs no assignment.
    pub at: ShardId,
}

/// The exception lists that shards shall have: exactly the assigned keys. A plan that is sent twice
/// moves nothing the second time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// By the shard that the keys belong to, each list in order of keys. A shard that is not
    /// mentioned keeps its list; one with an empty list brings all of its keys home.
    pub parts: BTreeMap<ShardId, Vec<Assignment>>,
}

/// Why there is no plan, or why one is refused. Nothing of it was executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// No plan has this name.
    UnknownPlan(String),
    /// What stands behind the name of a plan: the plan, and what is wrong.
    Argument(&'static str, String),
    /// More than [`MAX_PLAN_KEYS`].
    TooManyKeys(usize),
    /// More than [`MAX_MOVED_KEY_BYTES`]: the key's beginning, and its length.
    KeyTooLong(DbKey, usize),
    /// The cluster has no such shard.
    UnknownShard(ShardId),
    /// The key is in the part of a shard that it does not belong to: key, part, its shard.
    ForeignKey(DbKey, ShardId, ShardId),
    /// The key shall be at the shard that it belongs to, which needs no assignment.
    AtHome(DbKey, ShardId),
    /// The key is assigned twice.
    Twice(DbKey),
    /// There are two lists of this shard.
    ListTwice(ShardId),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPlan(name) => write!(
                f,
                "unknown plan \"{}\"; plans are top-n-to-one, top-n-tiered and absorb",
                name.escape_debug()
            ),
            Self::Argument(plan, why) => write!(f, "{plan}: {why}"),
            Self::TooManyKeys(keys) => {
                write!(f, "the plan has {keys} keys, at most {MAX_PLAN_KEYS} can be moved")
            }
            Self::KeyTooLong(key, bytes) => write!(
                f,
                "the key {key}... has {bytes} bytes, at most {MAX_MOVED_KEY_BYTES} can be moved"
            ),
            Self::UnknownShard(shard) => write!(f, "the cluster has no shard {shard}"),
            Self::ForeignKey(key, part, home) => {
                write!(f, "the key {key} is in the part of shard {part} and belongs to {home}")
            }
            Self::AtHome(key, home) => write!(f, "the key {key} belongs to shard {home} anyway"),
            Self::Twice(key) => write!(f, "the key {key} is assigned twice"),
            Self::ListTwice(shard) => write!(f, "there are two lists of shard {shard}"),
        }
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    /// How many keys are away from home by this plan.
    pub fn key_count(&self) -> usize {
        self.parts.values().map(Vec::len).sum()
    }

    /// Assigns a key, unless it belongs there.
    pub(super) fn assign(&mut self, topology: &Topology, key: &DbKey, at: ShardId) {
        let home = topology.shard_of(&key.key);
        if home != at {
            self.parts.entry(home).or_default().push(Assignment { key: key.clone(), at });
        }
    }

    /// Whether the plan may be executed in a cluster of this topology: asked by the coordinator that receives its part.
    /// Cost: O(keys log keys); O(1) if there are too many.
    ///
    /// # Errors
    /// Too many keys, keys that are too long, foreign or assigned twice, shards that do not exist.
    pub fn check(&self, topology: &Topology) -> Result<(), PlanError> {
        let key_count = self.key_count();
        if key_count > MAX_PLAN_KEYS {
            return Err(PlanError::TooManyKeys(key_count));
        }
        for (&part, assignments) in &self.parts {
            if !topology.shards.contains_key(&part) {
                return Err(PlanError::UnknownShard(part));
            }
            let mut seen = BTreeSet::new();
            for Assignment { key, at } in assignments {
                check_length(key)?;
                let home = topology.shard_of(&key.key);
                if home != part {
                    return Err(PlanError::ForeignKey(key.clone(), part, home));
                }
                if !topology.shards.contains_key(at) {
                    return Err(PlanError::UnknownShard(*at));
                }
                if *at == home {
                    return Err(PlanError::AtHome(key.clone(), home));
                }
                if !seen.insert(key) {
                    return Err(PlanError::Twice(key.clone()));
                }
            }
        }
        Ok(())
    }
}

fn check_length(key: &DbKey) -> Result<(), PlanError> {
    const SHOWN: usize = 16;
    match key.key.len() {
        0..=MAX_MOVED_KEY_BYTES => Ok(()),
        bytes => Err(PlanError::KeyTooLong(DbKey::new(key.db, &key.key[..SHOWN]), bytes)),
    }
}
