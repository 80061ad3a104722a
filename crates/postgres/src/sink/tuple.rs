//! Rows as tuples of binary COPY, written from borrowed values.
//!
//! ```text
//! tuple   number of fields (2) | field...
//! field   its length (4) | its bytes          NULL: length -1
//! ```
//! The order of fields is `_id`, `_received_ms`, columns, `_document`. A field with its length is
//! also an element of a binary array, which is how an INSERT sends the same rows.
//!
//! Invariant: a server refuses nothing that is written here: values that its types do not support
//! (a NUL in a text, JSON nested too deeply, a number beyond `numeric`) are conflicts and become
//! NULL.

use forebay_pgcopy::text::numeric;
use forebay_sink::column::Fit;
use forebay_sink::time::{date_days, timestamp_us};
use forebay_sink::{ColumnType, Value};
use serde_json::value::RawValue;

/// Fields of a row beside its columns: id, time, document.
pub(super) const FIXED_FIELDS: usize = 3;
/// The largest row: a server has 1 GiB for one, and shows bytes with two digits each.
pub(super) const ROW_SIZE_MAX: usize = (1 << 29) - (1 << 10);
/// 2000-01-01, from which a server counts, since 1970-01-01.
const YEAR_2000_DAYS: i32 = 10_957;
const YEAR_2000_US: i64 = 946_684_800_000_000;
/// Maximum nesting of JSON; a server's parser is limited by its stack.
const JSON_DEPTH_MAX: usize = 512;

/// The SQL type of a column.
pub(super) fn sql_type(ty: ColumnType) -> &'static str {
    match ty {
        ColumnType::Boolean => "boolean",
        ColumnType::Integer => "bigint",
        ColumnType::Real => "double precision",
        ColumnType::Decimal => "numeric",
        ColumnType::Text => "text",
        ColumnType::Bytes => "bytea",
        // Not `jsonb`, which keeps neither the text nor every number.
        ColumnType::Json => "json",
        ColumnType::Timestamp => "timestamptz",
        ColumnType::Date => "date",
    }
}

/// The OID of that type (`pg_type.dat`).
pub(super) fn type_oid(ty: ColumnType) -> u32 {
    match ty {
        ColumnType::Boolean => 16,
        ColumnType::Bytes => 17,
        ColumnType::Integer => 20,
        ColumnType::Text => 25,
        ColumnType::Json => 114,
        ColumnType::Real => 701,
        ColumnType::Date => 1082,
        ColumnType::Timestamp => 1184,
        ColumnType::Decimal => 1700,
    }
}

/// Starts a tuple with this many columns: its number of fields, id and time.
pub(super) fn begin(columns: usize, id: i64, received_ms: i64, out: &mut Vec<u8>) {
    // At most `schema::COLUMNS_MAX` columns.
    let count = u16::try_from(columns + FIXED_FIELDS).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_be_bytes());
    put(&id.to_be_bytes(), out);
    put(&received_ms.to_be_bytes(), out);
}

/// Appends a field.
pub(super) fn put(bytes: &[u8], out: &mut Vec<u8>) {
    // Longer ones make the row larger than `ROW_SIZE_MAX`, and it is refused.
    let length = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Appends a NULL.
pub(super) fn put_null(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1_i32).to_be_bytes());
}

/// Appends the value of a column of type `ty` for `value`; returns `false` if it did not fit and is
/// NULL.
pub(super) fn put_value(ty: ColumnType, value: Value<'_>, out: &mut Vec<u8>) -> bool {
    match ty.fit(value) {
        Fit::Null => {
            put_null(out);
            return true;
        }
        Fit::Integer(value) if ty == ColumnType::Boolean => put(&[u8::from(value != 0)], out),
        Fit::Integer(value) => put(&value.to_be_bytes(), out),
        Fit::Real(value) => put(&value.to_be_bytes(), out),
        Fit::Bytes(bytes) => put(bytes, out),
        Fit::Text(text) => return put_text(ty, &text, out),
        Fit::Conflict => {
            put_null(out);
            return false;
        }
    }
    true
}

fn put_text(ty: ColumnType, text: &str, out: &mut Vec<u8>) -> bool {
    let fits = match ty {
        ColumnType::Decimal => return put_decimal(text, out),
        // Both are counted from 2000-01-01 on the wire.
        ColumnType::Timestamp => {
            let us = timestamp_us(text).and_then(|us| us.checked_sub(YEAR_2000_US));
            return put_number(us.map(i64::to_be_bytes), out);
        }
        ColumnType::Date => {
            let days = date_days(text).and_then(|days| days.checked_sub(YEAR_2000_DAYS));
            return put_number(days.map(i32::to_be_bytes), out);
        }
        ColumnType::Json => is_json(text),
        _ => !text.as_bytes().contains(&0),
    };
    if fits {
        put(text.as_bytes(), out);
    } else {
        put_null(out);
    }
    fits
}

/// Appends the bytes of a number, or NULL where there is none.
fn put_number<const N: usize>(bytes: Option<[u8; N]>, out: &mut Vec<u8>) -> bool {
    match bytes {
        Some(bytes) => put(&bytes, out),
        None => put_null(out),
    }
    bytes.is_some()
}

