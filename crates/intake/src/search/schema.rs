//! Tables of the search index and how its connections are opened. `docs/formats/search-index.md`
//! describes them.
//!
//! The index is a view that can be built again, so its connections use `synchronous = NORMAL`: a power
//! cut may take back its last transactions, and the position they stored with them.

use std::path::{Path, PathBuf};

use forebay_base::rows::RowHasher;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Row, Statement, params};

use crate::classify::Category;
use crate::digest::Digest;
use crate::error::CatalogueFault;

/// Version of the tables. An index of another version is built again.
pub(super) const SCHEMA_VERSION: i64 = 2;

/// What an operation on the index returns.
pub(super) type Checked<T> = Result<T, CatalogueFault>;

/// `words` has no content of its own, so that no text is stored twice; its column `about` has comment,
/// metadata and tags, its column `facets` one word for each property that is searched for by equality
/// ([`facet`]). `pieces` finds any part of a
/// name.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    log BLOB NOT NULL,
    position INTEGER NOT NULL,
    files INTEGER NOT NULL,
    texts INTEGER NOT NULL,
    text_bytes INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    mime TEXT NOT NULL,
    category INTEGER NOT NULL,
    size INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    text_size INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS files_by_name ON files (namespace, name);
CREATE INDEX IF NOT EXISTS files_by_size ON files (size, id);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (
    name, text, about, facets, content = '', contentless_delete = 1,
    tokenize = \"unicode61 remove_diacritics 2 tokenchars '_'\"
);
CREATE VIRTUAL TABLE IF NOT EXISTS pieces USING fts5 (
    name, content = '', contentless_delete = 1, tokenize = 'trigram'
);
";

/// Columns that [`Indexed::read`] reads.
pub(super) const COLUMNS: &str =
    "id, namespace, name, mime, category, size, created_ms, text_size, checksum";

/// The statement of [`Indexed::insert`].
pub(super) const INSERT: &str = "INSERT INTO files
       (id, namespace, name, mime, category, size, created_ms, text_size, checksum)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING";

/// A file as the index has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Indexed {
    pub(super) id: u64,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) mime: String,
    pub(super) category: Category,
    pub(super) size: u64,
    pub(super) created_ms: i64,
    /// Bytes of text that were indexed.
    pub(super) text_size: u64,
}

/// What the index says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// The log that it follows.
    pub(super) log: [u8; 16],
    /// Position up to which it reflects that log.
    pub(super) position: u64,
    /// Number of files.
    pub(super) files: u64,
    /// Number of files with text.
    pub(super) texts: u64,
    /// Bytes of all texts.
    pub(super) text_bytes: u64,
}

impl Indexed {
    fn checksum(&self) -> i64 {
        let mut hasher = RowHasher::default();
        hasher
            .start()
            .text(b"search")
            .integer(self.id.cast_signed())
            .text(self.namespace.as_bytes())
            .text(self.name.as_bytes())
            .text(self.mime.as_bytes())
            .integer((self.category as u8).into())
            .integer(self.size.cast_signed())
            .integer(self.created_ms)
            .integer(self.text_size.cast_signed());
        hasher.finish().cast_signed()
    }

    /// Reads and verifies a row of [`COLUMNS`].
    pub(super) fn read(row: &Row<'_>) -> Checked<Self> {
        let id: i64 = row.get(0)?;
        let damaged = || CatalogueFault::Damaged {
            found: format!("the row {id} of the table files does not match its checksum"),
        };
        let file = Self {
            id: id.cast_unsigned(),
            namespace: row.get(1)?,
            name: row.get(2)?,
            mime: row.get(3)?,
            category: Category::from_code(row.get(4)?).ok_or_else(damaged)?,
            size: row.get::<_, i64>(5)?.cast_unsigned(),
            created_ms: row.get(6)?,
            text_size: row.get::<_, i64>(7)?.cast_unsigned(),
        };
        if row.get::<_, i64>(8)? == file.checksum() { Ok(file) } else { Err(damaged()) }
    }

    /// Stores the row. Returns whether there was none of this name or id.
    ///
    /// * `insert`: [`INSERT`].
    pub(super) fn insert(&self, insert: &mut Statement<'_>) -> rusqlite::Result<bool> {
        let stored = insert.execute(params![
            self.id.cast_signed(),
            self.namespace,
            self.name,
            self.mime,
            self.category as u8,
            self.size.cast_signed(),
            self.created_ms,
            self.text_size.cast_signed(),
            self.checksum(),
        ])?;
        Ok(stored > 0)
    }
}

