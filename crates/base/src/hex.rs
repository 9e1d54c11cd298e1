//! Bytes as hexadecimal digits, two for each, and back.

use std::fmt;

/// Prints bytes as digits in lower case.
#[derive(Debug, Clone, Copy)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The bytes of `digits`, of either case; `None` if those are none.
pub fn decode(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    digits.chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn half_a_byte_is_none() {
        assert_eq!(decode(b"abc"), None);
        assert_eq!(decode(b"0g"), None);
        assert_eq!(decode(b"+f"), None);
        assert_eq!(decode(b"AbcD"), Some(vec![0xab, 0xcd]));
    }

    proptest! {
        #[test]
        fn digits_are_exact(bytes: Vec<u8>, any: Vec<u8>) {
            prop_assert_eq!(decode(Hex(&bytes).to_string().as_bytes()), Some(bytes));
            let _ = decode(&any);
        }
    }
}
