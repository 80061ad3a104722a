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
        let path = self.dir().join("t.sqlite");
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let database = rusqlite::Connection::open_with_flags(path, flags).ok()?;
        database.busy_timeout(HANG).unwrap();
        let named = "select table_name from _ferretdb_collections where name = ?1";
        let table: String = database.query_row(named, [collection], |row| row.get(0)).ok()?;
        let documents = format!("(select _ferretdb_sjson d from \"{table}\")");
        database.query_row(&query.replace("{}", &documents), [], |row| row.get(0)).ok()
    }
}
