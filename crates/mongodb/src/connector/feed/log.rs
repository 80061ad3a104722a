//! A log of changes: each becomes a document, with what it did, and when.
//!
//! ```text
//! the columns of the source   the row after an insertion or update, what is known of a deleted one
//! _operation                  insert, update, delete, truncate; copy: a row that was there when the feed began
//! _position, _number          the position of the commit, and the number of the change in it
//! _committed_at               when the source committed it
//! _unchanged                  the columns that an update left as they were and that were not sent
//! _before_KEY ...             the key before an update that changed it
//! ```
//!
//! Invariant: the id of a document follows from the position and number of its change. So a change that is read
//! again, since its position was not recorded, becomes the same document, and nothing has to be staged.

use forebay_pgcopy::Column;
use forebay_sdk::changes::decoded::{fields, records, times};
use forebay_sdk::changes::feed::{Applied, FeedStream};
use forebay_sdk::changes::{ChangeLog, Field, LoggedChange, Operation};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::TargetSettings;
use forebay_sdk::values::types;
use mongodb::bson::raw::cstr;
use mongodb::bson::{RawArrayBuf, RawDocumentBuf, rawdoc};

use super::super::bulk::{COMMAND_SIZE_MAX, Command, Concern, Documents, Verb};
use super::super::connect::DUPLICATE_KEY;
use super::super::encode::{Forms, append_id};
use super::super::ledger::Ids;
use super::super::names;
use super::super::statement::{append_elements, broken, key, upsert};
use super::super::target::indexes;
use super::OPERATION;
use super::pending::Work;
use super::table;
use super::values::{documents, single};

const POSITION: &str = "_position";
const NUMBER: &str = "_number";
const COMMITTED_AT: &str = "_committed_at";
const UNCHANGED: &str = "_unchanged";
/// What the field of a key before an update is called: this, and its name.
const BEFORE: &str = "_before_";

/// Number of changes that are encoded at once.
const TAKEN: usize = 1_000;

/// A collection that changes are appended to.
pub(super) struct Log {
    collection: String,
    target: TargetSettings,
    forms: Forms,
    columns: Vec<Column>,
    /// The key, under the names of the fields before an update.
    key: Vec<Column>,
    committed_at: Column,
}

impl Log {
    /// Prepares a collection.
    ///
    /// # Errors
    /// It has a unique index, or the source has columns of these names.
    pub(super) async fn open(
        work: &Work,
        target: &TargetSettings,
        stream: &FeedStream,
    ) -> Result<Self> {
        let into = &target.into;
        let (columns, key) = columns(into, stream)?;
        let own = ["_id", OPERATION, POSITION, NUMBER, COMMITTED_AT, UNCHANGED];
        let own: Vec<&str> = own.into_iter().chain(key.iter().map(|key| &*key.name)).collect();
        if let Some(taken) = columns.iter().find(|column| own.contains(&&*column.name)) {
            return Err(ConnectorError::unsupported(
                format!("{into} has a column {:?}, as a log of changes has", taken.name),
                "rename it at the source, or use `write_mode: upsert`",
            ));
        }
        let collection = names::collection(into)?;
        let there = indexes(&work.server, &collection).await?;
        let is_unique = |index: &mongodb::IndexModel| {
            index.options.as_ref().and_then(|options| options.unique).unwrap_or(false)
        };
        if there.iter().any(|index| is_unique(index) && !index.keys.contains_key("_id")) {
            return Err(ConnectorError::unsupported(
                format!("{into} has a unique index, and a log has a document for each change"),
                "drop the index, or use `write_mode: upsert`",
            ));
        }
        let committed_at = types::column(COMMITTED_AT, "timestamptz");
        let committed_at = committed_at.ok_or_else(|| broken("it has no such type".to_owned()))?;
        let (target, forms) = (target.clone(), Forms::of(work.server.settings()));
        Ok(Self { collection, target, forms, columns, key, committed_at })
    }

    /// Gives it other columns.
    pub(super) fn redefine(&mut self, stream: &FeedStream) -> Result<()> {
        (self.columns, self.key) = columns(&self.target.into, stream)?;
        Ok(())
    }

    /// Appends changes. They are on disk on return.
    pub(super) async fn append(&self, work: &Work, log: &ChangeLog) -> Result<Applied> {
        let mut applied = Applied::default();
        let mut some = Documents::default();
        for changes in log.changes().chunks(TAKEN) {
            self.encode(changes, &mut some)?;
            if some.size() >= COMMAND_SIZE_MAX {
                self.write(work, &some).await?;
                some.clear();
            }
            for change in changes {
                match change.operation {
                    Operation::Insert => applied.inserted += 1,
                    Operation::Update => applied.updated += 1,
                    Operation::Delete => applied.deleted += 1,
                    Operation::Truncate => {}
                }
            }
        }
        self.write(work, &some).await?;
        Ok(applied)
    }

