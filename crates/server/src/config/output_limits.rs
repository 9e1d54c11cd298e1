//! `client-output-buffer-limit`: how many bytes may wait for a client that does not read.

use super::units::bytes;
use std::fmt;
use std::time::Duration;

/// The bound of one class of clients. Zero is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// Bytes at which the client is disconnected at once.
    pub hard_bytes: u64,
    /// Bytes at which it is disconnected if it stays there for [`Self::soft_seconds`].
    pub soft_bytes: u64,
    /// See [`Self::soft_bytes`].
    pub soft_seconds: u64,
}

impl OutputLimit {
    /// Whether a client must go that has had `waiting` bytes to read, and at least
    /// [`Self::soft_bytes`] for `over_soft`.
    pub fn is_broken(&self, waiting: u64, over_soft: Duration) -> bool {
        let hard = self.hard_bytes > 0 && waiting >= self.hard_bytes;
        let soft = self.soft_bytes > 0 && waiting >= self.soft_bytes;
        hard || (soft && over_soft > Duration::from_secs(self.soft_seconds))
    }
}

/// The bounds by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimits {
    /// Clients that ask and get answers.
    pub normal: OutputLimit,
    /// Replicas, of which there are none.
    pub replica: OutputLimit,
    /// Clients that have subscribed to something.
    pub pubsub: OutputLimit,
}

impl OutputLimits {
    /// These limits with those classes changed that `text` names; Redis's class `replica` is also called `slave`.
    pub(super) fn changed_by(mut self, text: &str) -> Option<Self> {
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        if words.is_empty() || !words.len().is_multiple_of(4) {
            return None;
        }
        for class in words.chunks_exact(4) {
            let limit = OutputLimit {
                hard_bytes: bytes(class[1])?,
                soft_bytes: bytes(class[2])?,
                soft_seconds: class[3].parse().ok()?,
            };
            match class[0].to_ascii_lowercase().as_str() {
                "normal" => self.normal = limit,
                "pubsub" => self.pubsub = limit,
                "replica" | "slave" => self.replica = limit,
                _ => return None,
            }
        }
        Some(self)
    }
}

impl fmt::Display for OutputLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutputLimits { normal, replica, pubsub } = self;
        write!(f, "normal {normal} slave {replica} pubsub {pubsub}")
    }
}

impl fmt::Display for OutputLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.hard_bytes, self.soft_bytes, self.soft_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_change_one_by_one() {
        let limits = OutputLimits::default().changed_by("normal 1mb 512kb 10").unwrap();
        let both = limits.changed_by("PUBSUB 8 4 1 replica 0 0 0").unwrap();
        assert_eq!(
            both.normal,
            OutputLimit { hard_bytes: 1 << 20, soft_bytes: 512 << 10, soft_seconds: 10 }
        );
        assert_eq!(both.pubsub, OutputLimit { hard_bytes: 8, soft_bytes: 4, soft_seconds: 1 });
        assert_eq!(both.changed_by("slave 9 8 7").unwrap().replica.hard_bytes, 9);
        assert_eq!(OutputLimits::default().changed_by(&both.to_string()), Some(both));
        for text in [
            "",
            "normal",
            "normal 1 2",
            "replica 1 0",
            "x 0 0 0",
            "normal 1 1 -1",
            "normal 0 0 0 pubsub",
        ] {
            assert_eq!(limits.changed_by(text), None, "{text}");
        }
    }

    #[test]
    fn hard_at_once_soft_after_a_while() {
        let limit = OutputLimit { hard_bytes: 100, soft_bytes: 50, soft_seconds: 10 };
        assert!(limit.is_broken(100, Duration::ZERO));
        assert!(!limit.is_broken(99, Duration::from_secs(10)));
        assert!(limit.is_broken(50, Duration::from_secs(11)));
        assert!(!limit.is_broken(49, Duration::from_secs(100)));
        assert!(!OutputLimit::default().is_broken(u64::MAX, Duration::MAX));
    }
}
