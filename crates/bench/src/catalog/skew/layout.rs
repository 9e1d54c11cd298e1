//! Where `cluster-skew` has keys.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use terrace_cluster::PlanSpec;

/// Where keys are, and what becomes of the most written ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// By hash.
    Hash,
    /// By range.
    Range,
    /// By hash; the 1,000 most written go to one instance.
    Top1000,
    /// By hash; the 5,000 most written go to one instance.
    Top5000,
    /// By hash; the 3,000 most written go to the first, the next 1,000 to the second, the next 1,000 to
    /// the third.
    Tiered,
    /// By hash; a key goes where a hot table absorbs it, if that of its own instance has no room.
    Absorb,
}

impl Layout {
    /// All.
    pub const ALL: [Self; 6] =
        [Self::Hash, Self::Range, Self::Top1000, Self::Top5000, Self::Tiered, Self::Absorb];

    /// In names of rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Range => "range",
            Self::Top1000 => "top-1000",
            Self::Top5000 => "top-5000",
            Self::Tiered => "tiered",
            Self::Absorb => "absorb",
        }
    }

    /// The plan, if there is one. With fewer keys than in the published setting it moves as many fewer.
    pub fn plan(self, scale: f64) -> Option<PlanSpec> {
        let keys = |count: f64| ((count * scale).round() as usize).max(1);
        match self {
            Self::Hash | Self::Range => None,
            Self::Top1000 => Some(PlanSpec::TopNToOne { keys: keys(1000.0), shard: None }),
            Self::Top5000 => Some(PlanSpec::TopNToOne { keys: keys(5000.0), shard: None }),
            Self::Tiered => Some(PlanSpec::TopNTiered([3000.0, 1000.0, 1000.0].map(keys).into())),
            Self::Absorb => Some(PlanSpec::Absorb),
        }
    }
}

/// Which layouts are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layouts([bool; Layout::ALL.len()]);

impl Default for Layouts {
    fn default() -> Self {
        Self([true; Layout::ALL.len()])
    }
}

impl Layouts {
    /// Those of a list of names.
    pub fn parse(list: &str) -> Result<Self> {
        let mut wanted = [false; Layout::ALL.len()];
        for name in list.split(',') {
            match Layout::ALL.into_iter().position(|layout| layout.name() == name) {
                Some(at) => wanted[at] = true,
                None => {
                    let known = Layout::ALL.map(Layout::name).join(", ");
                    bail!("--set layouts: there is no `{name}`; known are {known}")
                }
            }
        }
        Ok(Self(wanted))
    }

    /// In their order.
    pub fn iter(self) -> impl Iterator<Item = Layout> {
        let all = Layout::ALL.into_iter().zip(self.0);
        all.filter(|(_, wanted)| *wanted).map(|(layout, _)| layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_chosen_by_name() {
        let some = Layouts::parse("tiered,hash").unwrap();
        assert_eq!(some.iter().collect::<Vec<_>>(), [Layout::Hash, Layout::Tiered]);
        assert_eq!(Layouts::default().iter().count(), Layout::ALL.len());
        assert!(Layouts::parse("best").unwrap_err().to_string().contains("top-1000"));
    }

    #[test]
    fn plans_shrink_with_the_keys() {
        let plan = |layout: Layout, scale| layout.plan(scale).map(|plan| plan.to_string());
        assert_eq!(plan(Layout::Tiered, 0.25).unwrap(), "top-n-tiered:750,250,250");
        assert_eq!(plan(Layout::Top5000, 1.0).unwrap(), "top-n-to-one:5000");
        assert_eq!(plan(Layout::Top1000, 1e-9).unwrap(), "top-n-to-one:1");
        assert_eq!(plan(Layout::Range, 1.0), None);
    }
}
