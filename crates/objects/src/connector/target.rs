//! A directory of files as a destination.
//!
//! A unit is written as one staged file. To commit it, the file is published, and then the ledger
//! is replaced by one that lists it: this makes the unit valid. A run that is killed in between
//! leaves a file that the ledger does not list, which the next load removes before it starts, once
//! it has found the ledger to be intact (`damage.rs`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use forebay_pgcopy::column::schema;
use forebay_pgcopy::{Column, ContentHash};
use forebay_sdk::bridge::blocking;
use forebay_sdk::chosen::Chosen;
use forebay_sdk::connector::{LedgerEntry, Load, Result, Target, Unit, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{NewColumn, RemovedColumn, TargetSettings, WriteMode};
use tokio::sync::Mutex;

use super::conform::conform;
use super::damage::{self, Unlisted};
use super::feed::is_log;
use super::format::{Layout, Part, Reading};
use super::ledger::{self, Ledger, PartFile, file_name};
use super::location::{Listed, Location};
use super::store::{Room, Store, Version};
use super::writer::FileWriter;

/// Size of a batch in bytes when files are read back.
const READ_BACK_SIZE: usize = 1 << 20;
/// Memory for reading one back: it was written here, with pages of 1 MiB.
const READ_BACK_MEMORY: usize = 256 << 20;

/// Name of the unit whose file has the columns of a load without rows.
const NO_ROWS: &str = "no rows";

/// The target of a stream's files.
pub(super) struct FileTarget {
    pub(super) shared: Arc<Shared>,
    notes: Vec<String>,
}

/// State shared by a target and its writers.
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) layout: Arc<dyn Layout>,
    /// The columns that are stored.
    pub(super) columns: Arc<[Column]>,
    /// The same, and where they are in a batch.
    pub(super) chosen: Chosen,
    pub(super) schema: SchemaRef,
    pub(super) is_replace: bool,
    pub(super) context: Context,
    pub(super) settings: TargetSettings,
    /// The current ledger. The lock is held while it is replaced: that is its purpose.
    ledger: Mutex<Known>,
}

/// What is known of the ledger.
#[derive(Default)]
struct Known {
    /// The ledger and its version; `None` if a replacement failed with unknown outcome.
    ledger: Option<(Ledger, Option<Version>)>,
    /// The number of runs, including the one that prepared this target.
    runs: Option<u64>,
}

/// Reads the ledger of a stream; an empty one if there is none.
pub(super) async fn read_ledger(
    store: &dyn Store,
    settings: &TargetSettings,
) -> Result<(Ledger, Option<Version>)> {
    let place = store.display(Room::Shown, "");
    let (ledger, version) = match store.ledger().await? {
        Some((bytes, version)) => {
            (Ledger::decode(&bytes, &format!("the ledger of {place}"))?, version)
        }
        None => return Ok((Ledger::new(&settings.pipeline, &settings.stream), None)),
    };
    if ledger.pipeline != settings.pipeline || ledger.stream != settings.stream {
        let Ledger { pipeline, stream, .. } = &ledger;
        return Err(ConnectorError::unsupported(
            format!("{place} is written by the pipeline {pipeline:?} from its stream {stream:?}"),
            "give this stream another directory with `into`, or remove that one and its state in \
             `_forebay`",
        ));
    }
    Ok((ledger, Some(version)))
}

impl FileTarget {
    pub(super) async fn open(
        store: Arc<dyn Store>,
        layout: Arc<dyn Layout>,
        settings: &TargetSettings,
        columns: &[Column],
        context: &Context,
    ) -> Result<Self> {
        let (ledger, _) = read_ledger(&*store, settings).await?;
        let is_replace = settings.write_mode == WriteMode::Replace;
        check_names(columns)?;
        let chosen = stored(&ledger, settings, columns)?;
        let columns = chosen.columns();
        if !is_replace {
            check_columns(&ledger, settings, columns, &*layout)?;
        }
        let place = store.display(Room::Shown, "");
        let mut notes = vec![match is_replace {
            true => format!("write new files and replace those in {place}"),
            false => format!("add files to {place}"),
        }];
        notes.extend(layout.notes(columns));
        let shared = Shared {
            store,
            layout,
            columns: columns.into(),
            schema: Arc::new(schema(columns)),
            chosen: chosen.clone(),
            is_replace,
            context: context.clone(),
            settings: settings.clone(),
            ledger: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared), notes })
    }
}

