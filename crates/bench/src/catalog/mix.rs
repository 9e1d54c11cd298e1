//! YCSB's mixes, which [`crate::workload`]'s `ycsb.rs` defines.

use serde::{Deserialize, Serialize};

/// One of YCSB's six mixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the table of that file defines them")]
pub enum Mix {
    A,
    B,
    C,
    D,
    E,
    F,
}

impl Mix {
    /// The workload's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "ycsb-a",
            Self::B => "ycsb-b",
            Self::C => "ycsb-c",
            Self::D => "ycsb-d",
            Self::E => "ycsb-e",
            Self::F => "ycsb-f",
        }
    }
}
