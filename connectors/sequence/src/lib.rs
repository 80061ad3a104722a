//! Numbers from one on, as rows: a source to try pipelines with, and the shortest example of one.
//!
//! Invariant: the same unit has the same rows, in every run.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use forebay_pgcopy::column::schema;
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::connector::{
    Cursor, Discovered, DiscoveredColumn, Division, Opening, Result, Source, SourceStream, Unit,
};
use forebay_sdk::registry::{ConnectorSettings, SourceSettings};
use forebay_sdk::run::{Context, Outlet};
use forebay_sdk::settings::{Reach, StreamSettings};
use forebay_sdk::{ConnectorError, Rows};
use schemars::JsonSchema;
use serde::Deserialize;

/// Rows of a batch.
const BATCH_ROWS: u64 = 8_192;

/// Settings of the source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Number of rows.
    pub rows: u64,
    /// Number of rows of a unit.
    pub rows_per_unit: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { rows: 1_000, rows_per_unit: 100_000 }
    }
}

impl ConnectorSettings for Settings {
    fn reach(&self) -> Reach {
        Reach::default()
    }
}

impl SourceSettings for Settings {
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(Sequence(self.clone()))
    }
}

/// The source.
struct Sequence(Settings);

fn columns() -> Vec<Column> {
    let column = |name: &str, sql_type: &str, wire| Column {
        name: name.to_owned(),
        sql_type: sql_type.to_owned(),
        wire,
        nullable: false,
    };
    vec![column("id", "bigint", Wire::Int8), column("name", "text", Wire::Text)]
}

#[async_trait::async_trait]
impl Source for Sequence {
    async fn check(&self) -> Result<String> {
        Ok(format!("{} rows", self.0.rows))
    }

    async fn discover(&self) -> Result<Vec<Discovered>> {
        let columns = columns().into_iter().map(|column| DiscoveredColumn {
            name: column.name,
            sql_type: column.sql_type,
            nullable: column.nullable,
            note: None,
        });
        Ok(vec![Discovered {
            name: "numbers".to_owned(),
            columns: columns.collect(),
            primary_key: vec!["id".to_owned()],
            rows: Some(self.0.rows),
            bytes: None,
        }])
    }

    async fn attach(
        &self,
        stream: &StreamSettings,
        _: &Opening,
        handle: &[u8],
        _: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        let units = serde_json::from_slice(handle)
            .map_err(|error| ConnectorError::data("the handle of a stream", error.to_string()))?;
        Ok(Arc::new(Numbers { columns: chosen(stream)?, units, last: self.0.rows }))
    }

    async fn open(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        _: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        if stream.name != "numbers" {
            return Err(ConnectorError::unsupported(
                format!("there is no stream {:?}", stream.name),
                "the only one is `numbers`",
            ));
        }
        let columns = chosen(stream)?;
        let after = match &opening.since {
            None => 0,
            Some(cursor) => cursor.value.parse().map_err(|_| {
                ConnectorError::data("the cursor", format!("{:?} is not a number", cursor.value))
            })?,
        };
        let each = match opening.division {
            Division::Whole => u64::MAX,
            _ => self.0.rows_per_unit.max(1),
        };
        let units = match &opening.division {
            Division::As(recorded) => {
                if let Some(unit) = recorded.iter().find(|unit| bounds(unit).is_none()) {
                    return Err(ConnectorError::unsupported(
                        format!("there is no unit {:?}", unit.name),
                        "run with `--from-scratch` to load all rows from the beginning",
                    ));
                }
                recorded.clone()
            }
            _ => units(after, self.0.rows, each),
        };
        Ok(Arc::new(Numbers { columns, units, last: self.0.rows }))
    }
}

/// The units of `after + 1..=last`.
fn units(after: u64, last: u64, each: u64) -> Vec<Unit> {
    let (mut units, mut from) = (Vec::new(), after.saturating_add(1));
    while from <= last {
        let to = from.saturating_add(each - 1).min(last);
        units.push(Unit {
            name: format!("{from}..{to}"),
            from: Some(from.to_string()),
            to: Some(to.to_string()),
            rows: Some(to - from + 1),
            bytes: None,
        });
        let Some(next) = to.checked_add(1) else { break };
        from = next;
    }
    if units.is_empty() {
        units.push(Unit {
            name: "none".to_owned(),
            from: Some("1".to_owned()),
            to: Some("0".to_owned()),
            rows: Some(0),
            bytes: Some(0),
        });
    }
    units
}

/// The first and the last number of a unit; `None` if its name has others.
fn bounds(unit: &Unit) -> Option<(u64, u64)> {
    let from: u64 = unit.from.as_ref()?.parse().ok()?;
    let to: u64 = unit.to.as_ref()?.parse().ok()?;
    let is_named = unit.name == format!("{from}..{to}") || unit.name == "none" && from > to;
    is_named.then_some((from, to))
}

/// The open stream.
struct Numbers {
    columns: Vec<Column>,
    units: Vec<Unit>,
    last: u64,
}

/// The chosen columns.
fn chosen(stream: &StreamSettings) -> Result<Vec<Column>> {
    let all = columns();
    if stream.columns.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        all.iter().find(|column| &column.name == name).cloned().ok_or_else(|| {
            ConnectorError::unsupported(
                format!("there is no column {name:?}"),
                "the columns are `id` and `name`",
            )
        })
    };
    stream.columns.iter().map(find).collect()
}

#[async_trait::async_trait]
impl SourceStream for Numbers {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn units_are_stable(&self) -> bool {
        true
    }

    fn cursor(&self) -> Option<Cursor> {
        Some(Cursor::new(self.last.to_string(), None))
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn handle(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(&self.units).ok()
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        let Some((mut from, to)) = self.units.get(unit).and_then(bounds) else {
            return Err(ConnectorError::data("numbers", "there is no such unit"));
        };
        while from <= to {
            let until = from.saturating_add(BATCH_ROWS - 1).min(to);
            let numbers = (from..=until).map(|number| i64::try_from(number).unwrap_or(i64::MAX));
            let arrays = self.columns.iter().map(|column| -> ArrayRef {
                match column.wire {
                    Wire::Int8 => Arc::new(Int64Array::from_iter_values(numbers.clone())),
                    _ => Arc::new(StringArray::from_iter_values(
                        numbers.clone().map(|number| format!("number {number}")),
                    )),
                }
            });
            let batch = RecordBatch::try_new(schema(&self.columns).into(), arrays.collect())
                .map_err(|error| ConnectorError::data("numbers", error.to_string()))?;
            out.send(Rows::Records(batch)).await?;
            let Some(next) = until.checked_add(1) else { break };
            from = next;
        }
        Ok(())
    }
}

#[cfg(target_family = "wasm")]
forebay_guest::source!(Settings);
