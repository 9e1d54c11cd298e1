//! How long the turn of a client takes: when the clock is looked at again, since a time to live is counted from the
//! command that gives it, and when the others have their turns. Called by `client_state.rs`.

use std::time::{Duration, Instant};

/// Commands are this much behind the clock at most, and what the last one took.
const MAX_AGE: Duration = Duration::from_millis(2);

/// A turn ends when it has taken this long.
const MAX_TURN: Duration = Duration::from_millis(5);

/// This many commands are executed in any case. A thread that was not run for a while cuts no short pipeline in pieces.
const MIN_COMMANDS: u32 = 16;

/// See the module.
pub(super) struct TurnClock {
    began: Instant,
    looked: Instant,
    commands: u32,
}

/// How a turn goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// With the next command.
    Go,
    /// As that, after a look at the clock.
    Look,
    /// After those of the others.
    Rest,
}

impl TurnClock {
    /// A turn begins, and the clock was looked at now.
    pub fn begin(now: Instant) -> Self {
        Self { began: now, looked: now, commands: 0 }
    }

    /// A command ended at this moment.
    pub fn end_command(&mut self, now: Instant) -> Pace {
        self.commands += 1;
        if self.commands >= MIN_COMMANDS && now.duration_since(self.began) >= MAX_TURN {
            return Pace::Rest;
        }
        if now.duration_since(self.looked) < MAX_AGE {
            return Pace::Go;
        }
        self.looked = now;
        Pace::Look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_looked_at_again_and_the_turn_ends() {
        let begin = Instant::now();
        let at = |us| begin + Duration::from_micros(us);
        let mut turn = TurnClock::begin(begin);
        let paces: Vec<Pace> =
            [500, 1_999, 2_000, 3_999, 4_100].map(|us| turn.end_command(at(us))).to_vec();
        assert_eq!(paces, [Pace::Go, Pace::Go, Pace::Look, Pace::Go, Pace::Look]);
        for _ in 5..MIN_COMMANDS - 1 {
            assert_ne!(turn.end_command(at(9_000)), Pace::Rest, "so few are executed in any case");
        }
        assert_eq!(turn.end_command(at(9_000)), Pace::Rest);

        let mut short = TurnClock::begin(begin);
        for number in 0..4_999 {
            assert_ne!(short.end_command(at(number)), Pace::Rest, "{number}");
        }
        assert_eq!(short.end_command(at(5_000)), Pace::Rest);
    }
}
