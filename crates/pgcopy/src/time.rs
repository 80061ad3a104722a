//! Dates, times, timestamps and intervals: PostgreSQL counts from 2000, Arrow from 1970.
//!
//! Invariant: infinities are the ends of the number range on both sides, and no finite value becomes one.

#![deny(clippy::indexing_slicing)]

use arrow::datatypes::IntervalMonthDayNano;

use crate::error::CellError;

/// Days from 1970-01-01 to 2000-01-01.
const EPOCH_DAYS: i32 = 10_957;
/// Microseconds from 1970-01-01 to 2000-01-01.
const EPOCH_US: i64 = 946_684_800_000_000;
const DATE: CellError = CellError::Range("dates");
const TIMESTAMP: CellError =
    CellError::Range("timestamps, which end in the year 294246; cast the column to text");
const INTERVAL: CellError =
    CellError::Range("intervals, whose hours end after 292 years; cast the column to text");

/// Days since 1970 of a field; the ends are infinities.
#[inline]
pub(crate) fn date_from_wire(field: [u8; 4]) -> Result<i32, CellError> {
    moved_days(i32::from_be_bytes(field), EPOCH_DAYS)
}

/// The field of days since 1970.
#[inline]
pub(crate) fn date_to_wire(days: i32) -> Result<[u8; 4], CellError> {
    Ok(moved_days(days, -EPOCH_DAYS)?.to_be_bytes())
}

#[inline]
fn moved_days(days: i32, by: i32) -> Result<i32, CellError> {
    if days == i32::MAX || days == i32::MIN {
        return Ok(days);
    }
    match days.checked_add(by) {
        Some(moved) if moved != i32::MAX && moved != i32::MIN => Ok(moved),
        _ => Err(DATE),
    }
}

/// Microseconds since 1970 of a field; the ends are infinities.
#[inline]
pub(crate) fn timestamp_from_wire(field: [u8; 8]) -> Result<i64, CellError> {
    moved_us(i64::from_be_bytes(field), EPOCH_US)
}

/// The field of microseconds since 1970.
#[inline]
pub(crate) fn timestamp_to_wire(us: i64) -> Result<[u8; 8], CellError> {
    Ok(moved_us(us, -EPOCH_US)?.to_be_bytes())
}

#[inline]
fn moved_us(us: i64, by: i64) -> Result<i64, CellError> {
    if us == i64::MAX || us == i64::MIN {
        return Ok(us);
    }
    match us.checked_add(by) {
        Some(moved) if moved != i64::MAX && moved != i64::MIN => Ok(moved),
        _ => Err(TIMESTAMP),
    }
}

/// Microseconds of a day, which may be all of it.
#[inline]
pub(crate) fn time(us: i64) -> Result<i64, CellError> {
    if (0..=crate::text::timetz::DAY_US).contains(&us) {
        Ok(us)
    } else {
        Err(CellError::Range("times of a day"))
    }
}

/// The interval of a field: microseconds (8 bytes), days (4), months (4). All three at an end are an
/// infinity (PostgreSQL 17).
pub(crate) fn interval_from_wire(field: &[u8; 16]) -> Result<IntervalMonthDayNano, CellError> {
    let [u0, u1, u2, u3, u4, u5, u6, u7, d0, d1, d2, d3, m0, m1, m2, m3] = *field;
    let us = i64::from_be_bytes([u0, u1, u2, u3, u4, u5, u6, u7]);
    let days = i32::from_be_bytes([d0, d1, d2, d3]);
    let months = i32::from_be_bytes([m0, m1, m2, m3]);
    let nanoseconds =
        if is_infinite(months, days, us) { us } else { us.checked_mul(1000).ok_or(INTERVAL)? };
    Ok(IntervalMonthDayNano::new(months, days, nanoseconds))
}

/// The field of an interval.
pub(crate) fn interval_to_wire(interval: IntervalMonthDayNano) -> Result<[u8; 16], CellError> {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let us = if is_infinite(months, days, nanoseconds) {
        nanoseconds
    } else if nanoseconds % 1000 == 0 {
        nanoseconds / 1000
    } else {
        return Err(CellError::Range("intervals of microseconds"));
    };
    let [u0, u1, u2, u3, u4, u5, u6, u7] = us.to_be_bytes();
    let ([d0, d1, d2, d3], [m0, m1, m2, m3]) = (days.to_be_bytes(), months.to_be_bytes());
    Ok([u0, u1, u2, u3, u4, u5, u6, u7, d0, d1, d2, d3, m0, m1, m2, m3])
}

fn is_infinite(months: i32, days: i32, last: i64) -> bool {
    (months, days, last) == (i32::MAX, i32::MAX, i64::MAX)
        || (months, days, last) == (i32::MIN, i32::MIN, i64::MIN)
}
