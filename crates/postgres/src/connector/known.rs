//! Types of the source that the destination lacks: enums and domains of the other database.
//!
//! Invariant: a column gets another type only if all its values are valid for that type.

use forebay_pgcopy::{Column, catalog};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::catalog::Table;
use super::connect::refused;
use super::evolve::type_of;

/// Which of these types exist.
const KNOWN: &str = "select n, to_regtype(n) is not null from unnest($1::text[]) n";

/// The columns at the destination.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) columns: Vec<Column>,
    /// Whether all their values can be passed through unchanged.
    pub(super) is_same: bool,
}

/// Gives columns that `table` does not have yet a type that the server knows.
pub(super) async fn known(
    client: &Client,
    table: Option<&Table>,
    columns: &[Column],
) -> Result<Known> {
    let mut known = Known { columns: columns.to_vec(), is_same: true };
    let is_there = |name: &str| table.is_some_and(|table| table.column(name).is_some());
    let new = columns.iter().filter(|column| !is_there(&column.name));
    // The server parses these names: nothing else is sent to it.
    let new = new.map(|column| type_of(column).map(|_| column.sql_type.as_str()));
    let new = new.collect::<Result<Vec<_>>>()?;
    if new.is_empty() {
        return Ok(known);
    }
    let rows = client.query_typed(KNOWN, &[(&new, Type::TEXT_ARRAY)]).await;
    let rows = rows.map_err(|error| refused("look up the types of new columns", error))?;
    let unknown = rows.iter().filter(|row| !row.get::<_, bool>(1));
    let unknown: Vec<String> = unknown.map(|row| row.get(0)).collect();
    for column in &mut known.columns {
        if is_there(&column.name) || !unknown.contains(&column.sql_type) {
            continue;
        }
        let Some((plain, wire)) = catalog::built_in(&column.wire) else {
            return Err(ConnectorError::unsupported(
                format!(
                    "the destination has no type {}, which is that of column {:?}",
                    column.sql_type, column.name
                ),
                "create it there, exclude the column with `columns`, or cast it in a transform",
            ));
        };
        tracing::info!(
            column = column.name,
            of = column.sql_type,
            becomes = plain,
            "the destination has no such type"
        );
        known.is_same &= wire == column.wire;
        (column.sql_type, column.wire) = (plain, wire);
    }
    Ok(known)
}
