//! Tables, views and their columns, as the server describes them.
//!
//! Names are compared by their bytes: the server's own comparison takes `Orders` for `orders` even where these are
//! two tables.

use std::collections::BTreeMap;

use forebay_sdk::connector::Result;

use crate::connect::Session;

/// A table or a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) is_view: bool,
    /// The storage engine of a table.
    pub(crate) engine: String,
    pub(crate) columns: Vec<TableColumn>,
    /// Names of the columns of the primary key.
    pub(crate) primary_key: Vec<String>,
    /// Names of columns that are unique and NOT NULL, each by itself.
    pub(crate) unique: Vec<String>,
    /// Estimated number of rows.
    pub(crate) rows: Option<u64>,
    /// Estimated size in bytes.
    pub(crate) bytes: Option<u64>,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableColumn {
    pub(crate) name: String,
    /// `varchar`
    pub(crate) data_type: String,
    /// `varchar(20)`
    pub(crate) full_type: String,
    pub(crate) nullable: bool,
    /// `auto_increment`, `on update current_timestamp()`, in lower case.
    pub(crate) extra: String,
    /// The default, in lower case.
    pub(crate) default: String,
}

impl Table {
    /// The column of this name.
    pub(crate) fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Whether a column's values are different in every row.
    pub(crate) fn is_unique(&self, column: &str) -> bool {
        self.unique.iter().any(|unique| unique == column)
    }

    /// Whether its rows can be read in a snapshot. Of a view it is not known.
    pub(crate) fn has_snapshots(&self) -> bool {
        let engines = ["innodb", "rocksdb", "tokudb"];
        self.is_view || engines.iter().any(|engine| self.engine.eq_ignore_ascii_case(engine))
    }
}

/// The condition of the rows of this database: equal by collation, so that an index is used, and by bytes.
const HERE: &str =
    "TABLE_SCHEMA = DATABASE() AND CAST(TABLE_SCHEMA AS BINARY) = CAST(DATABASE() AS BINARY)";

/// Name, kind, engine, rows and bytes of a table.
type TableRow = (String, String, Option<String>, Option<u64>, Option<u64>);
/// Table, name, type, full type, nullability, extra and default of a column.
type ColumnRow = (String, String, String, String, String, Option<String>, Option<String>);
/// Table, index, column, length of the prefix, and nullability of a part of a unique index.
type KeyRow = (String, String, Option<String>, Option<i64>, Option<String>);

/// The tables and views of the database, or the one of this name.
pub(crate) async fn tables(session: &mut Session, name: Option<&str>) -> Result<Vec<Table>> {
    let only = if name.is_some() { " AND TABLE_NAME = ?" } else { "" };
    let parameters = || name.map(|name| vec![name.to_owned()]).unwrap_or_default();
    let act = "list the tables";
    let sql = format!(
        "SELECT TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_ROWS, DATA_LENGTH FROM information_schema.TABLES \
         WHERE {HERE}{only} ORDER BY TABLE_NAME"
    );
    let found: Vec<TableRow> = session.query(act, &sql, parameters()).await?;
    let sql = format!(
        "SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, EXTRA, COLUMN_DEFAULT \
         FROM information_schema.COLUMNS WHERE {HERE}{only} ORDER BY TABLE_NAME, ORDINAL_POSITION"
    );
    let columns: Vec<ColumnRow> = session.query(act, &sql, parameters()).await?;
    let sql = format!(
        "SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE FROM information_schema.STATISTICS \
         WHERE {HERE}{only} AND NON_UNIQUE = 0 ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX"
    );
    let keys: Vec<KeyRow> = session.query(act, &sql, parameters()).await?;
    Ok(assemble(found, columns, keys, name))
}

/// The table or view of this name; `None` if there is none.
pub(crate) async fn table(session: &mut Session, name: &str) -> Result<Option<Table>> {
    Ok(tables(session, Some(name)).await?.into_iter().next())
}

fn assemble(
    found: Vec<TableRow>,
    columns: Vec<ColumnRow>,
    keys: Vec<KeyRow>,
    name: Option<&str>,
) -> Vec<Table> {
    let is_wanted = |table: &str| name.is_none_or(|name| name == table);
    let mut tables = BTreeMap::new();
    for (name, kind, engine, rows, bytes) in found {
        let is_view = kind.contains("VIEW");
        // A sequence of MariaDB has one row, which is of no use elsewhere.
        if !is_wanted(&name) || kind == "SEQUENCE" {
            continue;
        }
        let table = Table {
            name: name.clone(),
            is_view,
            engine: engine.unwrap_or_default(),
            columns: Vec::new(),
            primary_key: Vec::new(),
            unique: Vec::new(),
            rows: rows.filter(|_| !is_view),
            bytes: bytes.filter(|_| !is_view),
        };
        tables.insert(name, table);
    }
    for (table, name, data_type, full_type, nullable, extra, default) in columns {
        let Some(table) = tables.get_mut(&table) else { continue };
        table.columns.push(TableColumn {
            name,
            data_type: data_type.to_ascii_lowercase(),
            full_type,
            nullable: nullable != "NO",
            extra: extra.unwrap_or_default().to_ascii_lowercase(),
            default: default.unwrap_or_default().to_ascii_lowercase(),
        });
    }
    let mut indexes: BTreeMap<(String, String), Vec<KeyRow>> = BTreeMap::new();
    for key in keys {
        indexes.entry((key.0.clone(), key.1.clone())).or_default().push(key);
    }
    for ((table, index), parts) in indexes {
        let Some(table) = tables.get_mut(&table) else { continue };
        // An expression has no column.
        let names: Vec<String> = parts.iter().filter_map(|part| part.2.clone()).collect();
        if names.len() < parts.len() {
            continue;
        }
        if let ([name], [(.., prefix, nullable)]) = (names.as_slice(), parts.as_slice())
            && prefix.is_none()
            && nullable.as_deref() != Some("YES")
        {
            table.unique.push(name.clone());
        }
        if index == "PRIMARY" {
            table.primary_key = names;
        }
    }
    tables.into_values().filter(|table| !table.columns.is_empty()).collect()
}
