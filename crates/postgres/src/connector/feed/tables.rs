//! The tables of a feed in the source's catalog, and whether their changes can be followed.
//!
//! Invariant: a table of which a change does not name its row, by a key or by all its values, is refused before
//! anything is created.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_pgcopy::{Wire, catalog};
use forebay_sdk::changes::feed::{ColumnStep, FeedColumn, Redefinition};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::super::catalog::TableColumn;
use super::super::connect::refused;
use super::super::sql::TableName;
use super::identity::Baseline;
use crate::replication::Lsn;
use crate::replication::pgoutput::Oid;

/// A table that is followed.
#[derive(Debug, Clone)]
pub(super) struct Followed {
    pub(super) name: TableName,
    /// Its number, which it keeps when it is renamed.
    pub(super) oid: Oid,
    /// Its columns, as they are recorded.
    pub(super) columns: Vec<FeedColumn>,
    /// Columns of the key, by their index; none: all values name a row.
    pub(super) key: Arc<[usize]>,
    /// Changes of commits before it are left out.
    pub(super) from: Lsn,
    /// What it was like before columns were added.
    pub(super) baseline: Baseline,
}

impl Followed {
    pub(super) fn new(name: TableName, oid: Oid, columns: Vec<FeedColumn>) -> Self {
        let keys = columns.iter().enumerate().filter(|(_, column)| column.is_key);
        let key = keys.map(|(at, _)| at).collect();
        Self { name, oid, columns, key, from: Lsn(0), baseline: Baseline::default() }
    }

    /// The same table with other columns.
    ///
    /// # Errors
    /// It has another key, by which the rows at the destination cannot be found. A column of the key that was renamed
    /// is still that of the key.
    pub(super) fn redefined(&self, redefinition: &Redefinition) -> Result<Self> {
        let other = Self::new(self.name.clone(), self.oid, redefinition.columns.clone());
        let other = Self { from: self.from, baseline: self.baseline.clone(), ..other };
        let keys = |table: &Self| -> BTreeSet<String> {
            let keys = table.columns.iter().filter(|column| column.is_key);
            keys.map(|column| column.name.clone()).collect()
        };
        let now = |name: String| {
            let renamed = redefinition.steps.iter().find_map(|step| match step {
                ColumnStep::Rename { from, to } if *from == name => Some(to.clone()),
                _ => None,
            });
            renamed.unwrap_or(name)
        };
        if keys(self).into_iter().map(now).collect::<BTreeSet<_>>() == keys(&other) {
            return Ok(other);
        }
        Err(ConnectorError::unsupported(
            format!("the key of {} has changed since the feed began", self.name),
            "run with `--from-scratch`, which copies the tables again",
        ))
    }
}

/// Whether values of a column can be passed on in their binary form.
pub(super) fn check_type(
    name: &TableName,
    column: &FeedColumn,
    is_sent: bool,
    is_numbered: bool,
) -> Result<()> {
    let problem = match (is_sent, is_numbered) {
        (false, _) => "have no binary form",
        (_, true) => "have another binary form on each server",
        (true, false) => return Ok(()),
    };
    Err(ConnectorError::unsupported(
        format!("{name}, column {:?}: values of {} {problem}", column.name, column.sql_type),
        "change the type of the column, or read the table with `sync_mode: full_refresh`",
    ))
}

/// A table and what its server sends of a row before a change.
const TABLE: &str = "
select c.oid, c.relkind::text, c.relreplident::text, c.relpersistence::text,
       c.relkind = 'r' and exists (select from pg_inherits where inhparent = c.oid)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relname = $2";

/// The columns that are sent: not the generated ones. Of a domain, the type that it is based on counts. The binary
/// form of a composite type, and of an array, has the numbers of other types, which are those of one server
/// unless they are built in.
const COLUMNS: &str = "
with recursive based(oid, base) as (
  select distinct a.atttypid, a.atttypid from pg_attribute a where a.attrelid = $1 and a.atttypid <> 0
  union select b.oid, t.typbasetype from based b join pg_type t on t.oid = b.base where t.typbasetype <> 0)
select a.attnum, a.attname::text, format_type(a.atttypid, a.atttypmod), t.typsend <> 0, t.typtype = 'c' or t.typelem >= 16384
from pg_attribute a join based b on b.oid = a.atttypid join pg_type t on t.oid = b.base and t.typbasetype = 0
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
order by a.attnum";