/// Checks that column names are unique.
fn check_names(columns: &[Column]) -> Result<()> {
    let mut names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
    names.sort_unstable();
    match names.array_windows().find(|[one, next]| one == next) {
        Some([twice, _]) => Err(ConnectorError::unsupported(
            format!("two columns are named {twice:?}"),
            "select the stream's `columns`, or rename one of them in a transform",
        )),
        None => Ok(()),
    }
}

/// The columns that are stored: all but those that the existing files lack, if they are ignored.
fn stored(ledger: &Ledger, settings: &TargetSettings, columns: &[Column]) -> Result<Chosen> {
    let is_ignored = settings.schema_evolution.new_column == NewColumn::Ignore
        && settings.write_mode != WriteMode::Replace
        && !ledger.files.is_empty();
    let is_there = |column: &Column| ledger.columns.iter().any(|kept| kept.name == column.name);
    let chosen = Chosen::of(columns, |column| !is_ignored || is_there(column));
    match chosen.columns() {
        [] if !columns.is_empty() => Err(ConnectorError::unsupported(
            format!("the existing files of {} have none of the source's columns", settings.into),
            "give the stream another directory with `into`",
        )),
        _ => Ok(chosen),
    }
}

/// Checks that columns are compatible with those of the existing files.
fn check_columns(
    ledger: &Ledger,
    settings: &TargetSettings,
    columns: &[Column],
    layout: &dyn Layout,
) -> Result<()> {
    if ledger.files.is_empty() {
        return Ok(());
    }
    let refuse = |what: String, way_out: &str| Err(ConnectorError::unsupported(what, way_out));
    let evolution = settings.schema_evolution;
    for column in columns {
        let Column { name, sql_type, .. } = column;
        match ledger.columns.iter().find(|kept| kept.name == *name) {
            Some(kept) if kept.sql_type != *sql_type => {
                return refuse(
                    format!(
                        "column {name:?} is {} in the existing files, but {sql_type} in the source",
                        kept.sql_type
                    ),
                    "cast it in a transform, or use `write_mode: replace`",
                );
            }
            None if evolution.new_column == NewColumn::Fail => {
                return refuse(
                    format!("the existing files have no column {name:?}"),
                    "set `schema_evolution.new_column: ignore`, or use `write_mode: replace`",
                );
            }
            None if !layout.columns_may_differ() => {
                return refuse(
                    format!(
                        "the existing files have no column {name:?}, and files of this format have \
                         the same columns"
                    ),
                    "set `schema_evolution.new_column: ignore`, or use `write_mode: replace`",
                );
            }
            _ => {}
        }
    }
    for kept in &ledger.columns {
        let is_here = columns.iter().any(|column| column.name == kept.name);
        let is_refused = evolution.removed_column == RemovedColumn::Fail;
        if !is_here && (is_refused || !layout.columns_may_differ()) {
            return refuse(
                format!(
                    "the existing files have a column {:?} that the source no longer has",
                    kept.name
                ),
                match layout.columns_may_differ() {
                    true => "set `schema_evolution.removed_column: ignore`",
                    false => "add it as NULL in a transform, or use `write_mode: replace`",
                },
            );
        }
    }
    Ok(())
}

impl Shared {
    /// The ledger that is stored; an empty one without a version if there is none.
    pub(super) async fn read_ledger(&self) -> Result<(Ledger, Option<Version>)> {
        read_ledger(&*self.store, &self.settings).await
    }

    /// The stream, for messages.
    pub(super) fn stream(&self) -> &str {
        &self.settings.stream
    }

