//! C's `long double` of x86: what Redis reads, adds and writes in INCRBYFLOAT and HINCRBYFLOAT.
//!
//! ```text
//! value = ± mantissa · 2^exponent        mantissa: 64 bits, the highest set, or zero
//! ```
//! 64 bits, not 53, so that 0.1 + 0.2 is 0.3: a double would show another sum than Redis does.
//! Rounding is to the nearest, ties to even. Smaller than a normal number is zero: of such a number
//! the 17 decimals that are written show nothing. As text it is a number all the same, unless it is so small that C
//! makes zero of it. Why it is not a library's: see
//! `docs/decisions/0021-long-double-stays-ours.md`.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;

/// Longer texts are no numbers.
const MAX_TEXT_BYTES: usize = 5119;
/// Of the value as a whole: 2^16384 and above are infinite, below 2^-16382 is not normal.
const MAX_POWER: i64 = 16384;
const MIN_POWER: i64 = -16382;
/// Below half of 2^`LEAST_POWER`, which is the least number that is not zero, there is only zero.
const LEAST_POWER: i64 = -16445;
/// Above this decimal exponent every number but zero is beyond [`MAX_POWER`].
const MAX_DECIMAL: i64 = 4932;
/// Below this one any mantissa of a text is too small.
const MIN_DECIMAL: i64 = -10_200;
const DECIMALS: usize = 17;

/// A number, or infinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongDouble {
    negative: bool,
    size: Size,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Zero,
    Finite { mantissa: u64, exponent: i64 },
    Infinite,
}

impl LongDouble {
    /// The number that `text` is: decimal or, behind `0x`, hexadecimal, with or without a fraction
    /// and an exponent, or `inf`. `None` for anything else, too large or too small numbers, and what
    /// is no number (`nan`).
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > MAX_TEXT_BYTES {
            return None;
        }
        let (negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
            return Some(Self { negative, size: Size::Infinite });
        }
        if let [b'0', b'x' | b'X', text @ ..] = unsigned {
            // Four bits a digit, and powers of two.
            let Digits { digits, power, fraction } = Digits::parse(text, 16, b'p')?;
            let size = match digits.is_zero() {
                true => Some(Size::Zero),
                false => rounded(&digits, power - 4 * fraction, false),
            };
            let size = size.filter(|size| *size != Size::Infinite)?;
            return Some(Self { negative, size });
        }
        let Digits { digits, power, fraction } = Digits::parse(unsigned, 10, b'e')?;
        let power = power - fraction;
        if digits.is_zero() {
            return Some(Self { negative, size: Size::Zero });
        }
        if !(MIN_DECIMAL..=MAX_DECIMAL).contains(&power) {
            return None;
        }
        // Of a power of ten that of two is the exponent's.
        let size = match power >= 0 {
            true => rounded(&digits.times_five_to(power as u32), power, false),
            false => {
                let divisor = Natural(vec![1]).times_five_to(power.unsigned_abs() as u32);
                let (whole, shift, rest) = digits.leading_quotient(&divisor);
                rounded(&whole, power - shift, rest)
            }
        };
        let size = size.filter(|size| *size != Size::Infinite)?;
        Some(Self { negative, size })
    }

    /// Whether it is not infinite.
    pub fn is_finite(self) -> bool {
        self.size != Size::Infinite
    }

    /// The sum; `None` if it is no number (infinities of both signs).
    pub fn plus(self, other: Self) -> Option<Self> {
        let (a, b) = (self, other);
        match (a.size, b.size) {
            (Size::Infinite, Size::Infinite) => (a.negative == b.negative).then_some(a),
            (Size::Infinite, _) => Some(a),
            (_, Size::Infinite) => Some(b),
            (Size::Zero, Size::Zero) => {
                Some(Self { negative: a.negative && b.negative, size: Size::Zero })
            }
            (_, Size::Zero) => Some(a),
            (Size::Zero, _) => Some(b),
            (
                Size::Finite { mantissa: am, exponent: ae },
                Size::Finite { mantissa: bm, exponent: be },
            ) => Some(match (ae, am) >= (be, bm) {
                true => sum_of((a.negative, am, ae), (b.negative, bm, be)),
                false => sum_of((b.negative, bm, be), (a.negative, am, ae)),
            }),
        }
    }
}

/// The sum of two finite numbers, the larger first.
fn sum_of(large: (bool, u64, i64), small: (bool, u64, i64)) -> LongDouble {
    /// Bits behind the mantissa: the last one stands for everything further behind.
    const GUARD: u32 = 62;
    let (negative, mantissa, exponent) = large;
    let a = u128::from(mantissa) << GUARD;
    let b = u128::from(small.1) << GUARD;
    let shift = (exponent - small.2).unsigned_abs();
    let b = match shift {
        0 => b,
        1..=127 => b >> shift | u128::from(b << (128 - shift) != 0),
        _ => 1,
    };
    let sum = if negative == small.0 { a + b } else { a - b };
    if sum == 0 {
        return LongDouble { negative: false, size: Size::Zero };
    }
    let size = rounded(&Natural::from(sum), exponent - i64::from(GUARD), false);
    LongDouble { negative, size: size.unwrap_or(Size::Zero) }
}

