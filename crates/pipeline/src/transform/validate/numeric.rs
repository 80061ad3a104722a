//! Order of `numeric` values by their text, in PostgreSQL's format: exact, with any number of
//! digits.
//!
//! `-Infinity` is the least; only `NaN` is above `Infinity`, and it is equal to itself.

use std::cmp::Ordering;

/// The parts of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number<'a> {
    /// Special values: `-Infinity` is -1, `Infinity` 1, `NaN` 2.
    Special(i8),
    Finite {
        is_negative: bool,
        /// Digits before the point, without leading zeros.
        whole: &'a str,
        /// Digits after it, without trailing zeros.
        fraction: &'a str,
    },
}

/// Whether a text is a number.
pub(in crate::transform) fn is_numeric(text: &str) -> bool {
    parse(text).is_some()
}

/// The order of two numbers; `None` if one of the texts is not a number.
pub(in crate::transform) fn compare(left: &str, right: &str) -> Option<Ordering> {
    let (left, right) = (parse(left)?, parse(right)?);
    Some(match (left, right) {
        (Number::Special(left), Number::Special(right)) => left.cmp(&right),
        (Number::Special(left), Number::Finite { .. }) => left.cmp(&0),
        (Number::Finite { .. }, Number::Special(right)) => 0.cmp(&right),
        (
            Number::Finite { is_negative, whole, fraction },
            Number::Finite { is_negative: other, whole: whole2, fraction: fraction2 },
        ) => match (is_negative, other) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => magnitude((whole, fraction), (whole2, fraction2)),
            (true, true) => magnitude((whole2, fraction2), (whole, fraction)),
        },
    })
}

/// Appends a number so that equal numbers have equal bytes: `1.50` as `1.5`, `-0.0` as `0`.
pub(in crate::transform) fn write_canonical(text: &str, out: &mut Vec<u8>) {
    match parse(text) {
        Some(Number::Finite { is_negative, whole, fraction }) => {
            if is_negative {
                out.push(b'-');
            }
            out.extend_from_slice(if whole.is_empty() { b"0" } else { whole.as_bytes() });
            if !fraction.is_empty() {
                out.push(b'.');
                out.extend_from_slice(fraction.as_bytes());
            }
        }
        _ => out.extend_from_slice(text.as_bytes()),
    }
}

/// The order of two numbers of one sign. Digits of equal count are ordered by their bytes.
fn magnitude(left: (&str, &str), right: (&str, &str)) -> Ordering {
    left.0.len().cmp(&right.0.len()).then(left.0.cmp(right.0)).then(left.1.cmp(right.1))
}

fn parse(text: &str) -> Option<Number<'_>> {
    match text {
        "NaN" => return Some(Number::Special(2)),
        "Infinity" => return Some(Number::Special(1)),
        "-Infinity" => return Some(Number::Special(-1)),
        _ => {}
    }
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    // There is only one zero.
    let is_negative = is_negative && !(whole.is_empty() && fraction.is_empty());
    Some(Number::Finite { is_negative, whole, fraction })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_are_in_order() {
        let ordered = [
            "-Infinity",
            "-100000000000000000000000000000.5",
            "-10",
            "-9.99",
            "-0.001",
            "0",
            "0.001",
            "0.01",
            "9.99",
            "10",
            "10.000000000000000000000000000000000000001",
            "100000000000000000000000000000",
            "Infinity",
            "NaN",
        ];
        for (index, left) in ordered.iter().enumerate() {
            for (other, right) in ordered.iter().enumerate() {
                assert_eq!(compare(left, right), Some(index.cmp(&other)), "{left} {right}");
            }
        }
    }

    #[test]
    fn equal_numbers_are_equal_however_they_are_written() {
        for (left, right) in [("1.50", "1.5"), ("0", "-0.00"), ("007", "+7."), (".5", "0.5")] {
            assert_eq!(compare(left, right), Some(Ordering::Equal), "{left} {right}");
            let canonical = |text| {
                let mut out = Vec::new();
                write_canonical(text, &mut out);
                out
            };
            assert_eq!(canonical(left), canonical(right), "{left} {right}");
        }
    }

    #[test]
    fn what_is_no_number_has_no_order() {
        for text in ["", ".", "-", "1e5", "1,5", "nan", "--1", "1.2.3"] {
            assert!(!is_numeric(text), "{text}");
        }
    }
}