fn put_decimal(text: &str, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let is_number = numeric::from_text(text, out).is_ok();
    let length = i32::try_from(out.len() - start - 4).ok().filter(|_| is_number);
    match (length, out.get_mut(start..start + 4)) {
        (Some(length), Some(place)) => {
            place.copy_from_slice(&length.to_be_bytes());
            true
        }
        _ => {
            out.truncate(start);
            put_null(out);
            false
        }
    }
}

/// Whether a server accepts `text` as `json`.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
        && (text.len() <= 2 * JSON_DEPTH_MAX || depth(text) <= JSON_DEPTH_MAX)
}

/// How deeply `text`, which is JSON, is nested.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The fields of tuples, column by column: each unchanged, with its length. `None` if the bytes are
/// not tuples with this many fields.
pub(super) fn columns(tuples: &[u8], width: usize) -> Option<Vec<Vec<u8>>> {
    let mut columns = vec![Vec::new(); width];
    let mut rest = tuples;
    while !rest.is_empty() {
        let (count, fields) = rest.split_first_chunk::<2>()?;
        if usize::from(u16::from_be_bytes(*count)) != width {
            return None;
        }
        rest = fields;
        for column in &mut columns {
            let length = i32::from_be_bytes(*rest.first_chunk::<4>()?);
            let end = 4 + usize::try_from(length).unwrap_or(0);
            let (field, after) = rest.split_at_checked(end)?;
            column.extend_from_slice(field);
            rest = after;
        }
    }
    Some(columns)
}

/// Appends the head of a binary array of `count` elements, which follow.
pub(super) fn begin_array(oid: u32, count: u32, out: &mut Vec<u8>) {
    // One dimension; there may be NULLs; the type; the length; the lower bound 1.
    for word in [1, 1, oid, count, 1] {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(ty: ColumnType, value: Value<'_>) -> (Vec<u8>, bool) {
        let mut out = Vec::new();
        let fits = put_value(ty, value, &mut out);
        (out, fits)
    }

    const NULL: [u8; 4] = [255; 4];

    #[test]
    fn what_a_server_would_refuse_is_null_and_a_conflict() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for (ty, value) in [
            (ColumnType::Text, Value::Text("a\0b")),
            (ColumnType::Json, Value::Json("{\"a\":}")),
            (ColumnType::Json, Value::Json(&deep)),
            (ColumnType::Json, Value::Number("1.")),
            (ColumnType::Decimal, Value::Number("1e200000")),
            (ColumnType::Decimal, Value::Number("1e-20000")),
            (ColumnType::Decimal, Value::Number("one")),
            (ColumnType::Integer, Value::Text("1")),
        ] {
            assert_eq!(field(ty, value), (NULL.to_vec(), false), "{ty:?}");
        }
        assert_eq!(field(ColumnType::Text, Value::Null), (NULL.to_vec(), true));
    }

    #[test]
    fn timestamps_and_dates_are_counted_from_2000() {
        let timestamp = |text| field(ColumnType::Timestamp, Value::Text(text));
        let bytes =
            |number: &[u8]| [&[0, 0, 0, u8::try_from(number.len()).unwrap()], number].concat();
        let second = bytes(&1_000_000_i64.to_be_bytes());
        assert_eq!(timestamp("2000-01-01T01:00:01+01:00"), (second, true));
        assert_eq!(timestamp("yesterday"), (NULL.to_vec(), false));
        let date = field(ColumnType::Date, Value::Text("1999-12-31"));
        assert_eq!(date, (bytes(&(-1_i32).to_be_bytes()), true));
    }

    #[test]
    fn nesting_is_counted_outside_strings_only() {
        let braces = format!("[\"{}\\\"{}\"]", "[".repeat(600), "{".repeat(600));
        assert_eq!(depth(&braces), 1);
        assert!(field(ColumnType::Json, Value::Json(&braces)).1);
        let fits = "[".repeat(512) + &"]".repeat(512);
        assert!(field(ColumnType::Json, Value::Json(&fits)).1);
    }

    #[test]
    fn tuples_are_taken_apart_into_columns() {
        let mut tuples = Vec::new();
        for id in [7, 8] {
            begin(1, id, 1, &mut tuples);
            put_value(ColumnType::Boolean, Value::Boolean(id == 7), &mut tuples);
            put_null(&mut tuples);
        }
        let found = columns(&tuples, 4).unwrap();
        assert_eq!(
            found[0],
            [&[0, 0, 0, 8][..], &7_i64.to_be_bytes(), &[0, 0, 0, 8], &8_i64.to_be_bytes()].concat()
        );
        assert_eq!(found[2], [0, 0, 0, 1, 1, 0, 0, 0, 1, 0]);
        assert_eq!(found[3], [NULL, NULL].concat());
        assert_eq!(columns(&tuples, 3), None);
        assert_eq!(columns(&tuples[..tuples.len() - 1], 4), None);
    }
}
