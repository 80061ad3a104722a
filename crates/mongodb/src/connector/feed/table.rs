//! A collection that changes are applied to.

use forebay_pgcopy::{Column, Wire};
use forebay_sdk::changes::decoded;
use forebay_sdk::changes::feed::{FeedColumn, FeedStream};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::TargetSettings;
use forebay_sdk::values::types;

use super::super::encode::Forms;
use super::super::ledger::Ids;
use super::super::names;
use super::super::target::{create_key, indexes, is_unique_of};
use super::DELETED_AT;
use super::pending::Work;
use crate::settings::Json;

/// A column as it is stored.
///
/// # Errors
/// Values of its type, as changes have them, cannot be stored.
pub(super) fn column(table: &str, of: &FeedColumn) -> Result<Column> {
    decoded::column(table, of, "MongoDB")
}

/// Checks that changes of a stream can be stored.
///
/// # Errors
/// A column cannot be a field, or a part of a key.
pub(super) fn check(stream: &FeedStream, forms: &Forms) -> Result<()> {
    let table = &stream.stream;
    let columns = stream.columns.iter().map(|of| column(table, of)).collect::<Result<Vec<_>>>()?;
    names::check_columns(&columns)?;
    let keys = stream.columns.iter().zip(&columns).filter(|(of, _)| of.is_key);
    let keys: Vec<&Column> = keys.map(|(_, column)| column).collect();
    let is_odd = |column: &&&Column| {
        let is_document = types::is_json(column) && forms.json == Json::Document;
        is_document || matches!(column.wire, Wire::Array { .. })
    };
    if let Some(Column { name, sql_type, .. }) = keys.iter().find(is_odd) {
        return Err(ConnectorError::unsupported(
            format!(
                "column {name:?} of the key of {table} is {sql_type}, which finds no documents"
            ),
            "read the table with `sync_mode: full_refresh`",
        ));
    }
    let has_own_id = columns.iter().any(|column| column.name == "_id");
    if has_own_id && !matches!(keys.as_slice(), [key] if key.name == "_id") {
        return Err(ConnectorError::unsupported(
            format!("{table} has a column \"_id\" that is not its key"),
            "rename it at the source",
        ));
    }
    Ok(())
}

/// A collection that changes are applied to.
pub(super) struct Table {
    /// Its name for people.
    pub(super) into: String,
    pub(super) collection: String,
    pub(super) columns: Vec<Column>,
    pub(super) key: Vec<Column>,
    /// The names of the columns of the key.
    pub(super) key_names: Vec<String>,
    /// The column of deletion times, if deleted rows stay.
    pub(super) deleted_at: Option<Column>,
    pub(super) forms: Forms,
    /// The fields of unique indexes besides that of the key.
    pub(super) unique: Vec<Vec<String>>,
    /// The ids of its new documents; `None`: they are the key.
    pub(super) ids: Option<Ids>,
}

impl Table {
    /// Prepares a collection: its key has a unique index.
    pub(super) async fn open(
        work: &Work,
        target: &TargetSettings,
        stream: &FeedStream,
        keeps_deleted: bool,
    ) -> Result<Self> {
        let into = target.into.clone();
        let (columns, key) = columns(&into, stream)?;
        let key_names: Vec<String> = key.iter().map(|column| column.name.clone()).collect();
        stream.check_key()?;
        if keeps_deleted && columns.iter().any(|column| column.name == DELETED_AT) {
            return Err(ConnectorError::unsupported(
                format!("{into} has a column {DELETED_AT:?}, in which deleted rows are marked"),
                "rename it at the source, or use `deleted_rows: delete`",
            ));
        }
        let collection = names::collection(&into)?;
        let has_own_id = columns.iter().any(|column| column.name == "_id");
        let there = indexes(&work.server, &collection).await?;
        if !has_own_id && !there.iter().any(|index| is_unique_of(index, &key_names)) {
            create_key(&work.server, &collection, &key_names).await?;
        }
        let is_other = |index: &&mongodb::IndexModel| {
            let options = index.options.as_ref();
            let is_unique = options.and_then(|options| options.unique).unwrap_or(false);
            is_unique && !is_unique_of(index, &key_names) && !index.keys.contains_key("_id")
        };
        let unique = there.iter().filter(is_other);
        let unique = unique.map(|index| index.keys.keys().cloned().collect()).collect();
        Ok(Self {
            ids: (!has_own_id).then(|| Ids::of(target, "feed", &work.writer)),
            deleted_at: keeps_deleted.then(|| types::column(DELETED_AT, "timestamptz")).flatten(),
            forms: Forms::of(work.server.settings()),
            into,
            collection,
            columns,
            key,
            key_names,
            unique,
        })
    }
    /// Gives it other columns. The collection stays as it is.
    pub(super) fn redefine(&mut self, stream: &FeedStream) -> Result<()> {
        (self.columns, self.key) = columns(&self.into, stream)?;
        self.key_names = self.key.iter().map(|column| column.name.clone()).collect();
        Ok(())
    }
}

/// The columns of a stream, and those of its key.
pub(super) fn columns(into: &str, stream: &FeedStream) -> Result<(Vec<Column>, Vec<Column>)> {
    let columns = stream.columns.iter().map(|of| column(into, of)).collect::<Result<Vec<_>>>()?;
    names::check_columns(&columns)?;
    let key = stream.columns.iter().zip(&columns).filter(|(of, _)| of.is_key);
    let key = key.map(|(_, column)| column.clone()).collect();
    Ok((columns, key))
}