    /// A batch with the columns of the target, of their types.
    pub(super) fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        conform(self.stream(), batch, &self.chosen, &self.columns, &self.schema)
    }

    /// Replaces the ledger by the result of `change`, or leaves it unchanged.
    async fn change<T>(&self, change: impl FnOnce(&mut Ledger) -> Result<T>) -> Result<T> {
        let mut known = self.ledger.lock().await;
        let (ledger, version) = match known.ledger.take() {
            Some(ledger) => ledger,
            None => self.read_ledger().await?,
        };
        if known.runs.is_some_and(|runs| runs != ledger.runs) {
            return Err(ConnectorError::Refused {
                act: format!("write to {}", self.store.display(Room::Shown, "")),
                source: "another run has started to write there".into(),
            });
        }
        let mut next = ledger.clone();
        let result = match change(&mut next) {
            Ok(result) => result,
            Err(error) => {
                known.ledger = Some((ledger, version));
                return Err(error);
            }
        };
        let bytes = next.encode()?;
        // If this fails or is abandoned, the ledger is read again before it is changed again.
        let version = self.store.put_ledger(bytes, version.as_ref()).await?;
        known.ledger = Some((next, Some(version)));
        Ok(result)
    }

    /// Lists the files of a unit in the ledger: this makes them valid.
    pub(super) async fn commit(
        &self,
        load: &Load,
        entry: LedgerEntry,
        file: Option<PartFile>,
        dead: Option<PartFile>,
    ) -> Result<LedgerEntry> {
        self.change(|ledger| {
            if !ledger.has(load) {
                return Err(ConnectorError::Refused {
                    act: format!("commit the unit {:?}", entry.unit),
                    source: format!("the load {} is not the one that was prepared", load.id).into(),
                });
            }
            let files = match &mut ledger.next {
                Some(next) => &mut next.files,
                None => &mut ledger.files,
            };
            // A unit whose commit got no answer is committed again, but not twice.
            files.retain(|kept| Some(&kept.name) != file.as_ref().map(|file| &file.name));
            files.extend(file);
            ledger.dead.retain(|kept| Some(&kept.name) != dead.as_ref().map(|dead| &dead.name));
            ledger.dead.extend(dead);
            ledger.entries.retain(|kept| kept.unit != entry.unit);
            ledger.entries.push(entry.clone());
            Ok(entry)
        })
        .await
    }

    /// Completes a switch if one was started.
    async fn settle(&self) -> Result<()> {
        let (ledger, _) = self.read_ledger().await?;
        let Some(next) = ledger.next.filter(|_| ledger.is_switching) else { return Ok(()) };
        let names = next.files.iter().map(|file| file.name.clone()).collect();
        self.store.switch(names).await?;
        self.change(|ledger| {
            ledger.columns = next.columns;
            ledger.files = next.files;
            ledger.next = None;
            ledger.is_switching = false;
            if let Some(load) = &mut ledger.load {
                load.is_finished = true;
            }
            Ok(())
        })
        .await?;
        self.sweep(Unlisted::Remove).await
    }

    /// Removes what killed runs left: files of loads that the ledger does not list. `shown` is
    /// what may be done with those where readers look.
    async fn sweep(&self, shown: Unlisted) -> Result<()> {
        let (ledger, _) = self.read_ledger().await?;
        let next = ledger.next.as_ref().map_or(&[][..], |next| &next.files);
        let rooms = [
            (Room::Shown, &ledger.files[..]),
            (Room::Next, next),
            (Room::Dead, &ledger.dead),
            (Room::Staging, &[]),
        ];
        for (room, named) in rooms {
            if room == Room::Shown && shown == Unlisted::Keep {
                continue;
            }
            let named: HashSet<&str> = named.iter().map(|file| &*file.name).collect();
            let left = self.store.list(room).await?.into_iter().map(|file| file.name);
            let left = left.filter(|name| !named.contains(&**name));
            let left: Vec<String> = match room {
                // Other programs may put their files where readers look.
                Room::Shown => left.filter(|name| ledger::is_ours(name)).collect(),
                _ => left.collect(),
            };
            for name in &left {
                let file = self.store.display(room, name);
                tracing::info!(?file, "removing a file that belongs to no load");
            }
            self.store.remove(room, left).await?;
        }
        Ok(())
    }

    /// Refuses a directory with files of other programs, which readers would mistake for rows of
    /// the load.
    async fn check_foreign(&self) -> Result<()> {
        let ending = format!(".{}", self.layout.ending());
        let shown = self.store.list(Room::Shown).await?;
        let foreign = shown.iter().find(|file| {
            let is_hidden = file.name.starts_with(['.', '_']);
            let is_ours = ledger::is_ours(&file.name) || is_log(&file.name);
            !is_hidden && !is_ours && file.name.ends_with(&ending)
        });
        match foreign {
            Some(file) => Err(ConnectorError::unsupported(
                format!(
                    "{} exists, but no load wrote it",
                    self.store.display(Room::Shown, &file.name)
                ),
                "give the stream a separate directory with `into`",
            )),
            None => Ok(()),
        }
    }
}

