//! A Delta table as the target of a stream.
//!
//! * `append`: a unit is one file; its commit adds the file and the unit's record.
//! * `replace`: a unit's commit has only the record, which names the file. The commit that ends the load
//!   adds all of them and removes every other file of the table.
//!
//! `prepare` makes a commit, too: from then on no earlier run of the stream can commit any more. Only then
//! the files of earlier runs of the same load are removed that no record names.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use delta_kernel::SnapshotRef;
use delta_kernel::schema::StructField;
use forebay_pgcopy::column::schema;
use forebay_pgcopy::{Column, ContentHash};
use forebay_sdk::bridge::blocking;
use forebay_sdk::chosen::Chosen;
use forebay_sdk::connector::{LedgerEntry, Load, Result, Target, Unit, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{TargetSettings, WriteMode};
use parking_lot::Mutex;
use parquet::file::properties::WriterProperties;

use super::super::conform::conform;
use super::super::store::{Room, Store};
use super::commit::{Change, Known};
use super::ledger::{self, Committed, DataFile, Head, Ledger, encode, load_domain, unit_domain};
use super::removed::Upkeep;
use super::table::{Shape, State, Table, batch_of};
use super::writer::TableWriter;
use super::{columns, store, types};

/// The target of a stream.
pub(super) struct TableTarget {
    shared: Arc<Shared>,
    notes: Vec<String>,
}

/// State shared by a target and its writers.
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    /// The columns that are stored.
    pub(super) columns: Arc<[Column]>,
    /// The same, and where they are in a batch.
    pub(super) chosen: Chosen,
    pub(super) schema: SchemaRef,
    pub(super) is_replace: bool,
    pub(super) context: Context,
    pub(super) settings: TargetSettings,
    pub(super) properties: WriterProperties,
    pub(super) upkeep: Upkeep,
    display: String,
    /// What was prepared. The lock is held by threads that may block while they commit: commits of one
    /// stream follow one another.
    prepared: Mutex<Option<Prepared>>,
}

/// A table that is prepared for a load.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) table: Table,
    pub(super) known: Known,
    pub(super) shape: Shape,
    load: String,
    /// The number of this run.
    run: i64,
    /// Files with the dead letters of earlier loads.
    dead: Vec<String>,
}

impl TableTarget {
    /// Inspects a table, which may not exist yet.
    pub(super) fn open(
        store: Arc<dyn Store>,
        table: &Table,
        (properties, upkeep): (WriterProperties, Upkeep),
        settings: &TargetSettings,
        found: &[Column],
        context: &Context,
    ) -> Result<Self> {
        let is_replace = settings.write_mode == WriteMode::Replace;
        let snapshot = table.snapshot()?;
        if let Some(snapshot) = &snapshot {
            table.check(snapshot, is_replace)?;
        }
        let chosen = columns::stored(snapshot.as_ref(), settings, found)?;
        let stored = chosen.columns();
        let display = table.display().to_owned();
        let mut notes = vec![match (is_replace, &snapshot) {
            (_, None) => format!("create the table {display}"),
            (true, _) => format!("replace all rows of {display} in one commit"),
            (false, _) => format!("add rows to {display}"),
        }];
        if let Some(snapshot) = &snapshot {
            let added = columns::added(snapshot, settings, stored)?;
            notes.extend(added.iter().map(|field| {
                format!("add the column {:?} {}", field.name(), types::named(field.data_type()))
            }));
        }
        notes.extend(stored.iter().filter_map(types::note));
        let shared = Shared {
            store,
            columns: stored.into(),
            schema: Arc::new(schema(stored)),
            chosen: chosen.clone(),
            is_replace,
            context: context.clone(),
            settings: settings.clone(),
            properties,
            upkeep,
            display,
            prepared: Mutex::new(None),
        };
        Ok(Self { shared: Arc::new(shared), notes })
    }
}

/// What `prepare` has found and left.
struct Begun {
    /// Names of the files that records name, and the start of the names of this load's files.
    named: HashSet<String>,
    prefixes: Vec<String>,
    dead: HashSet<String>,
    run: i64,
}

impl Shared {
    /// The stream, for messages.
    pub(super) fn stream(&self) -> &str {
        &self.settings.stream
    }

    /// The table, for messages.
    pub(super) fn display(&self) -> &str {
        &self.display
    }

    fn table(&self) -> Result<Table> {
        Table::open(self.store.place(Room::Shown))
    }

