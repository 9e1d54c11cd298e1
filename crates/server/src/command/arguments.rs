//! Arguments that several groups of commands have: numbers, counts, and those of scans.

use super::{Call, Failure};
use crate::glob;
use terrace_resp::{Aggregate, ReplyWriter};

/// A random member may be asked for so often in one command.
const MOST_REPEATS: u64 = 1 << 20;

/// Elements that one page of a scan shows at most, whatever COUNT says.
const MOST_IN_PAGE: u64 = 1 << 14;

/// A double as Redis takes it for scores and increments: no blanks, no NaN, nothing that does not
/// fit. Redis takes hexadecimal ones too.
pub(super) fn double(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let is_word = text.last().is_some_and(|byte| byte.is_ascii_alphabetic());
    let has_digit = || {
        let mantissa = text.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
        mantissa.iter().any(|byte| matches!(byte, b'1'..=b'9'))
    };
    let fits = match number {
        number if number.is_nan() => false,
        number if number.is_infinite() => is_word,
        0.0 => !has_digit(),
        _ => true,
    };
    fits.then_some(number)
}

/// A cursor as Redis takes it, which is as C's `strtoul` does: digits, with a sign in front or not;
/// below zero it counts down from 2^64. Nothing at all is 0.
fn cursor(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    let number: u64 = digits.parse().ok()?;
    Some(if negative { number.wrapping_neg() } else { number })
}

impl Call<'_> {
    /// Argument number `at` as a double.
    pub(super) fn double(&self, at: usize) -> Result<f64, Failure> {
        double(self.arg(at)).ok_or(Failure::NOT_A_FLOAT)
    }

    /// Argument number `at` as a count from 0 on.
    pub(super) fn positive(&self, at: usize) -> Result<u64, Failure> {
        let number = terrace_resp::parse_integer(self.arg(at));
        number
            .and_then(|number| u64::try_from(number).ok())
            .ok_or(Failure::line("ERR value is out of range, must be positive"))
    }

    /// Argument number `at` as the cursor of a scan.
    pub(super) fn cursor(&self, at: usize) -> Result<u64, Failure> {
        cursor(self.arg(at)).ok_or(Failure::line("ERR invalid cursor"))
    }

    /// Argument number `at` as how many random members are wanted.
    pub(super) fn sample(&self, at: usize) -> Result<Sample, Failure> {
        let count = self.integer(at)?;
        match u64::try_from(count) {
            Ok(count) => Ok(Sample::Different(count)),
            Err(_) if count.unsigned_abs() <= MOST_REPEATS => {
                Ok(Sample::Repeated(count.unsigned_abs()))
            }
            Err(_) => Err(Failure::line("ERR value is out of range")),
        }
    }
}

/// How many random members a command wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sample {
    /// So many, none of them twice.
    Different(u64),
    /// So many, whichever.
    Repeated(u64),
}

/// `MATCH` and `COUNT`.
pub(super) struct ScanOptions<'a> {
    /// How many elements are looked at, about.
    pub count: u64,
    /// Only elements that match it are shown.
    pub pattern: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// From the arguments from number `at` on.
    pub(super) fn of(call: &Call<'a>, at: usize) -> Result<Self, Failure> {
        Self::with(call, at, |_, _| false)
    }

    /// As [`Self::of`], for a command that has further options: `take` gets the name and the value
    /// of each, and says whether there is such a one.
    pub(super) fn with(
        call: &Call<'a>,
        mut at: usize,
        mut take: impl FnMut(&'a [u8], &'a [u8]) -> bool,
    ) -> Result<Self, Failure> {
        let mut options = Self { count: 10, pattern: None };
        while at < call.count() {
            if at + 1 == call.count() {
                return Err(Failure::SYNTAX);
            }
            let name = call.arg(at);
            if name.eq_ignore_ascii_case(b"count") {
                options.count = match call.integer(at + 1)? {
                    ..=0 => return Err(Failure::SYNTAX),
                    count => count.unsigned_abs().min(MOST_IN_PAGE),
                };
            } else if name.eq_ignore_ascii_case(b"match") {
                options.pattern = Some(call.arg(at + 1));
            } else if !take(name, call.arg(at + 1)) {
                return Err(Failure::SYNTAX);
            }
            at += 2;
        }
        Ok(options)
    }

    /// Whether an element is to be shown.
    pub(super) fn shows(&self, element: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, element))
    }
}

/// Writes what a scan answers: the cursor of the next page and an array of the `items`, each of which
/// `show` writes as `width` elements.
pub(super) fn show_page<T>(
    call: &mut Call<'_>,
    cursor: u64,
    width: usize,
    items: impl Iterator<Item = T>,
    mut show: impl FnMut(&mut ReplyWriter<'_>, T),
) {
    call.reply.array(2);
    call.reply.bulk(cursor.to_string());
    let most = items.size_hint().1.unwrap_or(0);
    let begun = call.reply.begin(Aggregate::Array, width * most);
    let mut shown = 0;
    for item in items {
        show(&mut call.reply, item);
        shown += width;
    }
    call.reply.finish(begun, shown);
}

/// What a scan answers if there is nothing.
pub(super) fn empty_page(call: &mut Call<'_>) {
    show_page(call, 0, 1, std::iter::empty::<()>(), |_, ()| {});
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_those_that_redis_takes() {
        for (text, number) in [
            ("", 0),
            ("0", 0),
            ("-0", 0),
            ("+1", 1),
            ("007", 7),
            ("-1", u64::MAX),
            ("18446744073709551615", u64::MAX),
            ("-18446744073709551615", 1),
        ] {
            assert_eq!(cursor(text.as_bytes()), Some(number), "{text}");
        }
        for text in [" 1", "1 ", "x", "0x1", "-", "+", "--1", "+-1", "-+1", "18446744073709551616"]
        {
            assert_eq!(cursor(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn doubles_are_those_that_redis_takes() {
        for (text, number) in [
            ("1.5", 1.5),
            ("-0", 0.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("+3e2", 300.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("0e999", 0.0),
        ] {
            assert_eq!(double(text.as_bytes()), Some(number), "{text}");
        }
        for text in ["", " 1", "1 ", "nan", "1e400", "-1e400", "1e-400", "x", ".", "1_0"] {
            assert_eq!(double(text.as_bytes()), None, "{text}");
        }
    }
}