impl Shared {
    /// Writes a file without rows if the stream would have no file, so that its readers find the
    /// columns.
    async fn columns_only(&self, load: &Load) -> Result<Option<PartFile>> {
        let (ledger, _) = self.read_ledger().await?;
        let files = ledger.next.as_ref().map_or(&ledger.files, |next| &next.files);
        if !self.layout.keeps_columns() || !files.is_empty() || !ledger.has(load) {
            return Ok(None);
        }
        let mut out = Vec::new();
        self.layout.encode(&self.columns)?.finish(&mut out)?;
        let name = file_name(load, NO_ROWS, &self.layout.ending());
        let room = if ledger.next.is_some() { Room::Next } else { Room::Shown };
        let mut file = self.store.stage(room, &name).await?;
        file.write(&mut out).await?;
        Ok(Some(PartFile { name, rows: 0, bytes: file.publish().await? }))
    }

    /// Adds the rows of a file.
    fn hash_file(&self, place: &Location, file: &Listed, hasher: &mut Hasher) -> Result<()> {
        let opened = place.open(file)?.within(READ_BACK_MEMORY);
        let part = Part::whole(opened.size);
        let reading = Reading {
            file: &opened,
            part: &part,
            columns: &self.columns,
            is_projection: true,
            batch_size: READ_BACK_SIZE,
        };
        self.layout.format(&self.columns).read(&reading, &mut |batch| hasher.add(&batch))
    }
}

#[async_trait]
impl Target for FileTarget {
    fn plan(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn takes_tuples(&self) -> bool {
        false
    }

    async fn prepare(&self, load: &Load) -> Result<()> {
        let shared = &self.shared;
        // Earlier knowledge is void: another run may have written since.
        *shared.ledger.lock().await = Known::default();
        let unlisted = shared.check_damage(load).await?;
        shared.settle().await?;
        shared.check_foreign().await?;
        let columns = ledger::kept(&shared.columns);
        let begin = |ledger: &mut Ledger| {
            // What another run read before is no longer the ledger.
            ledger.runs += 1;
            if !ledger.has(load) {
                ledger.begin(load, columns, shared.is_replace);
            }
            Ok(ledger.runs)
        };
        let runs = shared.change(begin).await?;
        shared.ledger.lock().await.runs = Some(runs);
        shared.sweep(unlisted).await
    }

    async fn writer(&self, load: &Load, unit: &Unit) -> Result<Box<dyn UnitWriter>> {
        Ok(Box::new(FileWriter::new(&self.shared, load, unit)?))
    }

    async fn finish(&self, load: &Load) -> Result<()> {
        let shared = &self.shared;
        let columns_only = shared.columns_only(load).await?;
        shared
            .change(|ledger| {
                if !ledger.has(load) {
                    return Err(ConnectorError::Refused {
                        act: "finish the load".into(),
                        source: format!("the load {} is not the one that was prepared", load.id)
                            .into(),
                    });
                }
                let is_aside = ledger.next.is_some();
                let files = match &mut ledger.next {
                    Some(next) => &mut next.files,
                    None => &mut ledger.files,
                };
                files.extend(columns_only);
                ledger.is_switching = is_aside;
                ledger.load = Some(Load { is_finished: !is_aside, ..load.clone() });
                Ok(())
            })
            .await?;
        shared.settle().await
    }

    fn stored(&self) -> Option<Vec<Column>> {
        self.shared.chosen.is_partial().then(|| self.shared.columns.to_vec())
    }

    fn as_stored(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        self.shared.chosen.batch(self.shared.stream(), rows)
    }

    async fn content(&self) -> Result<ContentHash> {
        let (ledger, version) = self.shared.read_ledger().await?;
        let (store, into) = (&*self.shared.store, &*self.shared.settings.into);
        if version.is_none() {
            damage::refuse_orphans(store, into).await?;
        }
        // While files replace others, the new ones are valid, and are in one room or the other.
        let (files, rooms) = match ledger.next.filter(|_| ledger.is_switching) {
            Some(next) => (next.files, &[Room::Shown, Room::Next][..]),
            None => (ledger.files, &[Room::Shown][..]),
        };
        let mut listed = HashMap::new();
        for room in rooms {
            for file in self.shared.store.list(*room).await? {
                listed.insert((file.name.clone(), file.size), (*room, file));
            }
        }
        let mut hasher = Hasher::new(&self.shared.columns)?;
        for file in files {
            let Some((room, found)) = listed.remove(&(file.name.clone(), file.bytes)) else {
                return Err(damage::absent(store, Room::Shown, &file, into));
            };
            let shared = Arc::clone(&self.shared);
            hasher = blocking(move || {
                shared.hash_file(&shared.store.place(room), &found, &mut hasher)?;
                Ok(hasher)
            })
            .await?;
        }
        Ok(hasher.content())
    }
}
