//! The contents of the schema besides the rows, as SQL, described in
//! `docs/formats/postgres-sink.md`.
//!
//! ```text
//! _forebay_sink        one row: version of the layout, identity, committed position
//! _forebay_namespaces  namespace -> number, table, number of rows, largest id
//! _forebay_columns     namespace, ordinal -> path, name, type
//! <namespace>          _id, _received_ms, columns known from the start, _document, later columns
//! ```
//!
//! Invariants: these tables change in the transaction that changes the rows they describe; names and texts
//! enter SQL quoted, by [`quote_identifier`] and [`literal`], and nowhere else.

use forebay_sink::name::IDENTIFIER_LEN_MAX;
use forebay_sink::server::book::Namespace;
use forebay_sink::{Column, ColumnType, Identity, Position, TableSchema};
use tokio_postgres::SimpleQueryMessage;

use super::reshape::{Missing, is_cast};
use super::tuple::sql_type;
use crate::quote::{literal, quote_identifier};

/// The version of this layout.
pub const LAYOUT_VERSION: u32 = 1;

/// Names of columns that every table of a server has already (PostgreSQL 15, 5.5 "System Columns").
pub(super) const SYSTEM_COLUMNS: &[&str] = &["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"];
/// The length of the prefix of a namespace's name that its table keeps if the name cannot be used.
const TABLE_STEM_MAX: usize = 40;

/// Bytes as an SQL literal.
fn bytes_literal(bytes: &[u8]) -> String {
    format!("'\\x{}'::bytea", hex::encode(bytes))
}

/// The lock that the one writer of a schema holds as long as its session (64-bit FNV-1a of its name;
/// such locks are the database's own).
pub(super) fn lock_key(schema: &str) -> i64 {
    let name = b"forebay sink ".iter().chain(schema.as_bytes());
    let hash = name.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.cast_signed()
}

/// A schema and the statements about it.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// Its name.
    pub(super) name: String,
    /// Its name, quoted.
    schema: String,
}

impl Layout {
    pub(super) fn new(schema: &str) -> Layout {
        Layout { name: schema.to_owned(), schema: quote_identifier(schema) }
    }

    /// A table of it.
    fn table(&self, name: &str) -> String {
        format!("{}.{}", self.schema, quote_identifier(name))
    }

    /// Checks whether the schema and the table of its state exist.
    pub(super) fn probe(&self) -> String {
        let name = literal(&self.name);
        format!(
            "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = {name}), \
             EXISTS (SELECT FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace \
                     WHERE nspname = {name} AND relname = '_forebay_sink')"
        )
    }

    /// Creates the tables; the schema too if it does not exist.
    pub(super) fn create(&self, with_schema: bool) -> String {
        let schema = &self.schema;
        let make = if with_schema { format!("CREATE SCHEMA {schema};") } else { String::new() };
        format!(
            "BEGIN; {make}
             CREATE TABLE {schema}._forebay_sink (
               one boolean PRIMARY KEY DEFAULT true CHECK (one),
               layout integer NOT NULL,
               identity bytea NOT NULL,
               position bigint
             );
             CREATE TABLE {schema}._forebay_namespaces (
               namespace text PRIMARY KEY,
               number bigint NOT NULL UNIQUE,
               table_name text NOT NULL UNIQUE,
               row_count bigint NOT NULL,
               last_id bigint
             );
             CREATE TABLE {schema}._forebay_columns (
               namespace text NOT NULL REFERENCES {schema}._forebay_namespaces,
               ordinal integer NOT NULL,
               path bytea NOT NULL,
               name text NOT NULL,
               type text NOT NULL,
               PRIMARY KEY (namespace, ordinal),
               UNIQUE (namespace, path),
               UNIQUE (namespace, name)
             );
             INSERT INTO {schema}._forebay_sink (layout, identity)
               VALUES ({LAYOUT_VERSION}, uuid_send(gen_random_uuid()));
             COMMIT"
        )
    }

    /// Reads version, identity and position.
    pub(super) fn state(&self) -> String {
        format!("SELECT layout, identity, position FROM {}._forebay_sink", self.schema)
    }

    /// Starts a transaction that writes: no other session can until it ends.
    pub(super) fn begin(&self) -> String {
        format!("BEGIN; {} FOR UPDATE", self.state())
    }

    /// Reads the namespaces.
    pub(super) fn namespaces(&self) -> String {
        format!(
            "SELECT namespace, number, table_name, row_count, last_id \
             FROM {}._forebay_namespaces ORDER BY number",
            self.schema
        )
    }

