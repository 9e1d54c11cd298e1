//! Until when a node may be sure of its lease.
//!
//! The metadata store ends a lease no earlier than `ttl` after it *received* the latest keep-alive,
//! which is no earlier than when that was *sent*. So a keep-alive that was sent at `s` and confirmed with
//! `ttl` makes sure of `s + ttl`, less a margin for what clocks differ in rate. The time of the answer
//! says nothing: it may have been under way, or the process stopped, for long.
//!
//! The clock is one that counts while the machine sleeps (the boot clock), in time since any one
//! moment. A lease may live longer than `ttl` (a new leader of etcd restarts all leases): then others wait
//! longer, and nothing is wrong.

use std::time::Duration;

/// See the module. A node has one lease; its claims, its membership and its leaderships hang on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseClock {
    margin: Duration,
    lease: Option<u64>,
    sure_until: Duration,
    sent: Option<Duration>,
    ttl: Duration,
}

/// When a keep-alive, or the request for a lease, was sent: to be taken *before* it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendStamp(Duration);

impl LeaseClock {
    /// Without a lease. `margin` is taken off every `ttl`.
    pub fn new(margin: Duration) -> Self {
        let none = Duration::ZERO;
        Self { margin, lease: None, sure_until: none, sent: None, ttl: none }
    }

    /// Call before a request or a keep-alive is sent.
    pub fn sent(&mut self, now: Duration) -> SendStamp {
        self.sent = Some(now);
        SendStamp(now)
    }

    /// A new lease was granted.
    pub fn granted(&mut self, stamp: SendStamp, lease: u64, ttl: Duration) {
        (self.lease, self.ttl) = (Some(lease), ttl);
        self.sure_until = (stamp.0 + ttl).saturating_sub(self.margin);
    }

    /// A keep-alive of `lease` was confirmed. Returns whether the lease lives: with a `ttl` of zero the
    /// store says that it is lost. Confirmations of a former lease are ignored.
    pub fn confirmed(&mut self, stamp: SendStamp, lease: u64, ttl: Duration) -> bool {
        if self.lease != Some(lease) {
            return self.lease.is_some();
        }
        if ttl.is_zero() {
            self.lose();
            return false;
        }
        self.ttl = ttl;
        self.sure_until = self.sure_until.max((stamp.0 + ttl).saturating_sub(self.margin));
        true
    }

    /// The lease is lost: everything that hangs on it is gone, or goes soon.
    pub fn lose(&mut self) {
        (self.lease, self.sent) = (None, None);
    }

    /// The lease, if there is one.
    pub fn lease(&self) -> Option<u64> {
        self.lease
    }

    /// Whether the lease certainly lives at `now`. A reply may leave only if this holds *after* what it
    /// says was read.
    pub fn is_sure(&self, now: Duration) -> bool {
        self.lease.is_some() && now < self.sure_until
    }

    /// How long that stays so; zero if it is not.
    pub fn sure_for(&self, now: Duration) -> Duration {
        match self.is_sure(now) {
            true => self.sure_until - now,
            false => Duration::ZERO,
        }
    }

    /// How long until the next keep-alive: three within a `ttl`.
    pub fn keep_alive_in(&self, now: Duration) -> Option<Duration> {
        self.lease?;
        let next = self.sent.map_or(now, |sent| sent + self.ttl / 3);
        Some(next.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_stamp_is_when_it_was_sent() {
        let mut clock = LeaseClock::new(ms(100));
        assert!(!clock.is_sure(ms(0)));
        let stamp = clock.sent(ms(1_000));
        // The answer comes after two seconds: one less to be sure of.
        clock.granted(stamp, 7, ms(3_000));
        assert!(clock.is_sure(ms(3_899)));
        assert!(!clock.is_sure(ms(3_900)));
        let stamp = clock.sent(ms(3_000));
        assert!(clock.confirmed(stamp, 7, ms(3_000)));
        assert_eq!(clock.sure_for(ms(5_000)), ms(900));
        // An earlier one that is answered later takes nothing back.
        assert!(clock.confirmed(SendStamp(ms(2_000)), 7, ms(3_000)));
        assert_eq!(clock.sure_for(ms(5_000)), ms(900));
    }

    #[test]
    fn a_ttl_of_zero_is_a_lost_lease() {
        let mut clock = LeaseClock::new(ms(100));
        let stamp = clock.sent(ms(0));
        clock.granted(stamp, 7, ms(3_000));
        let (first, second) = (clock.sent(ms(500)), clock.sent(ms(600)));
        assert!(!clock.confirmed(first, 7, ms(0)));
        assert!(!clock.is_sure(ms(700)));
        // A confirmation that was under way does not bring it back, nor does it count for a new one.
        assert!(!clock.confirmed(second, 7, ms(3_000)));
        assert!(!clock.is_sure(ms(700)));
        let stamp = clock.sent(ms(1_000));
        clock.granted(stamp, 8, ms(1_000));
        clock.confirmed(second, 7, ms(9_000));
        clock.confirmed(first, 7, ms(0));
        assert_eq!(clock.sure_for(ms(1_500)), ms(400));
    }

    #[test]
    fn keep_alives_are_sent_three_times_within_a_ttl() {
        let mut clock = LeaseClock::new(ms(100));
        assert_eq!(clock.keep_alive_in(ms(0)), None);
        let stamp = clock.sent(ms(0));
        clock.granted(stamp, 7, ms(3_000));
        assert_eq!(clock.keep_alive_in(ms(400)), Some(ms(600)));
        assert_eq!(clock.keep_alive_in(ms(5_000)), Some(ms(0)));
    }
}
