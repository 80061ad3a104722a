//! `numeric`: digits of base 10,000, to text, to Arrow's decimals, and back.
//!
//! ```text
//! count of digits (2) | weight of the first (2) | sign (2) | digits after the point (2) | digits (2 each)
//! ```
//! The value is the sum of `digit[i] * 10000^(weight - i)`. A server leaves out digits of 0 at both ends;
//! so does what is made here, and the bytes are the same.

use arrow::datatypes::i256;

use crate::error::CellError;

const MALFORMED: CellError = CellError::Malformed("numeric");
const OUT_OF_RANGE: CellError = CellError::Range("a decimal of this precision");
const BASE: u16 = 10_000;
const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
const POSITIVE_INFINITY: u16 = 0xd000;
const NEGATIVE_INFINITY: u16 = 0xf000;
/// Digits after the point there can be (`NUMERIC_DSCALE_MAX`).
const SCALE_MAX: u16 = 0x3fff;
/// Digits before the point there can be.
const INTEGER_DIGITS_MAX: i64 = 131_072;

/// A field, taken apart and checked.
#[derive(Debug, Clone, Copy)]
struct Parts<'a> {
    weight: i16,
    sign: u16,
    /// Digits after the point.
    scale: u16,
    digits: &'a [[u8; 2]],
}

impl<'a> Parts<'a> {
    #[inline]
    fn parse(field: &'a [u8]) -> Result<Self, CellError> {
        let (header, rest) = field.split_first_chunk::<8>().ok_or(MALFORMED)?;
        let [n0, n1, w0, w1, s0, s1, d0, d1] = *header;
        let (digits, odd) = rest.as_chunks::<2>();
        if !odd.is_empty() || digits.len() != usize::from(u16::from_be_bytes([n0, n1])) {
            return Err(MALFORMED);
        }
        let parts = Self {
            weight: i16::from_be_bytes([w0, w1]),
            sign: u16::from_be_bytes([s0, s1]),
            scale: u16::from_be_bytes([d0, d1]),
            digits,
        };
        let known =
            matches!(parts.sign, POSITIVE | NEGATIVE | NAN | POSITIVE_INFINITY | NEGATIVE_INFINITY);
        let small = digits.iter().all(|digit| u16::from_be_bytes(*digit) < BASE);
        if known && small && parts.scale <= SCALE_MAX { Ok(parts) } else { Err(MALFORMED) }
    }

    /// The digits, each with the power of ten its last place has after the point was moved by `scale`.
    fn placed(&self, scale: i8) -> impl Iterator<Item = (u16, i32)> + use<'a> {
        let first = i32::from(scale) + 4 * i32::from(self.weight);
        let places = (0..).map(move |index: i32| first - 4 * index);
        self.digits.iter().map(|digit| u16::from_be_bytes(*digit)).zip(places)
    }

    /// Whether it is negative; an error where it is no number.
    #[inline]
    fn is_negative(&self) -> Result<bool, CellError> {
        match self.sign {
            POSITIVE => Ok(false),
            NEGATIVE => Ok(true),
            _ => Err(CellError::NotFinite),
        }
    }

    /// Refuses a value whose text has another scale than its column: it would come back otherwise.
    #[inline]
    fn check_scale(&self, scale: i8) -> Result<(), CellError> {
        if i32::from(self.scale) == i32::from(scale.max(0)) { Ok(()) } else { Err(OUT_OF_RANGE) }
    }
}

/// Appends a field as text, as PostgreSQL writes it.
///
/// # Errors
/// The field is malformed, or has digits that its own scale leaves out.
pub fn to_text(field: &[u8], out: &mut Vec<u8>) -> Result<(), CellError> {
    let parts = Parts::parse(field)?;
    let beyond = |(digit, place): (u16, i32)| {
        let cut = u32::try_from(-place - i32::from(parts.scale)).unwrap_or(0).min(4);
        digit % 10_u16.pow(cut) != 0
    };
    if parts.placed(0).last().is_some_and(beyond) {
        return Err(MALFORMED);
    }
    match parts.sign {
        NAN => out.extend_from_slice(b"NaN"),
        POSITIVE_INFINITY => out.extend_from_slice(b"Infinity"),
        NEGATIVE_INFINITY => out.extend_from_slice(b"-Infinity"),
        sign => {
            if sign == NEGATIVE && parts.digits.iter().any(|digit| *digit != [0; 2]) {
                out.push(b'-');
            }
            put_number(&parts, out);
        }
    }
    Ok(())
}

fn put_number(parts: &Parts<'_>, out: &mut Vec<u8>) {
    let digit = |place: i32| {
        let index = usize::try_from(i32::from(parts.weight) - place).ok();
        let digit = index.and_then(|index| parts.digits.get(index));
        digit.map_or(0, |digit| u64::from(u16::from_be_bytes(*digit)))
    };
    let highest = i32::from(parts.weight).max(0);
    super::put_padded(digit(highest), 1, out);
    for place in (0..highest).rev() {
        super::put_padded(digit(place), 4, out);
    }
    if parts.scale > 0 {
        out.push(b'.');
        let end = out.len() + usize::from(parts.scale);
        let mut place = -1;
        while out.len() < end {
            super::put_padded(digit(place), 4, out);
            place -= 1;
        }
        out.truncate(end);
    }
}