    /// Reads the columns of all namespaces.
    pub(super) fn columns(&self) -> String {
        format!(
            "SELECT namespace, path, name, type FROM {}._forebay_columns ORDER BY namespace, \
             ordinal",
            self.schema
        )
    }

    /// Checks whether the name of a new table is taken.
    pub(super) fn is_taken(&self, table: &str) -> String {
        format!(
            "SELECT EXISTS (SELECT FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace \
                            WHERE nspname = {0} AND relname = {1}) \
                 OR EXISTS (SELECT FROM pg_type JOIN pg_namespace n ON n.oid = typnamespace \
                            WHERE nspname = {0} AND typname = {1} AND typelem = 0)",
            literal(&self.name),
            literal(table)
        )
    }

    /// Creates a namespace's table with its initial columns.
    pub(super) fn create_table(&self, namespace: &Namespace, columns: &[Column]) -> String {
        let Namespace { name, number, table, .. } = namespace;
        let mut sql = format!(
            "CREATE TABLE {} (_id bigint CONSTRAINT {} PRIMARY KEY, _received_ms bigint NOT NULL",
            self.table(table),
            // No namespace has a colon in it, so that none wants this name for its table.
            quote_identifier(&format!("key:{number}"))
        );
        for column in columns {
            sql.push_str(&format!(", {} {}", quote_identifier(&column.name), sql_type(column.ty)));
        }
        sql.push_str(&format!(
            ", _document bytea); INSERT INTO {}._forebay_namespaces VALUES ({}, {number}, {}, 0, \
             NULL)",
            self.schema,
            literal(name),
            literal(table)
        ));
        sql.push_str(&self.insert_columns(name, 0, columns));
        sql
    }

    /// Adds columns to a namespace's table.
    pub(super) fn add_columns(&self, namespace: &Namespace, columns: &[Column]) -> String {
        let one = |column: &Column| {
            format!("ADD COLUMN {} {}", quote_identifier(&column.name), sql_type(column.ty))
        };
        let added: Vec<String> = columns.iter().map(one).collect();
        let first = namespace.schema.columns().len();
        let mut sql = format!("ALTER TABLE {} {}", self.table(&namespace.table), added.join(", "));
        sql.push_str(&self.insert_columns(&namespace.name, first, columns));
        sql
    }

    /// Gives a namespace's table the columns of `schema`, and no others.
    pub(super) fn reshape(&self, namespace: &Namespace, schema: &TableSchema) -> String {
        let mut actions = Vec::new();
        for Column { path, name, ty } in namespace.schema.columns() {
            let name = quote_identifier(name);
            match schema.column(path).map(|column| column.ty) {
                None => actions.push(format!("DROP COLUMN {name}")),
                Some(new) if new != *ty => {
                    let from = if is_cast(*ty, new) { name.as_str() } else { "NULL" };
                    let new = sql_type(new);
                    let change = format!("ALTER COLUMN {name} TYPE {new} USING {from}::{new}");
                    actions.push(change);
                }
                Some(_) => {}
            }
        }
        for column in schema.columns() {
            if namespace.schema.column(&column.path).is_none() {
                let (name, ty) = (quote_identifier(&column.name), sql_type(column.ty));
                actions.push(format!("ADD COLUMN {name} {ty}"));
            }
        }
        let mut sql = match actions.is_empty() {
            true => String::new(),
            false => {
                format!("ALTER TABLE {} {}; ", self.table(&namespace.table), actions.join(", "))
            }
        };
        let name = literal(&namespace.name);
        let schema_name = &self.schema;
        sql.push_str(&format!(
            "DELETE FROM {schema_name}._forebay_columns WHERE namespace = {name}"
        ));
        sql.push_str(&self.insert_columns(&namespace.name, 0, schema.columns()));
        sql
    }

    /// Removes the row with an id.
    pub(super) fn delete_row(&self, namespace: &Namespace, id: u64) -> String {
        format!("DELETE FROM {} WHERE _id = {id}", self.table(&namespace.table))
    }

    /// Removes the rows of a namespace up to an id. `TRUNCATE` would return no count and lock out
    /// readers.
    pub(super) fn delete_up_to(&self, namespace: &Namespace, last_id: u64) -> String {
        format!("DELETE FROM {} WHERE _id <= {last_id}", self.table(&namespace.table))
    }

