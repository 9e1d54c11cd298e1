//! Ownership step by step. What it promises together with leases that end is shown by the models in
//! `tests/it`.

use super::*;
use crate::id::{Epoch, NodeId, Revision};
use crate::topology::Owner;
use std::time::Duration;

const ME: NodeId = NodeId([1; 20]);
const OTHER: NodeId = NodeId([2; 20]);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// An ownership with its time and its lease, which is sure for an hour.
struct Walk {
    ownership: Ownership,
    lease: LeaseClock,
    now: Duration,
    ticket: Ticket,
}

impl Walk {
    fn new() -> Self {
        let mut lease = LeaseClock::new(ms(100));
        let stamp = lease.sent(ms(0));
        lease.granted(stamp, 7, Duration::from_secs(3600));
        let ownership = Ownership::new(ME, OwnershipTimes::default());
        Self { ownership, lease, now: ms(1), ticket: Ticket::default() }
    }

    fn on(&mut self, event: OwnerEvent) -> String {
        let effects = self.ownership.on(self.now, &self.lease, event);
        let shown = effects.iter().map(|effect| match effect {
            OwnerEffect::Ask(ticket, request) => {
                self.ticket = *ticket;
                match request {
                    OwnerRequest::Claim { seen, replace, lease } => {
                        let seen = seen.map_or(0, |epoch| epoch.0);
                        format!(
                            "claim after {seen} with {lease}{}",
                            if *replace { ", replace" } else { "" }
                        )
                    }
                    OwnerRequest::Fence(epoch) => format!("fence {epoch}"),
                    OwnerRequest::Load(epoch) => format!("load {epoch}"),
                    OwnerRequest::GiveUp(epoch) => format!("give up {epoch}"),
                    other => format!("{other:?}").to_lowercase(),
                }
            }
            OwnerEffect::Serve(epoch) => format!("serve {epoch}"),
            OwnerEffect::StopServing => "stop".to_string(),
        });
        shown.collect::<Vec<_>>().join(" | ")
    }

    fn answer(&mut self, answer: OwnerAnswer) -> String {
        self.on(OwnerEvent::Answered(self.ticket, answer))
    }

    fn seen(&mut self, revision: u64, owner: Option<(NodeId, u64, bool)>) -> String {
        let owner =
            owner.map(|(node, epoch, is_claimed)| Owner { node, epoch: Epoch(epoch), is_claimed });
        self.on(OwnerEvent::Seen(Revision(revision), owner))
    }

    fn rank(&mut self, rank: Option<u32>) -> String {
        self.on(OwnerEvent::Rank(rank))
    }

    fn after(&mut self, wait: u64) -> String {
        self.now += ms(wait);
        self.on(OwnerEvent::Tick)
    }

    fn may_reply(&self, epoch: u64) -> bool {
        self.ownership.may_reply(&self.lease, self.now, Epoch(epoch))
    }

    /// Up to serving in this term.
    fn serve(&mut self, epoch: u64) {
        assert_eq!(self.answer(OwnerAnswer::Probed(true)).split(' ').next(), Some("claim"));
        let won = OwnerAnswer::Claimed(ClaimAnswer::Won(Epoch(epoch)));
        assert_eq!(self.answer(won), format!("fence {epoch}"));
        let fenced = OwnerAnswer::Fenced(FenceAnswer::Done);
        assert_eq!(self.answer(fenced), format!("load {epoch}"));
        assert!(!self.may_reply(epoch));
        assert_eq!(self.answer(OwnerAnswer::Loaded(true)), format!("serve {epoch}"));
        assert!(self.may_reply(epoch));
        assert!(!self.may_reply(epoch - 1));
    }

    fn serving(epoch: u64) -> Self {
        let mut walk = Self::new();
        walk.rank(Some(0));
        assert_eq!(walk.seen(5, None), "probe");
        walk.serve(epoch);
        walk
    }
}

#[test]
fn the_preferred_node_claims_a_vacant_shard_at_once_and_others_in_their_turn() {
    let mut walk = Walk::new();
    assert_eq!(walk.seen(5, Some((OTHER, 3, false))), "");
    assert_eq!(walk.rank(Some(2)), "");
    assert_eq!(walk.after(999), "");
    assert_eq!(walk.after(1), "probe");
    assert_eq!(walk.answer(OwnerAnswer::Probed(false)), "");
    assert_eq!(walk.after(100), "");
    assert_eq!(walk.after(100), "probe");
    assert_eq!(walk.answer(OwnerAnswer::Probed(true)), "claim after 3 with 7");
    let mut walk = Walk::new();
    walk.rank(Some(0));
    assert_eq!(walk.seen(5, Some((OTHER, 3, false))), "probe");
    // Somebody else was faster.
    assert_eq!(walk.seen(6, Some((OTHER, 6, true))), "");
    assert_eq!(walk.answer(OwnerAnswer::Probed(true)), "");
    assert_eq!(walk.after(5_000), "");
}

