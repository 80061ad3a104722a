//! A table that changes are applied to.

use std::collections::HashMap;

use forebay_pgcopy::Column;
use forebay_sdk::changes::decoded;
use forebay_sdk::changes::feed::{Applied, FeedColumn, FeedStream};
use forebay_sdk::changes::{Effect, NetChanges};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::TargetSettings;
use forebay_sdk::values::types;
use rusqlite::Connection;

use super::super::target::check_names;
use super::super::{Database, digits_of, layout, quoted, quoted_list, values};
use super::rows::Applying;

/// The column with the time of a deletion.
pub(in super::super) const DELETED_AT: &str = "_deleted_at";

/// A column as it is stored.
///
/// # Errors
/// Values of its type, as changes have them, cannot be stored.
pub(super) fn column(table: &str, of: &FeedColumn) -> Result<Column> {
    decoded::column(table, of, "SQLite")
}

/// A table that changes are applied to.
pub(super) struct Table {
    pub(super) into: String,
    pub(super) columns: Vec<Column>,
    pub(super) key: Vec<Column>,
    /// Whether another index than that of the key is unique.
    has_other_unique: bool,
    /// The column of deletion times, if deleted rows stay.
    pub(super) deleted_at: Option<Column>,
}

impl Table {
    /// Prepares a table: its key has an index, and deleted rows can be marked.
    pub(super) fn open(
        database: &Database,
        connection: &Connection,
        target: &TargetSettings,
        stream: &FeedStream,
        keeps_deleted: bool,
    ) -> Result<Self> {
        let failed = |error| database.failed("prepare to apply changes to", error);
        let into = target.into.clone();
        let all = stream.columns.iter().map(|of| Ok((column(&into, of)?, of.is_key)));
        let all = all.collect::<Result<Vec<(Column, bool)>>>()?;
        let columns: Vec<Column> = all.iter().map(|(column, _)| column.clone()).collect();
        let key: Vec<Column> =
            all.into_iter().filter(|(_, is_key)| *is_key).map(|(column, _)| column).collect();
        check_names(target, &columns)?;
        let table = quoted(&into);
        let unique = unique_indexes(connection, &into).map_err(failed)?;
        let mut names: Vec<String> = key.iter().map(|c| c.name.to_ascii_lowercase()).collect();
        names.sort_unstable();
        let is_key = |index: &Vec<Option<String>>| {
            index.iter().map(Option::as_deref).eq(names.iter().map(|name| Some(name.as_str())))
        };
        if !unique.iter().any(is_key) {
            let index = quoted(&format!("_forebay_key_{}", digits_of(&into)));
            let key = quoted_list(key.iter().map(|column| &*column.name));
            let create = format!(
                "DROP INDEX IF EXISTS {index}; CREATE UNIQUE INDEX {index} ON {table} ({key})"
            );
            connection.execute_batch(&create).map_err(failed)?;
        }
        let has_other_unique = unique.iter().any(|index| !is_key(index));
        let deleted_at =
            if keeps_deleted { types::column(DELETED_AT, "timestamptz") } else { None };
        if let Some(deleted_at) = &deleted_at {
            if columns.iter().any(|column| column.name.eq_ignore_ascii_case(DELETED_AT)) {
                return Err(ConnectorError::unsupported(
                    format!("{into} has a column {DELETED_AT:?}, in which deleted rows are marked"),
                    "rename it at the source, or use `deleted_rows: delete`",
                ));
            }
            let there = layout::declared(connection, &into).map_err(failed)?;
            if !there.iter().any(|known| known.name.eq_ignore_ascii_case(DELETED_AT)) {
                let declared = values::declaration(deleted_at);
                let add = format!("ALTER TABLE {table} ADD COLUMN {DELETED_AT} {declared}");
                connection.execute_batch(&add).map_err(failed)?;
            }
        }
        Ok(Self { into, columns, key, has_other_unique, deleted_at })
    }

    /// Applies what changes amount to, in the transaction of the connection.
    pub(super) fn apply(
        &self,
        database: &Database,
        connection: &Connection,
        net: NetChanges,
    ) -> Result<Applied> {
        let truncated_us = net.truncated_us();
        let effects = net.into_effects();
        let moves =
            effects.iter().any(|effect| matches!(effect, Effect::Update { moves: true, .. }));
        let applying = Applying {
            table: self,
            database,
            connection,
            // After a truncation all rows before it are deleted ones.
            is_live: truncated_us.is_none(),
            rebuilds: moves || self.has_other_unique,
            waiting: 0,
            updates: HashMap::new(),
            applied: Applied::default(),
        };
        applying.apply(truncated_us, &effects)
    }

    /// The columns that are written.
    pub(super) fn names(&self) -> String {
        quoted_list(self.columns.iter().chain(&self.deleted_at).map(|column| &*column.name))
    }
}

/// The unique indexes of a table, each with its columns in lower case, sorted; `None` is an expression. A partial
/// index counts as one.
fn unique_indexes(
    connection: &Connection,
    table: &str,
) -> rusqlite::Result<Vec<Vec<Option<String>>>> {
    let query = "SELECT l.name, i.name, l.partial FROM pragma_index_list(?1) l, pragma_index_info(l.name) i \
                 WHERE l.\"unique\" ORDER BY l.name";
    let mut statement = connection.prepare(query)?;
    let rows = statement.query_map([table], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?, row.get::<_, bool>(2)?))
    })?;
    let mut indexes: Vec<(String, Vec<Option<String>>)> = Vec::new();
    for row in rows {
        let (index, column, is_partial) = row?;
        let column = column.filter(|_| !is_partial).map(|name| name.to_ascii_lowercase());
        match indexes.last_mut() {
            Some((last, columns)) if *last == index => columns.push(column),
            _ => indexes.push((index, vec![column])),
        }
    }
    // An INTEGER PRIMARY KEY has no index of its own.
    let rowid = "SELECT lower(name) FROM pragma_table_info(?1) WHERE pk = 1 AND NOT EXISTS
                 (SELECT 1 FROM pragma_index_list(?1) WHERE origin = 'pk')
                 AND 1 = (SELECT count(*) FROM pragma_table_info(?1) WHERE pk > 0)";
    let mut statement = connection.prepare(rowid)?;
    let own = statement.query_map([table], |row| row.get::<_, String>(0))?;
    let own = own.map(|name| Ok(vec![Some(name?)])).collect::<rusqlite::Result<Vec<_>>>()?;
    let mut all: Vec<Vec<Option<String>>> =
        indexes.into_iter().map(|(_, columns)| columns).collect();
    all.iter_mut().for_each(|columns| columns.sort_unstable());
    all.extend(own);
    Ok(all)
}