/// Digits, how many of them are behind the point, and the power that stands behind them.
struct Digits {
    digits: Natural,
    fraction: i64,
    power: i64,
}

impl Digits {
    /// In a base, with this letter before the power.
    fn parse(text: &[u8], base: u32, letter: u8) -> Option<Self> {
        let at = text.iter().position(|byte| byte.eq_ignore_ascii_case(&letter));
        let (mantissa, exponent) = match at {
            None => (text, 0),
            Some(at) => (&text[..at], exponent(&text[at + 1..])?),
        };
        let (mut digits, base_word) = (Natural::ZERO, u64::from(base));
        let (mut count, mut fraction, mut in_fraction) = (0, 0, false);
        // Digits that are not in the number yet, and the power of the base that they need: as many as a word has.
        let (mut word, mut factor) = (0_u64, 1_u64);
        for byte in mantissa {
            match char::from(*byte).to_digit(base) {
                Some(digit) => {
                    (word, factor) = (word * base_word + u64::from(digit), factor * base_word);
                    if factor > u64::MAX / base_word {
                        digits.multiply_add(factor, word);
                        (word, factor) = (0, 1);
                    }
                    count += 1;
                    fraction += i64::from(in_fraction);
                }
                None if *byte == b'.' && !in_fraction => in_fraction = true,
                None => return None,
            }
        }
        digits.multiply_add(factor, word);
        (count > 0).then_some(Self { digits, fraction, power: exponent })
    }
}

/// A power of ten with an optional sign; far too large ones all become the same.
fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size =
        digits.iter().fold(0_i64, |size, digit| (size * 10 + i64::from(digit - b'0')).min(100_000));
    Some(if negative { -size } else { size })
}

/// `number`, which is not zero, · 2^`exponent` in 64 bits; `rest` says that it is a little more than that. `None` if zero is
/// the nearest number.
fn rounded(number: &Natural, exponent: i64, rest: bool) -> Option<Size> {
    let bits = number.bits();
    let shift = i64::from(bits) - 64;
    let (mut mantissa, mut exponent) = (number.bits_from(shift), exponent + shift);
    let is_power_of_two =
        || mantissa == 1 << 63 && !rest && (shift <= 0 || !number.any_below(shift as u32));
    // Halfway between zero and the least number zero is the even one.
    match exponent + 64 {
        LEAST_POWER if is_power_of_two() => return None,
        ..LEAST_POWER => return None,
        _ => {}
    }
    if shift > 0 {
        let half = number.bit(shift as u32 - 1);
        let more = rest || number.any_below(shift as u32 - 1);
        if half && (more || mantissa & 1 == 1) {
            match mantissa.checked_add(1) {
                Some(next) => mantissa = next,
                None => (mantissa, exponent) = (1 << 63, exponent + 1),
            }
        }
    }
    Some(match exponent + 64 {
        power if power > MAX_POWER => Size::Infinite,
        power if power <= MIN_POWER => Size::Zero,
        _ => Size::Finite { mantissa, exponent },
    })
}

impl fmt::Display for LongDouble {
    /// With at most 17 decimals, none of them a zero at the end, and no exponent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        let (mantissa, exponent) = match self.size {
            Size::Infinite => return write!(f, "{sign}inf"),
            Size::Zero => return f.write_str("0"),
            Size::Finite { mantissa, exponent } => (mantissa, exponent),
        };
        if exponent >= 0 {
            let whole = Natural::from(u128::from(mantissa)).shifted_left(exponent as u32);
            return write!(f, "{sign}{}", whole.decimal());
        }
        // Below 2^64 · 10^17, which is less than 2^121.
        let scaled = u128::from(mantissa) * 10_u128.pow(DECIMALS as u32);
        let shift = exponent.unsigned_abs();
        let scaled = match shift {
            0..128 => {
                let (whole, rest) = (scaled >> shift, scaled << (128 - shift));
                let up = match rest.cmp(&(1 << 127)) {
                    Ordering::Less => 0,
                    Ordering::Equal => whole & 1,
                    Ordering::Greater => 1,
                };
                whole + up
            }
            _ => 0,
        };
        if scaled == 0 {
            return f.write_str("0");
        }
        let digits = format!("{scaled:0>width$}", width = DECIMALS + 1);
        let (whole, fraction) = digits.split_at(digits.len() - DECIMALS);
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{sign}{whole}"),
            fraction => write!(f, "{sign}{whole}.{fraction}"),
        }
    }
}

/// A natural number of any size: 64 bits each, the lowest first, the last one not zero.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Natural(Vec<u64>);

impl From<u128> for Natural {
    fn from(value: u128) -> Self {
        Self(vec![value as u64, (value >> 64) as u64]).trimmed()
    }
}