/// The columns of the key: of the index of the identity, or of the primary key.
const KEY: &str = "
select k.att
from pg_index i cross join unnest(i.indkey::int2[]) with ordinality k(att, ord)
where i.indrelid = $1 and k.ord <= i.indnkeyatts and i.indisvalid and i.indimmediate
  and case $2 when 'i' then i.indisreplident else i.indisprimary end
order by k.ord";

/// The forms of the values of a table's columns.
pub(super) struct Wires(Vec<TableColumn>);

impl Wires {
    /// Those of the catalog, as it is now.
    pub(super) async fn of(client: &Client, name: &TableName) -> Result<Self> {
        let table = super::super::catalog::table(client, name).await?;
        Ok(Self(table.map(|table| table.columns).unwrap_or_default()))
    }

    /// The form of a column, if it is in the catalog with this type and others than PostgreSQL can read it.
    pub(super) fn find(&self, column: &str, sql_type: &str) -> Option<Wire> {
        let is_it = |known: &&TableColumn| known.name == column && known.pg_type.name == sql_type;
        let found = self.0.iter().find(is_it).filter(|known| !known.is_nested)?;
        Some(catalog::wire(&found.pg_type, true)).filter(|wire| *wire != Wire::Opaque)
    }
}

/// Looks up a table.
///
/// # Errors
/// It does not exist, or its changes cannot be followed.
pub(super) async fn followed(client: &Client, name: &TableName) -> Result<Followed> {
    let act = |error| refused(format!("look up {name}"), error);
    let named: [(&(dyn ToSql + Sync), Type); 2] =
        [(&name.schema, Type::NAME), (&name.table, Type::NAME)];
    let found = client.query_typed_opt(TABLE, &named).await.map_err(act)?;
    let found = found.ok_or_else(|| {
        ConnectorError::unsupported(
            format!("there is no table {name}"),
            "list the tables with `forebay pipeline discover`",
        )
    })?;
    let (oid, kind, identity, persistence): (u32, String, String, String) =
        (found.get(0), found.get(1), found.get(2), found.get(3));
    if !matches!(kind.as_str(), "r" | "p") || persistence != "p" {
        return Err(ConnectorError::unsupported(
            format!("{name} is not an ordinary table: the server's log has no changes of it"),
            "read it with `sync_mode: full_refresh`",
        ));
    }
    if found.get(4) {
        return Err(ConnectorError::unsupported(
            format!(
                "other tables inherit from {name}: it has their rows, and the log has their changes under their own names"
            ),
            "read it with `sync_mode: full_refresh`",
        ));
    }
    let rows = client.query_typed(COLUMNS, &[(&oid, Type::OID)]).await.map_err(act)?;
    let numbers: Vec<i16> = rows.iter().map(|row| row.get(0)).collect();
    let of: [(&(dyn ToSql + Sync), Type); 2] = [(&oid, Type::OID), (&identity, Type::TEXT)];
    let key = client.query_typed(KEY, &of).await.map_err(act)?;
    let key = key.iter().map(|row| row.get::<_, i16>(0));
    let place = |number| numbers.iter().position(|own| *own == number);
    let key: Vec<usize> = key.map(place).collect::<Option<_>>().unwrap_or_default();
    // Without a key the rows of a table are named by all their values, if these are sent.
    if identity == "n" || (key.is_empty() && identity != "f") {
        return Err(ConnectorError::unsupported(
            format!("{name} has no key by which an update or a deletion names its row"),
            "add a primary key, or set `replica identity using index` or `replica identity full`; or use \
             `sync_mode: full_refresh`",
        ));
    }
    let wires = Wires::of(client, name).await?;
    let mut columns = Vec::with_capacity(rows.len());
    for (at, row) in rows.iter().enumerate() {
        let (column, sql_type): (String, String) = (row.get(1), row.get(2));
        let column = FeedColumn {
            wire: wires.find(&column, &sql_type),
            name: column,
            sql_type,
            is_key: key.contains(&at),
            number: row.get(0),
        };
        check_type(name, &column, row.get(3), row.get(4))?;
        columns.push(column);
    }
    Ok(Followed::new(name.clone(), Oid(oid), columns))
}
