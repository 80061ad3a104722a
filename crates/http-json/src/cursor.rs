//! How far an incremental stream was read: values of its cursor field, in their order.
//!
//! A value is remembered as the server writes it, and compared by its meaning: numbers by number, times by
//! instant, texts by bytes.
//!
//! Invariant: a record at or before the last value of an earlier run is left out, unless it may be read again.

use std::cmp::Ordering;

use forebay_pgcopy::{Column, Wire};
use forebay_sdk::ConnectorError;
use forebay_sdk::connector::{Cursor, Result};
use forebay_sdk::values::time;

use crate::pointer::plain;

/// How values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Double,
    Date,
    /// With an offset from UTC, or without.
    Timestamp {
        is_utc: bool,
    },
    Text,
}

/// A value that is compared.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Key {
    Integer(i64),
    Double(f64),
    Text(String),
}

impl Kind {
    /// How the values of a column are compared.
    ///
    /// # Errors
    /// They have no order here.
    pub(crate) fn of(column: &Column) -> Result<Self> {
        Ok(match column.wire {
            Wire::Int2 | Wire::Int4 | Wire::Int8 => Self::Integer,
            Wire::Float4 | Wire::Float8 => Self::Double,
            Wire::Date => Self::Date,
            Wire::Timestamp => Self::Timestamp { is_utc: false },
            Wire::TimestampTz => Self::Timestamp { is_utc: true },
            Wire::Text | Wire::Uuid => Self::Text,
            _ => {
                let what = format!("a cursor of the type {} has no order", column.sql_type);
                let way_out =
                    "give the column the type bigint, double precision, timestamptz or text";
                return Err(ConnectorError::unsupported(what, way_out));
            }
        })
    }

    /// Reads a value; `None` if it is not one of this kind.
    pub(crate) fn read(self, text: &str) -> Option<Key> {
        Some(match self {
            Self::Integer => Key::Integer(text.parse().ok()?),
            Self::Double => {
                Key::Double(text.parse().ok().filter(|number: &f64| number.is_finite())?)
            }
            Self::Date => Key::Integer(time::read_date(text)?.into()),
            Self::Timestamp { is_utc } => Key::Integer(time::read_timestamp(text, is_utc)?),
            Self::Text => Key::Text(text.to_owned()),
        })
    }

    /// Whether no later value can be greater.
    fn is_endless(self, key: &Key) -> bool {
        match (self, key) {
            (Self::Timestamp { .. }, Key::Integer(us)) => *us == i64::MAX,
            (Self::Date, Key::Integer(days)) => *days == i64::from(i32::MAX),
            _ => false,
        }
    }
}

impl Key {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => one.cmp(other),
            // Neither is NaN, which JSON does not have.
            (Self::Double(one), Self::Double(other)) => {
                one.partial_cmp(other).unwrap_or(Ordering::Equal)
            }
            (Self::Text(one), Self::Text(other)) => one.as_bytes().cmp(other.as_bytes()),
            // All values of a stream have one kind.
            _ => Ordering::Equal,
        }
    }
}

/// Which records are read.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) kind: Kind,
    /// Only records after this value.
    since: Option<Key>,
    /// Only records up to this value: later ones belong to the next run.
    until: Option<Key>,
    /// Whether records with exactly the last value are read again.
    may_repeat: bool,
}

impl Window {
    /// * `since`: how far the last run has read.
    ///
    /// # Errors
    /// Its value is not one of the column.
    pub(crate) fn new(kind: Kind, since: Option<&Cursor>, may_repeat: bool) -> Result<Self> {
        let read = |cursor: &Cursor| {
            kind.read(&cursor.value).ok_or_else(|| {
                let found = format!("{:?} is not a value of the cursor field", cursor.value);
                ConnectorError::data("the cursor of the last run", found)
            })
        };
        Ok(Self { kind, since: since.map(read).transpose()?, until: None, may_repeat })
    }