    /// A batch with the columns of the target, of their types.
    pub(super) fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        conform(self.stream(), batch, &self.chosen, &self.columns, &self.schema)
    }

    /// Makes the commit that begins a load, or continues it.
    fn begin(&self, load: &Load) -> Result<Begun> {
        let mut prepared = self.prepared.lock();
        *prepared = None;
        let mut table = self.table()?;
        let (state, is_new) = match table.state(&self.settings)? {
            Some(state) => (state, false),
            None => self.create(&mut table, load)?,
        };
        table.check(&state.snapshot, self.is_replace)?;
        let mut known = Known::new(&state, is_new.then_some(1));
        let (run, ledger, snapshot) = match is_new {
            true => (1, state.ledger.clone(), Arc::clone(&state.snapshot)),
            false => self.fence(&table, &mut known, &state, load)?,
        };
        let begun = self.begun(&state.ledger, &ledger, load, run);
        let shape = table.shape(&snapshot)?;
        let dead = ledger.head.map(|head| head.dead).unwrap_or_default();
        *prepared = Some(Prepared { table, known, shape, load: load.id.clone(), run, dead });
        Ok(begun)
    }

    /// Creates the table with the record of the load. `false` with another's that was faster.
    fn create(&self, table: &mut Table, load: &Load) -> Result<(State, bool)> {
        table.create_directory()?;
        let head = Head::new(&self.settings, load, self.is_replace, 1);
        let record = (load_domain(&self.settings), encode(&head)?);
        let fields: Vec<StructField> = self.columns.iter().map(types::field).collect();
        let created = table.create(fields, &self.settings, record);
        // If the outcome is not known, the log has it.
        match table.state(&self.settings) {
            Ok(Some(state)) => {
                let found = state.ledger.head.as_ref();
                let is_own = found.is_some_and(|found| found.commit == head.commit);
                let is_new = is_own && state.version == 1;
                Ok((state, is_new))
            }
            Ok(None) => Err(created.err().unwrap_or(ConnectorError::Stopped)),
            Err(error) => Err(created.err().unwrap_or(error)),
        }
    }

    /// Commits the record of the load, with which every earlier run is shut out. Returns the number of this
    /// run and the records that hold from now on.
    fn fence(
        &self,
        table: &Table,
        known: &mut Known,
        state: &State,
        load: &Load,
    ) -> Result<(i64, Ledger, SnapshotRef)> {
        let run = state.version + 1;
        let mut head = Head::new(&self.settings, load, self.is_replace, run);
        let mut change = Change::default();
        let mut ledger = state.ledger.clone();
        if let Some(before) = state.ledger.of(load) {
            head.dead.clone_from(&before.dead);
            self.check_pending(&ledger)?;
        } else {
            head.dead = state.ledger.dead().cloned().collect();
            change.removed = ledger.units.keys().cloned().collect();
            ledger.units.clear();
        }
        change.columns = columns::added(&state.snapshot, &self.settings, &self.columns)?;
        change.record = (load_domain(&self.settings), encode(&head)?);
        let snapshot = table.commit(known, &change, &self.settings)?;
        known.is_of(run);
        ledger.head = Some(head);
        Ok((run, ledger, snapshot))
    }

    /// Checks that a load with the same id is continued in the same way.
    fn check_pending(&self, ledger: &Ledger) -> Result<()> {
        match &ledger.head {
            Some(head) if head.is_replace != self.is_replace => Err(ConnectorError::Refused {
                act: format!("continue a load of {}", self.display),
                source: "it was begun with another `write_mode`".into(),
            }),
            _ => Ok(()),
        }
    }

    /// Which files are of no use from now on.
    fn begun(&self, before: &Ledger, now: &Ledger, load: &Load, run: i64) -> Begun {
        let mut prefixes = vec![ledger::load_prefix(&self.settings, &load.id)];
        // The files of an abandoned load that its records name are in the table, unless it was to replace
        // all rows: then none of them is.
        let mut named: HashSet<String> = HashSet::new();
        let other = before.head.as_ref().filter(|head| !head.is_of(&load.id));
        if let Some((head, other)) = other.and_then(|head| Some((head, head.load.as_ref()?))) {
            prefixes.push(ledger::load_prefix(&self.settings, &other.id));
            let is_pending = head.is_replace && !other.is_finished;
            if !is_pending {
                named.extend(files(before).map(|file| file.path.clone()));
            }
        }
        named.extend(files(now).map(|file| file.path.clone()));
        Begun { named, prefixes, dead: now.dead().cloned().collect(), run }
    }

    /// Removes what earlier runs of this load and of the one before it left.
    async fn sweep(&self, begun: Begun) -> Result<()> {
        let is_left = |name: &str| {
            let run = begun.prefixes.iter().find_map(|prefix| ledger::run_of(name, prefix));
            run.is_some_and(|run| run < begun.run)
        };
        for room in [Room::Shown, Room::Dead, Room::Staging] {
            let kept = if room == Room::Dead { &begun.dead } else { &begun.named };
            let left = self.store.list(room).await?.into_iter().map(|file| file.name);
            let left: Vec<String> = match room {
                // The run that writes here holds the claim, and has staged nothing yet.
                Room::Staging => left.collect(),
                _ => left
                    .filter(|name| store::is_left(name) || is_left(name) && !kept.contains(name))
                    .collect(),
            };
            for name in &left {
                let file = self.store.display(room, name);
                tracing::info!(?file, "removing a file that belongs to no load");
            }
            self.store.remove(room, left).await?;
        }
        Ok(())
    }

    /// Works on a thread that may block, in the table that was prepared.
    pub(super) async fn with_prepared<T: Send + 'static>(
        self: &Arc<Self>,
        load: &Load,
        work: impl FnOnce(&Self, &mut Prepared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (shared, load) = (Arc::clone(self), load.id.clone());
        blocking(move || {
            let mut guard = shared.prepared.lock();
            let prepared = guard.as_mut().filter(|prepared| prepared.load == load);
            let prepared = prepared.ok_or_else(|| ConnectorError::Refused {
                act: format!("write to {}", shared.display),
                source: format!("the load {load} is not the one that was prepared").into(),
            })?;
            work(&shared, prepared)
        })
        .await
    }

    /// Commits in the table that was prepared.
    async fn change(
        self: &Arc<Self>,
        load: &Load,
        change: impl FnOnce(&Self, &Prepared) -> Result<Change> + Send + 'static,
    ) -> Result<()> {
        self.with_prepared(load, |shared, prepared| {
            let change = change(shared, prepared)?;
            let Prepared { table, known, .. } = prepared;
            table.commit(known, &change, &shared.settings).map(drop)
        })
        .await
    }

    /// Commits the record of a unit, and its file unless the load replaces all rows.
    pub(super) async fn commit_unit(self: &Arc<Self>, load: &Load, unit: Committed) -> Result<()> {
        self.change(load, move |shared, _| {
            let domain = unit_domain(&shared.settings, &unit.entry.unit);
            let files = unit.file.iter().filter(|_| !shared.is_replace).cloned().collect();
            let record = (domain, encode(&unit)?);
            Ok(Change { record, files, ..Change::default() })
        })
        .await
    }

    /// Ends a load.
    async fn end(self: &Arc<Self>, load: &Load) -> Result<()> {
        let finished = Load { is_finished: true, ..load.clone() };
        let pending = match self.is_replace {
            true => self.pending(load).await?,
            false => Vec::new(),
        };
        if self.is_replace {
            self.note_replaced(load).await?;
        }
        self.change(load, move |shared, prepared| {
            let mut head = Head::new(&shared.settings, &finished, shared.is_replace, prepared.run);
            head.dead.clone_from(&prepared.dead);
            let record = (load_domain(&shared.settings), encode(&head)?);
            let is_replace = shared.is_replace;
            Ok(Change { record, files: pending, is_replace, ..Change::default() })
        })
        .await
    }

    /// Writes the list of this stream's files that the end of the load takes out of the table.
    async fn note_replaced(self: &Arc<Self>, load: &Load) -> Result<()> {
        if self.upkeep.keep_removed.is_none() {
            return Ok(());
        }
        let there = self.with_prepared(load, |shared, prepared| {
            let there = prepared.table.files(&prepared.table.present()?)?.into_iter();
            let there = there.map(|file| file.path);
            let own = there.filter(|path| ledger::is_data_file(&shared.settings, path));
            Ok(own.collect::<Vec<_>>())
        });
        self.note_removed(&there.await?, None).await
    }

    /// The files of a load that replaces all rows, which all have to exist.
    async fn pending(self: &Arc<Self>, load: &Load) -> Result<Vec<DataFile>> {
        let shared = Arc::clone(self);
        let id = load.id.clone();
        let (pending, is_finished) = blocking(move || {
            let table = shared.table()?;
            let state = table.state(&shared.settings)?;
            let ledger = state.map(|state| state.ledger).unwrap_or_default();
            let head = ledger.head.as_ref().filter(|head| head.is_of(&id));
            let is_finished = head.is_some_and(Head::is_finished);
            Ok((files(&ledger).cloned().collect::<Vec<_>>(), is_finished))
        })
        .await?;
        if is_finished {
            return Ok(pending);
        }
        let listed = self.store.list(Room::Shown).await?;
        let listed: HashSet<(String, u64)> =
            listed.into_iter().map(|file| (file.name, file.size)).collect();
        match pending.iter().find(|file| !listed.contains(&(file.path.clone(), file.bytes))) {
            Some(file) => Err(ConnectorError::data(
                self.store.display(Room::Shown, &file.path),
                "it was removed before the load ended, perhaps by VACUUM; run `forebay pipeline reset` to copy \
                 everything again",
            )),
            None => Ok(pending),
        }
    }

    /// Adds the rows of the newest version.
    fn hash(&self, table: &Table, snapshot: &SnapshotRef) -> Result<ContentHash> {
        let failed = |error| table.failed("read", error);
        let mut hasher = Hasher::new(&self.columns)?;
        let logical = snapshot.schema();
        let names: Vec<&str> = self.columns.iter().map(|column| &*column.name).collect();
        let names: Vec<&str> = names.into_iter().filter(|name| logical.contains(name)).collect();
        let projected = logical.project(&names).map_err(failed)?;
        let scan = Arc::clone(snapshot).scan_builder().with_schema(projected).build();
        for data in scan.map_err(failed)?.execute(table.engine()?).map_err(failed)? {
            let batch = batch_of(data.map_err(failed)?).map_err(failed)?;
            let rows = batch.num_rows();
            let arrays = self
                .columns
                .iter()
                .map(|column| types::from_stored(batch.column_by_name(&column.name), column, rows));
            let arrays = arrays.collect::<Result<Vec<_>>>()?;
            let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
            let batch =
                RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options);
            hasher.add(
                &batch.map_err(|error| ConnectorError::data(self.stream(), error.to_string()))?,
            )?;
        }
        Ok(hasher.content())
    }
}

