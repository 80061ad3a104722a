//! Numbers as Redis parses and formats them.

use proptest::prelude::*;

use super::*;

fn double(value: f64) -> String {
    String::from_utf8(Double::new(value).as_bytes().to_vec()).unwrap()
}

#[test]
fn only_canonical_integers_are_read() {
    for (text, value) in [
        ("0", 0),
        ("-1", -1),
        ("42", 42),
        ("9223372036854775807", i64::MAX),
        ("-9223372036854775808", i64::MIN),
    ] {
        assert_eq!(parse_i64(text.as_bytes()), Some(value));
    }
    let refused = [
        "",
        "-",
        "-0",
        "00",
        "01",
        "-01",
        "+1",
        " 1",
        "1 ",
        "1a",
        "1.0",
        "0x1",
        "9223372036854775808",
        "-9223372036854775809",
        "99999999999999999999",
        "100000000000000000000000",
    ];
    for text in refused {
        assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
    }
    assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
    assert_eq!(parse_u64(b"18446744073709551616"), None);
}

#[test]
fn floats_are_read_as_by_redis() {
    for (text, value) in [
        ("1", 1.0),
        ("-1.5", -1.5),
        ("+2", 2.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1E-3", 0.001),
        ("inf", f64::INFINITY),
        ("+INF", f64::INFINITY),
        ("-Infinity", f64::NEG_INFINITY),
        ("0x10", 16.0),
        ("-0x1.8p1", -3.0),
        ("0e-999", 0.0),
        ("007", 7.0),
    ] {
        assert_eq!(parse_f64(text.as_bytes()), Some(value), "{text:?}");
    }
    let refused = [
        "", " 1", "1 ", "nan", "-nan", "NaN", "1x", "e5", ".", "+", "1e", "1e400", "-1e400",
        "1e-400", "0x", "0xp1", "0x1p5000", "abc", "1_0", "infi",
    ];
    for text in refused {
        assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
    }
}

#[test]
fn doubles_are_short_and_turn_to_exponents_where_g_does() {
    for (value, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-3.0, "-3"),
        (3.1, "3.1"),
        (0.1, "0.1"),
        (1234.5678, "1234.5678"),
        (0.0001, "0.0001"),
        (0.000_012, "1.2e-05"),
        (1e16, "10000000000000000"),
        (1e17, "1e+17"),
        (1.5e300, "1.5e+300"),
        (5e-324, "5e-324"),
        (-1.797_693_134_862_315_7e308, "-1.7976931348623157e+308"),
        (12_345_678_901_234_568.0, "12345678901234568"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
    ] {
        assert_eq!(double(value), text);
    }
}

#[test]
fn sums_are_those_of_redis() {
    // Replies of INCRBYFLOAT of Redis 7.0 on x86-64.
    for (left, right, expected) in [
        ("1", "-1.1", "-0.1"),
        ("0.1", "0.2", "0.3"),
        ("10.50", "0.1", "10.6"),
        ("5.0e3", "2.0e2", "5200"),
        ("17179869184", "1.5", "17179869185.5"),
        ("3", "-3", "0"),
        ("-0.5", "0.25", "-0.25"),
        ("1e20", "1", "100000000000000000000"),
        ("0", "3.14159265358979323846", "3.14159265358979324"),
        ("1234567890123456789.25", "0.5", "1234567890123456789.75"),
        ("123456789012345678901234567890", "1", "123456789012345678899921813504"),
        ("0.30000000000000004", "0", "0.30000000000000004"),
        ("1e-20", "0", "0"),
        ("1e22", "-1e22", "0"),
        ("0x10", "1", "17"),
        ("0x123456789abcdef1", "0x.8", "1311768467463790321.5"),
        ("-0X1.8p-1", "0", "-0.75"),
        (".5", "5.", "5.5"),
        ("-1e-30", "1", "1"),
    ] {
        let found = sum(left.as_bytes(), right.as_bytes());
        assert_eq!(found.as_deref(), Ok(expected), "{left} + {right}");
    }
    let large = sum(b"0", b"1e400").unwrap();
    assert!(large.starts_with("1000000000000000000028188068394758651458645") && large.len() == 401);
    for (left, right) in [("inf", "1"), ("1", "-inf"), ("1e4932", "1e4932")] {
        assert_eq!(sum(left.as_bytes(), right.as_bytes()), Err(SumFault::Infinite));
    }
    for text in ["", "x", "nan", " 1", "1 ", "1e", "e1", ".", "1e5000", "1e-5000", "1_0", "++1"] {
        assert_eq!(sum(text.as_bytes(), b"1"), Err(SumFault::Left), "{text}");
    }
}

#[test]
fn ends_of_ranges_are_read_as_c_does() {
    assert_eq!(parse_range_f64(b" 1.5"), Some(1.5));
    assert_eq!(parse_range_f64(b"-1e400"), Some(f64::NEG_INFINITY));
    assert_eq!(parse_range_f64(b"1e-400"), Some(0.0));
    assert_eq!(parse_range_f64(b"inf"), Some(f64::INFINITY));
    for text in ["1 ", "nan", "a", "1e", "( 1"] {
        assert_eq!(parse_range_f64(text.as_bytes()), None, "{text}");
    }
}

proptest! {
    #[test]
    fn integers_have_one_text(value: i64, noise in "[-+0-9 .]{0,21}") {
        prop_assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
        if let Some(read) = parse_i64(noise.as_bytes()) {
            prop_assert_eq!(read.to_string(), noise);
        }
    }

    #[test]
    fn doubles_read_back_the_same(bits: u64) {
        let value = f64::from_bits(bits);
        prop_assume!(!value.is_nan());
        let text = double(value);
        prop_assert_eq!(parse_f64(text.as_bytes()).map(f64::to_bits), Some(bits), "{}", text);
        if value.is_finite() && value.abs() >= 1.0 {
            let human = sum(text.as_bytes(), b"0").unwrap();
            prop_assert_eq!(parse_f64(human.as_bytes()), Some(value));
        }
    }

    #[test]
    fn arbitrary_bytes_are_numbers_or_not(text in proptest::collection::vec(any::<u8>(), 0..24)) {
        let read = (parse_i64(&text), parse_f64(&text), sum(&text, b"1"));
        prop_assert!(read.0.is_none() || read.1.is_some() && read.2.is_ok());
        prop_assert!(read.1.is_none_or(f64::is_infinite) || read.2.is_ok());
        prop_assert!(parse_range_f64(&text).is_some() || read.1.is_none());
    }
}

#[test]
fn a_text_longer_than_any_number_is_not_added_to() {
    let zeros = |size: usize| "0".repeat(size).into_bytes();
    assert_eq!(sum(&zeros(ADDEND_SIZE_MAX), b"1.5").as_deref(), Ok("1.5"));
    assert_eq!(sum(&zeros(ADDEND_SIZE_MAX + 1), b"1.5"), Err(SumFault::Left));
    assert_eq!(sum(b"1.5", &zeros(ADDEND_SIZE_MAX + 1)), Err(SumFault::Right));
    assert_eq!(sum(b"0.1", b"0.2").as_deref(), Ok("0.3"));
    assert_eq!(sum(b"1e4932", b"1e4932"), Err(SumFault::Infinite));
}