impl Natural {
    const ZERO: Self = Self(Vec::new());

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> u32 {
        let last = self.0.last().map_or(0, |last| 64 - last.leading_zeros());
        (self.0.len() as u32).saturating_sub(1) * 64 + last
    }

    fn bit(&self, at: u32) -> bool {
        self.0.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn any_below(&self, at: u32) -> bool {
        let whole = (at as usize / 64).min(self.0.len());
        self.0[..whole].iter().any(|word| *word != 0)
            || (whole as u32 * 64..at).any(|bit| self.bit(bit))
    }

    /// 64 bits from bit number `from` on; below bit 0 there are zeros.
    fn bits_from(&self, from: i64) -> u64 {
        (0..64).fold(0, |bits, at| {
            let bit = u32::try_from(from + at).is_ok_and(|bit| self.bit(bit));
            bits | u64::from(bit) << at
        })
    }

    fn multiply_add(&mut self, factor: u64, addend: u64) {
        let mut carry = u128::from(addend);
        for word in &mut self.0 {
            let product = u128::from(*word) * u128::from(factor) + carry;
            *word = product as u64;
            carry = product >> 64;
        }
        if carry > 0 {
            self.0.push(carry as u64);
        }
    }

    fn times_five_to(mut self, power: u32) -> Self {
        /// The largest power of five in a word.
        const AT_A_TIME: u32 = 27;
        for _ in 0..power / AT_A_TIME {
            self.multiply_add(5_u64.pow(AT_A_TIME), 0);
        }
        self.multiply_add(5_u64.pow(power % AT_A_TIME), 0);
        self
    }

    fn shifted_left(&self, by: u32) -> Self {
        let mut words = vec![0; by as usize / 64];
        let mut carry = 0;
        for word in &self.0 {
            let wide = u128::from(*word) << (by % 64) | carry;
            words.push(wide as u64);
            carry = wide >> 64;
        }
        words.push(carry as u64);
        Self(words).trimmed()
    }

    fn shifted_right(&self, by: u32) -> Self {
        let low = self.0.iter().skip(by as usize / 64);
        let high = low.clone().skip(1).chain([&0]);
        let wide = low.zip(high).map(|(low, high)| u128::from(*high) << 64 | u128::from(*low));
        Self(wide.map(|wide| (wide >> (by % 64)) as u64).collect()).trimmed()
    }

    /// The first bits of the quotient, more than the 64 and the one that decides about rounding: the quotient times two to
    /// the power of the second number, and whether there is a rest. Neither is zero. The others of its bits, of which a
    /// long text has thousands, are part of the rest, so that it costs these bits times the length of the divisor.
    fn leading_quotient(&self, divisor: &Self) -> (Self, i64, bool) {
        const BITS: i64 = 67;
        let shift = BITS + i64::from(divisor.bits()) - i64::from(self.bits());
        let by = shift.unsigned_abs() as u32;
        let (dividend, has_lost) = match shift >= 0 {
            true => (self.shifted_left(by), false),
            false => (self.shifted_right(by), self.any_below(by)),
        };
        let (whole, has_rest) = dividend.divided_by(divisor);
        (whole, shift, has_lost || has_rest)
    }

    /// The quotient, and whether there is a rest. Costs the bits of the quotient times the length of the divisor.
    fn divided_by(&self, divisor: &Self) -> (Self, bool) {
        let steps = self.bits().saturating_sub(divisor.bits());
        let (mut rest, mut whole) = (self.shifted_right(steps), Self::ZERO);
        for step in (0..=steps).rev() {
            let fits = rest.at_least(divisor);
            if fits {
                rest.subtract(divisor);
            }
            whole.multiply_add(2, u64::from(fits));
            if step > 0 {
                rest.multiply_add(2, u64::from(self.bit(step - 1)));
            }
        }
        (whole, !rest.is_zero())
    }

    fn at_least(&self, other: &Self) -> bool {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())).is_ge()
    }

    /// Takes away a number that is not larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        for (at, word) in self.0.iter_mut().enumerate() {
            let (once, under) = word.overflowing_sub(other.0.get(at).copied().unwrap_or(0));
            let (twice, again) = once.overflowing_sub(u64::from(borrow));
            (*word, borrow) = (twice, under || again);
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn decimal(&self) -> String {
        /// Nine digits at a time: what a half of a word and a rest below it make is divided in one step.
        const GROUP: u64 = 1_000_000_000;
        let halves = self.0.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]);
        let mut halves: Vec<u32> = halves.collect();
        let mut groups = Vec::new();
        while let Some(last) = halves.iter().rposition(|half| *half != 0) {
            halves.truncate(last + 1);
            let mut rest = 0_u64;
            for half in halves.iter_mut().rev() {
                let wide = rest << 32 | u64::from(*half);
                *half = (wide / GROUP) as u32;
                rest = wide % GROUP;
            }
            groups.push(rest);
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        for group in groups.iter().rev() {
            text.push_str(&format!("{group:09}"));
        }
        text
    }
}
