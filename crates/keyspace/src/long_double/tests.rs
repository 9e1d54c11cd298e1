//! What is read, added and written is what Redis 7.0 on x86-64 reads, adds and writes, and texts are what long division
//! makes of them.

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

/// What a text of digits and a power of ten is, with every digit for itself and every bit of the quotient.
fn by_long_division(digits: &str, power: i64) -> Option<LongDouble> {
    let (mut rest, mut divisor) = (Natural::ZERO, Natural(vec![1]));
    digits.bytes().for_each(|digit| rest.multiply_add(10, u64::from(digit - b'0')));
    if rest.is_zero() {
        return Some(LongDouble { negative: false, size: Size::Zero });
    }
    for _ in 0..power.unsigned_abs() {
        let scaled = if power > 0 { &mut rest } else { &mut divisor };
        scaled.multiply_add(10, 0);
    }
    let shift = (67 + i64::from(divisor.bits()) - i64::from(rest.bits())).max(0);
    rest = rest.shifted_left(shift as u32);
    let mut whole = Natural::ZERO;
    for step in (0..=rest.bits().saturating_sub(divisor.bits())).rev() {
        let part = divisor.shifted_left(step);
        let fits = rest.at_least(&part);
        if fits {
            rest.subtract(&part);
        }
        whole.multiply_add(2, u64::from(fits));
    }
    let size = rounded(&whole, -shift, !rest.is_zero())?;
    (size != Size::Infinite).then_some(LongDouble { negative: false, size })
}

/// A long number is divided by a short one in as few steps as by a long one.
#[test]
fn a_quotient_has_no_more_bits_than_decide_about_rounding() {
    let long = |digit: char, count: usize| {
        Digits::parse(digit.to_string().repeat(count).as_bytes(), 10, b'e').unwrap().digits
    };
    let numbers =
        [long('1', 1), long('9', 1), long('7', 30), long('1', MAX_TEXT_BYTES), long('9', 5000)];
    for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (a, b))) {
        let (whole, ..) = a.leading_quotient(b);
        assert!((67..=68).contains(&whole.bits()), "{} / {}", a.bits(), b.bits());
    }
}

#[test]
fn long_texts_are_what_long_division_makes_of_them() {
    let nines = "9".repeat(4930);
    for (digits, power) in [
        (&nines[..], -30),
        (&nines[..], -4929),
        (&nines[..], 0),
        (&nines[..], 3),
        (&nines[..20], 4912),
        (&nines[..20], 4913),
        ("1", 4932),
        ("2", 4932),
        ("1", -4931),
        ("36", -4952),
        ("182", -4953),
        ("183", -4953),
    ] {
        let parsed = LongDouble::parse(format!("{digits}e{power}").as_bytes());
        assert_eq!(parsed, by_long_division(digits, power), "{} e {power}", digits.len());
    }
}

proptest::proptest! {
    #[test]
    fn texts_are_what_long_division_makes_of_them(
        digits in proptest::collection::vec(0_u8..10, 1..300),
        power in -400_i64..400,
        point in 0_usize..300,
    ) {
        let digits: String = digits.iter().map(|digit| char::from(b'0' + digit)).collect();
        let (whole, fraction) = digits.split_at(point.min(digits.len()));
        let parsed = LongDouble::parse(format!("{whole}.{fraction}e{power}").as_bytes());
        let wanted = by_long_division(&digits, power - fraction.len() as i64);
        proptest::prop_assert_eq!(parsed, wanted, "{}.{}e{}", whole, fraction, power);
    }

    /// Halfway between two numbers, and a little above and below that.
    #[test]
    fn ties_are_what_long_division_makes_of_them(half: u64, power in 0_u32..200, zeros in 0_usize..40) {
        let half = Natural::from(1_u128 << 64 | u128::from(half | 1));
        let mut below = half.clone().times_five_to(power);
        below.subtract(&Natural(vec![1]));
        let (tie, below) = (half.times_five_to(power).decimal(), below.decimal());
        let above = format!("{tie}{}1", "0".repeat(zeros));
        let below = format!("{below}{}", "9".repeat(zeros + 1));
        for digits in [&tie, &above, &below] {
            let more = digits.len() as i64 - tie.len() as i64;
            let power = -i64::from(power) - more;
            let parsed = LongDouble::parse(format!("{digits}e{power}").as_bytes());
            proptest::prop_assert_eq!(parsed, by_long_division(digits, power), "{}e{}", digits, power);
        }
    }

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
