//! Arguments that several groups of commands have: numbers, counts, and those of scans.

use super::interruption::Interruption;
use super::{Call, Failure, Outcome};
use crate::glob;
use terrace_resp::{Aggregate, ReplyWriter};

/// A random member may be asked for so often in one command.
const MAX_REPEATS: u64 = 1 << 20;

/// Elements that one page of a scan shows at most, whatever COUNT says.
const MAX_IN_PAGE: u64 = 1 << 14;

/// A number as `SORT` takes it, which is as C's `strtod` does where the whole text up to the first zero byte must be one and
/// nothing is 0: blanks may come first; not what does not fit, nor NaN.
///
/// Redis's `sortCommandGeneric` refuses whatever sets `errno` to `ERANGE`. glibc's `strtod` does that also for a number that
/// it gives, below the normal ones, if it had to be rounded. A decimal one has 716 digits or more if it had not: none is taken.
pub(super) fn strtod(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let first = text.iter().position(|byte| !blank(byte)).unwrap_or(text.len());
    match &text[first..] {
        b"" if text.is_empty() => Some(0.0),
        number => double(number).filter(|value| !value.is_subnormal() || is_exact(number)),
    }
}

/// Whether a text is a hexadecimal number that a double has without rounding.
fn is_exact(text: &[u8]) -> bool {
    matches!(hexadecimal_exactly(text), Some(Some((_, true))))
}

/// A double as Redis takes it for scores and increments, decimal or hexadecimal: no blanks, no NaN,
/// nothing that does not fit.
pub(super) fn double(text: &[u8]) -> Option<f64> {
    if let Some(number) = hexadecimal(text) {
        let mantissa = text.split(|byte| matches!(byte, b'p' | b'P')).next().unwrap_or_default();
        let is_zero = !mantissa.iter().any(|byte| byte.is_ascii_hexdigit() && *byte != b'0');
        return number.filter(|number| number.is_finite() && (*number != 0.0 || is_zero));
    }
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

/// The number that a text such as `-0x1.8p3` is; `None` if it does not begin as one, and nothing in
/// it if it is none. One that is too large is infinite, and one that is too small 0.
pub(super) fn hexadecimal(text: &[u8]) -> Option<Option<f64>> {
    Some(hexadecimal_exactly(text)?.map(|(number, _)| number))
}

/// As [`hexadecimal`], with whether the number is the very one of the text.
fn hexadecimal_exactly(text: &[u8]) -> Option<Option<(f64, bool)>> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let [b'0', b'x' | b'X', digits @ ..] = rest else { return None };
    let number = unsigned_hexadecimal(digits);
    Some(number.map(|(number, exact)| (if negative { -number } else { number }, exact)))
}

fn unsigned_hexadecimal(text: &[u8]) -> Option<(f64, bool)> {
    let (mantissa, power) = match text.iter().position(|byte| matches!(byte, b'p' | b'P')) {
        Some(at) => {
            let power = std::str::from_utf8(&text[at + 1..]).ok()?;
            // More is out of range whatever the digits are: they are no more than an argument has.
            (&text[..at], power.parse::<i64>().ok()?.clamp(-1 << 40, 1 << 40))
        }
        None => (text, 0),
    };
    // The first 60 bits, what is lost behind them, and the power of two of the last of them.
    let (mut bits, mut lost, mut scale) = (0_u64, false, power);
    let (mut count, mut in_fraction) = (0, false);
    for byte in mantissa {
        if *byte == b'.' && !in_fraction {
            in_fraction = true;
            continue;
        }
        let digit = u64::from(char::from(*byte).to_digit(16)?);
        count += 1;
        match bits >> 60 {
            0 => {
                bits = bits << 4 | digit;
                scale -= if in_fraction { 4 } else { 0 };
            }
            _ => {
                lost |= digit != 0;
                scale += if in_fraction { 0 } else { 4 };
            }
        }
    }
    if count == 0 {
        return None;
    }
    if bits == 0 {
        return Some((0.0, true));
    }
    Some(scaled(bits, lost, scale))
}

/// `bits` times two to the power of `scale`, rounded to the nearest, ties to even, and whether there was nothing to be
/// rounded. `lost`: there was something behind the last bit.
fn scaled(bits: u64, lost: bool, scale: i64) -> (f64, bool) {
    let high = scale + i64::from(63 - bits.leading_zeros());
    // The last bit that a double of this size has.
    let lowest = (high - 52).max(-1074);
    let cut = (lowest - scale).max(0);
    let lowest = scale + cut;
    let (kept, rest, half) = match cut {
        0 => (bits, 0, 1),
        64.. => (0, bits, u64::MAX),
        _ => (bits >> cut, bits & ((1 << cut) - 1), 1 << (cut - 1)),
    };
    let up = rest > half || rest == half && (lost || kept & 1 == 1);
    let rounded = (kept + u64::from(up)) as f64;
    // In two steps: a power of two that is no double of its own may be needed. More than this is infinite anyway.
    let lowest = i32::try_from(lowest).map_or(2048, |lowest| lowest.min(2048));
    let number = rounded * 2_f64.powi(lowest / 2) * 2_f64.powi(lowest - lowest / 2);
    (number, rest == 0 && !lost)
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
            Err(_) if count.unsigned_abs() <= MAX_REPEATS => {
                Ok(Sample::Repeated(count.unsigned_abs()))
            }
            Err(_) if count == i64::MIN => Err(Failure::line(
                "ERR value is out of range, value must between -9223372036854775807 and \
                 9223372036854775807",
            )),
            Err(_) => Err(Failure::line("ERR value is out of range")),
        }
    }
}