/// Appends the field of a text: digits with or without sign, point and exponent; `NaN`; `Infinity` and
/// `inf` with or without sign.
///
/// # Errors
/// The text is no number, or one that PostgreSQL has no room for.
pub fn from_text(text: &str, out: &mut Vec<u8>) -> Result<(), CellError> {
    let (sign, rest) = match text.as_bytes() {
        [b'-', rest @ ..] => (NEGATIVE, rest),
        [b'+', rest @ ..] => (POSITIVE, rest),
        rest => (POSITIVE, rest),
    };
    if !rest.first().is_some_and(|first| first.is_ascii_digit() || *first == b'.') {
        return put_special(sign, rest, out);
    }
    let end = rest.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(rest.len());
    let (plain, exponent) = rest.split_at_checked(end).ok_or(MALFORMED)?;
    let exponent = match exponent {
        [] => 0,
        [_, exponent @ ..] => parse_exponent(exponent)?,
    };
    let point = plain.iter().position(|byte| *byte == b'.').unwrap_or(plain.len());
    let (integer, fraction) = plain.split_at_checked(point).ok_or(MALFORMED)?;
    let fraction = fraction.get(1..).unwrap_or_default();
    let digits = integer.len() + fraction.len();
    if digits == 0 || !integer.iter().chain(fraction).all(u8::is_ascii_digit) {
        return Err(MALFORMED);
    }
    let length = |part: &[u8]| i64::try_from(part.len()).map_err(|_| MALFORMED);
    let scale = (length(fraction)? - exponent).max(0);
    let scale = u16::try_from(scale).ok().filter(|scale| *scale <= SCALE_MAX);
    let scale = scale.ok_or(CellError::Range("numeric"))?;
    put_digits(
        &Decimals { integer, fraction, point: length(integer)? + exponent },
        sign,
        scale,
        out,
    )
}

fn parse_exponent(text: &[u8]) -> Result<i64, CellError> {
    let text = str::from_utf8(text).map_err(|_| MALFORMED)?;
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let value = i64::from(super::number(digits, 6).ok_or(MALFORMED)?);
    Ok(if text.starts_with('-') { -value } else { value })
}

fn put_special(sign: u16, word: &[u8], out: &mut Vec<u8>) -> Result<(), CellError> {
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    // The scale of infinities is what is left of their sign where a short value has its scale.
    let (sign, scale) = if is("NaN") && sign == POSITIVE {
        (NAN, 0)
    } else if is("Infinity") || is("inf") {
        (if sign == NEGATIVE { NEGATIVE_INFINITY } else { POSITIVE_INFINITY }, 32)
    } else {
        return Err(MALFORMED);
    };
    put_header(0, 0, sign, scale, out);
    Ok(())
}

fn put_header(count: u16, weight: i16, sign: u16, scale: u16, out: &mut Vec<u8>) {
    let [n0, n1] = count.to_be_bytes();
    let [w0, w1] = weight.to_be_bytes();
    let [s0, s1] = sign.to_be_bytes();
    let [d0, d1] = scale.to_be_bytes();
    out.extend_from_slice(&[n0, n1, w0, w1, s0, s1, d0, d1]);
}

/// Decimal digits in two pieces, and where the point is.
struct Decimals<'a> {
    integer: &'a [u8],
    fraction: &'a [u8],
    /// Digits before the point; negative where zeros follow it first.
    point: i64,
}

/// Appends the field of decimal digits.
fn put_digits(
    decimals: &Decimals<'_>,
    sign: u16,
    scale: u16,
    out: &mut Vec<u8>,
) -> Result<(), CellError> {
    let all = || decimals.integer.iter().chain(decimals.fraction);
    let total = decimals.integer.len() + decimals.fraction.len();
    let leading = all().take_while(|digit| **digit == b'0').count();
    if leading == total {
        put_header(0, 0, POSITIVE, scale, out);
        return Ok(());
    }
    let trailing = all().rev().take_while(|digit| **digit == b'0').count();
    let point = decimals.point - i64::try_from(leading).map_err(|_| MALFORMED)?;
    if point > INTEGER_DIGITS_MAX {
        return Err(CellError::Range("numeric"));
    }
    let weight = (point + 3).div_euclid(4) - 1;
    let pad = usize::try_from((weight + 1) * 4 - point).map_err(|_| MALFORMED)?;
    let significant = total - leading - trailing;
    let count = (pad + significant).div_ceil(4);
    let count = u16::try_from(count).map_err(|_| CellError::Range("numeric"))?;
    let weight = i16::try_from(weight).map_err(|_| CellError::Range("numeric"))?;
    put_header(count, weight, sign, scale, out);
    let mut group = 0;
    let mut filled = pad;
    for digit in all().skip(leading).take(significant) {
        group = group * 10 + u16::from(digit & 15);
        filled += 1;
        if filled == 4 {
            out.extend_from_slice(&group.to_be_bytes());
            (group, filled) = (0, 0);
        }
    }
    if filled > 0 {
        for _ in filled..4 {
            group *= 10;
        }
        out.extend_from_slice(&group.to_be_bytes());
    }
    Ok(())
}

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

/// `10^places`, where a decimal of 38 digits has so many.
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
    let negative = parts.is_negative()?;
    parts.check_scale(scale)?;
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

/// What a digit that the last decimal place goes through adds: the value is to be multiplied by the
/// first, and the digit to be divided by the second.
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

/// What a decimal of so many digits does not reach.
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
    let negative = parts.is_negative()?;
    parts.check_scale(scale)?;
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
