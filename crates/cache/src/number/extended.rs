//! Floats of 64 bits of precision, as x87 has them: the `long double` in which Redis adds.
//!
//! Invariants:
//! - A mantissa other than 0 has its highest bit set. So the exponents order the magnitudes.
//! - Reading, adding and writing round as C does: to the nearest, ties to even.

use std::cmp::Ordering;

/// Exponent of the highest bit of the largest number.
const EXPONENT_MAX: i32 = 16_383;
/// Exponent of the lowest bit of the smallest number.
const EXPONENT_MIN: i32 = -16_445;
/// Position of the decimal point, in digits, beyond which every number is too large or too small.
const POINT_MAX: i64 = 5_000;
/// Number of bits of a quotient: a few more than a mantissa has.
const QUOTIENT_BITS: u32 = 68;
/// Number of digits after the point that are written.
const FRACTION_DIGITS: usize = 17;
/// 10 to that power.
const UNIT: u128 = 100_000_000_000_000_000;

/// Number of digits that are multiplied or divided at a time.
const GROUP_DIGITS: u64 = 9;
/// 10 to that power.
const GROUP: u32 = 1_000_000_000;

/// A finite number: `mantissa` times 2 to the power of `exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Finite {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// A number, or an infinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extended(Option<Finite>);

