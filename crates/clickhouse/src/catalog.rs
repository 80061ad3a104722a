//! Tables as the server describes them.

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::WriteMode;

use crate::client::Server;
use crate::sql::{self, plain_names};
use crate::types::Type;

/// The first part of the names of all tables and columns that belong to this connector.
pub(crate) const OURS: &str = "_forebay_";
/// The column with the load and the unit of a row.
pub(crate) const LOAD: &str = "_forebay_load";
/// The column with the version of a row, in tables whose rows are replaced by their key.
pub(crate) const VERSION: &str = "_forebay_version";
/// Oldest version of the server, as in its answer to `version()`.
const OLDEST: (u32, u32) = (23, 8);

/// A table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) engine: String,
    /// With its arguments.
    engine_full: String,
    pub(crate) uuid: String,
    partition_key: String,
    sorting_key: String,
    pub(crate) columns: Vec<TableColumn>,
}

/// A column of a table.
#[derive(Debug, Clone)]
pub(crate) struct TableColumn {
    pub(crate) name: String,
    pub(crate) type_name: String,
    pub(crate) stored: Type,
    /// `DEFAULT`, `MATERIALIZED`, `ALIAS`, `EPHEMERAL`, or nothing.
    pub(crate) default: String,
    pub(crate) is_key: bool,
}

impl Table {
    /// Describes a table of the database; `None` if there is none.
    pub(crate) async fn find(server: &Server, name: &str) -> Result<Option<Self>> {
        let act = format!("inspect the table {name}");
        let quoted = sql::text(name);
        let tables = format!(
            "SELECT engine, engine_full, toString(uuid), partition_key, sorting_key FROM system.tables \
             WHERE database = currentDatabase() AND name = {quoted}"
        );
        let found = server.rows(&act, &tables).await?;
        let Some(row) = found.into_iter().next() else { return Ok(None) };
        let Ok([engine, engine_full, uuid, partition_key, sorting_key]) =
            <[String; 5]>::try_from(row)
        else {
            return Err(unexpected(&act));
        };
        let columns = format!(
            "SELECT name, type, default_kind, toString(is_in_sorting_key) FROM system.columns \
             WHERE database = currentDatabase() AND table = {quoted} ORDER BY position"
        );
        let columns = server.rows(&act, &columns).await?;
        let column = |row: Vec<String>| {
            let [name, type_name, default, is_key] =
                <[String; 4]>::try_from(row).map_err(|_| unexpected(&act))?;
            let stored = Type::parse(&type_name);
            Ok(TableColumn { name, stored, type_name, default, is_key: is_key == "1" })
        };
        let columns = columns.into_iter().map(column).collect::<Result<_>>()?;
        Ok(Some(Self { engine, engine_full, uuid, partition_key, sorting_key, columns }))
    }

    /// The column of this name.
    pub(crate) fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Whether its rows are read with `FINAL`.
    pub(crate) fn is_replacing(&self) -> bool {
        self.engine == "ReplacingMergeTree"
    }

    /// Checks that units can be written to it exactly once.
    ///
    /// * `into`: its name.
    /// * `key`: the columns of the key, for `upsert`.
    ///
    /// # Errors
    /// They cannot: why, and what helps.
    pub(crate) fn check(&self, into: &str, mode: WriteMode, key: &[String]) -> Result<()> {
        let refuse = |what: String, way_out: &str| Err(ConnectorError::unsupported(what, way_out));
        let wanted = match mode {
            WriteMode::Upsert => "ReplacingMergeTree",
            WriteMode::Append | WriteMode::Replace => "MergeTree",
        };
        if self.engine != wanted {
            let way_out = match mode {
                WriteMode::Upsert => {
                    "let Forebay create the table: rename it, or write to another one with `into`"
                }
                _ => {
                    "write to a table with the engine MergeTree, from which a materialized view or INSERT .. SELECT \
                     fills the other"
                }
            };
            let what = format!(
                "the table {into:?} has the engine {}; rows are written exactly once only to {wanted}",
                self.engine
            );
            return refuse(what, way_out);
        }
        if !self.partition_key.is_empty() {
            return refuse(
                format!(
                    "the table {into:?} has the partitions {}: rows of a unit would become visible one partition \
                     after another",
                    self.partition_key
                ),
                "create it without PARTITION BY; a sorting key that begins with the same expression serves queries",
            );
        }
        if mode == WriteMode::Upsert {
            return self.check_key(into, key);
        }
        Ok(())
    }

