//! The units of a table, which are read and committed separately.
//!
//! A range of a key has the same rows in a later run; a range of pages only as long as the snapshot
//! exists. Ranges are half open, and the first and the last have no end: together they cover every
//! row, NULL keys in the last.

use forebay_pgcopy::catalog::PgType;
use forebay_sdk::connector::{Cursor, Division, Opening, Result, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::StreamSettings;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use super::PAGE_SIZE;
use super::catalog::Table;
use super::columns::no_column;
use super::connect::refused;
use super::sql::{ident, literal};

/// A smaller table is one unit: another connection would take longer than reading it.
const DIVIDED_FROM: u64 = 16 << 20;
/// Maximum number of units.
const PARTS_MAX: u64 = 4096;

/// Number of sampled pages per boundary, with some thousands of rows, and in total.
const SAMPLED_EACH: f64 = 50.0;
const SAMPLED_MAX: f64 = 1_000.0;

/// A unit of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    /// The condition in SQL; empty for all rows.
    pub(super) condition: String,
    /// A query that returns whether another snapshot has the same rows under this condition; `None`
    /// if they are the same by definition.
    pub(super) is_same: Option<String>,
}

impl Part {
    fn of(condition: String) -> Self {
        Self { condition, is_same: None }
    }
}

/// All units of a stream.
#[derive(Debug)]
pub(super) struct Parts {
    /// Each with how it is read; a unit of an earlier incremental load cannot be read again.
    pub(super) units: Vec<(Unit, Option<Part>)>,
    pub(super) is_stable: bool,
    pub(super) cursor: Option<Cursor>,
    /// Notes for the reader of the plan.
    pub(super) notes: Vec<String>,
}

impl Parts {
    /// The whole of a table.
    fn whole(table: &Table) -> Self {
        let unit = Unit {
            name: "all".into(),
            from: None,
            to: None,
            rows: table.rows,
            bytes: Some(table.pages * PAGE_SIZE),
        };
        Self {
            units: vec![(unit, Some(Part::of(String::new())))],
            is_stable: true,
            cursor: None,
            notes: Vec::new(),
        }
    }

    /// How a table that is read completely is divided.
    pub(super) async fn plan(
        client: &Client,
        table: &Table,
        stream: &StreamSettings,
        opening: &Opening,
    ) -> Result<Self> {
        if let Some(key) = &stream.partition_key
            && table.column(key).is_none()
        {
            return Err(no_column(table, key));
        }
        let key = stream.partition_key.as_deref().or_else(|| integer_key(table));
        if let Division::As(units) = &opening.division {
            return Self::again(units, table, key);
        }
        let size = table.pages * PAGE_SIZE;
        let count = size.div_ceil(opening.unit_size.max(1)).max(opening.parallelism as u64);
        let count = count.min(PARTS_MAX);
        if size < DIVIDED_FROM || count < 2 || opening.division == Division::Whole {
            return Ok(Self::whole(table));
        }
        // A page number is one of each table that inherits from this one.
        let is_heap = matches!(table.kind, 'r' | 'm') && !table.has_children;
        match key {
            Some(key) if stream.partition_key.is_some() || opening.division == Division::Stable => {
                let bounds = bounds(client, table, key, count).await?;
                Ok(Self::by_key(table, key, &bounds))
            }
            _ if opening.division == Division::Any && is_heap => Ok(Self::by_pages(table, count)),
            _ => Ok(Self::whole(table)),
        }
    }

    /// The units of an unfinished load.
    fn again(units: &[Unit], table: &Table, key: Option<&str>) -> Result<Self> {
        let parts = units.iter().map(|unit| {
            let condition = match (key, &unit.from, &unit.to) {
                (_, None, None) => String::new(),
                (Some(key), from, to) => range(table, key, from.as_deref(), to.as_deref()),
                (None, ..) => {
                    return Err(ConnectorError::unsupported(
                        format!(
                            "an unfinished load of {} was divided by a key that it no longer has",
                            table.name
                        ),
                        "run again with `--from-scratch`",
                    ));
                }
            };
            Ok((unit.clone(), Some(Part::of(condition))))
        });
        Ok(Self {
            units: parts.collect::<Result<_>>()?,
            is_stable: true,
            cursor: None,
            notes: Vec::new(),
        })
    }

    /// The units of an unfinished incremental load. They name what is committed: the rows between
    /// two values of a cursor are others in every run.
    pub(super) fn recorded(units: &[Unit]) -> Self {
        let units = units.iter().map(|unit| (unit.clone(), None));
        Self { units: units.collect(), is_stable: false, cursor: None, notes: Vec::new() }
    }

