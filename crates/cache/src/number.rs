//! Integers and floats as text, parsed and formatted as Redis does.
//!
//! Invariants:
//! - An integer has exactly one text: what [`parse_i64`] accepts is formatted to the same bytes. A
//!   value can therefore be stored as a number.
//! - A float is formatted with the fewest digits that parse to the same value.
//! - Adding decimal numbers ([`add_decimal`]) is exact up to 17 digits after the point, as users
//!   expect of `INCRBYFLOAT`: 0.1 and 0.2 are 0.3.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::fmt::Write as _;

/// Parses a canonical decimal integer: no sign but `-`, no leading zero, no space.
#[must_use]
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let magnitude = parse_u64(digits)?;
    match (negative, magnitude) {
        (true, 0) => None,
        (true, magnitude) => 0i64.checked_sub_unsigned(magnitude),
        (false, magnitude) => i64::try_from(magnitude).ok(),
    }
}

/// Parses a canonical decimal integer without a sign.
#[must_use]
#[inline]
pub fn parse_u64(digits: &[u8]) -> Option<u64> {
    match digits {
        [b'0'] => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 20 => {}
        _ => return None,
    }
    let mut value = 0u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Parses a float: decimal or hexadecimal, with or without an exponent, or an infinity. Refuses
/// NaN, spaces, and numbers that overflow to infinity or underflow to zero.
#[must_use]
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let unsigned = match text {
        [b'+' | b'-', rest @ ..] => rest,
        rest => rest,
    };
    if let [b'0', b'x' | b'X', hex @ ..] = unsigned {
        let value = parse_hex(hex)?;
        return Some(if text.first() == Some(&b'-') { -value } else { value });
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    if value.is_nan() {
        return None;
    }
    let named = matches!(unsigned.first(), Some(b'i' | b'I'));
    let overflown = value.is_infinite() && !named;
    let mantissa = unsigned.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    let underflown = value == 0.0 && mantissa.iter().any(|byte| matches!(byte, b'1'..=b'9'));
    (!overflown && !underflown).then_some(value)
}

/// The digits after `0x`, with a point and a binary exponent, as C reads them.
fn parse_hex(text: &[u8]) -> Option<f64> {
    let mut parts = text.splitn(2, |byte| matches!(byte, b'p' | b'P'));
    let mantissa = parts.next()?;
    let exponent: i32 = match parts.next() {
        Some(exponent) => std::str::from_utf8(exponent).ok()?.parse().ok()?,
        None => 0,
    };
    let (mut value, mut places, mut digits, mut in_fraction) = (0f64, 0i32, 0usize, false);
    for &byte in mantissa {
        if byte == b'.' && !in_fraction {
            in_fraction = true;
            continue;
        }
        let digit = char::from(byte).to_digit(16)?;
        value = value * 16.0 + f64::from(digit);
        places += if in_fraction { 4 } else { 0 };
        digits += 1;
    }
    // With more digits the sum above could lose what the exponent brings back.
    if digits == 0 || digits > 200 || exponent.abs() > 2000 {
        return None;
    }
    // In two steps, so that neither power alone leaves the range.
    let shift = exponent - places;
    let scaled = value * 2f64.powi(shift / 2) * 2f64.powi(shift - shift / 2);
    (scaled.is_finite() && (scaled != 0.0 || value == 0.0)).then_some(scaled)
}

/// Maximum size in bytes of the text of a double: sign, 17 digits, a point, `0.000` or `e-308`.
const DOUBLE_SIZE_MAX: usize = 32;

/// The text of a double, kept on the stack: as `%.17g` would write it, with the fewest digits that
/// parse to the same value. `inf`, `-inf`, `nan`; an exponent below 1e-4 and from 1e17 on.
#[derive(Debug, Clone, Copy)]
pub struct Double {
    text: [u8; DOUBLE_SIZE_MAX],
    len: usize,
}

impl Double {
    /// Writes `value`.
    #[must_use]
    pub fn new(value: f64) -> Self {
        let mut out = Self { text: [0; DOUBLE_SIZE_MAX], len: 0 };
        if value.is_nan() {
            out.put(b"nan");
        } else if value.is_infinite() {
            out.put(if value > 0.0 { b"inf" } else { b"-inf" });
        } else if let Some(integer) = exact_integer(value) {
            out.put(itoa::Buffer::new().format(integer).as_bytes());
        } else {
            out.put_finite(value);
        }
        out
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.text.get(..self.len).unwrap_or_default()
    }

    fn put(&mut self, bytes: &[u8]) {
        if let Some(room) = self.text.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    fn put_finite(&mut self, value: f64) {
        // The standard library finds the shortest digits; this code places the point.
        let mut scientific = Self { text: [0; DOUBLE_SIZE_MAX], len: 0 };
        let written = write!(scientific, "{value:e}");
        debug_assert!(written.is_ok(), "every double fits");
        let (mantissa, exponent) = split_scientific(scientific.as_bytes());
        let (sign, mantissa) = match mantissa {
            [b'-', rest @ ..] => (&b"-"[..], rest),
            rest => (&b""[..], rest),
        };
        let (first, rest) = mantissa.split_at(1.min(mantissa.len()));
        let rest = rest.strip_prefix(b".").unwrap_or(rest);
        self.put(sign);
        match usize::try_from(exponent) {
            Ok(exponent @ 0..=16) => {
                let (whole, fraction) = rest.split_at(exponent.min(rest.len()));
                self.put(first);
                self.put(whole);
                (whole.len()..exponent).for_each(|_| self.put(b"0"));
                self.put(if fraction.is_empty() { b"" } else { b"." });
                self.put(fraction);
            }
            Err(_) if exponent >= -4 => {
                self.put(b"0.");
                (exponent..-1).for_each(|_| self.put(b"0"));
                self.put(first);
                self.put(rest);
            }
            _ => {
                self.put(first);
                self.put(if rest.is_empty() { b"" } else { b"." });
                self.put(rest);
                self.put(if exponent < 0 { b"e-" } else { b"e+" });
                self.put(if exponent.abs() < 10 { b"0" } else { b"" });
                self.put(itoa::Buffer::new().format(exponent.unsigned_abs()).as_bytes());
            }
        }
    }
}

impl std::fmt::Write for Double {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}

/// Returns the mantissa and the exponent of `1.5e-7`.
fn split_scientific(text: &[u8]) -> (&[u8], i32) {
    let at = text.iter().position(|&byte| byte == b'e').unwrap_or(text.len());
    let exponent = text.get(at + 1..).unwrap_or_default();
    let exponent = parse_i64(exponent).and_then(|exponent| i32::try_from(exponent).ok());
    (text.get(..at).unwrap_or_default(), exponent.unwrap_or(0))
}

/// Returns `value` if it is an integer that a double holds exactly, and not negative zero.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn exact_integer(value: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = value.trunc() == value && value.abs() <= EXACT;
    (whole && (value != 0.0 || value.is_sign_positive())).then_some(value as i64)
}

/// Formats `value` without an exponent, with the fewest digits that parse to the same value.
#[must_use]
pub fn format_human(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value}") }
}