/// How many random members a command wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sample {
    /// This many, none of them twice.
    Different(u64),
    /// This many, whichever.
    Repeated(u64),
}

impl Sample {
    /// Refuses, as Redis, a count whose double, the elements of a reply in which each comes with its value, cannot be
    /// counted.
    pub(super) fn check_pairs(self, with_values: bool) -> Result<(), Failure> {
        match self {
            Self::Different(count) if with_values && count > i64::MAX as u64 / 2 => {
                Err(Failure::line("ERR value is out of range"))
            }
            Self::Different(_) | Self::Repeated(_) => Ok(()),
        }
    }
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
                    count => count.unsigned_abs().min(MAX_IN_PAGE),
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

    /// Those of `items`, each with an element of this `name`, that are to be shown.
    ///
    /// # Errors
    /// [`Failure::Elsewhere`] where others wait meanwhile, if that may take long; those of [`Interruption::check`].
    pub(super) fn shown<'i, T>(
        &self,
        call: &Call<'_>,
        items: &'i [T],
        name: impl Fn(&T) -> &[u8],
    ) -> Result<Vec<&'i T>, Failure> {
        let Some(pattern) = self.pattern else { return Ok(items.iter().collect()) };
        allow_matches(call, pattern, items.iter().map(|item| name(item).len()).sum())?;
        let interruption = Interruption::of(call);
        let shown = items.iter().filter(|item| self.shows(name(item), &interruption)).collect();
        // Some may be missing then.
        interruption.check()?;
        Ok(shown)
    }

    /// Whether an element is to be shown; no when the command is to end.
    pub(super) fn shows(&self, element: &[u8], interruption: &Interruption<'_>) -> bool {
        let goes_on = || !interruption.is_due();
        let matches = |pattern| goes_on() && glob::matches_while(pattern, element, goes_on);
        self.pattern.is_none_or(matches)
    }
}

/// Refuses to match texts of this many bytes together with a pattern where others wait meanwhile, if that may take long:
/// it takes up to a step for each byte of the pattern and of the texts.
///
/// # Errors
/// [`Failure::Elsewhere`].
pub(super) fn allow_matches(call: &Call<'_>, pattern: &[u8], text_bytes: usize) -> Outcome {
    /// They take about as long as to look at an element.
    const STEPS: u64 = 256;
    let steps = (pattern.len() as u64).saturating_mul(text_bytes as u64);
    call.batch.allow_walk(steps / STEPS)?;
    Ok(())
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
            ("0x10", 16.0),
            ("-0X1.8p3", -12.0),
            ("0x.1", 0.0625),
            ("0x0p99999999999", 0.0),
            ("0x1p-1074", 5e-324),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.000000000000080000000001p0", 1.0000000000000002),
            ("0x1.00000000000018p0", 1.0000000000000004),
            ("0x1p1023", 8.98846567431158e307),
        ] {
            assert_eq!(double(text.as_bytes()), Some(number), "{text}");
        }
        for text in [
            "",
            " 1",
            "1 ",
            "nan",
            "1e400",
            "-1e400",
            "1e-400",
            "x",
            ".",
            "1_0",
            "0x",
            "0xg",
            "0x1p",
            "0x1p1024",
            "0x1p-1080",
            "0x1p99999999999999",
            "-0x1.fffffffffffff8p1023",
            "0x1p-99999999999999",
            "0x1.2.3",
        ] {
            assert_eq!(double(text.as_bytes()), None, "{text}");
        }
    }

    /// As glibc sets `ERANGE` for them, or does not.
    #[test]
    fn sort_refuses_what_is_rounded_below_the_normal_numbers() {
        for (text, number) in [
            ("", 0.0),
            (" 1.5", 1.5),
            ("0e-400", 0.0),
            ("2.2250738585072014e-308", f64::MIN_POSITIVE),
            ("0x1p-1074", 5e-324),
            ("-0x1p-1023", -1.1125369292536007e-308),
            ("0x1.00000000000008p0", 1.0),
        ] {
            assert_eq!(strtod(text.as_bytes()), Some(number), "{text}");
        }
        for text in [
            "1e-310",
            "-5e-324",
            "2.2250738585072011e-308",
            "0x1.8p-1074",
            "0x1.00000000000008p-1023",
            "0x0.000000000000000000000000000001p-1000",
            "1e-400",
        ] {
            assert_eq!(strtod(text.as_bytes()), None, "{text}");
        }
        // It is a score nonetheless.
        assert_eq!(double(b"1e-310"), Some(1e-310));
    }
}
