//! Numbers and times as PostgreSQL writes them.
//!
//! | type | the engine | here |
//! |---|---|---|
//! | `double precision` | `0.0`, `1e16`, `0.00001` | `0`, `1e+16`, `1e-05` |
//! | unconstrained `numeric` | 20 digits after the point | without trailing zeros |
//! | `time` | three, six or nine digits | without trailing zeros |

/// The exponent from which a `real` or a `double precision` is written with an exponent.
pub(super) const REAL_EXPONENT: i32 = 6;
pub(super) const DOUBLE_EXPONENT: i32 = 15;

/// A floating point number from its shortest digits with an exponent, such as `1.5e-7`.
pub(super) fn float(shortest: &str, exponent_max: i32) -> String {
    let parts = shortest.split_once('e');
    let Some((digits, exponent)) =
        parts.and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)))
    else {
        return match shortest {
            "inf" => "Infinity".to_owned(),
            "-inf" => "-Infinity".to_owned(),
            other => other.to_owned(),
        };
    };
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    if exponent < -4 || exponent >= exponent_max {
        let of_exponent = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{digits}e{of_exponent}{:02}", exponent.unsigned_abs());
    }
    let digits = digits.replace('.', "");
    let Ok(whole) = usize::try_from(exponent) else {
        let zeros = usize::try_from(exponent.unsigned_abs()).unwrap_or(1) - 1;
        return format!("{sign}0.{}{digits}", "0".repeat(zeros));
    };
    match digits.split_at_checked(whole + 1) {
        Some((whole, "")) => format!("{sign}{whole}"),
        Some((whole, fraction)) => format!("{sign}{whole}.{fraction}"),
        None => format!("{sign}{digits}{}", "0".repeat(whole + 1 - digits.len())),
    }
}

/// A number or a time without the zeros at the end of its fraction.
pub(super) fn trimmed(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floating_point_numbers_have_an_exponent_where_postgresql_has_one() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (-2.5, "-2.5"),
            (100.0, "100"),
            (123_456.789, "123456.789"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1.25e20, "1.25e+20"),
            (0.0001, "0.0001"),
            (0.00012, "0.00012"),
            (0.00001, "1e-05"),
            (1.7e308, "1.7e+308"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(float(&format!("{value:e}"), DOUBLE_EXPONENT), expected);
        }
        assert_eq!(float(&format!("{:e}", 16_777_216_f32), REAL_EXPONENT), "1.6777216e+07");
        assert_eq!(float(&format!("{:e}", 123_456_f32), REAL_EXPONENT), "123456");
    }
}