/// Maximum size in bytes of a number that is added to, that of Redis: a longer text is refused
/// unread.
pub const ADDEND_SIZE_MAX: usize = 5 * 1024 - 1;
/// Maximum size in bytes of the text of an integer.
pub const INTEGER_SIZE_MAX: usize = 20;

/// Why [`sum`] has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SumFault {
    /// The first addend is not a float.
    Left,
    /// The second addend is not a float.
    Right,
    /// The sum is not finite.
    Infinite,
}

/// Adds two floats given as text; returns the sum as text without an exponent.
///
/// Decimal numbers are added digit by digit where possible: 0.1 and 0.2 make 0.3.
///
/// # Errors
/// [`SumFault`]: an addend is not a float, or the sum is not finite.
pub fn sum(left: &[u8], right: &[u8]) -> Result<String, SumFault> {
    let read = |text: &[u8]| if text.len() > ADDEND_SIZE_MAX { None } else { parse_f64(text) };
    let sum = read(left).ok_or(SumFault::Left)? + read(right).ok_or(SumFault::Right)?;
    if !sum.is_finite() {
        return Err(SumFault::Infinite);
    }
    Ok(add_decimal(left, right).unwrap_or_else(|| format_human(sum)))
}

/// Digits after the point that [`add_decimal`] keeps.
const FRACTION_DIGITS: usize = 17;
/// 10 to that power, the value of one unit.
const UNIT: i128 = 100_000_000_000_000_000;

/// Adds two floats given as text and returns the sum as text without an exponent; `None` if either
/// is not a finite float, or their sum is not finite.
///
/// Exact if both have at most 17 digits after the point and 20 before it; otherwise a sum of
/// doubles.
#[must_use]
pub fn add_decimal(left: &[u8], right: &[u8]) -> Option<String> {
    let values = (parse_f64(left)?, parse_f64(right)?);
    if let (Some(left), Some(right)) = (fixed(left), fixed(right)) {
        return Some(format_fixed(left + right));
    }
    let sum = values.0 + values.1;
    sum.is_finite().then(|| format_human(sum))
}

/// Returns a decimal number in units of 1e-17; `None` if that would lose digits or overflow.
fn fixed(text: &[u8]) -> Option<i128> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let at = text.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(text.len());
    let (mantissa, exponent) = text.split_at_checked(at)?;
    let exponent: i64 = match exponent {
        [] => 0,
        [_, digits @ ..] => std::str::from_utf8(digits).ok()?.parse().ok()?,
    };
    let point = mantissa.iter().position(|&byte| byte == b'.').unwrap_or(mantissa.len());
    let (whole, fraction) = mantissa.split_at_checked(point)?;
    let fraction = fraction.strip_prefix(b".").unwrap_or(fraction);
    // Number of positions by which the digits are shifted left to count units of 1e-17.
    let padding = i64::try_from(FRACTION_DIGITS).ok()?.checked_add(exponent)?;
    let padding =
        usize::try_from(padding.checked_sub(i64::try_from(fraction.len()).ok()?)?).ok()?;
    if whole.len().checked_add(fraction.len())?.checked_add(padding)? > 20 + FRACTION_DIGITS {
        return None;
    }
    let mut value = 0i128;
    for byte in whole.iter().chain(fraction).chain(std::iter::repeat_n(&b'0', padding)) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 37 digits at most: these fit 128 bits, and so does the sum of two of them.
        value = value * 10 + i128::from(digit);
    }
    Some(if negative { -value } else { value })
}

fn format_fixed(value: i128) -> String {
    let (whole, fraction) = (value.unsigned_abs() / UNIT.unsigned_abs(), value % UNIT);
    let sign = if value < 0 { "-" } else { "" };
    if fraction == 0 {
        return format!("{sign}{whole}");
    }
    let digits = format!("{:017}", fraction.unsigned_abs());
    format!("{sign}{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests;
