//! A SQLite file as a source: its tables and views are the streams.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_sdk::bridge::blocking;
use forebay_sdk::connector::{Discovered, DiscoveredColumn, Opening, Result, Source, SourceStream};
use forebay_sdk::run::Context;
use forebay_sdk::settings::StreamSettings;

use super::stream::SqliteStream;
use super::{Access, Database, SqliteSourceSettings, display, layout, quoted};

/// A SQLite file as a source.
#[derive(Debug, Clone)]
pub struct SqliteSource {
    database: Database,
    settings: SqliteSourceSettings,
}

impl SqliteSource {
    /// Creates the source with these settings.
    #[must_use]
    pub fn new(settings: SqliteSourceSettings) -> Self {
        Self { database: Database::new(&settings.path, &settings.within), settings }
    }

    fn discover_blocking(&self) -> Result<Vec<Discovered>> {
        let failed = |error| self.database.failed("read the schema of", error);
        let connection = self.database.open(Access::Read)?;
        let mut discovered = Vec::new();
        for table in layout::tables(&connection).map_err(failed)? {
            let given = self.settings.types.get(&table.name);
            let columns = layout::columns(&connection, &table, given, false, &failed)?;
            let declared = layout::declared(&connection, &table.name).map_err(failed)?;
            let mut key: Vec<_> = declared.iter().filter(|column| column.key > 0).collect();
            key.sort_unstable_by_key(|column| column.key);
            let primary_key = key.into_iter().map(|column| column.name.clone()).collect();
            let rows = match table.has_rowid {
                true => {
                    // The maximum is found at once, and is about the number of rows.
                    let sql = format!("SELECT max(rowid) FROM {}", quoted(&table.name));
                    let last: Option<i64> =
                        connection.query_row(&sql, [], |row| row.get(0)).map_err(failed)?;
                    Some(u64::try_from(last.unwrap_or(0)).unwrap_or(0))
                }
                false => None,
            };
            let types = declared.iter().map(|declared| &declared.type_name);
            let columns =
                columns.into_iter().zip(types).map(|(column, declared)| DiscoveredColumn {
                    name: column.name,
                    note: (!declared.eq_ignore_ascii_case(&column.sql_type))
                        .then(|| format!("declared as {declared:?}")),
                    sql_type: column.sql_type,
                    nullable: column.nullable,
                });
            let columns = columns.collect();
            discovered.push(Discovered {
                name: table.name,
                columns,
                primary_key,
                rows,
                bytes: None,
            });
        }
        Ok(discovered)
    }
}

#[async_trait]
impl Source for SqliteSource {
    async fn check(&self) -> Result<String> {
        let database = self.database.clone();
        blocking(move || {
            let connection = database.open(Access::Read)?;
            let tables = layout::tables(&connection);
            let tables = tables.map_err(|error| database.failed("read the schema of", error))?;
            let path = display(&database.path);
            Ok(format!("{path}: {} tables, SQLite {}", tables.len(), rusqlite::version()))
        })
        .await
    }

    async fn discover(&self) -> Result<Vec<Discovered>> {
        let source = self.clone();
        blocking(move || source.discover_blocking()).await
    }

    async fn place(&self, stream: &StreamSettings) -> Result<Option<String>> {
        Ok(self.database.place(&stream.name))
    }

    async fn open(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        let (source, stream, opening) = (self.clone(), stream.clone(), opening.clone());
        let stream = blocking(move || {
            let given = source.settings.types.get(&stream.name);
            SqliteStream::open(source.database, given, &stream, &opening)
        })
        .await?;
        if let Some(warning) = stream.unordered() {
            context.warn(warning);
        }
        Ok(Arc::new(stream))
    }
}
