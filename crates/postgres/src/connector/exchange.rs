//! Rows that exchange unique values.
//!
//! A unique index is checked for every row that an UPDATE changes, not at its end: (1, 'a'), (2, 'b')
//! cannot become (1, 'b'), (2, 'a') in one statement, nor can any other statement do it where the rows
//! have to stay, because others refer to them. So indexes that stand in the way, and only those, are
//! dropped and created again, in the transaction that replaces the rows.
//!
//! Invariants:
//! * An index that would not be the same afterwards is not dropped: that is an error with a way out.
//! * Nothing is dropped unless an UPDATE was refused because of it.
//! * It is created again before the commit, so no one ever sees a table without it.

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::connect::refused;
use super::sql::{TableName, ident, literal};

/// The index of a table that refused a row: what it is, its definition, what is attached to it, and what
/// forbids dropping it.
const INDEX: &str = "
select k.oid is not null, k.conname::text, coalesce(pg_get_constraintdef(k.oid), pg_get_indexdef(i.indexrelid)),
       obj_description(i.indexrelid, 'pg_class'), obj_description(k.oid, 'pg_constraint'),
       i.indisclustered, s.spcname::text,
       array_remove(array[
         (select 'foreign keys refer to it: ' || string_agg(f.conrelid::regclass::text || '.' || f.conname, ', ' order by f.oid)
          from pg_constraint f where f.contype = 'f' and f.conindid = i.indexrelid),
         case when i.indisreplident then 'it is the replica identity of the table' end,
         case when i.indisprimary and t.relreplident = 'd' and exists (
           select from pg_publication_tables p join pg_namespace n on n.oid = t.relnamespace
           where (p.schemaname, p.tablename) = (n.nspname, t.relname))
           then 'it is the replica identity of a published table' end,
         case when c.relispartition then 'it belongs to a partitioned table' end,
         case when exists (select from pg_attribute a where a.attrelid = i.indexrelid and a.attstattarget >= 0)
           then 'it has statistics targets' end,
         (select 'other objects depend on it: ' || string_agg(distinct pg_describe_object(d.classid, d.objid, 0), ', ')
          from pg_depend d left join pg_constraint f on d.classid = 'pg_constraint'::regclass and f.oid = d.objid
          where d.deptype in ('n', 'x', 'e') and f.oid is null
            and ((d.refclassid, d.refobjid) = ('pg_class'::regclass, i.indexrelid)
                 or (d.refclassid, d.refobjid) = ('pg_constraint'::regclass, k.oid)))
       ], null)
from pg_index i join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
left join pg_constraint k on k.conindid = i.indexrelid and k.conrelid = i.indrelid and k.contype in ('p', 'u', 'x')
left join pg_tablespace s on s.oid = c.reltablespace
where i.indrelid = $1::regclass and c.relname = $2";

/// An index that is dropped for a moment.
#[derive(Debug)]
pub(super) struct Exchanged {
    /// Its name.
    pub(super) name: String,
    drop: String,
    create: Vec<String>,
}

/// The index of a table that refused a row because of another one that has its values still.
pub(super) fn refused_by(error: &tokio_postgres::Error, table: &TableName) -> Option<String> {
    let name = violated(error)?;
    let error = error.as_db_error()?;
    // A trigger may have written another table.
    let is_here = error.schema() == Some(&table.schema) && error.table() == Some(&table.table);
    is_here.then_some(name)
}

/// The index that an error says is violated, of whatever table.
fn violated(error: &tokio_postgres::Error) -> Option<String> {
    let error = error.as_db_error()?;
    let codes = [SqlState::UNIQUE_VIOLATION, SqlState::EXCLUSION_VIOLATION];
    error.constraint().filter(|_| codes.contains(error.code())).map(ToOwned::to_owned)
}

/// The error for rows of a partitioned table: the index is one of a partition, which cannot be dropped by
/// itself.
pub(super) fn in_partition(
    error: &tokio_postgres::Error,
    table: &TableName,
) -> Option<ConnectorError> {
    let index = violated(error)?;
    let found = error.as_db_error()?.message();
    Some(forbidden(table, &index, &format!("it is one of a partition ({found})")))
}

impl Exchanged {
    /// Looks up how an index can be dropped and created again.
    ///
    /// # Errors
    /// It would not be the same: the rows cannot exchange its values.
    pub(super) async fn of(client: &Client, table: &TableName, index: &str) -> Result<Self> {
        let name = table.sql();
        let query = INDEX.replace("$1", &literal(&name)).replace("$2", &literal(index));
        let act = || format!("look up the index {index:?} of {table}");
        let row = client.query_typed_opt(&query, &[]).await;
        let Some(row) = row.map_err(|error| refused(act(), error))? else {
            return Err(forbidden(table, index, "it is not found"));
        };
        let obstacles: Vec<String> = row.get(7);
        if !obstacles.is_empty() {
            return Err(forbidden(table, index, &obstacles.join("; ")));
        }
        let (is_constraint, definition): (bool, String) = (row.get(0), row.get(2));
        let quoted = ident(index);
        let full = format!("{}.{quoted}", ident(&table.schema));
        let (drop, mut create) = if is_constraint {
            let constraint = ident(row.get(1));
            (
                format!("alter table {name} drop constraint {constraint}"),
                vec![format!("alter table {name} add constraint {constraint} {definition}")],
            )
        } else {
            (format!("drop index {full}"), vec![definition])
        };
        if let Some(space) = row.get::<_, Option<String>>(6) {
            create.push(format!("alter index {full} set tablespace {}", ident(&space)));
        }
        if row.get(5) {
            create.push(format!("alter table {name} cluster on {quoted}"));
        }
        if let Some(comment) = row.get::<_, Option<String>>(3) {
            create.push(format!("comment on index {full} is {}", literal(&comment)));
        }
        if let Some(comment) = row.get::<_, Option<String>>(4) {
            create.push(format!(
                "comment on constraint {} on {name} is {}",
                ident(row.get(1)),
                literal(&comment)
            ));
        }
        Ok(Self { name: index.to_owned(), drop, create })
    }

    /// Drops the index.
    pub(super) async fn drop(&self, client: &Client, table: &TableName) -> Result<()> {
        let dropped = client.batch_execute(&self.drop).await;
        dropped.map_err(|error| {
            let act =
                format!("let rows of {table} exchange values of {} ({})", self.name, self.drop);
            refused(act, error)
        })
    }

    /// Creates the index again.
    pub(super) async fn create(&self, client: &Client, table: &TableName) -> Result<()> {
        let create = self.create.join(";\n");
        let created = client.batch_execute(&create).await;
        created.map_err(|error| refused(format!("replace the rows of {table} ({create})"), error))
    }
}

fn forbidden(table: &TableName, index: &str, obstacle: &str) -> ConnectorError {
    ConnectorError::unsupported(
        format!(
            "rows of {table} exchange values of the unique index {index:?}, which cannot be dropped \
             meanwhile: {obstacle}"
        ),
        "drop what is named, and create it again after the run; or make the constraint DEFERRABLE, \
         unless a foreign key refers to it",
    )
}