    fn by_key(table: &Table, key: &str, bounds: &[String]) -> Self {
        let share = bounds.len() as u64 + 1;
        let ends = (0..=bounds.len()).map(|index| {
            let from = index.checked_sub(1).and_then(|before| bounds.get(before)).cloned();
            (from, bounds.get(index).cloned())
        });
        let units = ends.map(|(from, to)| {
            let condition = range(table, key, from.as_deref(), to.as_deref());
            let shown = |end: &Option<String>| end.clone().unwrap_or_default();
            let unit = Unit {
                name: format!("{key} {}..{}", shown(&from), shown(&to)),
                from,
                to,
                rows: table.rows.map(|rows| rows / share),
                bytes: Some(table.pages * PAGE_SIZE / share),
            };
            (unit, Some(Part::of(condition)))
        });
        Self { units: units.collect(), is_stable: true, cursor: None, notes: Vec::new() }
    }

    fn by_pages(table: &Table, count: u64) -> Self {
        let step = table.pages.div_ceil(count).max(1);
        let count = table.pages.div_ceil(step);
        let units = (0..count).map(|index| {
            let (from, to) = (index * step, (index + 1) * step);
            let lower = (index > 0).then(|| format!("ctid >= '({from},0)'::tid"));
            let upper = (index + 1 < count).then(|| format!("ctid < '({to},0)'::tid"));
            let condition: Vec<String> = lower.into_iter().chain(upper).collect();
            let pages = step.min(table.pages - from);
            let unit = Unit {
                name: format!("pages {from}..{}", from + pages),
                from: None,
                to: None,
                rows: table.rows.map(|rows| rows * pages / table.pages.max(1)),
                bytes: Some(pages * PAGE_SIZE),
            };
            (unit, Some(Part::of(condition.join(" and "))))
        });
        Self { units: units.collect(), is_stable: false, cursor: None, notes: Vec::new() }
    }
}

/// The primary key, if it is one column of integers.
fn integer_key(table: &Table) -> Option<&str> {
    let [key] = table.primary_key.as_slice() else { return None };
    let is_integer = |of: &PgType| matches!(of.oid, 20 | 21 | 23);
    table.column(key).is_some_and(|column| is_integer(&column.pg_type)).then_some(key)
}

/// `from <= key < to`; without `to`, also where it is NULL.
fn range(table: &Table, key: &str, from: Option<&str>, to: Option<&str>) -> String {
    let of = table.column(key).map_or("text", |column| column.pg_type.name.as_str());
    let name = ident(key);
    let value = |end: &str| format!("{}::{of}", literal(end));
    match (from, to) {
        (None, None) => String::new(),
        (Some(from), None) => format!("({name} >= {} or {name} is null)", value(from)),
        (None, Some(to)) => format!("{name} < {}", value(to)),
        (Some(from), Some(to)) => {
            format!("{name} >= {} and {name} < {}", value(from), value(to))
        }
    }
}

/// Values of a key that divide a table into about equal parts, from a sample of its pages.
async fn bounds(client: &Client, table: &Table, key: &str, count: u64) -> Result<Vec<String>> {
    let act = |error| refused(format!("divide {} by {key}", table.name), error);
    let pages = u32::try_from(count).map_or(SAMPLED_MAX, |count| f64::from(count) * SAMPLED_EACH);
    let pages = pages.min(SAMPLED_MAX);
    let share = pages * 100.0 / u32::try_from(table.pages.max(1)).map_or(f64::MAX, f64::from);
    let percent = share.min(100.0);
    let sample = if matches!(table.kind, 'r' | 'm') {
        format!(" tablesample system ({percent}) repeatable (1)")
    } else {
        String::new()
    };
    let name = ident(key);
    let shares: Vec<f64> = (1..count)
        .map(|index| {
            #[expect(clippy::cast_precision_loss, reason = "a few thousand parts at most")]
            let share = index as f64 / count as f64;
            share
        })
        .collect();
    let query = format!(
        "select distinct b.v, b.v::text from (select unnest(percentile_disc($1::float8[]) within group \
         (order by {name})) v from {}{sample}) b where b.v is not null order by 1",
        table.name.sql()
    );
    let rows = client.query(&query, &[&shares]).await.map_err(act)?;
    Ok(rows.iter().map(|row| row.get(1)).collect())
}
