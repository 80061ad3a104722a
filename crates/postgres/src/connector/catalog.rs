//! The catalogue entry of a table: its columns, its key, its size.

use forebay_pgcopy::catalog::PgType;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use futures_util::future::try_join4;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::connect::refused;
use super::sql::TableName;
use super::types;

/// A table in the catalogue.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) name: TableName,
    /// `r` table, `p` partitioned, `v` view, `m` materialised view, `f` foreign.
    pub(super) kind: char,
    pub(super) columns: Vec<TableColumn>,
    pub(super) primary_key: Vec<String>,
    /// Sets of columns that are unique, including the primary key.
    pub(super) unique: Vec<Vec<String>>,
    /// Estimated number of rows, if the table was analysed.
    pub(super) rows: Option<u64>,
    /// Pages of its heap.
    pub(super) pages: u64,
    /// Whether other tables may inherit from it, or are its partitions.
    pub(super) has_children: bool,
}

/// A column of it.
#[derive(Debug, Clone)]
pub(super) struct TableColumn {
    pub(super) name: String,
    pub(super) pg_type: PgType,
    pub(super) nullable: bool,
    /// Generated from others: never written.
    pub(super) is_generated: bool,
    /// Whether it is declared as an array of several dimensions, which no list is.
    pub(super) is_nested: bool,
}

impl Table {
    pub(super) fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Whether no two rows have the same value in a column. A table's indexes do not cover the tables
    /// that inherit from it.
    pub(super) fn is_unique(&self, column: &str) -> bool {
        let is_whole = self.kind == 'p' || !self.has_children;
        let is_it = |unique: &Vec<String>| matches!(unique.as_slice(), [only] if only == column);
        is_whole && self.unique.iter().any(is_it)
    }
}

const TABLE: &str = "
select c.oid, c.relkind::text, c.reltuples::float8,
       case when c.relkind in ('r','m','p') then pg_relation_size(c.oid) / current_setting('block_size')::int else 0 end,
       c.relhassubclass
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relname = $2 and c.relkind in ('r','p','v','m','f')";

const COLUMNS: &str = "
select a.attname::text, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated::text,
       format_type(a.atttypid, a.atttypmod), a.attndims > 1
from pg_namespace n join pg_class c on c.relnamespace = n.oid join pg_attribute a on a.attrelid = c.oid
where n.nspname = $1 and c.relname = $2 and a.attnum > 0 and not a.attisdropped order by a.attnum";

const KEYS: &str = "
select i.indisprimary,
       (select array_agg(a.attname::text order by k.ord)
        from unnest(i.indkey::int2[]) with ordinality k(att, ord)
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.att
        where k.ord <= i.indnkeyatts)
from pg_namespace n join pg_class c on c.relnamespace = n.oid join pg_index i on i.indrelid = c.oid
where n.nspname = $1 and c.relname = $2
      and i.indisunique and i.indpred is null and i.indexprs is null
      and i.indisvalid and i.indimmediate";

/// Looks up a table; returns `None` if it does not exist. All queries are sent at once.
pub(super) async fn table(client: &Client, name: &TableName) -> Result<Option<Table>> {
    let named: [(&(dyn ToSql + Sync), Type); 2] =
        [(&name.schema, Type::NAME), (&name.table, Type::NAME)];
    let ask = |query| client.query_typed(query, &named);
    let asked = try_join4(ask(TABLE), ask(COLUMNS), ask(KEYS), ask(types::OF_TABLE)).await;
    let (found, columns, keys, types) =
        asked.map_err(|error| refused(format!("look up {name}"), error))?;
    let Some(found) = found.first() else { return Ok(None) };
    let types = types::Types::new(&types);
    let columns = columns.iter().map(|row| {
        let (type_oid, typmod): (u32, i32) = (row.get(1), row.get(2));
        let written: String = row.get(5);
        let pg_type = types.of(type_oid, typmod, written).ok_or_else(|| {
            let column: String = row.get(0);
            ConnectorError::data(
                format!("{name}, column {column}"),
                "its type is not in the catalogue",
            )
        })?;
        Ok(TableColumn {
            name: row.get(0),
            pg_type,
            nullable: !row.get::<_, bool>(3),
            is_generated: !row.get::<_, String>(4).is_empty(),
            is_nested: row.get(6),
        })
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let mut primary_key = Vec::new();
    let mut unique = Vec::new();
    for key in keys {
        let (is_primary, names): (bool, Vec<String>) = (key.get(0), key.get(1));
        if is_primary {
            primary_key.clone_from(&names);
        }
        unique.push(names);
    }
    let rows: f64 = found.get(2);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate, not below 0"
    )]
    let rows = (rows >= 0.0).then_some(rows as u64);
    let pages: i64 = found.get(3);
    Ok(Some(Table {
        name: name.clone(),
        kind: found.get::<_, String>(1).chars().next().unwrap_or('r'),
        columns,
        primary_key,
        unique,
        rows,
        pages: u64::try_from(pages).unwrap_or_default(),
        has_children: found.get(4),
    }))
}