#[test]
fn a_lost_race_waits_for_what_made_it_lost() {
    let mut walk = Walk::new();
    walk.rank(Some(0));
    assert_eq!(walk.seen(5, None), "probe");
    assert_eq!(walk.answer(OwnerAnswer::Probed(true)), "claim after 0 with 7");
    assert_eq!(walk.answer(OwnerAnswer::Claimed(ClaimAnswer::Lost)), "");
    assert_eq!(walk.after(60_000), "");
    assert_eq!(walk.seen(6, Some((OTHER, 6, true))), "");
    assert_eq!(walk.seen(7, Some((OTHER, 6, false))), "probe");
}

#[test]
fn a_claim_without_an_answer_is_replaced_by_one_with_a_later_epoch() {
    let mut walk = Walk::new();
    walk.rank(Some(0));
    assert_eq!(walk.seen(5, None), "probe");
    walk.answer(OwnerAnswer::Probed(true));
    let late = walk.ticket;
    assert_eq!(walk.answer(OwnerAnswer::Claimed(ClaimAnswer::Unknown)), "");
    assert_eq!(walk.seen(8, Some((ME, 8, true))), "");
    assert_eq!(walk.after(200), "probe");
    // The answer comes after all, and is not taken for that to the second claim.
    assert_eq!(walk.answer(OwnerAnswer::Probed(true)), "claim after 8 with 7, replace");
    let won = OwnerAnswer::Claimed(ClaimAnswer::Won(Epoch(8)));
    assert_eq!(walk.on(OwnerEvent::Answered(late, won)), "");
    assert_eq!(walk.ownership.held_epoch(), None);
    let won = OwnerAnswer::Claimed(ClaimAnswer::Won(Epoch(9)));
    assert_eq!(walk.answer(won), "fence 9");
}

#[test]
fn a_lost_lease_a_later_owner_and_a_claim_that_is_gone_end_it_in_every_state() {
    let ends: [fn(&mut Walk) -> String; 4] = [
        |walk| {
            walk.lease.lose();
            walk.on(OwnerEvent::LeaseLost)
        },
        |walk| walk.seen(20, Some((OTHER, 20, true))),
        |walk| walk.on(OwnerEvent::Deposed(Epoch(10), None)),
        |walk| {
            walk.rank(None);
            walk.seen(20, Some((ME, 10, false)))
        },
    ];
    for end in ends {
        let mut walk = Walk::serving(10);
        let effects = end(&mut walk);
        assert!(effects.starts_with("stop") || effects.starts_with("drain"), "{effects}");
        assert_eq!(walk.ownership.serving(), None);
        assert!(!walk.may_reply(10));
        // While it fences and while it loads.
        for steps in 0..2 {
            let mut walk = Walk::new();
            walk.rank(Some(0));
            walk.seen(5, None);
            walk.answer(OwnerAnswer::Probed(true));
            walk.answer(OwnerAnswer::Claimed(ClaimAnswer::Won(Epoch(10))));
            if steps == 1 {
                walk.answer(OwnerAnswer::Fenced(FenceAnswer::Done));
            }
            let ticket = walk.ticket;
            end(&mut walk);
            assert_eq!(walk.ownership.held_epoch(), None, "{steps}");
            for answer in [OwnerAnswer::Fenced(FenceAnswer::Done), OwnerAnswer::Loaded(true)] {
                assert_eq!(walk.on(OwnerEvent::Answered(ticket, answer)), "");
            }
        }
    }
}

#[test]
fn what_was_seen_before_the_claim_ends_nothing() {
    let mut walk = Walk::serving(10);
    assert_eq!(walk.seen(9, Some((OTHER, 4, false))), "");
    assert_eq!(walk.seen(10, Some((ME, 10, true))), "");
    assert_eq!(walk.seen(30, Some((ME, 10, true))), "");
    assert_eq!(walk.on(OwnerEvent::Deposed(Epoch(9), None)), "");
    assert_eq!(walk.ownership.serving(), Some(Epoch(10)));
}

#[test]
fn replies_end_with_what_is_sure_of_the_lease_and_go_on_with_it() {
    let mut walk = Walk::serving(10);
    walk.now = Duration::from_secs(3600) - ms(100);
    assert!(!walk.may_reply(10));
    // The lease lived all along, and so did the claim.
    let stamp = walk.lease.sent(walk.now);
    walk.lease.confirmed(stamp, 7, Duration::from_secs(3));
    assert!(walk.may_reply(10));
    // A new lease makes nothing sure that hangs on the old one.
    walk.lease.lose();
    let stamp = walk.lease.sent(walk.now);
    walk.lease.granted(stamp, 8, Duration::from_secs(3));
    assert!(!walk.may_reply(10));
}

