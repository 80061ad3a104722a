//! Rules, prepared for the columns of a stream.
//!
//! A rule checks a whole batch and returns which rows satisfy it. The message about a row that does
//! not is only created then.

use std::cmp::Ordering;
use std::collections::HashSet;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, Scalar as OneValue};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp::{gt_eq, lt_eq};
use arrow::datatypes::{Float32Type, Float64Type};
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::read::Builder;
use forebay_sdk::values::types::is_json;
use forebay_sdk::values::write::Cells;

use super::numeric;
use super::settings::{EnumRule, Pattern, RangeRule, RegexRule, Rule, Scalar};
use super::unique::Seen;
use crate::transform::streams;

/// A rule for one column that each row satisfies or violates separately.
pub(super) struct RowRule {
    /// Index of the column.
    pub(super) column: usize,
    pub(super) test: Test,
}

/// What a value has to be.
pub(super) enum Test {
    /// Not NULL.
    NotNull,
    /// A text that the pattern matches.
    Regex(Pattern),
    /// Within limits.
    Range { bounds: RangeRule, min: Option<Bound>, max: Option<Bound> },
    /// One of these values, as texts.
    Enum { said: Vec<Scalar>, texts: HashSet<Vec<u8>>, is_numeric: bool },
}

/// A limit, in the form in which values are compared.
pub(super) enum Bound {
    /// A float, in numeric order, not by bits: NaN is beyond every limit.
    Float(f64),
    /// A `numeric`.
    Numeric(String),
    /// Anything else, as an array of one value.
    Value(ArrayRef),
}

/// A rule over all rows of a stream: no two have the same values.
pub(super) struct UniqueRows {
    /// Indices of the columns.
    pub(super) columns: Vec<usize>,
    pub(super) seen: Seen,
}

/// The prepared rules of a stream.
pub(super) struct Rules {
    /// Rules for single rows.
    pub(super) rows: Vec<RowRule>,
    /// Rules over all rows.
    pub(super) unique: Vec<UniqueRows>,
}

impl Rules {
    /// Prepares rules for these columns.
    ///
    /// # Errors
    /// A column does not exist, a rule does not fit its type, or a limit is not a value of the
    /// type.
    pub(super) fn new(rules: &[Rule], columns: &[Column], step: &str) -> Result<Self> {
        let mut ready = Self { rows: Vec::new(), unique: Vec::new() };
        let find = |name: &str| streams::column(columns, name, step);
        let at = |name: &str| {
            let index = find(name)?;
            columns.get(index).map(|column| (index, column)).ok_or(ConnectorError::Stopped)
        };
        for rule in rules {
            match rule {
                Rule::NotNull(names) => {
                    for name in &names.0 {
                        ready.rows.push(RowRule { column: find(name)?, test: Test::NotNull });
                    }
                }
                Rule::Regex(rule) => {
                    let (index, column) = at(&rule.column)?;
                    ready.rows.push(RowRule { column: index, test: regex(rule, column)? });
                }
                Rule::Range(rule) => {
                    let (index, column) = at(&rule.column)?;
                    ready.rows.push(RowRule { column: index, test: range(rule, column)? });
                }
                Rule::Enum(rule) => {
                    let (index, column) = at(&rule.column)?;
                    ready.rows.push(RowRule { column: index, test: one_of(rule, column)? });
                }
                Rule::Unique(rule) => {
                    let columns = rule.columns.0.iter().map(|name| find(name));
                    let size_max = usize::try_from(rule.memory.0).unwrap_or(usize::MAX);
                    let columns = columns.collect::<Result<_>>()?;
                    ready.unique.push(UniqueRows { columns, seen: Seen::new(size_max) });
                }
            }
        }
        Ok(ready)
    }
}

impl RowRule {
    /// The rows that satisfy it.
    pub(super) fn kept(&self, records: &RecordBatch, column: &Column) -> Result<BooleanBuffer> {
        let rows = records.num_rows();
        let array = records.column(self.column);
        let or_null = |kept: BooleanBuffer| match array.nulls() {
            Some(nulls) => &kept | &!nulls.inner(),
            None => kept,
        };
        Ok(match &self.test {
            Test::NotNull => match array.nulls() {
                Some(nulls) => nulls.inner().clone(),
                None => BooleanBuffer::new_set(rows),
            },
            Test::Regex(pattern) => {
                let texts = array.as_string_opt::<i32>();
                let texts = texts.ok_or_else(|| other_type(array, column))?;
                or_null(BooleanBuffer::collect_bool(rows, |row| {
                    texts.is_null(row) || pattern.is_found_in(texts.value(row))
                }))
            }
            Test::Range { min, max, .. } => {
                let mut kept = BooleanBuffer::new_set(rows);
                for (bound, is_min) in [(min, true), (max, false)] {
                    if let Some(bound) = bound {
                        kept = &kept & &bound.kept(array, column, is_min)?;
                    }
                }
                or_null(kept)
            }
            Test::Enum { texts, is_numeric, .. } => {
                let cells = Cells::new(array, column)?;
                let mut text = Vec::new();
                or_null(BooleanBuffer::collect_bool(rows, |row| {
                    text.clear();
                    write_value(&cells, row, *is_numeric, &mut text);
                    cells.is_null(row) || texts.contains(text.as_slice())
                }))
            }
        })
    }

