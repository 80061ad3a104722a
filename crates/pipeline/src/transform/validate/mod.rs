//! `validate`: rules that the rows of a stream have to satisfy.
//!
//! Invariants:
//! * A row that violates a rule never passes. `on_failure` decides what happens to it, and whether
//!   it is reported.
//! * `unique` sees only rows that satisfy all other rules; the first of several that is read stays.
//! * A value that a later `mask` hides appears in no message and no dead letter.

pub(super) mod numeric;
mod rule;
pub(super) mod settings;
#[cfg(test)]
mod tests;
mod unique;

use std::collections::BTreeSet;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::batch::DeadRow;
use forebay_sdk::connector::{Result, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::transform::Applied;
use forebay_sdk::values::write::{Cells, json_text};
use xxhash_rust::xxh3::xxh3_128;

use self::rule::{Rules, UniqueRows, is_numeric, write_value};
use self::settings::{OnFailure, ValidateSettings};
use self::unique::Known;
use super::padding;
use super::step::{BatchPosition, Step};

/// Maximum number of bytes of a value in a message.
const SHOWN_MAX: usize = 80;
/// Replacement of a value that is masked later.
const HIDDEN: &str = "***";

/// The rules of a stream.
pub(super) struct Validation {
    stream: String,
    columns: Vec<Column>,
    /// Names of its units, for messages.
    units: Vec<Unit>,
    rules: Rules,
    on_failure: OnFailure,
    /// Names of columns whose values are not shown.
    hidden: BTreeSet<String>,
}

/// The first rule that a row violated.
#[derive(Debug, Clone, Copy)]
enum Broken {
    /// The rule for single rows with this index.
    Row(usize),
    /// The rule over all rows with this index; the row at the position has the same values.
    Unique(usize, unique::RowPosition),
}

impl Validation {
    /// The rules of a stream of these columns and units.
    ///
    /// # Errors
    /// As for [`Rules::new`].
    pub(super) fn new(
        stream: &str,
        columns: &[Column],
        units: &[Unit],
        settings: &ValidateSettings,
        hidden: BTreeSet<String>,
    ) -> Result<Self> {
        let rules = Rules::new(&settings.rules, columns, &format!("validate of {stream}"))?;
        Ok(Self {
            stream: stream.to_owned(),
            columns: columns.to_vec(),
            units: units.to_vec(),
            rules,
            on_failure: settings.on_failure,
            hidden,
        })
    }

    /// The rows that violate a rule, in order, each with the first violated one.
    fn broken(
        &self,
        place: BatchPosition<'_>,
        records: &RecordBatch,
    ) -> Result<Vec<(usize, Broken)>> {
        // Rules see what PostgreSQL compares.
        let unpadded = padding::without(records, &self.columns)?;
        let records = unpadded.as_ref().unwrap_or(records);
        let rows = records.num_rows();
        let mut kept = BooleanBuffer::new_set(rows);
        let mut broken = Vec::new();
        for (index, rule) in self.rules.rows.iter().enumerate() {
            let Some(column) = self.columns.get(rule.column) else { continue };
            let keeps = rule.kept(records, column)?;
            if keeps.count_set_bits() < rows {
                let first = &kept & &!&keeps;
                broken.extend(first.set_indices().map(|row| (row, Broken::Row(index))));
                kept = &kept & &keeps;
            }
        }
        for (index, rule) in self.rules.unique.iter().enumerate() {
            let twice = self.twice(rule, place, records, &kept)?;
            let mut keeps = vec![true; rows];
            for &(row, at) in &twice {
                if let Some(keeps) = keeps.get_mut(row) {
                    *keeps = false;
                }
                broken.push((row, Broken::Unique(index, at)));
            }
            if !twice.is_empty() {
                kept = &kept & &BooleanBuffer::from(keeps);
            }
        }
        broken.sort_unstable_by_key(|(row, _)| *row);
        Ok(broken)
    }

    /// The rows of `kept` whose values were seen before, each with the position.
    fn twice(
        &self,
        rule: &UniqueRows,
        place: BatchPosition<'_>,
        records: &RecordBatch,
        kept: &BooleanBuffer,
    ) -> Result<Vec<(usize, unique::RowPosition)>> {
        let cells = rule.columns.iter().filter_map(|&index| {
            let column = self.columns.get(index)?;
            let cells = Cells::new(records.column(index), column);
            Some(cells.map(|cells| (cells, is_numeric(column))))
        });
        let cells = cells.collect::<Result<Vec<_>>>()?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut twice = Vec::new();
        for row in kept.set_indices() {
            if cells.iter().any(|(cells, _)| cells.is_null(row)) {
                continue;
            }
            key.clear();
            for (cells, is_numeric) in &cells {
                value.clear();
                write_value(cells, row, *is_numeric, &mut value);
                // Includes the length, so that ("ab", "c") differs from ("a", "bc").
                key.extend_from_slice(&(value.len() as u64).to_le_bytes());
                key.extend_from_slice(&value);
            }
            let ordinal = place.rows_before.saturating_add(row as u64);
            let known = match unique::RowPosition::new(place.unit, ordinal) {
                Some(at) => rule.seen.see(xxh3_128(&key), at),
                None => Known::Full,
            };
            match known {
                Known::No => {}
                Known::At(at) => twice.push((row, at)),
                Known::Full => return Err(self.full(rule)),
            }
        }
        Ok(twice)
    }

    fn full(&self, rule: &UniqueRows) -> ConnectorError {
        ConnectorError::unsupported(
            format!(
                "{}: the keys of `unique` do not fit into {} bytes",
                self.stream,
                rule.seen.size_max()
            ),
            "raise the rule's `memory`, or use a unique index at the destination",
        )
    }

    /// The reason why a row does not pass.
    fn reason(&self, broken: Broken, row: usize, cells: &[Cells<'_>]) -> String {
        let shown = |index: usize| self.shown(index, row, cells);
        let name = |index: usize| self.columns.get(index).map_or("", |column| column.name.as_str());
        match broken {
            Broken::Row(rule) => self.rules.rows.get(rule).map_or_else(String::new, |rule| {
                rule.reason(name(rule.column), &shown(rule.column))
            }),
            Broken::Unique(rule, at) => {
                let columns = self.rules.unique.get(rule).map_or(&[][..], |rule| &rule.columns);
                let names: Vec<String> =
                    columns.iter().map(|index| format!("{:?}", name(*index))).collect();
                let values: Vec<String> = columns.iter().map(|index| shown(*index)).collect();
                let there =
                    self.position(self.units.get(at.unit()).map_or("", |u| &u.name), at.row());
                format!("{} {} is there already: {there}", names.join(", "), values.join(", "))
            }
        }
    }

    /// A value for a message.
    fn shown(&self, index: usize, row: usize, cells: &[Cells<'_>]) -> String {
        if self.columns.get(index).is_some_and(|column| self.hidden.contains(&column.name)) {
            return HIDDEN.into();
        }
        let mut value = Vec::new();
        if let Some(cells) = cells.get(index) {
            cells.json(row, &mut value);
        }
        let is_long = value.len() > SHOWN_MAX;
        value.truncate(SHOWN_MAX);
        let mut shown = String::from_utf8_lossy(&value).into_owned();
        if is_long {
            shown.push_str("...");
        }
        shown
    }

    /// The position of a row, from 0 in its unit, for messages, which count from 1.
    fn position(&self, unit: &str, row: u64) -> String {
        format!("{}, {unit}, row {}", self.stream, row.saturating_add(1))
    }

    /// A row as a JSON object.
    fn row(&self, row: usize, cells: &[Cells<'_>]) -> String {
        let mut json = vec![b'{'];
        for (column, cells) in self.columns.iter().zip(cells) {
            if json.len() > 1 {
                json.push(b',');
            }
            json_text(&column.name, &mut json);
            json.push(b':');
            if self.hidden.contains(&column.name) && !cells.is_null(row) {
                json_text(HIDDEN, &mut json);
            } else {
                cells.json(row, &mut json);
            }
        }
        json.push(b'}');
        String::from_utf8_lossy(&json).into_owned()
    }
}

#[async_trait]
impl Step for Validation {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The keys seen by `unique` are discarded with the run, so a later one has to start again.
    fn is_stable(&self) -> bool {
        self.rules.unique.is_empty()
    }

    fn note(&self) -> String {
        let count = self.rules.rows.len() + self.rules.unique.len();
        let then = match self.on_failure {
            OnFailure::Fail => "the run fails at a row that breaks one",
            OnFailure::Skip => "rows that break one are left out",
            OnFailure::Dlq => "rows that break one are put aside",
        };
        format!("{}: {count} rules, {then}", self.stream)
    }

    async fn apply(&self, place: BatchPosition<'_>, records: RecordBatch) -> Result<Applied> {
        let broken = self.broken(place, &records)?;
        if broken.is_empty() {
            return Ok(Applied { records, dead: Vec::new(), skipped: 0 });
        }
        let cells = records.columns().iter().zip(&self.columns);
        let cells = cells.map(|(array, column)| Cells::new(array, column));
        let cells = cells.collect::<Result<Vec<_>>>()?;
        let position =
            |row: usize| self.position(place.name, place.rows_before.saturating_add(row as u64));
        let mut dead = Vec::new();
        match self.on_failure {
            OnFailure::Fail => {
                return Err(broken.first().map_or(ConnectorError::Stopped, |&(row, broken)| {
                    ConnectorError::data(position(row), self.reason(broken, row, &cells))
                }));
            }
            OnFailure::Skip => {}
            OnFailure::Dlq => {
                dead.extend(broken.iter().map(|&(row, broken)| DeadRow {
                    position: position(row),
                    reason: self.reason(broken, row, &cells),
                    row: self.row(row, &cells),
                }));
            }
        }
        let mut kept = vec![true; records.num_rows()];
        for &(row, _) in &broken {
            if let Some(kept) = kept.get_mut(row) {
                *kept = false;
            }
        }
        let left = filter_record_batch(&records, &BooleanArray::from(kept))
            .map_err(|error| ConnectorError::data(self.stream.clone(), error.to_string()))?;
        let skipped = if self.on_failure == OnFailure::Skip { broken.len() as u64 } else { 0 };
        Ok(Applied { records: left, dead, skipped })
    }
}
