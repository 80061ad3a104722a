//! Opening the streams of a run: the units, the form of rows, and the transforms.
//!
//! Invariants:
//! * A stream that continues a load is opened with that load's own units, or not at all.
//! * A load whose units are all committed is only ended. Nothing of it is read again, so its units
//!   need not be reproduced: a query's result has none of its source's.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_pgcopy::Column;
use forebay_sdk::ConnectorError;
use forebay_sdk::connector::{Cursor, Division, Form, Load, Opening, SourceStream, Target};
use forebay_sdk::run::Context;
use forebay_sdk::settings::{StreamSettings, SyncMode, TargetSettings, WriteMode};
use futures_util::future::join;
use xxhash_rust::xxh3::xxh3_64;

use super::engine::{Options, Pipeline};
use super::round::{History, LastLoad};
use super::{columns, fields};
use crate::error::RunError;
use crate::transform::{self, TransformSettings};

/// An open stream of the source, and what is known of its target.
pub(super) struct Opened {
    pub(super) stream: Arc<dyn SourceStream>,
    pub(super) settings: TargetSettings,
    /// Its target, if it was inspected for these columns.
    target: Option<Arc<dyn Target>>,
    /// Division into units and settings of its source: a load can only be continued if they are the
    /// same.
    pub(super) source: String,
    /// The columns of its source, as a load records them.
    pub(super) columns: String,
    /// Whether the columns of its source are those that are written.
    pub(super) is_untransformed: bool,
    /// The fields of its cursor, as a load records them.
    pub(super) fields: Option<fields::Fields>,
    /// A load to continue, and its committed units.
    pub(super) resumed: Option<LastLoad>,
    /// An incremental load of an earlier run whose units are all committed: it is ended before this
    /// run reads what is newer.
    pub(super) to_end: Option<Load>,
    /// The load that is finished already, in a run that continues another one.
    pub(super) finished: Option<LastLoad>,
    /// Whether it is copied completely, and not from the last cursor.
    pub(super) is_whole: bool,
    pub(super) since: Option<Cursor>,
    pub(super) form: Form,
    pub(super) has_history: bool,
}

impl Opened {
    /// Its target.
    pub(super) async fn target(
        &self,
        pipeline: &Pipeline<'_>,
        context: &Context,
    ) -> Result<Arc<dyn Target>, ConnectorError> {
        match &self.target {
            Some(target) => Ok(Arc::clone(target)),
            None => pipeline.destination.open(&self.settings, self.stream.columns(), context).await,
        }
    }
}

