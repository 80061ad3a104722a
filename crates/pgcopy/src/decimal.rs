//! `numeric` with a precision, to Arrow's decimals and back.
//!
//! Most numbers have at most four digits of base 10,000 and are read in 64 bits; the others take the long
//! way. The layout of a field is described at [`numeric`](crate::text::numeric).
//!
//! Invariants:
//! * A decimal has all digits of its field, or there is an error.
//! * A field has as many digits after the point as its column, as a server's has: it comes back the same.

#![deny(clippy::indexing_slicing)]

use arrow::datatypes::i256;

use crate::error::CellError;
use crate::text::numeric::{
    BASE, Decimals, MALFORMED, NEGATIVE, POSITIVE, Parts, put_digits, put_header,
};

const OUT_OF_RANGE: CellError = CellError::Range("a decimal of this precision");

/// Powers of ten, as far as a decimal of 38 digits has places.
const POWERS: [u128; 39] = {
    let mut powers = [1; 39];
    let mut place = 1;
    while place < powers.len() {
        #[expect(clippy::indexing_slicing, reason = "at compile time, within the bounds")]
        {
            powers[place] = powers[place - 1] * 10;
        }
        place += 1;
    }
    powers
};

/// `10^places`, if a decimal of 38 digits has that many.
#[inline]
fn power(places: i32) -> Option<u128> {
    usize::try_from(places).ok().and_then(|places| POWERS.get(places)).copied()
}

/// The value times `10^scale`, for a decimal of up to 38 digits.
///
/// # Errors
/// The field is malformed, NaN or infinite, of another scale, or larger than the precision.
#[inline]
pub(crate) fn to_i128(field: &[u8], precision: u8, scale: i8) -> Result<i128, CellError> {
    let (value, negative) = match short(field, scale) {
        Some(short) => short,
        None => long(field, scale)?,
    };
    let bound = power(i32::from(precision)).ok_or(OUT_OF_RANGE)?;
    let value = i128::try_from(value).ok().filter(|_| value < bound).ok_or(OUT_OF_RANGE)?;
    Ok(if negative { -value } else { value })
}

/// The value times `10^scale` and whether it is negative, of a number of up to four digits of base
/// 10,000, as most are. `None` where it takes a closer look.
#[inline]
fn short(field: &[u8], scale: i8) -> Option<(u128, bool)> {
    let ([n0, n1, w0, w1, s0, s1, d0, d1], digits) = field.split_first_chunk::<8>()?;
    let (digits, odd) = digits.as_chunks::<2>();
    let count = u16::from_be_bytes([*n0, *n1]);
    let negative = match u16::from_be_bytes([*s0, *s1]) {
        POSITIVE => false,
        NEGATIVE => true,
        _ => return None,
    };
    let has_scale = i32::from(u16::from_be_bytes([*d0, *d1])) == i32::from(scale);
    if digits.len() > 4 || digits.len() != usize::from(count) || !odd.is_empty() || !has_scale {
        return None;
    }
    let (mut value, mut is_small) = (0_u64, true);
    for digit in digits {
        let digit = u16::from_be_bytes(*digit);
        is_small &= digit < BASE;
        value = value * u64::from(BASE) + u64::from(digit);
    }
    if !is_small {
        return None;
    }
    let last =
        i32::from(scale) + 4 * (i32::from(i16::from_be_bytes([*w0, *w1])) + 1 - i32::from(count));
    let exact = |shift: u64| value.is_multiple_of(shift).then_some(u128::from(value / shift));
    let value = match last {
        0 => Some(u128::from(value)),
        -1 => exact(10),
        -2 => exact(100),
        -3 => exact(1000),
        _ => power(last).and_then(|power| power.checked_mul(u128::from(value))),
    };
    Some((value?, negative))
}

/// The value times `10^scale` and whether it is negative, of any number.
fn long(field: &[u8], scale: i8) -> Result<(u128, bool), CellError> {
    let parts = Parts::parse(field)?;
    let negative = is_negative(&parts, scale)?;
    let (mut value, mut last) = (0_u128, 0);
    for (digit, place) in parts.placed(scale) {
        let (tens, shift) = if place >= 0 { (u128::from(BASE), 1) } else { partial(digit, place)? };
        value = value
            .checked_mul(tens)
            .and_then(|value| value.checked_add(u128::from(digit / shift)))
            .ok_or(OUT_OF_RANGE)?;
        last = place;
    }
    if last > 0 && value != 0 {
        value = power(last).and_then(|power| value.checked_mul(power)).ok_or(OUT_OF_RANGE)?;
    }
    Ok((value, negative))
}

/// Whether a number is negative; an error where it is none, or has another scale than its column: it would
/// come back otherwise.
fn is_negative(parts: &Parts<'_>, scale: i8) -> Result<bool, CellError> {
    let negative = match parts.sign {
        POSITIVE => false,
        NEGATIVE => true,
        _ => return Err(CellError::NotFinite),
    };
    let has_scale = i32::from(parts.scale) == i32::from(scale.max(0));
    if has_scale { Ok(negative) } else { Err(OUT_OF_RANGE) }
}

