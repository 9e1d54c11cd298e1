//! Integers in decimal, as strings and fields hold them.

/// The integer that `text` is, in the one way Redis writes it: no sign but `-`, no leading zero.
pub(crate) fn parse(text: &[u8]) -> Option<i64> {
    match text {
        b"0" => Some(0),
        [b'1'..=b'9', ..] | [b'-', b'1'..=b'9', ..] => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// An integer's text, without memory of its own.
pub(crate) struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    pub fn of(value: i64) -> Self {
        let mut digits = Self { bytes: [0; 20], start: 20 };
        let mut rest = value.unsigned_abs();
        loop {
            digits.start -= 1;
            digits.bytes[digits.start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            digits.start -= 1;
            digits.bytes[digits.start] = b'-';
        }
        digits
    }
}

impl std::ops::Deref for Digits {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_round_trip_in_one_spelling(value: i64, text in "[-+ 0-9]{1,22}") {
            let text_of = value.to_string();
            prop_assert_eq!(&*Digits::of(value), text_of.as_bytes());
            prop_assert_eq!(parse(&Digits::of(value)), Some(value));
            if let Some(value) = parse(text.as_bytes()) {
                prop_assert_eq!(value.to_string(), text);
            }
        }
    }

    #[test]
    fn the_ends_of_the_range_are_in_it() {
        for value in [i64::MIN, -1, 0, 9, 10, i64::MAX] {
            assert_eq!(parse(&Digits::of(value)), Some(value));
        }
        for text in ["9223372036854775808", "-9223372036854775809", "-0", "01", "+1", "", "-", "1 "]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