    /// The same records, and none that were added after they were counted.
    pub(crate) fn until(self, tally: &Tally) -> Self {
        let until = tally.last.as_ref().map(|(key, _)| key.clone()).or_else(|| self.since.clone());
        Self { until, ..self }
    }

    /// Whether a record is read, by the JSON of its cursor field.
    ///
    /// # Errors
    /// The value is not one of the column.
    pub(crate) fn admits(&self, json: Option<&str>, tally: &mut Tally) -> Result<bool, String> {
        let Some(json) = json else {
            tally.unordered += 1;
            return Ok(self.since.is_none());
        };
        let text = plain(json);
        let Some(key) = self.kind.read(&text) else {
            let shown: String = text.chars().take(60).collect();
            return Err(format!("{shown:?} is not a value of the cursor field's type"));
        };
        if self.until.as_ref().is_some_and(|until| key.compare(until) == Ordering::Greater) {
            return Ok(false);
        }
        match self.since.as_ref().map(|since| key.compare(since)) {
            Some(Ordering::Less) => return Ok(false),
            Some(Ordering::Equal) => {
                tally.at_since += 1;
                return Ok(self.may_repeat);
            }
            _ => {}
        }
        match tally.last.as_ref().map(|(last, _)| key.compare(last)) {
            Some(Ordering::Less) => {}
            Some(Ordering::Equal) => tally.at_last += 1,
            _ => {
                tally.last = Some((key, text.into_owned()));
                tally.at_last = 1;
            }
        }
        Ok(true)
    }
}

/// What was counted in a reading.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// The greatest value after that of the last run, as it is written.
    last: Option<(Key, String)>,
    /// Number of records with this value.
    at_last: u64,
    /// Number of records with the last value of the last run.
    at_since: u64,
    /// Number of records without a value.
    pub(crate) unordered: u64,
}

