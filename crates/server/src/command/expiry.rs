//! Times as arguments: in seconds or milliseconds, from now on or since 1970.

use super::{Call, Failure};

/// What a time in an argument means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    /// How many ms it is.
    pub ms: i64,
    /// From now on; else since 1970.
    pub relative: bool,
}

impl Unit {
    /// `EX`.
    pub const SECONDS: Self = Self { ms: 1000, relative: true };
    /// `PX`.
    pub const MS: Self = Self { ms: 1, relative: true };
    /// `EXAT`.
    pub const SECONDS_AT: Self = Self { ms: 1000, relative: false };
    /// `PXAT`.
    pub const MS_AT: Self = Self { ms: 1, relative: false };

    /// The unit that an option of `SET` and `GETEX` names.
    fn of_option(name: &[u8]) -> Option<Self> {
        [("ex", Self::SECONDS), ("px", Self::MS), ("exat", Self::SECONDS_AT), ("pxat", Self::MS_AT)]
            .into_iter()
            .find(|(option, _)| name.eq_ignore_ascii_case(option.as_bytes()))
            .map(|(_, unit)| unit)
    }

    /// `number` of this unit in ms since 1970, `None` if that is out of range.
    pub fn since_1970(self, number: i64, now_ms: u64) -> Option<i64> {
        let base = if self.relative { i64::try_from(now_ms).ok()? } else { 0 };
        number.checked_mul(self.ms)?.checked_add(base)
    }

    /// `ms` in this unit, to the nearest: half of one counts as one.
    pub fn nearest(self, ms: i64) -> i64 {
        // Half of one added first would not fit beside the latest time.
        ms / self.ms + i64::from(2 * (ms % self.ms) >= self.ms)
    }
}

/// The expiry argument of `SET` and `GETEX`: a time, or a word instead of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpiryOption {
    /// Nothing.
    NotGiven,
    /// The word.
    Word,
    /// A time: the number of the argument that has it, and in which unit.
    Time(usize, Unit),
}

impl ExpiryOption {
    /// Takes the option that begins with argument number `at` and gives the number of its last
    /// one. An option may come twice, the last time holds; two different ones may not.
    pub(super) fn take(
        &mut self,
        call: &Call<'_>,
        at: usize,
        word: &str,
    ) -> Result<usize, Failure> {
        let name = call.arg(at);
        match (Unit::of_option(name), *self) {
            (None, Self::NotGiven | Self::Word) if name.eq_ignore_ascii_case(word.as_bytes()) => {
                *self = Self::Word;
                Ok(at)
            }
            (Some(unit), before) if at + 1 < call.count() && before.may_become(unit) => {
                *self = Self::Time(at + 1, unit);
                Ok(at + 1)
            }
            _ => Err(Failure::SYNTAX),
        }
    }

    fn may_become(self, unit: Unit) -> bool {
        match self {
            Self::NotGiven => true,
            Self::Word => false,
            Self::Time(_, other) => other == unit,
        }
    }
}

impl Call<'_> {
    /// When argument number `at` lets something expire that is set now, in ms since 1970: must be
    /// above 0.
    pub(super) fn expiry(&self, at: usize, unit: Unit, command: &str) -> Result<u64, Failure> {
        let number = self.integer(at)?;
        let until = unit.since_1970(number, self.batch.now_ms());
        match until.and_then(|until| u64::try_from(until).ok()) {
            Some(until) if number > 0 => Ok(until),
            _ => Err(invalid(command)),
        }
    }
}

/// The error for a time that is out of range.
pub(super) fn invalid(command: &str) -> Failure {
    Failure::err(format_args!("invalid expire time in '{command}' command"))
}
