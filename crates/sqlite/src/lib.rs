//! SQLite: a sink for tables and documents in one file, and its readers.
//!
//! [`SqliteSink`] writes, [`SqliteReader`]s read meanwhile, over their own connections and in other
//! threads; the sink has no thread. See [`sink`]. [`connector`] is the source and the destination of
//! pipelines.

pub mod connector;
pub mod sink;

pub use sink::{
    APPLICATION_ID, COLUMN_CHANGES_MAX, Change, ChangeKind, ChangePage, ColumnChange, Damage,
    DocumentPage, Extent, LAYOUT_VERSION, NamespaceInfo, OwnedValue, PageLimits, RowPage,
    SchemaHistory, SqliteReader, SqliteSink, StoredRow, plan, reshaped,
};
