//! From layout 1, which had no checksums, from layout 2, whose namespaces' rows were never
//! rewritten and always decided, from layout 3, whose rows never changed, and from layout 4, which did
//! not record how columns changed, to layout 5.
//!
//! Every table gets a column `_checksum`, at its end, filled a run of rows at a time; then the
//! sink's own tables are made again with what was found, and the version changes. What the rows hold
//! at that moment is what the checksums stand for: earlier damage is not found by them.
//!
//! Invariant: the version changes in the last transaction. An upgrade that was interrupted begins
//! again and writes only what is missing.

use forebay_base::rows::{RowHasher, RowSet};
use forebay_pgcopy::quote_identifier;
use forebay_sink::{Identity, Position, TableSchema};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::changes::Changed;
use super::fault::Checked;
use super::history::CREATE_COLUMN_CHANGES;
use super::layout::{CREATE_CHANGES, CREATE_NAMESPACES, LAYOUT_VERSION, create_tables};
use super::rows::{self, at};
use super::state::{self, NamespaceRow, State};

/// Rows in one transaction.
const RUN: i64 = 50_000;

/// Upgrades a database of an older layout.
pub(super) fn upgrade(connection: &Connection, version: u32) -> Checked<()> {
    if version > 1 {
        let transaction = connection.unchecked_transaction()?;
        if version < 4 {
            add_columns(&transaction, version)?;
        }
        transaction.execute_batch(CREATE_COLUMN_CHANGES)?;
        transaction.pragma_update(None, "user_version", LAYOUT_VERSION)?;
        return Ok(transaction.commit()?);
    }
    let mut upgraded = Vec::new();
    for mut row in namespaces(connection)? {
        let schema = state::columns(connection, &row.name)?;
        add_checksums(connection, &mut row, &schema)?;
        row.schema_checksum =
            state::current_schema_checksum(connection, &row.name, &row.table, &schema, &[])?;
        upgraded.push((row, schema));
    }
    let transaction = connection.unchecked_transaction()?;
    make_tables(&transaction, &upgraded)?;
    transaction.pragma_update(None, "user_version", LAYOUT_VERSION)?;
    Ok(transaction.commit()?)
}

/// Makes the table of namespaces again, with the columns that layouts 3 and 4 add. The rows' checksums
/// stay, right or not: where the new columns hold nothing, they are the same.
fn add_columns(connection: &Connection, version: u32) -> Checked<()> {
    let of_layout_3 = if version < 3 { "NULL, 0" } else { "rewritten_at, undecided" };
    let rows: Vec<[Value; 10]> = {
        let mut statement = connection.prepare(&format!(
            "SELECT namespace, table_name, row_count, first_id, last_id, rows_digest,
               schema_checksum, checksum, {of_layout_3} FROM _forebay_namespaces"
        ))?;
        let rows = statement.query_map([], |row| {
            let mut values = [const { Value::Null }; 10];
            for (index, value) in values.iter_mut().enumerate() {
                *value = row.get(index)?;
            }
            Ok(values)
        })?;
        rows.collect::<rusqlite::Result<_>>()?
    };
    connection.execute_batch("DROP TABLE _forebay_namespaces")?;
    connection.execute_batch(CREATE_NAMESPACES)?;
    connection.execute_batch(CREATE_CHANGES)?;
    for row in rows {
        connection.execute(
            "INSERT INTO _forebay_namespaces (namespace, table_name, row_count, first_id, last_id,
               rows_digest, schema_checksum, checksum, rewritten_at, undecided, change_count,
               changes_digest, deleted_count)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, 0, 0)",
            rusqlite::params_from_iter(row),
        )?;
    }
    Ok(())
}

/// The namespaces as layout 1 has them.
fn namespaces(connection: &Connection) -> Checked<Vec<NamespaceRow>> {
    let mut statement = connection
        .prepare("SELECT namespace, table_name, row_count, last_id FROM _forebay_namespaces")?;
    let found = statement.query_map([], |row| {
        Ok(NamespaceRow {
            name: row.get(0)?,
            table: row.get(1)?,
            rows: RowSet { count: row.get(2)?, digest: 0 },
            first_id: None,
            last_id: row.get(3)?,
            schema_checksum: 0,
            rewritten_at: None,
            undecided: false,
            changed: Changed::default(),
        })
    })?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// Gives every row of a table its checksum, and `row` its first id and the digest of all. The
/// number of rows and the last id stay what layout 1 says.
fn add_checksums(
    connection: &Connection,
    row: &mut NamespaceRow,
    schema: &TableSchema,
) -> Checked<()> {
    let table = quote_identifier(&row.table);
    let there: bool = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM pragma_table_info(?1) WHERE name = '_checksum')",
        [&row.table],
        |found| found.get(0),
    )?;
    if !there {
        connection.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN _checksum INTEGER"))?;
    }
    let columns = schema.columns().len();
    let page =
        format!("{} WHERE _id > ?1 ORDER BY _id LIMIT {RUN}", rows::select(&row.table, schema));
    let store = format!("UPDATE {table} SET _checksum = ?2 WHERE _id = ?1");
    let (mut hasher, mut after) = (RowHasher::default(), -1);
    loop {
        let transaction = connection.unchecked_transaction()?;
        let mut missing = Vec::new();
        let mut found = 0;
        {
            let mut statement = transaction.prepare_cached(&page)?;
            let mut stored = statement.query([after])?;
            while let Some(stored) = stored.next()? {
                let id: i64 = stored.get(at::ID)?;
                let checksum = rows::checksum(&mut hasher, &row.name, stored, columns)?;
                if stored.get::<_, Option<i64>>(at::CHECKSUM)? != Some(checksum.cast_signed()) {
                    missing.push((id, checksum.cast_signed()));
                }
                row.rows.digest = row.rows.digest.wrapping_add(checksum);
                row.first_id = row.first_id.or(u64::try_from(id).ok());
                after = id;
                found += 1;
            }
            let mut store = transaction.prepare_cached(&store)?;
            for missing in missing {
                store.execute(missing)?;
            }
        }
        transaction.commit()?;
        if found < RUN {
            return Ok(());
        }
    }
}

/// Makes the sink's own tables as this layout has them.
fn make_tables(connection: &Connection, upgraded: &[(NamespaceRow, TableSchema)]) -> Checked<()> {
    let (identity, position): ([u8; 16], Option<u64>) =
        connection.query_row("SELECT identity, position FROM _forebay_state", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    connection.execute_batch(
        "DROP TABLE _forebay_state; DROP TABLE _forebay_namespaces; DROP TABLE _forebay_columns;",
    )?;
    create_tables(connection)?;
    let mut set = RowSet::default();
    for (row, schema) in upgraded {
        set.insert(state::save_namespace(connection, row)?);
        for (ordinal, column) in schema.columns().iter().enumerate() {
            state::insert_column(connection, &row.name, ordinal, column)?;
        }
    }
    let (identity, position) = (Identity(identity), position.map(Position));
    Ok(state::save_state(connection, &State { identity, position, namespaces: set })?)
}