/// The contribution of the digit that contains the last decimal place: the value has to be
/// multiplied by the first, and the digit divided by the second.
fn partial(digit: u16, place: i32) -> Result<(u128, u16), CellError> {
    let (tens, shift) = match place {
        -1 => (1000, 10),
        -2 => (100, 100),
        -3 => (10, 1000),
        _ => (1, BASE),
    };
    // What would be cut off has no place in a decimal of this scale.
    if digit.is_multiple_of(shift) { Ok((tens, shift)) } else { Err(OUT_OF_RANGE) }
}

/// The exclusive upper limit of a decimal with this many digits.
pub(crate) fn bound(precision: u8) -> i256 {
    let ten = i256::from_parts(10, 0);
    ten.checked_pow(u32::from(precision)).unwrap_or(i256::MAX)
}

/// The value times `10^scale`, for a decimal of up to 76 digits; `bound` is that of its precision.
///
/// # Errors
/// As [`to_i128`].
pub(crate) fn to_i256(field: &[u8], bound: i256, scale: i8) -> Result<i256, CellError> {
    let small = |number: u128| i256::from_parts(number, 0);
    let (value, negative) = match short(field, scale) {
        Some((value, negative)) => (small(value), negative),
        None => longest(field, scale)?,
    };
    match value {
        value if value >= bound => Err(OUT_OF_RANGE),
        value if negative => Ok(value.wrapping_neg()),
        value => Ok(value),
    }
}

/// As [`long`], where 128 bits are not enough.
fn longest(field: &[u8], scale: i8) -> Result<(i256, bool), CellError> {
    let parts = Parts::parse(field)?;
    let negative = is_negative(&parts, scale)?;
    let small = |number: u128| i256::from_parts(number, 0);
    let (mut value, mut last) = (i256::ZERO, 0);
    for (digit, place) in parts.placed(scale) {
        let (tens, shift) = if place >= 0 { (u128::from(BASE), 1) } else { partial(digit, place)? };
        value = value
            .checked_mul(small(tens))
            .and_then(|value| value.checked_add(small(u128::from(digit / shift))))
            .ok_or(OUT_OF_RANGE)?;
        last = place;
    }
    if last > 0 && value != i256::ZERO {
        let places = u8::try_from(last).ok().filter(|places| *places <= 76);
        let power = places.map(bound);
        value = power.and_then(|power| value.checked_mul(power)).ok_or(OUT_OF_RANGE)?;
    }
    Ok((value, negative))
}

/// Appends the field of a decimal of up to 38 digits.
///
/// # Errors
/// More digits after the point than PostgreSQL has.
#[inline]
pub(crate) fn from_i128(value: i128, scale: i8, out: &mut Vec<u8>) -> Result<(), CellError> {
    let sign = if value < 0 { NEGATIVE } else { POSITIVE };
    match (u64::try_from(value.unsigned_abs()), u16::try_from(scale)) {
        (Ok(small), Ok(scale)) if small < u64::MAX / 1000 => {
            put_small(small, sign, scale, out);
            Ok(())
        }
        _ => put_decimal(itoa::Buffer::new().format(value.unsigned_abs()), sign, scale, out),
    }
}

/// Appends the field of a decimal of up to 76 digits.
///
/// # Errors
/// As [`from_i128`].
pub(crate) fn from_i256(value: i256, scale: i8, out: &mut Vec<u8>) -> Result<(), CellError> {
    if let Some(small) = value.to_i128() {
        return from_i128(small, scale, out);
    }
    let text = value.to_string();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (NEGATIVE, digits),
        None => (POSITIVE, text.as_str()),
    };
    put_decimal(digits, sign, scale, out)
}

/// Appends the field of digits with a scale.
fn put_decimal(digits: &str, sign: u16, scale: i8, out: &mut Vec<u8>) -> Result<(), CellError> {
    let point = i64::try_from(digits.len()).map_err(|_| MALFORMED)? - i64::from(scale);
    let decimals = Decimals { integer: digits.as_bytes(), fraction: &[], point };
    put_digits(&decimals, sign, u16::try_from(scale).unwrap_or(0), out)
}

/// Appends the field of a value that stays within 64 bits when its digits are aligned to the point.
#[inline]
fn put_small(value: u64, sign: u16, scale: u16, out: &mut Vec<u8>) {
    if value == 0 {
        return put_header(0, 0, POSITIVE, scale, out);
    }
    let (tens, fractions) = match scale % 4 {
        0 => (1, scale / 4),
        1 => (1000, scale / 4 + 1),
        2 => (100, scale / 4 + 1),
        _ => (10, scale / 4 + 1),
    };
    let mut rest = value * tens;
    // The last group of the point's raster; those of zero at the end are left out.
    let mut last_place = -i32::from(fractions);
    while rest.is_multiple_of(u64::from(BASE)) {
        rest /= u64::from(BASE);
        last_place += 1;
    }
    // 64 bits have at most 5 groups; the header is before them.
    let mut groups = [[0; 2]; 9];
    let mut count = 0_u16;
    for group in groups.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        let digit = u16::try_from(rest % u64::from(BASE)).unwrap_or(0);
        *group = digit.to_be_bytes();
        rest /= u64::from(BASE);
        count += 1;
    }
    let weight = i16::try_from(last_place + i32::from(count) - 1).unwrap_or(0);
    let start = groups.len() - 4 - usize::from(count);
    if let Some(field) = groups.get_mut(start..) {
        for (group, word) in field.iter_mut().zip([count, weight.cast_unsigned(), sign, scale]) {
            *group = word.to_be_bytes();
        }
        out.extend_from_slice(field.as_flattened());
    }
}