impl Tally {
    /// The cursor after this reading.
    ///
    /// * `since`: the previous cursor.
    /// * `of`, `field`: the stream and its cursor field, for messages.
    ///
    /// # Errors
    /// No later value can be greater; records were added with the last value of the last run, and nothing
    /// distinguishes them from those that were read.
    pub(crate) fn cursor(
        &self,
        window: &Window,
        since: Option<&Cursor>,
        of: &str,
        field: &str,
    ) -> Result<Option<Cursor>> {
        if let Some(since) = since.filter(|_| !window.may_repeat) {
            let late = self.at_since.saturating_sub(since.rows_at.unwrap_or(u64::MAX));
            if late > 0 {
                return Err(since.late(of, field, late));
            }
        }
        let Some((key, text)) = &self.last else {
            return Ok(since.map(|since| Cursor {
                rows_at: since.rows_at.map(|rows| rows.max(self.at_since)),
                ..since.clone()
            }));
        };
        let cursor = Cursor { rows_at: Some(self.at_last), ..Cursor::new(text.clone(), None) };
        match window.kind.is_endless(key) {
            true => Err(cursor.endless(of, field)),
            false => Ok(Some(cursor)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which values are read, and the cursor after them.
    type Read = (Vec<bool>, Option<(String, Option<u64>)>);

    /// Reads these values.
    fn read(
        kind: Kind,
        since: Option<(&str, u64)>,
        may_repeat: bool,
        values: &[Option<&str>],
    ) -> Result<Read> {
        let since = since
            .map(|(value, rows)| Cursor { rows_at: Some(rows), ..Cursor::new(value.into(), None) });
        let window = Window::new(kind, since.as_ref(), may_repeat)?;
        let mut tally = Tally::default();
        let admitted = values.iter().map(|value| window.admits(*value, &mut tally).unwrap());
        let admitted = admitted.collect();
        let cursor = tally.cursor(&window, since.as_ref(), "s", "at")?;
        Ok((admitted, cursor.map(|cursor| (cursor.value, cursor.rows_at))))
    }

    fn at(value: &str, rows: u64) -> Option<(String, Option<u64>)> {
        Some((value.to_owned(), Some(rows)))
    }

    #[test]
    fn the_cursor_is_the_greatest_value_by_its_meaning() {
        let utc = Kind::Timestamp { is_utc: true };
        for (kind, values, expected) in [
            (Kind::Integer, [Some("9"), Some("10"), Some("10")], at("10", 2)),
            (Kind::Double, [Some("9.5"), Some("1e1"), Some("1")], at("1e1", 1)),
            (Kind::Text, [Some("\"9\""), Some("\"10\""), Some("\"a\\u0062\"")], at("ab", 1)),
            (
                utc,
                [
                    Some("\"2026-01-01T10:00:00+02:00\""),
                    Some("\"2026-01-01T09:00:00Z\""),
                    Some("\"2026-01-01T08:59:00Z\""),
                ],
                at("2026-01-01T09:00:00Z", 1),
            ),
            (
                Kind::Date,
                [Some("\"2026-01-02\""), Some("\"2026-01-01\""), None],
                at("2026-01-02", 1),
            ),
            (Kind::Integer, [None, None, None], None),
        ] {
            let (admitted, cursor) = read(kind, None, false, &values).unwrap();
            assert_eq!((admitted, cursor), (vec![true; 3], expected), "{values:?}");
        }
    }

    #[test]
    fn only_records_after_the_last_run_are_read() {
        let values = [Some("4"), Some("5"), None, Some("6"), Some("5")];
        let append = read(Kind::Integer, Some(("5", 2)), false, &values).unwrap();
        assert_eq!(append, (vec![false, false, false, true, false], at("6", 1)));
        let upsert = read(Kind::Integer, Some(("5", 1)), true, &values).unwrap();
        assert_eq!(upsert, (vec![false, true, false, true, true], at("6", 1)));
        let none = read(Kind::Integer, Some(("5", 2)), false, &[]).unwrap();
        assert_eq!(none, (vec![], at("5", 2)));
        let same = read(Kind::Integer, Some(("5", 1)), true, &[Some("5"), Some("5")]).unwrap();
        assert_eq!(same, (vec![true, true], at("5", 2)));
    }

    #[test]
    fn records_that_were_added_with_the_last_value_are_refused_if_nothing_distinguishes_them() {
        let values = [Some("5"), Some("5"), Some("5")];
        let error = read(Kind::Integer, Some(("5", 2)), false, &values).unwrap_err();
        assert!(error.to_string().contains("1 rows"), "{error}");
    }

    #[test]
    fn what_was_added_while_it_was_read_belongs_to_the_next_run() {
        let window = Window::new(Kind::Integer, None, false).unwrap();
        let mut tally = Tally::default();
        assert_eq!(window.admits(Some("5"), &mut tally), Ok(true));
        let again = window.until(&tally);
        let admitted = ["5", "6"].map(|value| again.admits(Some(value), &mut Tally::default()));
        assert_eq!(admitted, [Ok(true), Ok(false)]);
    }

    #[test]
    fn a_value_without_order_or_end_is_refused() {
        let endless = [Some("\"infinity\"")];
        let utc = Kind::Timestamp { is_utc: true };
        assert!(
            read(utc, None, false, &endless).unwrap_err().to_string().contains("no later value")
        );
        let window = Window::new(Kind::Integer, None, false).unwrap();
        for value in ["\"x\"", "1.5", "true", "{}", "9223372036854775808"] {
            assert!(window.admits(Some(value), &mut Tally::default()).is_err(), "{value}");
        }
        let cursor = Cursor::new("x".to_owned(), None);
        assert!(Window::new(Kind::Integer, Some(&cursor), false).is_err());
        let json = forebay_sdk::values::types::column("a", "jsonb").unwrap();
        assert!(Kind::of(&json).is_err());
    }
}
