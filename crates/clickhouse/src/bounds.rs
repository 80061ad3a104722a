//! Values that a type of ClickHouse does not have. The server would change some of them silently: it moves dates and
//! moments to the nearest bound or to somewhere else, and stores NULL as the default of a type.
//!
//! Bounds: <https://clickhouse.com/docs/sql-reference/data-types/date32> and `datetime64`: the years 1900 to 2299.
//! Newer servers have more; these are the ones that every server has.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray as _};
use arrow::datatypes::{DataType, Date32Type, TimestampMicrosecondType};
use forebay_pgcopy::{Column, Wire};

use crate::types::is_text;

/// Days since 1970 of 1900-01-01 and 2299-12-31.
const DAYS: std::ops::RangeInclusive<i32> = -25_567..=120_529;
/// Microseconds since 1970 of the first and the last moment of these days.
const MOMENTS: std::ops::RangeInclusive<i64> = -2_208_988_800_000_000..=10_413_791_999_999_999;

/// Rows that are refused, and why.
pub(crate) type Refused = BTreeMap<usize, String>;

/// Adds the rows whose value in a column cannot be stored.
///
/// * `is_not_null`: whether the column of the table is never NULL.
pub(crate) fn check(array: &ArrayRef, column: &Column, is_not_null: bool, refused: &mut Refused) {
    if is_text(&column.wire) {
        return refuse_nulls(array, column, is_not_null, refused);
    }
    if matches!(column.wire, Wire::Array { .. }) {
        let lists = array.as_list_opt::<i32>();
        for row in 0..array.len() {
            if array.is_null(row) {
                let found = "is NULL, and an Array of ClickHouse is never NULL; use coalesce in a transform";
                put(refused, row, column, found);
            } else if let Some(lists) = lists
                && let Some(found) = first_outside(&lists.value(row))
            {
                put(refused, row, column, found);
            }
        }
        return;
    }
    refuse_nulls(array, column, is_not_null, refused);
    if first_outside(array).is_none() {
        return;
    }
    for row in 0..array.len() {
        if let Some(found) = first_outside(&array.slice(row, 1)) {
            put(refused, row, column, found);
        }
    }
}

fn refuse_nulls(array: &ArrayRef, column: &Column, is_not_null: bool, refused: &mut Refused) {
    if is_not_null && array.null_count() > 0 {
        for row in (0..array.len()).filter(|row| array.is_null(*row)) {
            put(refused, row, column, "is NULL, and the column is never NULL in the table");
        }
    }
}

fn put(refused: &mut Refused, row: usize, column: &Column, found: &str) {
    refused.entry(row).or_insert_with(|| format!("column {:?} {found}", column.name));
}

/// What is wrong with the first value that the type does not have.
fn first_outside(array: &ArrayRef) -> Option<&'static str> {
    match array.data_type() {
        DataType::Date32 => {
            let days = array.as_primitive_opt::<Date32Type>()?;
            let day = days.iter().flatten().find(|day| !DAYS.contains(day))?;
            Some(match day {
                i32::MIN | i32::MAX => "is infinite, and a Date32 of ClickHouse is not",
                _ => "is outside of the years 1900 to 2299, which a Date32 of ClickHouse has",
            })
        }
        DataType::Timestamp(..) => {
            let moments = array.as_primitive_opt::<TimestampMicrosecondType>()?;
            let moment = moments.iter().flatten().find(|moment| !MOMENTS.contains(moment))?;
            Some(match moment {
                i64::MIN | i64::MAX => "is infinite, and a DateTime64 of ClickHouse is not",
                _ => "is outside of the years 1900 to 2299, which a DateTime64 of ClickHouse has",
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use forebay_sdk::values::read::Builder;
    use forebay_sdk::values::types::column;

    use super::*;

    /// The rows that are refused of these texts; the empty text is NULL.
    fn refused(sql_type: &str, texts: &[&str], is_not_null: bool) -> Vec<usize> {
        let column = column("c", sql_type).unwrap();
        let mut builder = Builder::new(&column);
        for text in texts {
            match *text {
                "" => builder.null(),
                text => builder.text(text).unwrap(),
            }
        }
        let mut refused = Refused::new();
        check(&builder.finish(), &column, is_not_null, &mut refused);
        refused.into_keys().collect()
    }

    #[test]
    fn the_bounds_are_values_and_what_is_beside_them_is_not() {
        let dates = ["1900-01-01", "1899-12-31", "2299-12-31", "2300-01-01", "infinity", ""];
        assert_eq!(refused("date", &dates, false), [1, 3, 4]);
        let moments = [
            "1900-01-01T00:00:00",
            "1899-12-31T23:59:59.999999",
            "2299-12-31T23:59:59.999999",
            "2300-01-01T00:00:00",
            "-infinity",
        ];
        assert_eq!(refused("timestamp", &moments, false), [1, 3, 4]);
        let zoned = ["2299-12-31T23:59:59.999999Z", "2300-01-01T00:00:00Z", "infinity"];
        assert_eq!(refused("timestamptz", &zoned, false), [1, 2]);
    }

    #[test]
    fn values_in_arrays_have_the_same_bounds_and_an_array_is_never_null() {
        let texts = ["[\"2024-01-01\"]", "[\"2024-01-01\",\"infinity\"]", "[null]", "[]", ""];
        assert_eq!(refused("date[]", &texts, false), [1, 4]);
        assert_eq!(refused("bigint[]", &["[1,null]", ""], false), [1]);
        // They are stored as text.
        assert_eq!(refused("interval[]", &["[\"P1M\"]", ""], false), Vec::<usize>::new());
    }

    #[test]
    fn null_is_refused_where_the_table_never_has_it() {
        assert_eq!(refused("bigint", &["1", ""], true), [1]);
        assert_eq!(refused("interval", &["P1M", ""], true), [1]);
        assert_eq!(refused("bigint", &["1", ""], false), Vec::<usize>::new());
    }
}