    /// The fault of a value that violates it.
    pub(super) fn reason(&self, column: &str, value: &str) -> String {
        match &self.test {
            Test::NotNull => format!("{column:?} is NULL"),
            Test::Regex(pattern) => {
                format!("{column:?} is {value}, which does not match {}", pattern.as_str())
            }
            Test::Range { bounds, .. } => {
                let wanted = match (&bounds.min, &bounds.max) {
                    (Some(min), Some(max)) => format!("not in {min} to {max}"),
                    (Some(min), None) => format!("not {min} or more"),
                    (None, Some(max)) => format!("not {max} or less"),
                    (None, None) => String::new(),
                };
                format!("{column:?} is {value}, {wanted}")
            }
            Test::Enum { said, .. } => {
                let said: Vec<&str> = said.iter().map(|value| value.0.as_str()).collect();
                let said = streams::listed(said.into_iter());
                format!("{column:?} is {value}, not one of {said}")
            }
        }
    }
}

impl Bound {
    /// The rows on the permitted side of it.
    fn kept(&self, array: &ArrayRef, column: &Column, is_min: bool) -> Result<BooleanBuffer> {
        let rows = array.len();
        let keeps = |value: f64, bound: f64| if is_min { value >= bound } else { value <= bound };
        match self {
            Self::Float(bound) => {
                if let Some(values) = array.as_primitive_opt::<Float64Type>() {
                    let values = values.values();
                    let kept = |row: usize| values.get(row).is_some_and(|v| keeps(*v, *bound));
                    Ok(BooleanBuffer::collect_bool(rows, kept))
                } else if let Some(values) = array.as_primitive_opt::<Float32Type>() {
                    let values = values.values();
                    let kept =
                        |row: usize| values.get(row).is_some_and(|v| keeps(f64::from(*v), *bound));
                    Ok(BooleanBuffer::collect_bool(rows, kept))
                } else {
                    Err(other_type(array, column))
                }
            }
            Self::Numeric(bound) => {
                let texts = array.as_string_opt::<i32>();
                let texts = texts.ok_or_else(|| other_type(array, column))?;
                let wrong = if is_min { Ordering::Less } else { Ordering::Greater };
                Ok(BooleanBuffer::collect_bool(rows, |row| {
                    let text = texts.value(row);
                    let order = numeric::compare(text, bound);
                    text != "NaN" && order.is_some_and(|order| order != wrong)
                }))
            }
            Self::Value(bound) => {
                let bound = OneValue::new(bound);
                let kept = if is_min { gt_eq(array, &bound) } else { lt_eq(array, &bound) };
                let kept: BooleanArray = kept.map_err(|error| {
                    ConnectorError::data(format!("column {:?}", column.name), error.to_string())
                })?;
                Ok(kept.values().clone())
            }
        }
    }
}

/// Appends a value's text; equal numbers have equal texts.
pub(super) fn write_value(cells: &Cells<'_>, row: usize, is_numeric: bool, out: &mut Vec<u8>) {
    let from = out.len();
    cells.text(row, out);
    if is_numeric {
        let text = out.split_off(from);
        match std::str::from_utf8(&text) {
            Ok(text) => numeric::write_canonical(text, out),
            Err(_) => out.extend_from_slice(&text),
        }
    } else if out.get(from..) == Some(b"-0.0") {
        // There is only one zero, also among floats.
        out.remove(from);
    }
}

/// Whether values that are equal may have different texts.
pub(super) fn is_numeric(column: &Column) -> bool {
    column.wire == Wire::Numeric
}

fn regex(rule: &RegexRule, column: &Column) -> Result<Test> {
    if column.wire.data_type() != arrow::datatypes::DataType::Utf8 {
        return Err(ConnectorError::unsupported(
            format!("`regex` supports only texts; {:?} is {}", column.name, column.sql_type),
            "use `range` or `enum`, or cast it to text in a transform `sql`",
        ));
    }
    Ok(Test::Regex(rule.pattern.clone()))
}

