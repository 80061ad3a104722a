//! How the columns of a stream fit those of a table.

use delta_kernel::SnapshotRef;
use delta_kernel::schema::{DataType, StructField};
use delta_kernel::table_features::TableFeature;
use forebay_pgcopy::Column;
use forebay_sdk::chosen::Chosen;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::{NewColumn, RemovedColumn, TargetSettings};

use super::table::{is_mapped, needs_mapping};
use super::types;

/// The columns that are stored, all of which fit: all but new ones, if those are ignored.
///
/// # Errors
/// The columns do not fit, and the settings do not permit to change the table.
pub(super) fn stored(
    snapshot: Option<&SnapshotRef>,
    settings: &TargetSettings,
    columns: &[Column],
) -> Result<Chosen> {
    check_names(columns)?;
    let Some(snapshot) = snapshot else { return Ok(Chosen::of(columns, |_| true)) };
    let schema = snapshot.schema();
    let is_ignored = settings.schema_evolution.new_column == NewColumn::Ignore;
    let chosen = Chosen::of(columns, |column| !is_ignored || schema.contains(&column.name));
    if chosen.columns().is_empty() && !columns.is_empty() {
        return Err(ConnectorError::unsupported(
            format!("the table {} has none of the source's columns", settings.into),
            "write to another table with `into`",
        ));
    }
    for column in chosen.columns() {
        if let Some(field) = schema.field(&column.name) {
            check_type(column, field)?;
        }
    }
    added(snapshot, settings, chosen.columns())?;
    for field in schema.fields() {
        if chosen.columns().iter().all(|column| column.name != *field.name()) {
            check_missing(field, settings)?;
        }
    }
    Ok(chosen)
}

/// The columns that the table lacks, which may be added to it.
///
/// # Errors
/// One of them may not.
pub(super) fn added(
    snapshot: &SnapshotRef,
    settings: &TargetSettings,
    columns: &[Column],
) -> Result<Vec<StructField>> {
    let schema = snapshot.schema();
    let new = columns.iter().filter(|column| !schema.contains(&column.name));
    let new: Vec<&Column> = new.collect();
    for column in &new {
        check_new(snapshot, settings, column)?;
    }
    Ok(new.into_iter().map(types::field).collect())
}

/// Checks that column names are unique. Delta does not distinguish upper and lower case.
fn check_names(columns: &[Column]) -> Result<()> {
    let mut names: Vec<(String, &str)> =
        columns.iter().map(|column| (column.name.to_lowercase(), &*column.name)).collect();
    names.sort_unstable();
    match names.array_windows().find(|[one, next]| one.0 == next.0) {
        Some([one, next]) => Err(ConnectorError::unsupported(
            format!("Delta does not distinguish the columns {:?} and {:?}", one.1, next.1),
            "select the stream's `columns`, or rename one of them in a transform",
        )),
        None => Ok(()),
    }
}

fn check_type(column: &Column, field: &StructField) -> Result<()> {
    let wanted = types::stored(column);
    if is_same(&wanted, field.data_type()) {
        return Ok(());
    }
    let (name, found) = (&column.name, types::named(field.data_type()));
    let Column { sql_type, .. } = column;
    Err(ConnectorError::unsupported(
        format!(
            "column {name:?} is {found} in the table, but {sql_type} in the source, which is stored as {}",
            types::named(&wanted)
        ),
        "cast it in a transform, or write to another table with `into`",
    ))
}

/// Whether two types have the same values. An array without NULLs in the table takes one that may have
/// them: a NULL is found when it is written.
fn is_same(wanted: &DataType, found: &DataType) -> bool {
    match (wanted, found) {
        (DataType::Array(wanted), DataType::Array(found)) => {
            is_same(wanted.element_type(), found.element_type())
        }
        (wanted, found) => wanted == found,
    }
}

fn check_new(snapshot: &SnapshotRef, settings: &TargetSettings, column: &Column) -> Result<()> {
    let Column { name, sql_type, .. } = column;
    let refuse = |what: String, way_out: &str| Err(ConnectorError::unsupported(what, way_out));
    if settings.schema_evolution.new_column == NewColumn::Fail {
        return refuse(
            format!("the table has no column {name:?}"),
            "set `schema_evolution.new_column: add` or `ignore`",
        );
    }
    let lower = name.to_lowercase();
    let schema = snapshot.schema();
    if let Some(field) = schema.fields().find(|field| field.name().to_lowercase() == lower) {
        return refuse(
            format!(
                "the table has the column {:?}, which Delta does not distinguish from {name:?}",
                field.name()
            ),
            "rename it in a transform",
        );
    }
    if needs_mapping(name) && !is_mapped(snapshot) {
        return refuse(
            format!("the table cannot have a column {name:?}, since it has no column mapping"),
            "rename it in a transform, or set the table's property delta.columnMapping.mode to name",
        );
    }
    let table = snapshot.table_configuration();
    if types::stored(column) == DataType::TIMESTAMP_NTZ
        && !table.is_feature_supported(&TableFeature::TimestampWithoutTimezone)
    {
        return refuse(
            format!(
                "the table cannot have the column {name:?} of {sql_type}: it lacks the feature timestampNtz"
            ),
            "add it with ALTER TABLE .. SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported'), or \
             cast the column to timestamptz in a transform",
        );
    }
    Ok(())
}

fn check_missing(field: &StructField, settings: &TargetSettings) -> Result<()> {
    let name = field.name();
    if !field.is_nullable() {
        return Err(ConnectorError::unsupported(
            format!("the table has the column {name:?}, which is NOT NULL and not in the source"),
            "add it in a transform, or write to another table with `into`",
        ));
    }
    match settings.schema_evolution.removed_column {
        RemovedColumn::Fail => Err(ConnectorError::unsupported(
            format!("the table has a column {name:?} that the source does not have"),
            "set `schema_evolution.removed_column: ignore`",
        )),
        RemovedColumn::Ignore => Ok(()),
    }
}
