//! Numbers of JSON, compared as they are written: without rounding, whatever their size. Exponents beyond
//! [`EXPONENT_MAX`] count as that.

use std::cmp::Ordering;

/// Maximum size of an exponent, below which it is exact.
const EXPONENT_MAX: i128 = i128::MAX / 2;

/// A number: `0.digits` times ten to the power of `exponent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Number {
    is_negative: bool,
    /// Digits without zeros at either end; none for zero.
    digits: Vec<u8>,
    exponent: i128,
}

impl Number {
    /// Reads a number of JSON; `None` if it is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (is_negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match rest.find(['e', 'E']) {
            Some(at) => (rest.get(..at)?, exponent(rest.get(at + 1..)?)?),
            None => (rest, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return None,
            Some((whole, fraction)) => (whole, fraction),
            None => (mantissa, ""),
        };
        let is_valid = !whole.is_empty()
            && (whole == "0" || !whole.starts_with('0'))
            && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
        if !is_valid {
            return None;
        }
        let all: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        let leading = all.iter().take_while(|digit| **digit == b'0').count();
        let trailing = all.iter().rev().take_while(|digit| **digit == b'0').count();
        if leading == all.len() {
            return Some(Self { is_negative: false, digits: Vec::new(), exponent: 0 });
        }
        let digits = all.get(leading..all.len() - trailing)?.to_vec();
        let shift = i128::try_from(whole.len()).ok()? - i128::try_from(leading).ok()?;
        Some(Self { is_negative, digits, exponent: exponent + shift })
    }

    fn sign(&self) -> i8 {
        match (self.digits.is_empty(), self.is_negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }
}

fn exponent(text: &str) -> Option<i128> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let size = digits.parse().unwrap_or(EXPONENT_MAX).min(EXPONENT_MAX);
    Some(if text.starts_with('-') { -size } else { size })
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        let size =
            || self.exponent.cmp(&other.exponent).then_with(|| self.digits.cmp(&other.digits));
        self.sign().cmp(&other.sign()).then_with(|| match self.sign() {
            -1 => size().reverse(),
            0 => Ordering::Equal,
            _ => size(),
        })
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> Number {
        Number::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn numbers_that_are_written_differently_are_equal() {
        for same in [
            ["1", "1.0", "1e0"],
            ["100", "1E2", "0.1e+3"],
            ["0", "-0", "0.00e9"],
            ["-2.50", "-2.5", "-25e-1"],
            ["1e9223372036854775807", "10e9223372036854775806", "0.1e9223372036854775808"],
        ] {
            for one in same {
                assert_eq!(number(one).cmp(&number(same[0])), Ordering::Equal, "{one}");
                assert_eq!(number(one), number(same[0]));
            }
        }
    }

    #[test]
    fn neighbours_beyond_the_precision_of_doubles_differ() {
        let ascending = [
            "-1e400",
            "-90071992547409930",
            "-0.1",
            "0",
            "1e-400",
            "0.1",
            "0.10000000000000000001",
            "9007199254740992",
            "9007199254740993",
            "18446744073709551616",
            "1e400",
            "1e9223372036854775807",
            "1e9223372036854775808",
            "1e99999999999999999999",
        ];
        for pair in ascending.windows(2) {
            assert!(number(pair[0]) < number(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn what_is_no_number_of_json_is_none() {
        for wrong in ["", "-", "01", "1.", ".5", "1e", "+1", "0x1", "1 ", "NaN", "1e+", "--1"] {
            assert_eq!(Number::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn whole_numbers_are_in_the_order_of_integers(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(number(&a.to_string()).cmp(&number(&b.to_string())), a.cmp(&b));
        }

        #[test]
        fn doubles_are_in_their_order(a in -1e300..1e300_f64, b in -1e300..1e300_f64) {
            let text = |x: f64| serde_json::to_string(&x).unwrap();
            prop_assert_eq!(number(&text(a)).cmp(&number(&text(b))), a.partial_cmp(&b).unwrap());
        }
    }
}
