//! Numbers in decimal: lengths, integers, doubles. Called by both parsers and the writer.

/// The longest integer: a sign and 19 digits.
const MAX_INTEGER_BYTES: usize = 20;

const DIGIT_PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
    2021222324252627282930313233343536373839\
    4041424344454647484950515253545556575859\
    6061626364656667686970717273747576777879\
    8081828384858687888990919293949596979899";

/// A line that is one integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// The integer, and the offset behind the line's end.
    Whole { value: i64, end: usize },
    /// The bytes end before the line does.
    Partial,
    /// No continuation of the bytes makes it an integer.
    Invalid,
}

/// The integer and line end at `at`. Looks at no more than 22 bytes.
#[inline]
pub(crate) fn integer_line(buf: &[u8], at: usize) -> Line {
    match buf.get(at..) {
        // Nearly every length has one digit or two.
        Some([a @ b'0'..=b'9', b'\r', b'\n', ..]) => {
            Line::Whole { value: i64::from(a - b'0'), end: at + 3 }
        }
        Some([a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..]) => {
            Line::Whole { value: i64::from((a - b'0') * 10 + (b - b'0')), end: at + 4 }
        }
        Some(rest) => any_integer_line(rest, at),
        None => Line::Partial,
    }
}

fn any_integer_line(rest: &[u8], at: usize) -> Line {
    let signed = usize::from(rest.first() == Some(&b'-'));
    let room = rest.len().min(MAX_INTEGER_BYTES);
    let len = signed
        + rest[signed..room.max(signed)].iter().take_while(|byte| byte.is_ascii_digit()).count();
    match rest[len..] {
        [] => Line::Partial,
        // What stands before may be refused already; the answer is the same when the rest comes.
        [b'\r'] => Line::Partial,
        [b'\r', b'\n', ..] => match parse_integer(&rest[..len]) {
            Some(value) => Line::Whole { value, end: at + len + 2 },
            None => Line::Invalid,
        },
        _ => Line::Invalid,
    }
}

/// The integer that `text` is, in the one way Redis writes it: no sign but `-`, no leading zero,
/// no blank, nothing out of range of an `i64`.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    // Downwards, so that the least integer needs no case of its own.
    let mut value = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_sub(i64::from(digit))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// Appends `value` in decimal.
pub fn append_integer(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    append_unsigned(out, value.unsigned_abs());
}

pub(crate) fn append_unsigned(out: &mut Vec<u8>, mut value: u64) {
    if value < 10 {
        return out.push(b'0' + value as u8);
    }
    let mut text = [0; MAX_INTEGER_BYTES];
    let mut start = text.len();
    while value >= 10 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        start -= 2;
        text[start..start + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    }
    if value > 0 {
        start -= 1;
        text[start] = b'0' + value as u8;
    }
    out.extend_from_slice(&text[start..]);
}

/// How many digits `value` has.
pub(crate) fn digit_count(value: usize) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Digits that tell any two doubles apart.
const DIGITS: i32 = 17;

/// Appends `value` as Redis 7.0 writes doubles, which is as C's `%.17g` does: `inf`, `-inf`, `nan`,
/// else the first 17 digits without zeros at the end; plain from 0.0001 up to 10^17, else one digit
/// stands before the point and an exponent behind.
pub fn append_double(out: &mut Vec<u8>, value: f64) {
    /// Integers up to here have no more than 17 digits.
    const MAX_WHOLE: f64 = 1e17;
    if value.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let value = value.abs();
    if value.is_infinite() {
        out.extend_from_slice(b"inf");
    } else if value < MAX_WHOLE && value.fract() == 0.0 {
        append_unsigned(out, value as u64);
    } else {
        append_digits(out, value);
    }
}

/// Appends `value`, finite and above 0, from the digits and the exponent that `{:e}` gives.
fn append_digits(out: &mut Vec<u8>, value: f64) {
    let text = format!("{value:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let digits = mantissa.trim_end_matches('0').bytes().filter(|byte| *byte != b'.');
    let digits: Vec<u8> = digits.collect();
    let (before, is_plain) = match exponent {
        0..DIGITS => (exponent as usize + 1, true),
        -4..0 => (0, true),
        _ => (1, false),
    };
    let zeros = |out: &mut Vec<u8>, count: usize| out.extend(std::iter::repeat_n(b'0', count));
    let (whole, fraction) = digits.split_at(before.min(digits.len()));
    out.extend_from_slice(if before == 0 { b"0" } else { whole });
    zeros(out, before.saturating_sub(digits.len()));
    if !fraction.is_empty() {
        out.push(b'.');
        zeros(out, if before == 0 { exponent.unsigned_abs() as usize - 1 } else { 0 });
        out.extend_from_slice(fraction);
    }
    if !is_plain {
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        zeros(out, usize::from(exponent.abs() < 10));
        append_unsigned(out, u64::from(exponent.unsigned_abs()));
    }
}

/// The double that `text` is: `inf`, `-inf`, `nan`, or a decimal number with or without fraction
/// and exponent.
pub(crate) fn parse_double(text: &[u8]) -> Option<f64> {
    match text {
        b"inf" => Some(f64::INFINITY),
        b"-inf" => Some(f64::NEG_INFINITY),
        b"nan" => Some(f64::NAN),
        // Rust takes more words for infinity than the protocol has.
        _ if text
            .iter()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) =>
        {
            std::str::from_utf8(text).ok()?.parse().ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
