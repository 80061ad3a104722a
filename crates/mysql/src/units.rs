//! The units of a table, which are read and committed separately.
//!
//! A range of an integer key has the rows with these keys in a later run, too. Ranges are half open, and the first and
//! the last have no end: together they cover every row, NULL keys in the last.

use forebay_sdk::connector::{Cursor, Division, Opening, Result, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::StreamSettings;
use mysql_async::Value;

use crate::catalog::Table;
use crate::columns::no_column;
use crate::connect::Session;
use crate::sql::ident;
use crate::types::{Kind, Type};

/// Maximum number of units.
const UNITS_MAX: u64 = 4_096;

/// Which rows a unit has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    /// The condition in SQL; empty for all rows.
    pub(crate) condition: String,
    /// The values of its placeholders.
    pub(crate) parameters: Vec<Value>,
}

/// All units of a stream.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Each with how it is read; a unit of an earlier incremental load cannot be read again.
    pub(crate) units: Vec<(Unit, Option<Part>)>,
    pub(crate) is_stable: bool,
    pub(crate) cursor: Option<Cursor>,
    /// Notes for the reader of the plan.
    pub(crate) notes: Vec<String>,
}

impl Parts {
    /// These units, of a table that is read completely.
    fn complete(units: Vec<(Unit, Option<Part>)>) -> Self {
        Self { units, is_stable: true, cursor: None, notes: Vec::new() }
    }

    /// The units of an unfinished incremental load. They name what is committed: the rows between two values of a
    /// cursor are others in every run.
    pub(crate) fn recorded(units: &[Unit]) -> Self {
        let units = units.iter().map(|unit| (unit.clone(), None)).collect();
        Self { units, is_stable: false, cursor: None, notes: Vec::new() }
    }

    /// How a table that is read completely is divided.
    pub(crate) async fn plan(
        session: &mut Session,
        table: &Table,
        stream: &StreamSettings,
        opening: &Opening,
    ) -> Result<Self> {
        let key = key(table, stream)?;
        if let Division::As(units) = &opening.division {
            return Self::again(units, table, key);
        }
        let size = table.bytes.unwrap_or(0);
        let count = size.div_ceil(opening.unit_size.max(1)).min(UNITS_MAX);
        let all =
            Unit { name: "all".into(), from: None, to: None, rows: table.rows, bytes: table.bytes };
        let whole = || Self::complete(vec![(all, Some(range("", None, None)))]);
        let Some(key) = key.filter(|_| count > 1 && opening.division != Division::Whole) else {
            return Ok(whole());
        };
        let bounds = bounds(session, table, key, count).await?;
        if bounds.is_empty() {
            return Ok(whole());
        }
        Ok(Self::by_key(table, key, &bounds))
    }

    /// The units of an unfinished load.
    fn again(units: &[Unit], table: &Table, key: Option<&str>) -> Result<Self> {
        let other = || {
            ConnectorError::unsupported(
                format!(
                    "an unfinished load of {} was divided in a way that is no longer possible",
                    table.name
                ),
                "run again with `--from-scratch`",
            )
        };
        let parts = units.iter().map(|unit| {
            let end = |end: &Option<String>| {
                end.as_ref().map(|end| end.parse::<i128>().map_err(|_| other())).transpose()
            };
            let part = match (key, end(&unit.from)?, end(&unit.to)?) {
                (_, None, None) => range("", None, None),
                (Some(key), from, to) => range(key, from, to),
                (None, ..) => return Err(other()),
            };
            Ok((unit.clone(), Some(part)))
        });
        Ok(Self::complete(parts.collect::<Result<_>>()?))
    }

    fn by_key(table: &Table, key: &str, bounds: &[i128]) -> Self {
        let share = bounds.len() as u64 + 1;
        let ends = (0..=bounds.len()).map(|index| {
            let from = index.checked_sub(1).and_then(|before| bounds.get(before)).copied();
            (from, bounds.get(index).copied())
        });
        let units = ends.map(|(from, to)| {
            let shown = |end: Option<i128>| end.map(|end| end.to_string());
            let (start, end) = (shown(from), shown(to));
            let unit = Unit {
                name: format!(
                    "{key} {}..{}",
                    start.as_deref().unwrap_or_default(),
                    end.as_deref().unwrap_or_default()
                ),
                from: start,
                to: end,
                rows: table.rows.map(|rows| rows / share),
                bytes: table.bytes.map(|bytes| bytes / share),
            };
            (unit, Some(range(key, from, to)))
        });
        Self::complete(units.collect())
    }
}