    /// Reads ids and documents after an id, in the order of ids: at most this many, and none after
    /// those before it have this many bytes.
    pub(super) fn page(
        &self,
        namespace: &Namespace,
        missing: &Missing,
        (rows, size): (u32, u32),
    ) -> String {
        let nulls: Vec<String> = missing
            .columns
            .iter()
            .map(|(name, _)| format!("{} IS NULL", quote_identifier(name)))
            .collect();
        let which = match missing.is_partial {
            true => format!(" AND ({})", nulls.join(" OR ")),
            false => String::new(),
        };
        format!(
            "SELECT _id, _document FROM ( \
               SELECT _id, _document, sum(coalesce(octet_length(_document), 0)) OVER \
                 (ORDER BY _id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS preceding \
               FROM (SELECT _id, _document FROM {} WHERE _id > $1{which} \
                     ORDER BY _id LIMIT {rows}) page \
             ) sized WHERE coalesce(preceding, 0) < {size} ORDER BY _id",
            self.table(&namespace.table)
        )
    }

    /// Sets the columns that were missing, from one array of ids and one for each column.
    pub(super) fn fill(&self, namespace: &Namespace, missing: &Missing) -> String {
        let (mut sets, mut names, mut arrays) =
            (Vec::new(), vec!["id".to_owned()], vec!["$1::bigint[]".to_owned()]);
        for (number, (name, ty)) in (2_u32..).zip(&missing.columns) {
            sets.push(format!("{} = given.v{number}", quote_identifier(name)));
            names.push(format!("v{number}"));
            arrays.push(format!("${number}::{}[]", sql_type(*ty)));
        }
        format!(
            "UPDATE {} AS kept SET {} FROM unnest({}) AS given ({}) WHERE kept._id = given.id",
            self.table(&namespace.table),
            sets.join(", "),
            arrays.join(", "),
            names.join(", ")
        )
    }

    fn insert_columns(&self, namespace: &str, first: usize, columns: &[Column]) -> String {
        if columns.is_empty() {
            return String::new();
        }
        let one = |(ordinal, column): (usize, &Column)| {
            format!(
                "({}, {ordinal}, {}, {}, {})",
                literal(namespace),
                bytes_literal(column.path.as_bytes()),
                literal(&column.name),
                literal(column.ty.name())
            )
        };
        let rows: Vec<String> = (first..).zip(columns).map(one).collect();
        format!("; INSERT INTO {}._forebay_columns VALUES {}", self.schema, rows.join(", "))
    }

    /// Stores counts and position, and commits.
    pub(super) fn commit<'a>(
        &self,
        dirty: impl Iterator<Item = &'a Namespace>,
        position: Position,
    ) -> String {
        let one = |namespace: &Namespace| {
            let last = namespace.last_id.map_or("NULL".to_owned(), |last| last.to_string());
            format!("({}, {}, {last}::bigint)", literal(&namespace.name), namespace.row_count)
        };
        let rows: Vec<String> = dirty.map(one).collect();
        let mut sql = String::new();
        if !rows.is_empty() {
            sql = format!(
                "UPDATE {}._forebay_namespaces n SET row_count = v.row_count, last_id = v.last_id \
                 FROM (VALUES {}) v (namespace, row_count, last_id) \
                 WHERE n.namespace = v.namespace; ",
                self.schema,
                rows.join(", ")
            );
        }
        sql.push_str(&format!(
            "UPDATE {}._forebay_sink SET position = {position}; COMMIT",
            self.schema
        ));
        sql
    }

    /// Begins a COPY of tuples into a namespace's table.
    pub(super) fn copy(&self, namespace: &Namespace) -> String {
        format!(
            "COPY {} ({}) FROM STDIN (FORMAT binary)",
            self.table(&namespace.table),
            column_names(namespace)
        )
    }

    /// Inserts any number of rows, which come as one array for each column.
    pub(super) fn insert(&self, namespace: &Namespace) -> String {
        let types = namespace.schema.columns().iter().map(|column| sql_type(column.ty));
        let types = ["bigint", "bigint"].into_iter().chain(types).chain(["bytea"]);
        let arrays: Vec<String> =
            (1..).zip(types).map(|(number, ty): (u32, _)| format!("${number}::{ty}[]")).collect();
        format!(
            "INSERT INTO {} ({}) SELECT * FROM unnest({})",
            self.table(&namespace.table),
            column_names(namespace),
            arrays.join(", ")
        )
    }
}

