//! A temporary FerretDB, and access to its files.

use std::ops::Deref;

use crate::support::HANG;

/// A server; it is killed when this is dropped.
pub(crate) struct Ferret(forebay_testing::Ferret);

/// Starts one; returns `None`, with a message, if it is neither installed nor required.
pub(crate) fn ferret() -> Option<Ferret> {
    forebay_testing::Ferret::start().map(Ferret)
}

impl Deref for Ferret {
    type Target = forebay_testing::Ferret;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Ferret {
    pub(crate) fn url(&self) -> String {
        self.0.url("t")
    }

    /// Returns the only value of a query of a collection's documents, which are JSON in the column
    /// `d`; `None` if the collection does not exist (yet).
    pub(crate) fn find(&self, collection: &str, query: &str) -> Option<i64> {
        let (database, documents) = self.open(collection)?;
        database.query_row(&query.replace("{}", &documents), [], |row| row.get(0)).ok()
    }

    /// Returns the texts of a query of a collection's documents; none if the collection does not exist.
    pub(crate) fn texts(&self, collection: &str, query: &str) -> Vec<String> {
        let Some((database, documents)) = self.open(collection) else { return Vec::new() };
        let mut rows = database.prepare(&query.replace("{}", &documents)).unwrap();
        let rows = rows.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    /// Returns the committed rows of a namespace of the intake in the order of their ids: the id, a
    /// space and the document, which must not be in the form that is stored as BSON
    /// (`docs/formats/mongodb-sink.md`).
    pub(crate) fn rows(&self, namespace: &str) -> Vec<String> {
        let position = self.find("_forebay_sink", "select d->>'$.position' from {}");
        let (Some(position), Some((database, documents))) = (position, self.open(namespace)) else {
            return Vec::new();
        };
        let rows = format!(
            "select (d->>'$._id') || ' ' || (d->>'$._document') from {documents} \
             where d->>'$._at' <= {position} order by d->>'$._id'"
        );
        let mut rows = database.prepare(&rows).unwrap();
        let rows = rows.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    /// Opens the file of a collection. Returns with it the SQL of the documents, which are JSON in
    /// the column `d`; `None` if the collection does not exist (yet).
    fn open(&self, collection: &str) -> Option<(rusqlite::Connection, String)> {
        let path = self.dir().join("t.sqlite");
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let database = rusqlite::Connection::open_with_flags(path, flags).ok()?;
        database.busy_timeout(HANG).unwrap();
        let named = "select table_name from _ferretdb_collections where name = ?1";
        let table: String = database.query_row(named, [collection], |row| row.get(0)).ok()?;
        let documents = format!("(select _ferretdb_sjson d from \"{table}\")");
        Some((database, documents))
    }
}