impl Extended {
    /// Parses a float as [`parse_f64`](super::parse_f64) does, with a larger range and precision.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if matches!(unsigned, [b'i' | b'I', ..]) {
            return super::parse_f64(unsigned).map(|_| Self(None));
        }
        if let [b'0', b'x' | b'X', digits @ ..] = unsigned {
            return hexadecimal(negative, digits).map(|finite| Self(Some(finite)));
        }
        decimal(negative, unsigned).map(|finite| Self(Some(finite)))
    }

    pub(super) fn is_finite(self) -> bool {
        self.0.is_some()
    }

    /// The sum; `None` if it is not finite.
    pub(super) fn add(self, other: Self) -> Option<Self> {
        let (mut large, mut small) = (self.0?, other.0?);
        let rank = |of: &Finite| if of.mantissa == 0 { i32::MIN } else { of.exponent };
        if rank(&small) > rank(&large) {
            (large, small) = (small, large);
        }
        if small.mantissa == 0 {
            return Some(Self(Some(large)));
        }
        // Bits below the lowest one of `small` only matter for whether they are all 0.
        let distance = (large.exponent - small.exponent).unsigned_abs();
        let (one, other) = (u128::from(large.mantissa) << 62, u128::from(small.mantissa) << 62);
        let (shifted, lost) = match distance {
            0..128 => (other >> distance, other & ((1 << distance) - 1) != 0),
            _ => (0, true),
        };
        let shifted = shifted | u128::from(lost);
        let exponent = large.exponent - 62;
        let (negative, sum) = if large.negative == small.negative {
            (large.negative, one + shifted)
        } else if one >= shifted {
            (large.negative, one - shifted)
        } else {
            (small.negative, shifted - one)
        };
        rounded(negative, sum, exponent, false).map(|sum| Self(Some(sum)))
    }

    /// Its text with at most 17 digits after the point and without an exponent.
    pub(super) fn human(self) -> String {
        let Some(Finite { negative, mantissa, exponent }) = self.0 else {
            return "inf".to_owned();
        };
        let text = if exponent >= 0 {
            let mut whole = Big::of(mantissa);
            whole.shift_left(exponent.unsigned_abs());
            whole.digits()
        } else {
            let scaled = nearest(u128::from(mantissa) * UNIT, exponent.unsigned_abs());
            let (whole, fraction) = (scaled / UNIT, scaled % UNIT);
            let text = format!("{whole}.{fraction:0FRACTION_DIGITS$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        if negative && text != "0" { format!("-{text}") } else { text }
    }
}

/// `value` divided by 2 to the power of `bits`, rounded.
fn nearest(value: u128, bits: u32) -> u128 {
    let Some(half) = bits.checked_sub(1).and_then(|bits| 1u128.checked_shl(bits)) else {
        return if bits == 0 { value } else { 0 };
    };
    let (quotient, rest) = (value.checked_shr(bits).unwrap_or(0), value & (half | (half - 1)));
    let up = match rest.cmp(&half) {
        Ordering::Less => false,
        Ordering::Equal => quotient % 2 == 1,
        Ordering::Greater => true,
    };
    quotient + u128::from(up)
}

/// The nearest number; `None` if it is too large or too small.
///
/// * `more`: whether the exact value is a little larger than `value`.
fn rounded(negative: bool, value: u128, exponent: i32, more: bool) -> Option<Finite> {
    if value == 0 {
        return Some(Finite { negative: false, mantissa: 0, exponent: 0 });
    }
    // With two more bits, of which the lower one stands for all that follow, rounding is exact.
    let used = 128 - value.leading_zeros();
    let (value, exponent) = match used.checked_sub(66) {
        Some(cut) => {
            let lost = more || value & ((1 << cut) - 1) != 0;
            (value >> cut | u128::from(lost), exponent + i32::try_from(cut).ok()?)
        }
        None => (value << (66 - used), exponent - i32::try_from(66 - used).ok()?),
    };
    let (mantissa, exponent) = match nearest(value, 2) {
        carried if carried >> 64 != 0 => (1 << 63, exponent + 3),
        mantissa => (u64::try_from(mantissa).ok()?, exponent + 2),
    };
    let fits = exponent + 63 <= EXPONENT_MAX && exponent + 63 >= EXPONENT_MIN;
    fits.then_some(Finite { negative, mantissa, exponent })
}

/// Parses what follows `0x`: digits with a point, and an exponent of 2.
fn hexadecimal(negative: bool, text: &[u8]) -> Option<Finite> {
    let (whole, fraction, exponent) = split(text, b'p')?;
    let mut digits = Big::of(0);
    for &byte in whole.iter().chain(fraction) {
        digits.multiply(16, char::from(byte).to_digit(16)?);
    }
    let (value, shift, more) = digits.top();
    let exponent = exponent - 4 * i64::try_from(fraction.len()).ok()? + i64::from(shift);
    let finite = rounded(negative, value, i32::try_from(exponent).ok()?, more)?;
    Some(Finite { negative, ..finite })
}

/// Parses digits with a point and an exponent.
fn decimal(negative: bool, text: &[u8]) -> Option<Finite> {
    let (whole, fraction, exponent) = split(text, b'e')?;
    let mut digits = Big::of(0);
    let mut count = 0i64;
    // Several digits at a time, since each step takes as long as the number is.
    let (mut group, mut scale) = (0, 1);
    for &byte in whole.iter().chain(fraction) {
        if !byte.is_ascii_digit() {
            return None;
        }
        count += i64::from(count > 0 || byte != b'0');
        (group, scale) = (group * 10 + u32::from(byte - b'0'), scale * 10);
        if scale == GROUP {
            digits.multiply(scale, group);
            (group, scale) = (0, 1);
        }
    }
    digits.multiply(scale, group);
    let power = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    if count == 0 {
        return Some(Finite { negative, mantissa: 0, exponent: 0 });
    }
    if (count + power).abs() > POINT_MAX {
        return None;
    }
    if power >= 0 {
        digits.scale(power.unsigned_abs());
        let (value, exponent, more) = digits.top();
        return rounded(negative, value, exponent, more);
    }
    let mut divisor = Big::of(1);
    divisor.scale(power.unsigned_abs());
    let (value, exponent, more) = digits.divide(divisor)?;
    rounded(negative, value, exponent, more)
}

/// Splits a text into the digits before and after its point, and the exponent after `letter`. There is a
/// digit.
fn split(text: &[u8], letter: u8) -> Option<(&[u8], &[u8], i64)> {
    let at = text.iter().position(|byte| byte.eq_ignore_ascii_case(&letter)).unwrap_or(text.len());
    let (mantissa, exponent) = text.split_at_checked(at)?;
    let exponent = match exponent {
        [] => 0,
        [_, digits @ ..] => written(digits)?,
    };
    let point = mantissa.iter().position(|&byte| byte == b'.').unwrap_or(mantissa.len());
    let (whole, fraction) = mantissa.split_at_checked(point)?;
    let fraction = fraction.strip_prefix(b".").unwrap_or(fraction);
    let is_empty = whole.is_empty() && fraction.is_empty();
    (!is_empty).then_some((whole, fraction, exponent))
}

/// An exponent as it is written; one that does not fit is so large that its value does not matter.
fn written(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let far = 1_000_000;
    let value = std::str::from_utf8(digits).ok()?.parse().unwrap_or(far).min(far);
    Some(if negative { -value } else { value })
}

/// A large integer: words of 32 bits, the lowest first, the highest not 0.
#[derive(Debug, Clone)]
struct Big(Vec<u32>);

impl Big {
    fn of(value: u64) -> Self {
        let mut big = Self(vec![low(value), low(value >> 32)]);
        big.trim();
        big
    }

    /// Multiplies by 10 to that power.
    fn scale(&mut self, power: u64) {
        (0..power / GROUP_DIGITS).for_each(|_| self.multiply(GROUP, 0));
        (0..power % GROUP_DIGITS).for_each(|_| self.multiply(10, 0));
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn bits(&self) -> u32 {
        let words = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0.last().map_or(0, |last| words * 32 - last.leading_zeros())
    }

    fn multiply(&mut self, by: u32, add: u32) {
        let mut carry = u64::from(add);
        for word in &mut self.0 {
            let value = u64::from(*word) * u64::from(by) + carry;
            *word = low(value);
            carry = value >> 32;
        }
        if carry > 0 {
            self.0.push(low(carry));
        }
    }

    fn shift_left(&mut self, bits: u32) {
        if self.0.is_empty() {
            return;
        }
        self.multiply(1 << (bits % 32), 0);
        let zeros = usize::try_from(bits / 32).unwrap_or(0);
        self.0.splice(0..0, std::iter::repeat_n(0, zeros));
    }

    fn halve(&mut self) {
        let mut carry = 0;
        for word in self.0.iter_mut().rev() {
            let next = *word << 31;
            *word = *word >> 1 | carry;
            carry = next;
        }
        self.trim();
    }

    /// Subtracts a number that is not larger.
    fn subtract(&mut self, other: &Self) {
        let mut borrow = false;
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        for (word, other) in self.0.iter_mut().zip(others) {
            let (value, under) = word.overflowing_sub(other);
            let (value, again) = value.overflowing_sub(borrow.into());
            *word = value;
            borrow = under || again;
        }
        self.trim();
    }

    fn at_least(&self, other: &Self) -> bool {
        let order = self.0.len().cmp(&other.0.len());
        order.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())).is_ge()
    }

    /// Its highest 96 bits or more, the exponent of the lowest of them, and whether lower ones are
    /// not all 0.
    fn top(&self) -> (u128, i32, bool) {
        let cut = self.0.len().saturating_sub(4);
        let (rest, top) = self.0.split_at_checked(cut).unwrap_or_default();
        let value = top.iter().rev().fold(0, |value, &word| value << 32 | u128::from(word));
        let exponent = i32::try_from(cut * 32).unwrap_or(i32::MAX);
        (value, exponent, rest.iter().any(|&word| word != 0))
    }

    /// The quotient with at least 67 bits, the exponent of the lowest, and whether there is a rest.
    fn divide(mut self, mut by: Self) -> Option<(u128, i32, bool)> {
        let shift =
            i32::try_from(QUOTIENT_BITS + by.bits()).ok()? - i32::try_from(self.bits()).ok()?;
        // The quotient has one bit more, or exactly as many.
        let shift = shift - 1;
        if shift >= 0 {
            self.shift_left(shift.unsigned_abs());
        } else {
            by.shift_left(shift.unsigned_abs());
        }
        by.shift_left(QUOTIENT_BITS);
        let mut quotient = 0u128;
        for _ in 0..=QUOTIENT_BITS {
            quotient <<= 1;
            if self.at_least(&by) {
                self.subtract(&by);
                quotient |= 1;
            }
            by.halve();
        }
        Some((quotient, -shift, !self.0.is_empty()))
    }

    fn digits(mut self) -> String {
        let mut parts = Vec::new();
        while !self.0.is_empty() {
            let mut rest = 0u64;
            for word in self.0.iter_mut().rev() {
                let value = rest << 32 | u64::from(*word);
                *word = low(value / u64::from(GROUP));
                rest = value % u64::from(GROUP);
            }
            self.trim();
            parts.push(rest);
        }
        let mut text = parts.pop().unwrap_or(0).to_string();
        for part in parts.iter().rev() {
            text.push_str(&format!("{part:09}"));
        }
        text
    }
}

/// The lower half.
#[expect(clippy::cast_possible_truncation, reason = "the upper half is cut off on purpose")]
fn low(value: u64) -> u32 {
    value as u32
}