    fn check_key(&self, into: &str, key: &[String]) -> Result<()> {
        let way_out =
            "let Forebay create the table: rename it, or write to another one with `into`";
        if !self.engine_full.starts_with(&format!("ReplacingMergeTree({VERSION})")) {
            let what =
                format!("the table {into:?} does not keep the rows with the greatest {VERSION}");
            return Err(ConnectorError::unsupported(what, way_out));
        }
        let sorted = plain_names(&self.sorting_key).map(sorted);
        if sorted.as_deref() != Some(&sorted_of(key)) {
            let what = format!(
                "the table {into:?} has one row for each value of ({}), not of the `primary_key` ({})",
                self.sorting_key,
                key.join(", ")
            );
            return Err(ConnectorError::unsupported(what, way_out));
        }
        Ok(())
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
}

fn sorted_of(names: &[String]) -> Vec<String> {
    sorted(names.to_vec())
}

pub(crate) fn unexpected(act: &str) -> ConnectorError {
    ConnectorError::Refused {
        act: act.to_owned(),
        source: "the answer has another form than expected".into(),
    }
}

/// Connects, and returns what answered.
///
/// # Errors
/// It was not reached, is too old, or permits no changes.
pub(crate) async fn check(server: &Server) -> Result<String> {
    let act = "check the server";
    let sql = "SELECT version(), currentDatabase(), toString(getSetting('readonly')), \
               (SELECT any(engine) FROM system.databases WHERE name = currentDatabase())";
    let row = server.rows(act, sql).await?.into_iter().next().unwrap_or_default();
    let Ok([version, database, readonly, engine]) = <[String; 4]>::try_from(row) else {
        return Err(unexpected(act));
    };
    if number_of(&version).is_none_or(|number| number < OLDEST) {
        let (major, minor) = OLDEST;
        return Err(ConnectorError::unsupported(
            format!("the server is ClickHouse {version}"),
            format!("use version {major}.{minor} or newer"),
        ));
    }
    check_database(&database, &engine)?;
    if readonly != "0" {
        return Err(ConnectorError::unsupported(
            "the user's profile is read-only",
            "use a user who may write",
        ));
    }
    Ok(format!("ClickHouse {version}, database {database:?} ({engine})"))
}

/// Checks that a database is on one server.
///
/// # Errors
/// Its engine says that it is on several: what was added on one is not visible on the others at once.
fn check_database(name: &str, engine: &str) -> Result<()> {
    if !["Replicated", "Shared"].iter().any(|several| engine.starts_with(several)) {
        return Ok(());
    }
    Err(ConnectorError::unsupported(
        format!(
            "the database {name:?} has the engine {engine}, so it is on several servers; rows are written exactly \
             once only on one"
        ),
        "write to a database that was created with ENGINE = Atomic, on a single server",
    ))
}

/// The first two numbers of a version: `24.3.1.2672`.
fn number_of(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// Checks that tables of the database can take each other's place.
///
/// # Errors
/// Its engine cannot do that.
pub(crate) async fn check_exchange(server: &Server) -> Result<()> {
    let sql = "SELECT name, engine FROM system.databases WHERE name = currentDatabase()";
    let row =
        server.rows("inspect the database", sql).await?.into_iter().next().unwrap_or_default();
    match row.as_slice() {
        [_, engine] if engine == "Atomic" => Ok(()),
        [name, engine] => Err(ConnectorError::unsupported(
            format!(
                "`write_mode: replace` needs a database whose engine is Atomic, and that of {name:?} is {engine}"
            ),
            "write to a database that was created with ENGINE = Atomic, or use `append` or `upsert`",
        )),
        _ => Err(unexpected("inspect the database")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(engine: &str, partition_key: &str, sorting_key: &str) -> Table {
        Table {
            engine: engine.split('(').next().unwrap().into(),
            engine_full: format!("{engine} ORDER BY x"),
            uuid: String::new(),
            partition_key: partition_key.into(),
            sorting_key: sorting_key.into(),
            columns: Vec::new(),
        }
    }

    #[test]
    fn tables_that_do_not_take_units_exactly_once_are_refused_with_the_way_out() {
        let key = ["id".to_owned(), "a b".to_owned()];
        let ours = "ReplacingMergeTree(_forebay_version)";
        for (table, mode, expected) in [
            (table("MergeTree", "", "x"), WriteMode::Append, None),
            (table("MergeTree", "", "x"), WriteMode::Replace, None),
            (table("MergeTree", "toYYYYMM(day)", ""), WriteMode::Append, Some("PARTITION BY")),
            (table("ReplicatedMergeTree", "", ""), WriteMode::Append, Some("ReplicatedMergeTree")),
            (table("SharedMergeTree", "", ""), WriteMode::Append, Some("SharedMergeTree")),
            (table("Distributed", "", ""), WriteMode::Replace, Some("Distributed")),
            (table("SummingMergeTree", "", ""), WriteMode::Append, Some("SummingMergeTree")),
            (table("MergeTree", "", "id"), WriteMode::Upsert, Some("let Forebay create")),
            (table(ours, "", "`a b`, id"), WriteMode::Upsert, None),
            (table(ours, "", "id"), WriteMode::Upsert, Some("`primary_key`")),
            (table(ours, "", "id, lower(`a b`)"), WriteMode::Upsert, Some("`primary_key`")),
            (table("ReplacingMergeTree(v)", "", "id"), WriteMode::Upsert, Some("greatest")),
        ] {
            let checked = table.check("t", mode, &key).map_err(|error| error.to_string());
            match expected {
                None => assert_eq!(checked, Ok(()), "{table:?}"),
                Some(word) => assert!(checked.clone().unwrap_err().contains(word), "{checked:?}"),
            }
        }
    }

    #[test]
    fn a_database_on_several_servers_is_refused() {
        for (engine, is_taken) in
            [("Atomic", true), ("Ordinary", true), ("Replicated", false), ("Shared", false)]
        {
            assert_eq!(check_database("d", engine).is_ok(), is_taken, "{engine}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(number_of("23.10.1.1"), Some((23, 10)));
        assert!(number_of("23.10.1.1") > number_of("23.8.2.7"));
        assert_eq!(number_of("unknown"), None);
    }
}