/// The files that the records of units name.
fn files(ledger: &Ledger) -> impl Iterator<Item = &DataFile> {
    ledger.units.values().filter_map(|unit| unit.file.as_ref())
}

/// The entries of units, in the order of their names.
pub(super) fn entries(ledger: Ledger) -> Vec<LedgerEntry> {
    ledger.units.into_values().map(|unit| unit.entry).collect()
}

#[async_trait]
impl Target for TableTarget {
    fn plan(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn takes_tuples(&self) -> bool {
        false
    }

    async fn prepare(&self, load: &Load) -> Result<()> {
        let (shared, begun) = (Arc::clone(&self.shared), load.clone());
        let begun = blocking(move || shared.begin(&begun)).await?;
        self.shared.sweep(begun).await
    }

    async fn writer(&self, load: &Load, unit: &Unit) -> Result<Box<dyn UnitWriter>> {
        let (shared, load, unit) = (Arc::clone(&self.shared), load.clone(), unit.clone());
        // Another unit may hold the lock while it commits.
        blocking(move || {
            let prepared = shared.prepared.lock();
            let prepared = prepared.as_ref().filter(|prepared| prepared.load == load.id);
            let prepared = prepared.ok_or_else(|| ConnectorError::Refused {
                act: format!("write to {}", shared.display),
                source: format!("the load {} is not the one that was prepared", load.id).into(),
            })?;
            let writer = TableWriter::new(&shared, &prepared.shape, &load, prepared.run, &unit)?;
            Ok(Box::new(writer) as Box<dyn UnitWriter>)
        })
        .await
    }

    async fn finish(&self, load: &Load) -> Result<()> {
        self.shared.end(load).await?;
        self.shared.keep_up(load).await;
        Ok(())
    }

    fn stored(&self) -> Option<Vec<Column>> {
        self.shared.chosen.is_partial().then(|| self.shared.columns.to_vec())
    }

    fn as_stored(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        self.shared.chosen.batch(self.shared.stream(), rows)
    }

    async fn content(&self) -> Result<ContentHash> {
        let shared = Arc::clone(&self.shared);
        blocking(move || {
            let table = shared.table()?;
            match table.snapshot()? {
                Some(snapshot) => shared.hash(&table, &snapshot),
                None => Ok(ContentHash::default()),
            }
        })
        .await
    }
}