impl State {
    /// That of an empty index.
    pub(super) fn empty(log: [u8; 16]) -> Self {
        Self { log, position: 0, files: 0, texts: 0, text_bytes: 0 }
    }

    fn checksum(&self) -> i64 {
        let mut hasher = RowHasher::default();
        hasher.start().text(b"search meta").blob(&self.log);
        for number in [self.position, self.files, self.texts, self.text_bytes] {
            hasher.integer(number.cast_signed());
        }
        hasher.finish().cast_signed()
    }

    /// Reads and verifies it; `None` in a new index.
    pub(super) fn load(connection: &Connection) -> Checked<Option<Self>> {
        let mut statement = connection
            .prepare_cached("SELECT log, position, files, texts, text_bytes, checksum FROM meta")?;
        let mut rows = statement.query([])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
        let state = Self {
            log: row.get(0)?,
            position: number(1)?,
            files: number(2)?,
            texts: number(3)?,
            text_bytes: number(4)?,
        };
        if row.get::<_, i64>(5)? == state.checksum() {
            return Ok(Some(state));
        }
        let found = "the table meta does not match its checksum".to_owned();
        Err(CatalogueFault::Damaged { found })
    }

    pub(super) fn save(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "INSERT OR REPLACE INTO meta (one, log, position, files, texts, text_bytes, checksum)
             VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        let [position, files, texts, text_bytes] =
            [self.position, self.files, self.texts, self.text_bytes].map(u64::cast_signed);
        let checksum = self.checksum();
        statement.execute(params![self.log, position, files, texts, text_bytes, checksum])?;
        Ok(())
    }
}

/// The word in the column `facets` for a property that is searched for by equality.
///
/// The digest makes one word of any value; that two values share one is as unlikely as chance, and
/// every result is compared with the whole value in the end.
///
/// * `property`: its name; of metadata and tags also which one.
pub(super) fn facet(property: &[&str], value: &str) -> String {
    let mut parts: Vec<&[u8]> = property.iter().map(|part| part.as_bytes()).collect();
    parts.push(value.as_bytes());
    let Digest(digest) = Digest::of_parts(&parts);
    let (first, _) = digest.split_at(8);
    format!("f{}", hex::encode(first))
}

/// Opens the index for writing and creates its tables if they are missing.
///
/// * Returns `None` in place of the state if the index has another version.
pub(super) fn open_writer(path: &Path) -> Checked<(Connection, Option<Option<State>>)> {
    let connection = Connection::open(path)?;
    tune(&connection)?;
    connection.pragma_update(None, "cache_size", -32_768)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 4_096)?;
    // As in the catalogue: a deleted row must not be one changed byte away from being read.
    connection.pragma_update_and_check(None, "secure_delete", "FAST", |_| Ok(()))?;
    // An interrupted merge of many transactions must not leave a log that is never made smaller.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let is_new = version == 0 && schema_of(&connection)?.is_empty();
    if is_new {
        connection.execute_batch(&format!(
            "BEGIN; {TABLES} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        ))?;
    } else if version != SCHEMA_VERSION {
        return Ok((connection, None));
    }
    check_schema(&connection)?;
    let state = State::load(&connection)?;
    Ok((connection, Some(state)))
}

/// Opens the index for reading.
pub(super) fn open_reader(path: &Path) -> Checked<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    tune(&connection)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    // The words themselves, with the number of files that have each. It is of this connection alone.
    connection
        .execute_batch("CREATE VIRTUAL TABLE temp.terms USING fts5vocab (main, words, row)")?;
    Ok(connection)
}

/// Version of the tables of an index that exists.
pub(super) fn version_of(connection: &Connection) -> Checked<i64> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

/// Compares the SQL of the tables with what makes them.
pub(super) fn check_schema(connection: &Connection) -> Checked<()> {
    let model = Connection::open_in_memory()?;
    model.execute_batch(TABLES)?;
    if schema_of(connection)? == schema_of(&model)? {
        return Ok(());
    }
    let found = "the tables are not as the server makes them".to_owned();
    Err(CatalogueFault::Damaged { found })
}

type Made = (String, String, Option<String>);

fn schema_of(connection: &Connection) -> rusqlite::Result<Vec<Made>> {
    connection
        .prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY name")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect()
}

/// The files of the index at `path`.
pub(super) fn files_of(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        file.into()
    })
}

fn tune(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    connection.set_prepared_statement_cache_capacity(32);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // A schema that was altered must not run code.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}