/// The columns of a namespace's table in the order of a tuple's fields.
fn column_names(namespace: &Namespace) -> String {
    let mut names = String::from("_id, _received_ms");
    for column in namespace.schema.columns() {
        names.push_str(", ");
        names.push_str(&quote_identifier(&column.name));
    }
    names.push_str(", _document");
    names
}

/// The table of a namespace: its own name, unless that is too long, reserved, or taken according to
/// `is_taken`; then its beginning, a colon and the namespace's number, which is not a valid
/// namespace.
pub(super) fn table_name(namespace: &str, number: u64, is_taken: bool) -> String {
    let fits = namespace.len() <= IDENTIFIER_LEN_MAX && !namespace.starts_with("_forebay_");
    if fits && !is_taken {
        return namespace.to_owned();
    }
    // A namespace is ASCII.
    let stem: String = namespace.chars().take(TABLE_STEM_MAX).collect();
    format!("{stem}:{number}")
}

/// The rows of a simple query.
pub(super) fn rows(
    messages: &[SimpleQueryMessage],
) -> impl Iterator<Item = &tokio_postgres::SimpleQueryRow> {
    messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })
}

/// Parses the row of the state. The error is the fault.
pub(super) fn parse_state(
    messages: &[SimpleQueryMessage],
) -> Result<(Identity, Option<Position>), String> {
    let row = rows(messages).next().ok_or("the row of the state is missing")?;
    let layout: Option<u32> = field(row, 0)?;
    if layout != Some(LAYOUT_VERSION) {
        let found = layout.map_or("none".to_owned(), |layout| layout.to_string());
        return Err(format!(
            "layout version {found} is not supported; this program supports version \
             {LAYOUT_VERSION}"
        ));
    }
    let identity = row.try_get(1).ok().flatten().and_then(unhex).and_then(|it| it.try_into().ok());
    let identity = identity.ok_or("the identity is not 16 bytes")?;
    Ok((Identity(identity), field(row, 2)?.map(Position)))
}

/// Parses the rows of [`Layout::namespaces`] and [`Layout::columns`]. The error is the fault.
pub(super) fn parse_namespaces(
    namespaces: &[SimpleQueryMessage],
    columns: &[SimpleQueryMessage],
) -> Result<Vec<Namespace>, String> {
    let text = |row: &tokio_postgres::SimpleQueryRow, index: usize| {
        let value = row.try_get(index).ok().flatten();
        value.map(str::to_owned).ok_or_else(|| format!("column {index} is missing"))
    };
    let mut found = Vec::new();
    for row in rows(namespaces) {
        let number = field(row, 1)?.ok_or("a namespace has no number")?;
        let mut namespace = Namespace::new(text(row, 0)?, number, text(row, 2)?);
        namespace.row_count = field(row, 3)?.ok_or("a namespace has no row count")?;
        namespace.last_id = field(row, 4)?;
        found.push(namespace);
    }
    let index: std::collections::HashMap<String, usize> =
        found.iter().map(|namespace| namespace.name.clone()).zip(0..).collect();
    let mut schemas: Vec<TableSchema> = found.iter().map(|_| TableSchema::default()).collect();
    for row in rows(columns) {
        let namespace = text(row, 0)?;
        let path = unhex(&text(row, 1)?).and_then(|path| String::from_utf8(path).ok());
        let path = path.ok_or_else(|| format!("a path of {namespace} is not text"))?;
        let ty = text(row, 3)?;
        let ty = ColumnType::from_name(&ty).ok_or_else(|| format!("unknown column type {ty:?}"))?;
        let schema = index.get(&namespace).and_then(|index| schemas.get_mut(*index));
        let schema = schema
            .ok_or_else(|| format!("there are columns of {namespace}, which does not exist"))?;
        schema.push(Column { path, name: text(row, 2)?, ty });
    }
    for (namespace, schema) in found.iter_mut().zip(schemas) {
        namespace.schema = schema;
    }
    Ok(found)
}

/// A number of a row.
fn field<T: std::str::FromStr>(
    row: &tokio_postgres::SimpleQueryRow,
    index: usize,
) -> Result<Option<T>, String> {
    let text = row.try_get(index).map_err(|error| error.to_string())?;
    let number =
        text.map(|text| text.parse().map_err(|_| format!("{text:?} is not a valid number")));
    number.transpose()
}

/// Bytes as a server prints them.
fn unhex(text: &str) -> Option<Vec<u8>> {
    hex::decode(text.strip_prefix("\\x")?).ok()
}
