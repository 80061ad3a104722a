//! 256-bit integers: powers of ten and rounded quotients.

use datafusion::arrow::datatypes::i256;

/// Ten to a power, up to 76.
pub(super) fn power_of_ten(exponent: u32) -> Option<i256> {
    i256::from_i128(10).checked_pow(exponent)
}

/// `a * 10^up / b`, rounded half away from zero. `None` if `b` is zero, or the result has more than
/// 255 bits.
pub(super) fn quotient(a: i256, b: i256, up: u32) -> Option<i256> {
    let is_negative = a.is_negative() != b.is_negative();
    let (mut whole, mut rest) = (a.checked_div(b)?, a.checked_rem(b)?);
    let power = power_of_ten(up);
    if let Some((power, scaled)) = power.and_then(|it| Some((it, rest.checked_mul(it)?))) {
        whole = whole.checked_mul(power)?.checked_add(scaled.checked_div(b)?)?;
        rest = scaled.checked_rem(b)?;
    } else {
        let ten = i256::from_i128(10);
        for _ in 0..up {
            let next = rest.checked_mul(ten)?;
            whole = whole.checked_mul(ten)?.checked_add(next.checked_div(b)?)?;
            rest = next.checked_rem(b)?;
        }
    }
    let (rest, b) = (rest.checked_abs()?, b.checked_abs()?);
    if rest >= b.checked_sub(rest)? {
        whole = whole.checked_add(if is_negative { i256::MINUS_ONE } else { i256::ONE })?;
    }
    Some(whole)
}

/// Whether a number has at most this many digits.
pub(super) fn fits(value: i256, precision: u8) -> bool {
    let limit = power_of_ten(u32::from(precision));
    limit.is_none_or(|limit| value.checked_abs().is_some_and(|value| value < limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(a: i128, b: i128, up: u32) -> Option<String> {
        quotient(i256::from_i128(a), i256::from_i128(b), up).map(|it| it.to_string())
    }

    #[test]
    fn quotients_are_rounded_half_away_from_zero() {
        assert_eq!(shown(2, 3, 4).as_deref(), Some("6667"));
        assert_eq!(shown(-2, 3, 4).as_deref(), Some("-6667"));
        assert_eq!(shown(2, -4, 0).as_deref(), Some("-1"));
        assert_eq!(shown(1, 2, 0).as_deref(), Some("1"));
        assert_eq!(shown(-1, 3, 0).as_deref(), Some("0"));
        assert_eq!(shown(7, 0, 3), None);
    }

    #[test]
    fn a_quotient_that_does_not_fit_is_none_and_a_long_one_is_exact() {
        let most = power_of_ten(76).unwrap();
        assert_eq!(quotient(most, i256::ONE, 1), None);
        // Digit by digit: the remainder times the power has more than 255 bits.
        let three = i256::from_i128(3).checked_mul(power_of_ten(60).unwrap()).unwrap();
        let two = i256::from_i128(2).checked_mul(power_of_ten(60).unwrap()).unwrap();
        assert_eq!(quotient(two, three, 24).unwrap().to_string(), "666666666666666666666667");
        assert!(fits(most.checked_sub(i256::ONE).unwrap(), 76) && !fits(most, 76));
    }
}
