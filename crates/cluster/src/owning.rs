//! Who owns a shard (decision 0020): `LeaseClock` says until when a node may be sure of its lease,
//! `Ownership` runs once per shard in every coordinator, `Fence` once per shard at every instance.

mod fence;
mod lease;
mod ownership;
mod rank;
#[cfg(test)]
mod tests;

pub use fence::{Admission, Fence};
pub use lease::{LeaseClock, SendStamp};
pub use ownership::{
    ClaimAnswer, FenceAnswer, OwnerAnswer, OwnerEffect, OwnerEvent, OwnerRequest, Ownership,
    OwnershipTimes, Ticket,
};
pub use rank::claim_rank;
