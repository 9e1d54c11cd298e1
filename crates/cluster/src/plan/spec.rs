//! Plans by their names, as an operator or a configuration writes them.
//!
//! ```text
//! top-n-to-one:1000         the 1,000 most written keys to the first shard
//! top-n-to-one:1000:2       to shard 2
//! top-n-tiered:3000,1000    the 3,000 most written to the first shard, the next 1,000 to the second
//! absorb                    what memtables absorb decides
//! ```

use crate::id::ShardId;
use crate::plan::assignment::{MAX_PLAN_KEYS, PlanError};
use std::fmt;
use std::str::FromStr;

const TO_ONE: &str = "top-n-to-one";
const TIERED: &str = "top-n-tiered";
const ABSORB: &str = "absorb";
/// How many tiers a plan may have.
const MAX_TIERS: usize = 1024;

/// Which plan to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanSpec {
    /// The most written keys to one shard.
    TopNToOne {
        /// How many.
        keys: usize,
        /// `None`: to the first.
        shard: Option<ShardId>,
    },
    /// As many of the most written keys to each shard in turn, the first shard first.
    TopNTiered(Vec<usize>),
    /// See `plan/absorb.rs`.
    Absorb,
}

impl fmt::Display for PlanSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TopNToOne { keys, shard: None } => write!(f, "{TO_ONE}:{keys}"),
            Self::TopNToOne { keys, shard: Some(shard) } => write!(f, "{TO_ONE}:{keys}:{shard}"),
            Self::TopNTiered(tiers) => {
                let tiers: Vec<String> = tiers.iter().map(usize::to_string).collect();
                write!(f, "{TIERED}:{}", tiers.join(","))
            }
            Self::Absorb => f.write_str(ABSORB),
        }
    }
}

impl FromStr for PlanSpec {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let (name, arguments) = match text.split_once(':') {
            Some((name, arguments)) => (name, Some(arguments)),
            None => (text, None),
        };
        match (name, arguments) {
            (TO_ONE, Some(arguments)) => {
                let (keys, shard) = match arguments.split_once(':') {
                    Some((keys, shard)) => (keys, Some(shard)),
                    None => (arguments, None),
                };
                let shard = shard.map(|text| {
                    let wrong = || PlanError::Argument(TO_ONE, format!("no shard is {text:?}"));
                    text.parse().map(ShardId).map_err(|_| wrong())
                });
                Ok(Self::TopNToOne { keys: key_count(TO_ONE, keys)?, shard: shard.transpose()? })
            }
            (TIERED, Some(arguments)) => {
                if arguments.split(',').count() > MAX_TIERS {
                    let why = format!("at most {MAX_TIERS} tiers");
                    return Err(PlanError::Argument(TIERED, why));
                }
                let tiers: Vec<usize> = arguments
                    .split(',')
                    .map(|keys| key_count(TIERED, keys))
                    .collect::<Result<_, _>>()?;
                let keys = tiers.iter().fold(0, |sum: usize, tier| sum.saturating_add(*tier));
                match keys > MAX_PLAN_KEYS {
                    true => Err(PlanError::TooManyKeys(keys)),
                    false => Ok(Self::TopNTiered(tiers)),
                }
            }
            (TO_ONE, None) => {
                Err(PlanError::Argument(TO_ONE, "say how many: top-n-to-one:1000".into()))
            }
            (TIERED, None) => {
                Err(PlanError::Argument(TIERED, "say how many: top-n-tiered:3000,1000".into()))
            }
            (ABSORB, None) => Ok(Self::Absorb),
            (ABSORB, Some(_)) => Err(PlanError::Argument(ABSORB, "it has no arguments".into())),
            _ => Err(PlanError::UnknownPlan(name.chars().take(40).collect())),
        }
    }
}

fn key_count(plan: &'static str, text: &str) -> Result<usize, PlanError> {
    let wrong = || {
        let shown: String = text.chars().take(40).collect();
        PlanError::Argument(plan, format!("{shown:?} is no number of keys"))
    };
    match text.parse().map_err(|_| wrong())? {
        0 => Err(wrong()),
        keys if keys > MAX_PLAN_KEYS => Err(PlanError::TooManyKeys(keys)),
        keys => Ok(keys),
    }
}