impl Pipeline<'_> {
    /// Opens every stream, and applies the transforms.
    pub(super) async fn open(
        &self,
        options: &Options,
        history: &History,
        form: Form,
        context: &Context,
    ) -> Result<Vec<Opened>, RunError> {
        let is_transformed = !self.file.transforms.is_empty();
        let form = match form {
            Form::Tuples if is_transformed => Form::Records,
            other => other,
        };
        let mut opened = Vec::new();
        for stream in &self.file.source.streams {
            let one = self.open_one(stream, options, history, form, context).await;
            opened.push(one.map_err(|error| RunError::of(&stream.name, error))?);
        }
        if is_transformed {
            opened = self.transform(opened, options, history, context).await?;
        }
        self.check_apart(&opened).await?;
        Ok(opened)
    }

    /// Refuses to write a table that is read: the run would wait for itself, or read what it wrote.
    async fn check_apart(&self, opened: &[Opened]) -> Result<(), RunError> {
        if self.file.source.uses != self.file.destination.uses {
            return Ok(());
        }
        let mut read = HashMap::new();
        for stream in &self.file.source.streams {
            let place = self.source.place(stream).await;
            let place = place.map_err(|error| RunError::of(&stream.name, error))?;
            read.extend(place.map(|place| (place, &stream.name)));
        }
        for target in opened.iter().map(|one| &one.settings) {
            let of_stream = |error| RunError::of(&target.stream, error);
            let place = self.destination.place(target).await.map_err(of_stream)?;
            if let Some(name) = place.and_then(|place| read.get(&place)) {
                return Err(of_stream(ConnectorError::unsupported(
                    format!(
                        "{name:?} would be read and written: source and destination are one table"
                    ),
                    "specify another database or schema for the destination, or another name with `into`",
                )));
            }
        }
        Ok(())
    }

    async fn transform(
        &self,
        mut opened: Vec<Opened>,
        options: &Options,
        history: &History,
        context: &Context,
    ) -> Result<Vec<Opened>, RunError> {
        let inputs = opened.iter().map(|one| (one.settings.into.clone(), Arc::clone(&one.stream)));
        let made =
            transform::apply(&self.file.transforms, inputs.collect(), self.budget(), context).await;
        let made = made.map_err(|error| RunError::of("transforms", error))?;
        let is_kept = |one: &&Opened| made.iter().any(|(into, _)| *into == one.settings.into);
        if let Some(lost) = opened.iter().filter(|one| !one.is_whole).find(|one| !is_kept(one)) {
            // The cursor is recorded with the stream of the result, and read with its own.
            let error = ConnectorError::unsupported(
                format!(
                    "{:?}, which is read incrementally, has another name after the transforms",
                    lost.settings.into
                ),
                "remove `into` from the query, or set `sync_mode: full_refresh`",
            );
            return Err(RunError::of(&lost.settings.stream, error));
        }
        let mut transformed = Vec::with_capacity(made.len());
        for (into, stream) in made {
            let before = opened.iter().position(|one| one.settings.into == into);
            transformed.push(match before.map(|before| opened.swap_remove(before)) {
                Some(before) => Opened {
                    form: Form::Records,
                    finished: history.finished(&before.settings.stream).cloned(),
                    target: None,
                    stream,
                    ..before
                },
                None => self
                    .result(into, stream, options, history)
                    .map_err(|error| RunError::of("transforms", error))?,
            });
        }
        Ok(transformed)
    }

    /// The result of a query, under a name that no stream of the source has.
    fn result(
        &self,
        into: String,
        stream: Arc<dyn SourceStream>,
        options: &Options,
        history: &History,
    ) -> Result<Opened, ConnectorError> {
        let settings = self.target_settings(&into, &into);
        let source = fingerprint_of_result(&settings, &self.file.transforms);
        let last = history.last(&settings.stream);
        let resumed = last.map(|last| resumable(last, &source, &settings, true, options, history));
        Ok(Opened {
            resumed: resumed.transpose()?.flatten(),
            to_end: None,
            finished: history.finished(&settings.stream).cloned(),
            is_whole: true,
            since: None,
            form: Form::Records,
            has_history: last.is_some(),
            target: None,
            columns: columns::recorded(stream.columns()),
            is_untransformed: false,
            fields: None,
            stream,
            settings,
            source,
        })
    }

    /// The size of units if it should be smaller, now that the size of a row is known.
    fn smaller_units(&self, open: &dyn SourceStream, opening: &Opening) -> Option<u64> {
        let units = open.units().iter();
        let rows = units.clone().map(|unit| unit.rows).sum::<Option<u64>>()?;
        let bytes = units.map(|unit| unit.bytes).sum::<Option<u64>>()?;
        let size = self.file.resources.unit_size_of(rows, bytes);
        (size < opening.unit_size).then_some(size)
    }

    async fn open_one(
        &self,
        stream: &StreamSettings,
        options: &Options,
        history: &History,
        form: Form,
        context: &Context,
    ) -> Result<Opened, ConnectorError> {
        let settings = self.target_settings(&stream.name, stream.target());
        let source = fingerprint_of_settings(stream, &settings, &self.file.transforms);
        let is_whole = stream.sync_mode != SyncMode::Incremental;
        let finished = history.finished(&settings.stream).filter(|_| is_whole).cloned();
        let last = history.last(&settings.stream);
        let resumed =
            last.map(|last| resumable(last, &source, &settings, is_whole, options, history));
        let (resumed, to_end) = match resumed.transpose()?.flatten() {
            Some(last) if !is_whole && is_complete(&last) => (None, Some(last.0)),
            resumed => (resumed, None),
        };
        let since = last.filter(|_| !is_whole).and_then(|last| since(last, to_end.is_some()));
        if let Some(since) = &since {
            fields::check(since, stream)?;
        }
        let mut opening = Opening {
            form,
            since: since.clone(),
            division: division(resumed.as_ref(), settings.write_mode),
            unit_size: self.file.resources.unit_size(),
            batch_size: self.batch_size(form),
            memory: self.budget(),
            parallelism: self.parallelism(),
            snapshot: history.snapshot.clone(),
        };
        let opened = self.source.open(stream, &opening, context);
        let (opened, ()) = join(opened, self.destination.warm(&settings)).await;
        let mut open = opened?;
        let begun = begun(stream, resumed.as_ref(), open.columns(), context);
        let stream = begun.as_ref().unwrap_or(stream);
        if begun.is_some() {
            open = self.source.open(stream, &opening, context).await?;
        }
        if resumed.is_none()
            && let Some(size) = self.smaller_units(&*open, &opening)
        {
            opening.unit_size = size;
            open = self.source.open(stream, &opening, context).await?;
        }
        let (mut taken, mut target) = (form, None);
        if form == Form::Tuples {
            let found = self.destination.open(&settings, open.columns(), context).await?;
            if found.takes_tuples() {
                target = Some(found);
            } else {
                taken = Form::Records;
                let opening =
                    Opening { form: taken, batch_size: self.batch_size(taken), ..opening };
                open = self.source.open(stream, &opening, context).await?;
            }
        }
        Ok(Opened {
            columns: columns::recorded(open.columns()),
            is_untransformed: self.file.transforms.is_empty(),
            fields: fields::of(stream).filter(|_| !is_whole),
            stream: open,
            settings,
            target,
            source,
            resumed,
            to_end,
            finished,
            is_whole,
            since,
            form: taken,
            has_history: last.is_some(),
        })
    }
}