    async fn write(&self, work: &Work, some: &Documents) -> Result<()> {
        let (verb, collection, concern) = (Verb::Insert, &*self.collection, Concern::Durable);
        let command = Command { verb, collection, concern, comment: Some(&work.comment) };
        for range in some.commands() {
            work.check()?;
            let mut again = Documents::default();
            for failed in command.write(&work.server, some, range).await? {
                if failed.code != DUPLICATE_KEY {
                    let found = format!("refuses a change: {}", failed.message);
                    return Err(ConnectorError::data(&*self.target.into, found));
                }
                // A run that was interrupted has appended it.
                let document = some.get(failed.index);
                let id = key(document, ["_id"])?;
                again.add(|out| upsert(id.as_bytes(), document, false, out)).map_err(broken)?;
            }
            work.write(Verb::Update, collection, &again, concern).await?;
        }
        Ok(())
    }

    fn encode(&self, changes: &[LoggedChange], some: &mut Documents) -> Result<()> {
        let (into, forms) = (&*self.target.into, &self.forms);
        let rows = changes.iter().filter_map(|change| change.row.as_ref());
        let sent: Vec<Vec<bool>> = rows
            .clone()
            .map(|row| row.fields().map(|field| field != Field::Unchanged).collect())
            .collect();
        let rows = records(into, &self.columns, rows.map(fields))?;
        let is_sent = |row: usize, column: usize| {
            sent.get(row).and_then(|row| row.get(column)).copied().unwrap_or(false)
        };
        let rows = documents(into, forms, &rows, &self.columns, is_sent)?;
        let keys = changes.iter().filter_map(|change| change.key_before.as_ref());
        let keys = records(into, &self.key, keys.map(|key| key.as_bytes().to_vec()))?;
        let keys = documents(into, forms, &keys, &self.key, |_, _| true)?;
        let at = changes.iter().map(|change| Some(forms.storable(change.commit.at_us)));
        let at = single(into, forms, &self.committed_at, times(&self.committed_at, at)?)?;
        let (mut row, mut key) = (0, 0);
        for (number, change) in changes.iter().enumerate() {
            let own = self.own(change)?;
            let added = some.add(|out| {
                append_id(&self.id(change), out);
                if change.row.is_some() {
                    append_elements(rows.get(row), out);
                }
                append_elements(own.as_bytes(), out);
                append_elements(at.get(number), out);
                if change.key_before.is_some() {
                    append_elements(keys.get(key), out);
                }
                Ok(())
            });
            added.map_err(|found| ConnectorError::data(into, found))?;
            row += usize::from(change.row.is_some());
            key += usize::from(change.key_before.is_some());
        }
        Ok(())
    }

    fn id(&self, change: &LoggedChange) -> [u8; 24] {
        Ids::of(&self.target, "log", &change.commit.position).row(change.number)
    }

    /// The fields that say what a change did.
    fn own(&self, change: &LoggedChange) -> Result<RawDocumentBuf> {
        let number = i64::try_from(change.number).map_err(|error| broken(error.to_string()))?;
        let mut own = rawdoc! {
            "_operation": change.operation.as_str(), "_position": &*change.commit.position,
            "_number": number,
        };
        let fields = change.row.iter().flat_map(|row| row.fields());
        let unchanged = self.columns.iter().zip(fields);
        let unchanged = unchanged.filter(|(_, field)| *field == Field::Unchanged);
        let mut unchanged = unchanged.map(|(column, _)| column.name.as_str()).peekable();
        if unchanged.peek().is_some() {
            let mut names = RawArrayBuf::new();
            unchanged.for_each(|name| names.push(name));
            own.append(cstr!("_unchanged"), names);
        }
        Ok(own)
    }
}

/// The columns of a stream, and those of a key before an update.
fn columns(into: &str, stream: &FeedStream) -> Result<(Vec<Column>, Vec<Column>)> {
    let (columns, _) = table::columns(into, stream)?;
    let key = stream.columns.iter().zip(&columns);
    let has_key = stream.has_key();
    let key = key
        .filter(|(of, _)| of.is_key || !has_key)
        .map(|(_, column)| Column { name: format!("{BEFORE}{}", column.name), ..column.clone() });
    let key = key.collect();
    Ok((columns, key))
}
