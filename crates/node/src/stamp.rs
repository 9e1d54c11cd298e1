//! How long this node's lease is sure, for threads that reply to clients: [`LeaseClock`] says it, and what
//! it says last is kept in atomics.
//!
//! Reading the clock costs as much as executing a small command. So it is read before and after a batch
//! ([`LeaseStamp::look`], [`LeaseStamp::covers`]); commands within it are routed by what was read last.

use crate::clock::BootClock;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_cluster::LeaseClock;
use terrace_metadata::{Grant, LeaseId};

/// The part of a lease's time that is not used, for clocks that run differently fast.
const MARGIN_PARTS: u32 = 20;

/// See the module.
pub(crate) struct LeaseStamp {
    clock: Arc<dyn BootClock>,
    lease: Mutex<LeaseClock>,
    /// Grows when a lease is lost: what was claimed with it is lost, too.
    generation: AtomicU64,
    sent_ms: AtomicU64,
    sure_until_ms: AtomicU64,
    /// What any thread read from the clock last.
    seen_ms: AtomicU64,
}

impl LeaseStamp {
    /// Before the first lease of about this time.
    pub fn new(clock: Arc<dyn BootClock>, ttl: Duration) -> Self {
        let [generation, sent_ms, sure_until_ms, seen_ms] = [1, 0, 0, 0].map(AtomicU64::new);
        let lease = Mutex::new(LeaseClock::new(ttl / MARGIN_PARTS));
        Self { clock, lease, generation, sent_ms, sure_until_ms, seen_ms }
    }

    /// The boot clock.
    pub fn now(&self) -> Duration {
        Duration::from_millis(self.clock.now_ms())
    }

    /// What the rules of ownership look at.
    pub fn lease_clock(&self) -> LeaseClock {
        self.lease.lock().clone()
    }

    /// Asks for a lease, or for more time of `lease`. The clock is read before `ask` is called.
    pub async fn confirm<E>(
        &self,
        lease: Option<LeaseId>,
        ask: impl Future<Output = Result<Grant, E>>,
    ) -> Result<Grant, E> {
        let now = self.now();
        let stamp = self.lease.lock().sent(now);
        let grant = ask.await?;
        let mut clock = self.lease.lock();
        let id = number(grant.lease);
        match lease {
            None => clock.granted(stamp, id, grant.ttl),
            Some(_) => _ = clock.confirmed(stamp, id, grant.ttl),
        }
        let sent_ms = now.as_millis() as u64;
        self.sent_ms.store(sent_ms, Ordering::Relaxed);
        let sure_ms = clock.sure_for(now).as_millis() as u64;
        // Release: who sees it sees what was claimed under it.
        self.sure_until_ms.store(sent_ms + sure_ms, Ordering::Release);
        Ok(grant)
    }

    /// The lease is lost.
    pub fn lose(&self) {
        self.lease.lock().lose();
        self.sure_until_ms.store(0, Ordering::SeqCst);
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Of the present lease.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// The generation of a lease, while it is the present one.
    pub fn generation_of(&self, lease: u64) -> Option<u64> {
        let clock = self.lease.lock();
        (clock.lease() == Some(lease)).then(|| self.generation())
    }

    /// Whether the lease of this generation is sure at this moment.
    pub fn covers(&self, generation: u64) -> bool {
        let sure_until_ms = self.sure_until_ms.load(Ordering::Acquire);
        // The clock is read last, so a pause in between only makes the answer stricter.
        self.generation.load(Ordering::Acquire) == generation && self.look() < sure_until_ms
    }

    /// Reads the clock, for [`Self::covered`].
    pub fn look(&self) -> u64 {
        let now_ms = self.clock.now_ms();
        self.seen_ms.store(now_ms, Ordering::Relaxed);
        now_ms
    }

    /// Whether the lease of this generation was sure when a thread last looked. For routes: what is executed by
    /// them is shown only if [`Self::covers`] says so afterwards.
    pub fn covered(&self, generation: u64) -> bool {
        self.seen_ms.load(Ordering::Relaxed) < self.sure_until_ms.load(Ordering::Acquire)
            && self.generation.load(Ordering::Acquire) == generation
    }

    /// How long ago the last confirmed keep-alive was sent.
    pub fn age_ms(&self) -> u64 {
        self.clock.now_ms().saturating_sub(self.sent_ms.load(Ordering::Relaxed))
    }
}

/// A lease's name, as the rules of ownership have it.
pub(crate) fn number(lease: LeaseId) -> u64 {
    lease.0.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Turned(AtomicU64);

    impl BootClock for Turned {
        fn now_ms(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn a_lease_is_sure_from_when_its_request_was_sent() {
        let clock = Arc::new(Turned(AtomicU64::new(1000)));
        let (ttl, lease) = (Duration::from_secs(3), LeaseId(-5));
        let stamp = LeaseStamp::new(clock.clone(), ttl);
        let first = stamp.generation();
        assert!(!stamp.covers(first), "none yet");
        let at = |ms| clock.0.store(ms, Ordering::SeqCst);
        // The answer comes late, and it is the request that counts.
        let answer = |ms| async move {
            at(ms);
            Ok::<_, ()>(Grant { lease, ttl })
        };
        stamp.confirm(None, answer(2500)).await.unwrap();
        assert_eq!(stamp.generation_of(number(lease)), Some(first));
        assert!(stamp.covers(first));
        at(3849);
        assert!(stamp.covers(first), "sent at 1000, 3000 ms, less a twentieth");
        assert_eq!(stamp.age_ms(), 2849);
        at(3850);
        assert!(stamp.covered(first), "nobody has looked");
        assert!(!stamp.covers(first));
        assert!(!stamp.covered(first), "somebody has");
        // No answer changes nothing; a later one brings it back, as long as the lease was not lost.
        stamp.confirm(Some(lease), async { Err(()) }).await.unwrap_err();
        assert!(!stamp.covers(first));
        stamp.confirm(Some(lease), answer(3900)).await.unwrap();
        assert!(stamp.covers(first));
        assert!(stamp.covered(first));
        stamp.lose();
        assert!(!stamp.covered(first), "without a look");
        assert!(!stamp.covers(first) && !stamp.covers(stamp.generation()));
        assert_eq!(stamp.generation_of(number(lease)), None);
        stamp.confirm(None, answer(3950)).await.unwrap();
        assert!(!stamp.covers(first), "what was claimed with the lost lease stays lost");
        assert!(stamp.covers(stamp.generation()));
    }
}
