//! `numeric`: digits of base 10,000, to text and back. To Arrow's decimals they go in `decimal`.
//!
//! ```text
//! count of digits (2) | weight of the first (2) | sign (2) | digits after the point (2) | digits (2 each)
//! ```
//! The value is the sum of `digit[i] * 10000^(weight - i)`. A server leaves out digits of 0 at both ends;
//! so does what is made here, and the bytes are the same.

use crate::error::CellError;

pub(crate) const MALFORMED: CellError = CellError::Malformed("numeric");
pub(crate) const BASE: u16 = 10_000;
pub(crate) const POSITIVE: u16 = 0x0000;
pub(crate) const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
const POSITIVE_INFINITY: u16 = 0xd000;
const NEGATIVE_INFINITY: u16 = 0xf000;
/// Digits after the point there can be (`NUMERIC_DSCALE_MAX`).
const SCALE_MAX: u16 = 0x3fff;
/// Digits before the point there can be.
const INTEGER_DIGITS_MAX: i64 = 131_072;

/// A field, taken apart and checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    weight: i16,
    pub(crate) sign: u16,
    /// Digits after the point.
    pub(crate) scale: u16,
    digits: &'a [[u8; 2]],
}

impl<'a> Parts<'a> {
    #[inline]
    pub(crate) fn parse(field: &'a [u8]) -> Result<Self, CellError> {
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
    pub(crate) fn placed(&self, scale: i8) -> impl Iterator<Item = (u16, i32)> + use<'a> {
        let first = i32::from(scale) + 4 * i32::from(self.weight);
        let places = (0..).map(move |index: i32| first - 4 * index);
        self.digits.iter().map(|digit| u16::from_be_bytes(*digit)).zip(places)
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
    // Zeros in front, which a server leaves out, would make digits that are no part of the number.
    let zeros = parts.digits.iter().take_while(|digit| **digit == [0; 2]).count();
    let first = parts.digits.get(zeros).and_then(|_| i32::try_from(zeros).ok());
    let highest = first.map_or(0, |first| i32::from(parts.weight) - first).max(0);
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

/// Appends what precedes the digits.
pub(crate) fn put_header(count: u16, weight: i16, sign: u16, scale: u16, out: &mut Vec<u8>) {
    let [n0, n1] = count.to_be_bytes();
    let [w0, w1] = weight.to_be_bytes();
    let [s0, s1] = sign.to_be_bytes();
    let [d0, d1] = scale.to_be_bytes();
    out.extend_from_slice(&[n0, n1, w0, w1, s0, s1, d0, d1]);
}

/// Decimal digits in two pieces, and where the point is.
pub(crate) struct Decimals<'a> {
    pub(crate) integer: &'a [u8],
    pub(crate) fraction: &'a [u8],
    /// Digits before the point; negative where zeros follow it first.
    pub(crate) point: i64,
}

/// Appends the field of decimal digits.
pub(crate) fn put_digits(
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
