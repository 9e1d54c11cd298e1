//! Numbers have one spelling, and doubles Redis's.

use super::*;
use proptest::prelude::*;

fn double(value: f64) -> String {
    let mut out = Vec::new();
    append_double(&mut out, value);
    String::from_utf8(out).unwrap()
}

#[test]
fn doubles_are_written_with_17_digits_as_redis_7_0_does() {
    for (value, text) in [
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
        (0.0, "0"),
        (-0.0, "-0"),
        (3.0, "3"),
        (-3.5, "-3.5"),
        (0.1, "0.10000000000000001"),
        (0.5, "0.5"),
        (1.0 / 3.0, "0.33333333333333331"),
        (98.76543210987, "98.765432109870005"),
        (1e16, "10000000000000000"),
        (1e17, "1e+17"),
        (123456789012345680.0, "1.2345678901234568e+17"),
        (4611686018427387904.0, "4.6116860184273879e+18"),
        (-1e300, "-1.0000000000000001e+300"),
        (1.5e25, "1.5e+25"),
        (0.0001, "0.0001"),
        (0.00012345678, "0.00012345678000000001"),
        (0.00001, "1.0000000000000001e-05"),
        (0.0009765625, "0.0009765625"),
        (1234567.5, "1234567.5"),
        (99999999999999984.0, "99999999999999984"),
        (1e-300, "1e-300"),
        (5e-324, "4.9406564584124654e-324"),
        (f64::MAX, "1.7976931348623157e+308"),
    ] {
        assert_eq!(double(value), text);
    }
}

#[test]
fn integers_have_one_spelling() {
    for (text, value) in [
        ("0", Some(0)),
        ("7", Some(7)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("99999999999999999999999", None),
        ("", None),
        ("-", None),
        ("-0", None),
        ("+1", None),
        ("01", None),
        ("1 ", None),
        ("1a", None),
    ] {
        assert_eq!(parse_integer(text.as_bytes()), value, "{text}");
    }
}

#[test]
fn a_line_is_whole_partial_or_invalid() {
    let whole = |value, end| Line::Whole { value, end };
    for (bytes, line) in [
        (&b"5\r\n"[..], whole(5, 3)),
        (b"42\r\nmore", whole(42, 4)),
        (b"123456\r\n", whole(123456, 8)),
        (b"-1\r\n", whole(-1, 4)),
        (b"-9223372036854775808\r\n", whole(i64::MIN, 22)),
        (b"", Line::Partial),
        (b"-", Line::Partial),
        (b"12", Line::Partial),
        (b"12\r", Line::Partial),
        (b"-9223372036854775808", Line::Partial),
        (b"\r\n", Line::Invalid),
        (b"1\n", Line::Invalid),
        (b"1\rx", Line::Invalid),
        (b"1x", Line::Invalid),
        (b"+1\r\n", Line::Invalid),
        (b"007\r\n", Line::Invalid),
        (b"111111111111111111111", Line::Invalid),
    ] {
        assert_eq!(integer_line(bytes, 0), line, "{:?}", bytes.escape_ascii().to_string());
    }
    assert_eq!(integer_line(b"5\r\n", 9), Line::Partial);
}

proptest! {
    #[test]
    fn integers_round_trip(value in any::<i64>(), shift in 0u32..64) {
        let value = value >> shift;
        let mut out = Vec::new();
        append_integer(&mut out, value);
        prop_assert_eq!(&out, &value.to_string().into_bytes());
        prop_assert_eq!(parse_integer(&out), Some(value));
        prop_assert_eq!(digit_count(value.unsigned_abs() as usize), value.unsigned_abs().to_string().len());
    }

    #[test]
    fn doubles_round_trip(bits in any::<u64>(), small in -1000i32..1000, power in -12i32..25) {
        for value in [f64::from_bits(bits), f64::from(small) / 8.0, f64::from(small) * 10f64.powi(power)] {
            let mut out = Vec::new();
            append_double(&mut out, value);
            let back = parse_double(&out).unwrap();
            prop_assert!(value.is_nan() && back.is_nan() || back.to_bits() == value.to_bits(), "{}", value);
            // A sign, 17 digits, a point and an exponent.
            prop_assert!(out.len() <= 24);
        }
    }
}
