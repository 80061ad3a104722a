//! Integers and floats as text, parsed and formatted as Redis does.
//!
//! Invariants:
//! - An integer has exactly one text: what [`parse_i64`] accepts is formatted to the same bytes. A
//!   value can therefore be stored as a number.
//! - A float is formatted with the fewest digits that parse to the same value.
//! - Sums ([`sum`]) have the precision and range of `long double`, and at most 17 digits after the
//!   point, as users expect of `INCRBYFLOAT`: 0.1 and 0.2 are 0.3.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod extended;

use std::fmt::Write as _;

use extended::Extended;

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

/// Parses an end of a range of scores as C does: spaces before it do not count, and a number that is
/// too large is infinite, one that is too small 0.
#[must_use]
pub fn parse_range_f64(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii_start();
    parse_f64(text).or_else(|| {
        let digits =
            text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
        std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
    })
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

/// Adds two floats given as text, as Redis does in `long double`; returns the sum as text without an
/// exponent.
///
/// # Errors
/// [`SumFault`]: an addend is not a float, or the sum is not finite.
pub fn sum(left: &[u8], right: &[u8]) -> Result<String, SumFault> {
    let (left, right) =
        (addend(left).ok_or(SumFault::Left)?, addend(right).ok_or(SumFault::Right)?);
    left.add(right).map(Extended::human).ok_or(SumFault::Infinite)
}

/// Whether [`sum`] can add a text: it is a finite float, or else an infinity.
#[must_use]
pub fn is_addend(text: &[u8]) -> Option<bool> {
    addend(text).map(Extended::is_finite)
}

fn addend(text: &[u8]) -> Option<Extended> {
    if text.len() > ADDEND_SIZE_MAX { None } else { Extended::parse(text) }
}

#[cfg(test)]
mod tests;