/// The column by which a table is divided: that of the settings, or a primary key of one integer.
fn key<'a>(table: &'a Table, stream: &'a StreamSettings) -> Result<Option<&'a str>> {
    let is_integer = |name: &str| {
        let ty = table.column(name).and_then(Type::of);
        ty.is_some_and(|ty| matches!(ty.kind, Kind::Integer { .. }))
    };
    if let Some(key) = &stream.partition_key {
        if table.column(key).is_none() {
            return Err(no_column(table, key));
        }
        if !is_integer(key) {
            return Err(ConnectorError::unsupported(
                format!("`partition_key` {key:?} of {} is not an integer", table.name),
                "name a column of integers, or remove `partition_key`",
            ));
        }
        return Ok(Some(key));
    }
    match table.primary_key.as_slice() {
        [key] if is_integer(key) => Ok(Some(key)),
        _ => Ok(None),
    }
}

/// `from <= key < to`; without `to`, also where it is NULL.
fn range(key: &str, from: Option<i128>, to: Option<i128>) -> Part {
    let name = ident(key);
    let condition = match (from, to) {
        (None, None) => String::new(),
        (Some(_), None) => format!("{name} >= ? OR {name} IS NULL"),
        (None, Some(_)) => format!("{name} < ?"),
        (Some(_), Some(_)) => format!("{name} >= ? AND {name} < ?"),
    };
    Part { condition, parameters: from.into_iter().chain(to).map(number).collect() }
}

/// A number as a parameter. One that no integer of a server can be is the nearest that one can.
fn number(number: i128) -> Value {
    match (i64::try_from(number), u64::try_from(number)) {
        (Ok(number), _) => Value::Int(number),
        (_, Ok(number)) => Value::UInt(number),
        _ if number < 0 => Value::Int(i64::MIN),
        _ => Value::UInt(u64::MAX),
    }
}

/// Values of a key that divide the range of its values into this many equal parts.
async fn bounds(session: &mut Session, table: &Table, key: &str, count: u64) -> Result<Vec<i128>> {
    let (name, of) = (ident(key), ident(&table.name));
    let act = format!("divide {} by {key}", table.name);
    // As text: a number of either sign fits no other type.
    let sql = format!("SELECT CAST(MIN({name}) AS CHAR), CAST(MAX({name}) AS CHAR) FROM {of}");
    let ends: Option<(Option<String>, Option<String>)> = session.first(&act, &sql).await?;
    let parsed = |end: Option<String>| end.and_then(|end| end.parse::<i128>().ok());
    let Some((Some(first), Some(last))) = ends.map(|(first, last)| (parsed(first), parsed(last)))
    else {
        return Ok(Vec::new());
    };
    Ok(split(first, last, count))
}

/// The ends between `count` equal parts of a range, all of them above `first`; fewer if it has fewer values.
fn split(first: i128, last: i128, count: u64) -> Vec<i128> {
    let span = last.saturating_sub(first).saturating_add(1).max(1);
    let count = i128::from(count).min(span);
    (1..count).map(|index| first.saturating_add(span.saturating_mul(index) / count)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_is_half_open_and_the_last_has_the_rows_without_a_key() {
        assert_eq!(
            range("a`b", Some(-3), Some(u64::MAX.into())),
            Part {
                condition: "`a``b` >= ? AND `a``b` < ?".into(),
                parameters: vec![Value::Int(-3), Value::UInt(u64::MAX)],
            }
        );
        assert_eq!(range("k", Some(1), None).condition, "`k` >= ? OR `k` IS NULL");
    }

    proptest! {
        #[test]
        fn ends_increase_and_are_within_the_range(a in any::<i64>(), b in any::<u64>(), count in 1..5_000_u64) {
            let (first, last) = (i128::from(a), i128::from(a).max(i128::from(b)));
            let ends = split(first, last, count);
            prop_assert!(ends.is_sorted_by(|a, b| a < b));
            prop_assert!(ends.iter().all(|end| first < *end && *end <= last));
            prop_assert_eq!(ends.len() as i128, i128::from(count).min(last - first + 1) - 1);
        }
    }
}
