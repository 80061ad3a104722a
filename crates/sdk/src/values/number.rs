//! Which numbers in text a floating-point column can hold without becoming other numbers.
//!
//! A double has 15 to 17 decimal digits. A text of more, such as an id of 19 digits or an amount, is
//! no double, although it parses as one.

/// Digits with which every decimal number has a double of its own.
const DIGITS_SAFE: usize = 15;
/// Maximum number of digits that are compared.
const DIGITS_MAX: usize = 1_000;
/// Smallest magnitude at which [`DIGITS_SAFE`] holds, with room to spare: below, a double has fewer
/// digits.
const NORMAL_MIN: f64 = 1e-300;
/// Maximum magnitude of the exponent of a number that is read as `numeric`.
const EXPONENT_MAX: u32 = 400;

/// Digits without leading zeros, which would be lost, and a point if that is allowed.
pub fn is_plain(text: &str, with_point: bool) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = match unsigned.split_once('.') {
        Some((whole, fraction)) if with_point => (whole, fraction),
        _ => (unsigned, "0"),
    };
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    is_digits(whole) && is_digits(fraction) && (whole == "0" || !whole.starts_with('0'))
}

/// A number with a point or an exponent that `numeric` holds with all its digits.
pub fn is_numeric(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent = exponent.parse::<i32>().map(i32::unsigned_abs);
    is_plain(mantissa, true) && exponent.is_ok_and(|exponent| exponent <= EXPONENT_MAX)
}

/// A number with a point or an exponent that a double holds, not a word that parses as one.
pub fn is_float(text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let is_named = matches!(text, "NaN" | "Infinity" | "-Infinity");
    is_named || (is_plain(mantissa, true) && !is_changed_by_float(text))
}

/// Whether a number becomes another one as a double, or an infinity. What is no number does not.
///
/// A number without an exponent is unchanged if the shortest digits of the double are the same
/// number. One with an exponent, which programs write for doubles only, may also be the double with
/// more digits than it needs, as `printf("%.17e")` writes it.
pub fn is_changed_by_float(text: &str) -> bool {
    let (mantissa, has_exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, _)) => (mantissa, true),
        None => (text, false),
    };
    if !mantissa.bytes().any(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let Ok(float) = text.parse::<f64>() else { return false };
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).skip_while(|digit| *digit == b'0');
    let digits = digits.count();
    if digits == 0 || (digits <= DIGITS_SAFE && float.is_finite() && float.abs() > NORMAL_MIN) {
        return false;
    }
    let number = decimal(text);
    if !float.is_finite() || number.is_none() {
        return true;
    }
    let is_shortest = decimal(&format!("{float:e}")) == number;
    let is_written_out = || {
        let places = digits - 1;
        digits <= DIGITS_MAX && decimal(&format!("{float:.places$e}")) == number
    };
    !(is_shortest || has_exponent && is_written_out())
}

/// The sign of a number other than zero, its digits without zeros at either end, and the power of
/// ten of its point before them.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let is_negative = mantissa.starts_with('-');
    let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let point = i64::try_from(whole.len()).ok()?.checked_add(exponent)?.checked_sub(zeros)?;
    match significant.trim_end_matches('0') {
        "" => Some((false, String::new(), 0)),
        significant => Some((is_negative, significant.to_owned(), point)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_that_a_double_rounds_is_changed() {
        for text in [
            "9007199254740993",
            "-9007199254740993",
            "0.1234567890123456789",
            "0.10000000000000001",
            "12345678901234567890",
            "1e400",
            "1e-400",
            "1.23456789012345e-310",
            "9007199254740993e0",
        ] {
            assert!(is_changed_by_float(text) && !is_float(text), "{text}");
        }
    }

    #[test]
    fn a_number_that_a_double_holds_is_not_changed() {
        for text in [
            "0",
            "-0.0",
            "0e5",
            "1e5",
            "1E+5",
            "0.1",
            "0.100000000000000000000000",
            "9007199254740992",
            "9007199254740994",
            "100000000000000000000000",
            "1.7976931348623157e308",
            "5e-324",
            "1.000000000000000056e-01",
            "1.0000000000000001e-1",
        ] {
            assert!(!is_changed_by_float(text) && is_float(text), "{text}");
        }
        assert!(["NaN", "x", "", "e5", "infinity"].iter().all(|text| !is_changed_by_float(text)));
    }

    #[test]
    fn a_number_with_an_exponent_is_numeric_unless_it_is_endless() {
        assert!(["1e5", "-1.5E-7", "12", "0.5"].iter().all(|text| is_numeric(text)));
        assert!(["1e401", "NaN", "01", "1e", "1.", "e5", "1e5.0"].iter().all(|it| !is_numeric(it)));
    }

    proptest! {
        #[test]
        fn every_double_is_unchanged_as_its_own_text(bits in any::<u64>()) {
            let float = f64::from_bits(bits);
            prop_assume!(float.is_finite());
            let texts = [format!("{float:e}"), format!("{float}"), format!("{float:.17e}")];
            for text in texts {
                prop_assert!(!is_changed_by_float(&text), "{}", text);
            }
        }

        #[test]
        fn an_integer_that_is_not_changed_is_printed_again_as_it_was(number in any::<i64>()) {
            let text = number.to_string();
            let printed = format!("{}", number as f64);
            prop_assert_eq!(is_changed_by_float(&text), printed != text, "{}", printed);
        }
    }
}
