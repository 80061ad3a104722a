//! The columns of a table that are read.

use std::collections::BTreeMap;

use forebay_pgcopy::Column;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::StreamSettings;
use forebay_sdk::values::types::wire_of;

use crate::catalog::{Table, TableColumn};
use crate::settings::{Settings, ZeroDates};
use crate::sql::ident;
use crate::types::{Kind, Type};

/// The columns that are read, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Columns {
    /// The columns of the stream.
    pub(crate) columns: Vec<Column>,
    /// What the values of each are.
    pub(crate) kinds: Vec<Kind>,
    /// Names and positions, in a row, of the columns of the primary key.
    pub(crate) key: Vec<(String, usize)>,
    /// The list of a SELECT: the columns, and those of the key that are not among them.
    pub(crate) list: String,
    /// Whether dates that do not exist are NULL.
    pub(crate) zero_dates: ZeroDates,
}

impl Columns {
    /// The columns of a stream.
    ///
    /// # Errors
    /// A column does not exist, or its type is unknown.
    pub(crate) fn choose(
        table: &Table,
        stream: &StreamSettings,
        settings: &Settings,
    ) -> Result<Self> {
        let chosen: Vec<&TableColumn> = match stream.columns.as_slice() {
            [] => table.columns.iter().collect(),
            names => {
                let find = |name: &String| table.column(name).ok_or_else(|| no_column(table, name));
                names.iter().map(find).collect::<Result<_>>()?
            }
        };
        let given = settings.types.get(&table.name);
        refuse_unknown(table, given)?;
        let zero_dates = settings.zero_dates;
        let mut columns = Vec::with_capacity(chosen.len());
        let mut kinds = Vec::with_capacity(chosen.len());
        for column in &chosen {
            let ty = Type::of(column).ok_or_else(|| unknown_type(table, column))?;
            let is_date = matches!(ty.kind, Kind::Date | Kind::Datetime | Kind::Timestamp);
            let nullable = column.nullable || is_date && zero_dates == ZeroDates::Null;
            let given =
                given.and_then(|types| types.get(&column.name)).and_then(|name| wire_of(name));
            let (wire, sql_type) = given.unwrap_or((ty.wire, ty.sql));
            columns.push(Column { name: column.name.clone(), sql_type, wire, nullable });
            kinds.push(ty.kind);
        }
        let mut list: Vec<&str> = chosen.iter().map(|column| &*column.name).collect();
        let mut key = Vec::with_capacity(table.primary_key.len());
        for name in &table.primary_key {
            let at = list.iter().position(|listed| listed == name);
            let at = at.unwrap_or_else(|| {
                list.push(name);
                list.len() - 1
            });
            key.push((name.clone(), at));
        }
        let list: Vec<String> = list.into_iter().map(ident).collect();
        Ok(Self { columns, kinds, key, list: list.join(", "), zero_dates })
    }
}

/// Fails if `types` names a column that does not exist.
fn refuse_unknown(table: &Table, given: Option<&BTreeMap<String, String>>) -> Result<()> {
    let mut names = given.into_iter().flat_map(BTreeMap::keys);
    names
        .find(|name| table.column(name).is_none())
        .map_or(Ok(()), |name| Err(no_column(table, name)))
}

fn unknown_type(table: &Table, column: &TableColumn) -> ConnectorError {
    ConnectorError::unsupported(
        format!("column {:?} of {} has the type {}", column.name, table.name, column.full_type),
        "leave it out with `columns`, or read a view that casts it",
    )
}

/// An error for a missing column, which lists the existing ones.
pub(crate) fn no_column(table: &Table, name: &str) -> ConnectorError {
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    ConnectorError::unsupported(
        format!("{} has no column {name:?}", table.name),
        format!("its columns are {}", names.join(", ")),
    )
}
