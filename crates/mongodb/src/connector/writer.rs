//! Writes one unit: documents wait in memory, and beyond [`HELD_MAX`] in a separate collection,
//! until the unit is committed. With `replace`, whose documents are separate anyway, they are
//! written there at once.
//!
//! A commit has three steps, each durable before the next: the ledger records that the unit begins;
//! its documents are written to the collection; the ledger records that it is committed. If an
//! earlier attempt was interrupted in between, its documents are removed first, and one that a lost
//! connection delivers even later is replaced by the same document: ids are those of the row,
//! whatever the attempt.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{BooleanArray, RecordBatch};
use async_trait::async_trait;
use forebay_pgcopy::ContentHash;
use forebay_pgcopy::column::schema;
use forebay_sdk::batch::{Batch, DeadRow, Rows};
use forebay_sdk::cast::exact;
use forebay_sdk::connector::{LedgerEntry, Load, Result, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::Phase;
use forebay_sdk::settings::{FeedForm, OnDataError, WriteMode};
use forebay_sdk::values::write::json_rows;
use mongodb::bson::{RawDocumentBuf, doc};

use super::bulk::{
    COMMAND_ROWS_MAX, COMMAND_SIZE_MAX, Concern, Documents, Verb, WriteError, write,
};
use super::connect::{DUPLICATE_KEY, refused};
use super::encode::{Field, Refused, append_document, append_id, append_text};
use super::feed::{COPIED, OPERATION};
use super::ledger::Ids;
use super::statement::{append_elements, broken, key, raw, upsert, without_id};
use super::target::{Reader, Shared, drop_collection};

/// Maximum number of bytes of documents that wait in memory.
const HELD_MAX: usize = 4 << 20;
/// Maximum number of dead letters held in memory until their unit is committed.
const DEAD_MAX: usize = 100_000;

/// Writes one unit.
pub(super) struct MongoWriter {
    shared: Arc<Shared>,
    load: Load,
    unit: String,
    ids: Ids,
    /// Number of rows converted to documents.
    rows: u64,
    /// Number of rows received.
    came: u64,
    hasher: Hasher,
    /// Rows that were hashed and then refused.
    lost: ContentHash,
    dead: Vec<DeadRow>,
    dead_rows: u64,
    held: Documents,
    /// Number of documents that wait in a separate collection, and its name.
    staged: u64,
    staged_in: String,
    /// With `replace`: whether an earlier attempt was interrupted.
    was_begun: bool,
}

impl MongoWriter {
    pub(super) async fn open(shared: Arc<Shared>, load: Load, unit: &str) -> Result<Self> {
        let ids = Ids::of(&shared.settings, &load.id, unit);
        let mut was_begun = false;
        if shared.settings.write_mode == WriteMode::Replace {
            shared.ledger.check(&load).await?;
            was_begun = shared.ledger.begin(&load, unit).await?;
            if was_begun {
                shared.ledger.undo(&shared.destination(&load.id), &load.id, unit).await?;
            }
        }
        Ok(Self {
            hasher: Hasher::new(&shared.columns)?,
            unit: unit.to_owned(),
            rows: 0,
            came: 0,
            lost: ContentHash::default(),
            dead: Vec::new(),
            dead_rows: 0,
            held: Documents::default(),
            staged: 0,
            staged_in: shared.staged(),
            shared,
            load,
            ids,
            was_begun,
        })
    }

    /// Converts rows to documents.
    async fn take(&mut self, records: &RecordBatch) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let begun = Instant::now();
        let records = self.conform(records)?;
        let mut refused = Refused::new();
        let normal = shared.forms.normalise(&records, &shared.columns, &mut refused)?;
        let fields = normal.columns().iter().zip(&shared.columns);
        let fields =
            fields.map(|(array, column)| Field::new(array.as_ref(), column, &shared.forms));
        let fields: Vec<Field<'_>> = fields.collect::<Result<_>>()?;
        for row in 0..normal.num_rows() {
            if refused.contains_key(&row) {
                continue;
            }
            match self.encode(&fields, row) {
                Ok(()) => self.rows += 1,
                Err(found) => drop(refused.insert(row, found)),
            }
            if self.held.size() >= HELD_MAX {
                shared.context.phases.add(Phase::Encode, begun);
                self.spill().await?;
            }
        }
        shared.context.phases.add(Phase::Encode, begun);
        let came = self.came;
        self.came += normal.num_rows() as u64;
        if refused.is_empty() {
            return self.hasher.add(&normal);
        }
        self.refuse_rows(&records, came, &refused)?;
        let kept: BooleanArray =
            (0..normal.num_rows()).map(|row| Some(!refused.contains_key(&row))).collect();
        let kept = arrow::compute::filter_record_batch(&normal, &kept)
            .map_err(|error| ConnectorError::data("a batch", error.to_string()))?;
        self.hasher.add(&kept)
    }

    /// A batch whose arrays have the types of the columns.
    fn conform(&self, records: &RecordBatch) -> Result<RecordBatch> {
        let columns = &self.shared.columns;
        let data = |found: String| ConnectorError::data(&*self.shared.settings.stream, found);
        if records.num_columns() != columns.len() {
            let (got, want) = (records.num_columns(), columns.len());
            return Err(data(format!("a batch has {got} columns, but the stream has {want}")));
        }
        let arrays = records.columns().iter().zip(columns).map(|(array, column)| {
            exact(array, &column.wire.data_type())
                .map_err(|found| data(format!("column {:?}: {found}", column.name)))
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let options =
            arrow::array::RecordBatchOptions::new().with_row_count(Some(records.num_rows()));
        RecordBatch::try_new_with_options(Arc::new(schema(columns)), arrays, &options)
            .map_err(|error| data(error.to_string()))
    }

    /// Adds the document of a row.
    fn encode(&mut self, fields: &[Field<'_>], row: usize) -> Result<(), String> {
        let settings = &self.shared.settings;
        let (is_upsert, has_own_id) =
            (settings.write_mode == WriteMode::Upsert, self.shared.has_own_id());
        for field in fields {
            let is_key =
                field.name() == "_id" || settings.primary_key.iter().any(|k| k == field.name());
            if is_key && field.is_null(row) {
                return Err(format!("{:?} is NULL, but it is part of the key", field.name()));
            }
        }
        let id = self.ids.row(self.rows);
        // The rows that a log begins with.
        let is_logged = settings.feed == FeedForm::Log && settings.write_mode == WriteMode::Replace;
        self.held.add(|out| {
            if !is_upsert && !has_own_id {
                append_id(&id, out);
            }
            fields.iter().try_for_each(|field| {
                let appended = field.append(row, out);
                appended.map_err(|found| format!("column {:?}: {found}", field.name()))
            })?;
            match is_logged {
                true => append_text(OPERATION, COPIED, out),
                false => Ok(()),
            }
        })
    }

    /// Rows that cannot be encoded as BSON.
    fn refuse_rows(&mut self, records: &RecordBatch, came: u64, refused: &Refused) -> Result<()> {
        let settings = &self.shared.settings;
        if settings.on_data_error == OnDataError::Fail
            && let Some((row, found)) = refused.first_key_value()
        {
            let place = format!("{} {} row {}", settings.stream, self.unit, came + *row as u64 + 1);
            return Err(ConnectorError::data(place, found.clone()));
        }
        let mut dead = Vec::new();
        if settings.on_data_error == OnDataError::Dlq {
            for (row, reason) in refused {
                let json = json_rows(&records.slice(*row, 1), &self.shared.columns)?;
                let position = format!("{} row {}", self.unit, came + *row as u64 + 1);
                dead.extend(json.into_iter().map(|row| DeadRow {
                    position: position.clone(),
                    reason: reason.clone(),
                    row,
                }));
            }
        }
        self.dead_rows += refused.len() as u64 - dead.len() as u64;
        self.bury(dead)
    }

    /// Adds rows to the dead letters.
    fn bury(&mut self, dead: Vec<DeadRow>) -> Result<()> {
        self.dead_rows += dead.len() as u64;
        self.dead.extend(dead);
        match self.dead.len() > DEAD_MAX {
            true => Err(ConnectorError::data(
                format!("{} {}", self.shared.settings.stream, self.unit),
                format!("one unit has more than {DEAD_MAX} dead letters"),
            )),
            false => Ok(()),
        }
    }

    /// Moves what waits in memory to the separate collection, or to its final one.
    async fn spill(&mut self) -> Result<()> {
        let held = self.held.take();
        let begun = Instant::now();
        if self.shared.settings.write_mode == WriteMode::Replace {
            self.put(&held).await?;
        } else {
            self.stage(&held).await?;
        }
        self.shared.context.phases.add(Phase::Flush, begun);
        // Its memory is reused.
        self.held = held;
        self.held.clear();
        Ok(())
    }

    async fn stage(&mut self, held: &Documents) -> Result<()> {
        let collection = self.staged_in.clone();
        let mut wrapped = Documents::default();
        for index in 0..held.len() {
            let number = self.staged + index as u64;
            let id = doc! { "_id": i64::try_from(number).unwrap_or(i64::MAX) };
            let id = id.to_vec().map_err(|error| broken(error.to_string()))?;
            let added = wrapped.add(|out| {
                append_elements(&id, out);
                append_document("d", held.get(index), out);
                Ok(())
            });
            added.map_err(broken)?;
        }
        for range in wrapped.commands() {
            let server = &self.shared.server;
            let passing = Concern::Passing;
            let failed = write(server, Verb::Insert, &collection, &wrapped, range, passing).await?;
            if let Some(failed) = failed.into_iter().next() {
                return Err(self.not_taken(held.get(failed.index), &failed.message));
            }
        }
        self.staged += held.len() as u64;
        Ok(())
    }

    /// Writes documents to their final collection.
    async fn put(&mut self, documents: &Documents) -> Result<()> {
        match self.shared.settings.write_mode {
            WriteMode::Upsert => self.upsert(documents).await,
            WriteMode::Append | WriteMode::Replace => self.insert(documents).await,
        }
    }

    async fn insert(&mut self, documents: &Documents) -> Result<()> {
        let (shared, into) = (Arc::clone(&self.shared), self.shared.destination(&self.load.id));
        for range in documents.commands() {
            let durable = Concern::Durable;
            let failed =
                write(&shared.server, Verb::Insert, &into, documents, range, durable).await?;
            for failed in failed {
                let document = documents.get(failed.index);
                // A late write of this row through a lost connection, or another program's key.
                let again = match failed.code == DUPLICATE_KEY && self.was_begun {
                    true => self.replace(&into, document).await?,
                    false => Some(failed),
                };
                if let Some(failed) = again {
                    self.refuse_document(document, &failed.message)?;
                }
            }
        }
        Ok(())
    }

    /// Replaces or inserts a document by its id.
    async fn replace(&self, into: &str, document: &[u8]) -> Result<Option<WriteError>> {
        let key = key(document, ["_id"])?;
        let mut statement = Documents::default();
        statement.add(|out| upsert(key.as_bytes(), document, false, out)).map_err(broken)?;
        let (server, durable) = (&self.shared.server, Concern::Durable);
        let failed = write(server, Verb::Update, into, &statement, 0..1, durable).await?;
        Ok(failed.into_iter().next())
    }

    async fn upsert(&mut self, documents: &Documents) -> Result<()> {
        let (shared, into) = (Arc::clone(&self.shared), self.shared.destination(&self.load.id));
        let keys: Vec<&str> = shared.settings.primary_key.iter().map(String::as_str).collect();
        for range in documents.commands() {
            // Of rows with the same key the last one counts. A command has each key once, since its
            // order is arbitrary.
            let mut statements = Documents::default();
            let mut of = Vec::new();
            let mut last = std::collections::HashMap::new();
            for index in range.clone() {
                last.insert(key(documents.get(index), &keys)?.into_bytes(), index);
            }
            for index in range {
                let document = documents.get(index);
                let key = key(document, &keys)?;
                if last.get(key.as_bytes()) == Some(&index) {
                    let set = without_id(document)?;
                    statements
                        .add(|out| upsert(key.as_bytes(), &set, true, out))
                        .map_err(broken)?;
                    of.push(index);
                }
            }
            for range in statements.commands() {
                let durable = Concern::Durable;
                let server = &shared.server;
                let failed =
                    write(server, Verb::Update, &into, &statements, range, durable).await?;
                for failed in failed {
                    // Two units may have inserted the same key concurrently: now it can be updated.
                    let one = failed.index..failed.index + 1;
                    let again = match failed.code == DUPLICATE_KEY {
                        true => {
                            write(server, Verb::Update, &into, &statements, one, durable).await?
                        }
                        false => vec![failed],
                    };
                    for failed in again {
                        let document = of.get(failed.index).map(|index| documents.get(*index));
                        self.refuse_document(document.unwrap_or_default(), &failed.message)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Handles a document that the server refused.
    fn refuse_document(&mut self, document: &[u8], message: &str) -> Result<()> {
        if self.shared.settings.on_data_error == OnDataError::Fail {
            return Err(self.not_taken(document, message));
        }
        let mut reader = Reader::new(&self.shared.columns, self.shared.forms.json);
        reader.add(&self.shared.collection, raw(document)?)?;
        let row = reader.take()?;
        let mut lost = Hasher::new(&self.shared.columns)?;
        lost.add(&row)?;
        self.lost.merge(lost.content());
        if self.shared.settings.on_data_error != OnDataError::Dlq {
            self.dead_rows += 1;
            return Ok(());
        }
        let rows = json_rows(&row, &self.shared.columns)?;
        let dead = rows.into_iter().map(|row| DeadRow {
            position: self.unit.clone(),
            reason: message.to_owned(),
            row,
        });
        self.bury(dead.collect())
    }

    /// The error of a unit whose document the server refused.
    fn not_taken(&self, document: &[u8], message: &str) -> ConnectorError {
        let mut reader = Reader::new(&self.shared.columns, self.shared.forms.json);
        let row = raw(document)
            .and_then(|document| reader.add(&self.shared.collection, document))
            .and_then(|()| reader.take())
            .and_then(|row| json_rows(&row, &self.shared.columns));
        let shown: String = row
            .unwrap_or_default()
            .into_iter()
            .next()
            .unwrap_or_default()
            .chars()
            .take(200)
            .collect();
        ConnectorError::data(
            format!("{} {}", self.shared.settings.stream, self.unit),
            format!("{:?} refuses the row {shown}: {message}", self.shared.settings.into),
        )
    }

    async fn commit_unit(mut self, entry: LedgerEntry) -> Result<LedgerEntry> {
        let shared = Arc::clone(&self.shared);
        shared.check_claim()?;
        shared.ledger.check(&self.load).await?;
        if shared.settings.write_mode != WriteMode::Replace {
            self.was_begun = shared.ledger.begin(&self.load, &self.unit).await?;
            if self.was_begun {
                self.undo().await?;
            }
        }
        let put = self.put_all(entry).await;
        // Without the claim, the documents may be another run's.
        if put.is_err()
            && shared.check_claim().is_ok()
            && let Err(error) = self.undo().await
        {
            // The ledger records that it began, so the run that continues it does this first.
            tracing::debug!(
                unit = self.unit,
                %error,
                "could not remove a part of a unit; the next run does"
            );
        }
        let entry = put?;
        shared.ledger.commit(&entry).await?;
        if self.staged > 0
            && let Err(error) = drop_collection(&shared.server, &self.staged_in).await
        {
            // The next load drops it.
            tracing::debug!(
                unit = self.unit,
                %error,
                "could not drop a collection of staged documents"
            );
        }
        Ok(entry)
    }

    /// Removes what exists of the unit, as far as it can be identified.
    async fn undo(&self) -> Result<()> {
        self.shared
            .ledger
            .undo(&self.shared.destination(&self.load.id), &self.load.id, &self.unit)
            .await
    }

    /// Writes all documents and dead letters to their final collections.
    async fn put_all(&mut self, entry: LedgerEntry) -> Result<LedgerEntry> {
        let shared = Arc::clone(&self.shared);
        if self.staged > 0 {
            self.move_staged().await?;
        }
        let held = self.held.take();
        self.put(&held).await?;
        let mut content = self.hasher.content();
        content.rows -= self.lost.rows;
        content.sum = content.sum.wrapping_sub(self.lost.sum);
        let entry = LedgerEntry {
            rows: content.rows,
            dead: self.dead_rows,
            hash: content.to_string(),
            ..entry
        };
        shared.ledger.bury(&entry, &self.dead).await?;
        shared.check_claim()?;
        Ok(entry)
    }

    /// Copies the waiting documents of a separate collection to their final one.
    async fn move_staged(&mut self) -> Result<()> {
        let name = self.staged_in.clone();
        let act = |error| refused(format!("read {name}"), error);
        let database = self.shared.server.database().await?;
        let collection = database.collection::<RawDocumentBuf>(&name);
        // In their original order, so that of rows with the same key the last one stays.
        let found = collection.find(doc! {}).sort(doc! { "_id": 1 });
        let mut found = found.await.map_err(act)?;
        let (mut some, mut moved) = (Documents::default(), 0);
        while found.advance().await.map_err(act)? {
            let document = found.current();
            let inner = document.get_document("d").map_err(|error| broken(error.to_string()))?;
            some.add_whole(inner.as_bytes());
            moved += 1;
            if some.size() >= COMMAND_SIZE_MAX / 2 || some.len() == COMMAND_ROWS_MAX {
                self.put(&some).await?;
                some.clear();
            }
        }
        self.put(&some).await?;
        if moved == self.staged {
            return Ok(());
        }
        Err(ConnectorError::Busy {
            act: format!("commit {:?}", self.unit),
            source: format!("{name} has {moved} of the {} documents written to it", self.staged)
                .into(),
        })
    }
}

#[async_trait]
impl UnitWriter for MongoWriter {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        let Rows::Records(records) = &batch.rows else {
            return Err(ConnectorError::unsupported(
                "MongoDB cannot store the tuples of binary COPY",
                "send rows as Arrow",
            ));
        };
        self.bury(batch.dead.clone())?;
        self.take(records).await
    }

    async fn commit(self: Box<Self>, entry: LedgerEntry) -> Result<LedgerEntry> {
        let (begun, context) = (Instant::now(), self.shared.context.clone());
        let committed = (*self).commit_unit(entry).await;
        context.phases.add(Phase::Commit, begun);
        committed
    }
}