/// How the units of a load are divided.
fn division(resumed: Option<&LastLoad>, mode: WriteMode) -> Division {
    match (resumed, mode) {
        (Some(last), _) if !is_complete(last) => Division::As(last.0.units.clone()),
        (_, WriteMode::Append) => Division::Stable,
        (_, WriteMode::Replace | WriteMode::Upsert) => Division::Any,
    }
}

/// Where an incremental load begins to read: after the last one if that was read to its end.
fn since((load, _): &LastLoad, to_end: bool) -> Option<Cursor> {
    if load.is_finished || to_end { load.cursor.clone() } else { load.since.clone() }
}

/// The stream with the columns that its unfinished load began with, if the source has others now:
/// the destination was prepared for those.
fn begun(
    stream: &StreamSettings,
    resumed: Option<&LastLoad>,
    columns: &[Column],
    context: &Context,
) -> Option<StreamSettings> {
    let (load, _) = resumed.filter(|last| !is_complete(last))?;
    let columns = columns::began_with(load, columns)?;
    context.warn(&format!(
        "the columns of {} have changed: its unfinished load is completed with those it began with, \
         the next one has the others",
        stream.name
    ));
    Some(StreamSettings { columns, ..stream.clone() })
}

/// Whether all units of a load are committed.
pub(super) fn is_complete((load, entries): &LastLoad) -> bool {
    load.units.iter().all(|unit| entries.iter().any(|entry| entry.unit == unit.name))
}

/// The last load of a stream, if this run continues it.
fn resumable(
    last: &LastLoad,
    source: &str,
    settings: &TargetSettings,
    is_whole: bool,
    options: &Options,
    history: &History,
) -> Result<Option<LastLoad>, ConnectorError> {
    let (load, entries) = last;
    if load.is_finished || entries.is_empty() {
        return Ok(None);
    }
    let is_same = load.fingerprint.starts_with(source);
    let is_meant = !is_whole || load.round.id == history.round.id;
    let can_continue = load.is_stable || is_complete(last);
    if is_same && is_meant && can_continue && !options.from_scratch {
        return Ok(Some(last.clone()));
    }
    if settings.write_mode != WriteMode::Append {
        return Ok(None);
    }
    let (because, advice) = if is_same && is_meant && can_continue {
        ("starting over would append their rows again", "let the load finish")
    } else {
        ("the pipeline was changed since", "restore the pipeline and let the load finish")
    };
    Err(ConnectorError::unsupported(
        format!(
            "{} of {} units of an unfinished load are already in {}, and {because}",
            entries.len(),
            load.units.len(),
            settings.into
        ),
        format!("{advice}, or remove those rows and run `forebay pipeline reset`"),
    ))
}

/// What must be equal for a load to be continued, except for its columns.
fn fingerprint_of_settings(
    stream: &StreamSettings,
    target: &TargetSettings,
    transforms: &[TransformSettings],
) -> String {
    let said = format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {}",
        stream.sync_mode,
        stream.cursor_field,
        stream.tie_breaker_field,
        stream.partition_key,
        target.into,
        target.write_mode,
        transform::fingerprint(transforms)
    );
    format!("{:016x}", xxh3_64(said.as_bytes()))
}

/// The same for the result of a query, which has no stream in the source.
fn fingerprint_of_result(target: &TargetSettings, transforms: &[TransformSettings]) -> String {
    let said =
        format!("{:?} {:?} {}", target.into, target.write_mode, transform::fingerprint(transforms));
    format!("{:016x}", xxh3_64(said.as_bytes()))
}