fn range(rule: &RangeRule, column: &Column) -> Result<Test> {
    let fits = matches!(
        column.wire,
        Wire::Int2
            | Wire::Int4
            | Wire::Int8
            | Wire::Oid
            | Wire::Float4
            | Wire::Float8
            | Wire::Money
            | Wire::Decimal { .. }
            | Wire::Numeric
            | Wire::Date
            | Wire::Time
            | Wire::Timestamp
            | Wire::TimestampTz
    );
    if !fits {
        return Err(ConnectorError::unsupported(
            format!(
                "`range` supports only numbers, dates and times; {:?} is {}",
                column.name, column.sql_type
            ),
            "use `regex` or `enum`, or cast it in a transform `sql`",
        ));
    }
    if rule.min.is_none() && rule.max.is_none() {
        return Err(ConnectorError::unsupported(
            format!("`range` of {:?} has neither `min` nor `max`", column.name),
            "set `min`, `max` or both",
        ));
    }
    let bound = |said: &Option<Scalar>| said.as_ref().map(|said| bound(said, column)).transpose();
    let (min, max) = (bound(&rule.min)?, bound(&rule.max)?);
    if let (Some(min), Some(max)) = (&min, &max)
        && !min.is_at_most(max, column)?
    {
        return Err(ConnectorError::unsupported(
            format!(
                "`range` of {:?} has a `min` greater than its `max`: no row satisfies it",
                column.name
            ),
            "exchange them",
        ));
    }
    Ok(Test::Range { bounds: rule.clone(), min, max })
}

impl Bound {
    fn is_at_most(&self, max: &Self, column: &Column) -> Result<bool> {
        Ok(match (self, max) {
            (Self::Float(min), Self::Float(max)) => min <= max,
            (Self::Numeric(min), Self::Numeric(max)) => {
                numeric::compare(min, max).is_some_and(|order| order != Ordering::Greater)
            }
            (Self::Value(min), max) => max.kept(min, column, false)?.value(0),
            _ => false,
        })
    }
}

fn bound(said: &Scalar, column: &Column) -> Result<Bound> {
    match column.wire {
        Wire::Float4 | Wire::Float8 => {
            let bound = said.0.parse::<f64>().ok().filter(|bound| !bound.is_nan());
            bound.map(Bound::Float).ok_or_else(|| unfit(said, column, "a number"))
        }
        Wire::Numeric if numeric::is_numeric(&said.0) => Ok(Bound::Numeric(said.0.clone())),
        Wire::Numeric => Err(unfit(said, column, "a number")),
        _ => value(said, column).map(Bound::Value),
    }
}

fn one_of(rule: &EnumRule, column: &Column) -> Result<Test> {
    if matches!(column.wire, Wire::Opaque | Wire::Array { .. } | Wire::Interval) || is_json(column)
    {
        return Err(ConnectorError::unsupported(
            format!("`enum` supports only scalar values; {:?} is {}", column.name, column.sql_type),
            "cast it in a transform `sql`",
        ));
    }
    if rule.values.is_empty() {
        return Err(ConnectorError::unsupported(
            format!("`enum` of {:?} has no values", column.name),
            "list the permitted ones",
        ));
    }
    let is_numeric = is_numeric(column);
    let mut texts = HashSet::with_capacity(rule.values.len());
    for said in &rule.values {
        // Through the column's own type, so that `1.5` matches `1.50`.
        let value = value(said, column)?;
        let mut text = Vec::new();
        write_value(&Cells::new(&value, column)?, 0, is_numeric, &mut text);
        texts.insert(text);
    }
    Ok(Test::Enum { said: rule.values.clone(), texts, is_numeric })
}

/// An array with one value from its text.
fn value(said: &Scalar, column: &Column) -> Result<ArrayRef> {
    let mut builder = Builder::new(column);
    // As in PostgreSQL, a date alone is its midnight, and without an offset UTC.
    let midnight = match column.wire {
        Wire::Timestamp => format!("{}T00:00:00", said.0),
        Wire::TimestampTz => format!("{}T00:00:00Z", said.0),
        _ => String::new(),
    };
    builder
        .text(&said.0)
        .or_else(|wanted| if midnight.is_empty() { Err(wanted) } else { builder.text(&midnight) })
        .map_err(|_| unfit(said, column, &format!("a valid {}", column.sql_type)))?;
    Ok(builder.finish())
}

fn unfit(said: &Scalar, column: &Column, wanted: &str) -> ConnectorError {
    ConnectorError::unsupported(
        format!("{:?} in the rule for {:?} is not {wanted}", said.0, column.name),
        "write it in the column's format, with no more digits",
    )
}

fn other_type(array: &ArrayRef, column: &Column) -> ConnectorError {
    let found = format!("is {}, not {}", array.data_type(), column.wire.data_type());
    ConnectorError::data(format!("column {:?}", column.name), found)
}
