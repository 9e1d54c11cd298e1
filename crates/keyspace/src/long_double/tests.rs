//! What is read, added and written is what Redis 7.0 on x86-64 reads, adds and writes.

use super::*;

fn sum(a: &str, b: &str) -> String {
    let [a, b] = [a, b].map(|text| LongDouble::parse(text.as_bytes()).unwrap());
    a.plus(b).unwrap().to_string()
}

/// Replies of Redis 7.0 on x86-64.
#[test]
fn sums_are_those_of_redis() {
    for (a, b, expected) in [
        ("0.1", "0.2", "0.3"),
        ("10.50", "0.1", "10.6"),
        ("5.0e3", "2.0e2", "5200"),
        ("3", "1.1", "4.1"),
        ("1", "-1", "0"),
        ("0", "-0.0", "0"),
        ("3000", "0.1", "3000.10000000000000009"),
        ("1e20", "1", "100000000000000000000"),
        ("123456789.123", "0.001", "123456789.12399999999615829"),
        ("1e-10", "1e-12", "0.000000000101"),
        ("0.1", "1e18", "1000000000000000000.125"),
        ("-5.5", "5.25", "-0.25"),
        ("99999999999999999999", "0.5", "100000000000000000000"),
        ("1", "1e-17", "1.00000000000000001"),
        ("1", "4e-18", "1"),
        ("1", "5e-18", "1"),
        ("0.7", "-0.1", "0.6"),
        ("-1e-30", "0", "0"),
        ("1e17", "0.3", "100000000000000000.296875"),
        ("7.123456789012345678", "2.2", "9.32345678901234568"),
    ] {
        assert_eq!(sum(a, b), expected, "{a} + {b}");
    }
}

#[test]
fn hexadecimal_numbers_are_numbers() {
    for (a, b, expected) in [
        ("0x10", "0", "16"),
        ("-0X1.8p3", "0", "-12"),
        ("0x.4", "0x1p-2", "0.5"),
        ("0x0p99999", "1", "1"),
    ] {
        assert_eq!(sum(a, b), expected, "{a} + {b}");
    }
    for text in ["0x", "0x.", "0xg", "0x1p", "0x1p99999", "0x1p-99999", "0x1.2.3"] {
        assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn texts_that_are_no_numbers_are_refused() {
    for text in ["", " 1", "1 ", "1x", ".", "e5", "1e", "nan", "1e5000", "1e-5000", "--1", "1.2.3"]
    {
        assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
    }
    assert_eq!(LongDouble::parse(&[b'1'; MAX_TEXT_BYTES + 1]), None);
    // What sums are stored as is a number again.
    for text in ["1e400", "-1e4932", "1e-4000"] {
        let number = LongDouble::parse(text.as_bytes()).unwrap();
        assert!(LongDouble::parse(number.to_string().as_bytes()).is_some(), "{text}");
    }
    for (text, same) in [("+5", "5"), (".5", "0.5"), ("5.", "5"), ("-0", "0"), ("1E3", "1000")] {
        assert_eq!(LongDouble::parse(text.as_bytes()).unwrap().to_string(), same);
    }
}

/// As Redis 7.0 on x86-64 takes and refuses them.
#[test]
fn what_is_smaller_than_a_normal_number_is_a_number_unless_it_is_zero() {
    for text in [
        "3.3e-4932",
        "-1e-4940",
        "3.6e-4951",
        "1.83e-4951",
        "0x1p-16383",
        "0x1p-16445",
        "0x1.8p-16446",
        "0x1.0000000000000000001p-16446",
    ] {
        assert_eq!(sum(text, "0"), "0", "{text}");
        assert_eq!(sum("0.5", text), "0.5", "{text}");
    }
    for text in ["1.82e-4951", "-1e-4952", "0x1p-16446", "0x1p-16447"] {
        assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn infinities_add_up_to_no_number() {
    let [up, down] = ["inf", "-Infinity"].map(|text| LongDouble::parse(text.as_bytes()).unwrap());
    assert!(!up.is_finite());
    assert_eq!(up.plus(down), None);
    assert_eq!(up.plus(up), Some(up));
    let most = LongDouble::parse(b"1e4932").unwrap();
    assert!(most.is_finite());
    assert!(!most.plus(most).unwrap().is_finite());
}

proptest::proptest! {
    #[test]
    fn integers_add_up_exactly(a in -(1_i64 << 61)..1 << 61, b in -(1_i64 << 61)..1 << 61) {
        proptest::prop_assert_eq!(sum(&a.to_string(), &b.to_string()), (a + b).to_string());
    }

    #[test]
    fn any_text_is_parsed_or_refused(text: Vec<u8>) {
        if let Some(number) = LongDouble::parse(&text) {
            let _ = number.plus(number).map(|sum| sum.to_string());
        }
    }
}