#[test]
fn a_shard_is_handed_over_to_the_preferred_node_after_it_is_drained() {
    let mut walk = Walk::serving(10);
    assert_eq!(walk.rank(Some(1)), "");
    assert_eq!(walk.after(999), "");
    assert_eq!(walk.rank(Some(0)), "");
    assert_eq!(walk.after(9_000), "");
    assert_eq!(walk.rank(Some(1)), "");
    assert_eq!(walk.after(1_000), "drain");
    // What runs may still be answered.
    assert!(walk.may_reply(10));
    assert_eq!(walk.answer(OwnerAnswer::Drained), "stop | give up 10");
    assert!(!walk.may_reply(10));
    assert_eq!(walk.answer(OwnerAnswer::GivenUp(false)), "");
    assert_eq!(walk.after(200), "give up 10");
    assert_eq!(walk.answer(OwnerAnswer::GivenUp(true)), "");
    // The view is from before that.
    assert_eq!(walk.after(60_000), "");
    assert_eq!(walk.seen(11, Some((ME, 10, false))), "");
    assert_eq!(walk.after(500), "probe");
}

#[test]
fn a_hand_over_does_not_wait_for_ever() {
    let mut walk = Walk::serving(10);
    assert_eq!(walk.rank(None), "drain");
    assert_eq!(walk.after(1_999), "");
    assert_eq!(walk.after(1), "stop | give up 10");
    // A drained node claims nothing, and gives up what it finds in its name.
    assert_eq!(walk.seen(11, Some((ME, 10, false))), "");
    assert_eq!(walk.after(60_000), "");
    assert_eq!(walk.seen(12, Some((ME, 12, true))), "give up 12");
}

#[test]
fn who_cannot_reach_the_instance_lets_others_try() {
    let mut walk = Walk::new();
    walk.rank(Some(1));
    walk.seen(5, None);
    assert_eq!(walk.after(500), "probe");
    walk.answer(OwnerAnswer::Probed(true));
    walk.answer(OwnerAnswer::Claimed(ClaimAnswer::Won(Epoch(10))));
    for _ in 0..9 {
        assert_eq!(walk.answer(OwnerAnswer::Fenced(FenceAnswer::Unknown)), "");
        assert_eq!(walk.after(200), "fence 10");
    }
    assert_eq!(walk.after(200), "give up 10");
}

/// The metadata were lost: the later owner that the instance knows is of those of before.
#[test]
fn a_later_epoch_whose_owner_is_not_seen_is_passed() {
    // The revisions up to it may be seen before the answer comes, and after it.
    for is_seen_before in [true, false] {
        let mut walk = Walk::new();
        walk.rank(Some(0));
        assert_eq!(walk.seen(5, None), "probe");
        walk.answer(OwnerAnswer::Probed(true));
        let won = OwnerAnswer::Claimed(ClaimAnswer::Won(Epoch(6)));
        assert_eq!(walk.answer(won), "fence 6");
        assert_eq!(walk.seen(19, Some((ME, 6, true))), "");
        if is_seen_before {
            assert_eq!(walk.seen(20, Some((ME, 6, true))), "");
        }
        let later = walk.answer(OwnerAnswer::Fenced(FenceAnswer::Deposed(Epoch(20))));
        if is_seen_before {
            assert_eq!(later, "probe");
        } else {
            assert_eq!((later.as_str(), walk.after(60_000).as_str()), ("", ""));
            assert_eq!(walk.seen(20, Some((ME, 6, true))), "probe");
        }
        assert_eq!(walk.answer(OwnerAnswer::Probed(true)), "claim after 6 with 7, replace");
    }
}

/// As after a call, in a term, to an instance that knows a later epoch.
#[test]
fn who_is_deposed_waits_for_no_later_revision_than_that_of_the_later_owner() {
    let mut walk = Walk::serving(10);
    assert_eq!(walk.seen(20, Some((ME, 10, true))), "");
    assert_eq!(walk.on(OwnerEvent::Deposed(Epoch(10), Some(Epoch(20)))), "stop | probe");
    assert_eq!(walk.answer(OwnerAnswer::Probed(true)), "claim after 10 with 7, replace");
}

#[test]
fn a_claim_of_an_instance_that_serves_nobody_is_given_up() {
    let mut walk = Walk::new();
    walk.rank(Some(0));
    assert_eq!(walk.seen(5, None), "probe");
    walk.answer(OwnerAnswer::Probed(true));
    walk.answer(OwnerAnswer::Claimed(ClaimAnswer::Won(Epoch(10))));
    assert_eq!(walk.answer(OwnerAnswer::Fenced(FenceAnswer::Refused)), "give up 10");
    assert_eq!(walk.answer(OwnerAnswer::GivenUp(true)), "");
    assert_eq!(walk.seen(11, Some((ME, 10, false))), "probe");
    // Nor is one made.
    assert_eq!(walk.answer(OwnerAnswer::Probed(false)), "");
    assert_eq!(walk.after(200), "probe");
    assert_eq!(walk.answer(OwnerAnswer::Probed(false)), "");
    // One of an earlier life.
    assert_eq!(walk.seen(12, Some((ME, 12, true))), "");
    assert_eq!(walk.after(200), "probe");
    assert_eq!(walk.answer(OwnerAnswer::Probed(false)), "give up 12");
}
