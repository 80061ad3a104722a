//! Reading a collection: ranges of ids, or what is new since the last run.
//!
//! A single server has no snapshot that several reads share. A document written while a stream is
//! read may or may not be included, and a changed one is included in its old or new state, but
//! never a mixture. If nothing writes to a collection, every reading is the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{RecordBatch, RecordBatchOptions};
use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_pgcopy::column::schema;
use forebay_sdk::batch::Rows;
use forebay_sdk::connector::{Cursor, Division, Opening, Result, SourceStream, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Context, Outlet, Phase};
use forebay_sdk::settings::{StreamSettings, SyncMode};
use mongodb::Collection;
use mongodb::bson::raw::RawDocument;
use mongodb::bson::{Document, RawDocumentBuf, doc};

use super::connect::refused;
use super::decode::{Decoder, How, shown_id};
use super::extjson::Layout;
use super::infer::InferredColumn;
use super::order::{self, Last, Order};
use super::ranges::{self, Size};
use crate::settings::{Json, Settings, UnknownFields};

/// Maximum number of documents of a batch.
const BATCH_ROWS_MAX: usize = 64 << 10;
/// Minimum and maximum number of documents per request.
const FETCHED_MIN: u64 = 100;
const FETCHED_MAX: u64 = 20_000;

/// An open collection.
pub(super) struct MongoStream {
    collection: Collection<RawDocumentBuf>,
    columns: Vec<Column>,
    how: Vec<How>,
    /// The index of the column of a field; `None` for a known field that is not requested.
    places: HashMap<String, Option<usize>>,
    unknown: UnknownFields,
    /// The projection, if not all fields are requested.
    projection: Option<Document>,
    units: Vec<Unit>,
    /// The documents of each unit; `None` if there are none.
    filters: Vec<Option<Document>>,
    /// The sort order, if it matters.
    sort: Option<Document>,
    /// The documents with the last value of an incremental load.
    end: Option<Last>,
    cursor: Option<Cursor>,
    is_stable: bool,
    notes: Vec<String>,
    fetched: u32,
    batch_size: usize,
}

impl MongoStream {
    pub(super) async fn open(
        collection: Collection<RawDocumentBuf>,
        settings: &Settings,
        found: Vec<InferredColumn>,
        size: Size,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<Self> {
        let layout = Layout { style: settings.json_style, spaced: false };
        let mut places: HashMap<String, Option<usize>> =
            found.iter().map(|found| (found.column.name.clone(), None)).collect();
        let chosen = choose(found, stream)?;
        for (at, found) in chosen.iter().enumerate() {
            places.insert(found.column.name.clone(), Some(at));
        }
        let how = |found: &InferredColumn| How {
            layout,
            json: Json::Document,
            is_lenient: found.is_given,
        };
        let is_chosen = !stream.columns.is_empty();
        let mut notes: Vec<String> = chosen
            .iter()
            .filter_map(|found| Some(format!("{}: {}", found.column.name, found.note.as_ref()?)))
            .collect();
        let fetched = (opening.batch_size as u64) / size.document();
        let fetched = fetched.clamp(FETCHED_MIN, FETCHED_MAX);
        let mut opened = Self {
            how: chosen.iter().map(how).collect(),
            projection: is_chosen.then(|| projection(&chosen)),
            columns: chosen.into_iter().map(|found| found.column).collect(),
            places,
            unknown: settings.unknown_fields,
            units: Vec::new(),
            filters: Vec::new(),
            sort: None,
            end: None,
            cursor: None,
            is_stable: true,
            notes: Vec::new(),
            fetched: u32::try_from(fetched).unwrap_or(u32::MAX),
            batch_size: opening.batch_size,
            collection,
        };
        match stream.sync_mode {
            SyncMode::Incremental => opened.incremental(settings, stream, opening, context).await?,
            _ => {
                opened.units = ranges::plan(&opened.collection, size, opening).await?;
                let filters = opened.units.iter().map(|unit| ranges::filter(unit).map(Some));
                opened.filters = filters.collect::<Result<_>>()?;
                notes.push("documents written meanwhile may or may not be included".into());
            }
        }
        notes.append(&mut opened.notes);
        opened.notes = notes;
        Ok(opened)
    }

    /// Documents that are new since the last run, up to the current last one.
    async fn incremental(
        &mut self,
        settings: &Settings,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<()> {
        let field = stream.cursor_field.clone().unwrap_or_default();
        let before = opening.since.as_ref().and_then(|since| since.tie_breaker_field.as_deref());
        let tie_breaker = match stream.tie_breaker_field.as_deref().or(before) {
            Some(name) if name != field => Some(name.to_owned()),
            None if field != "_id" => Some("_id".to_owned()),
            _ => None,
        };
        for name in std::iter::once(&field).chain(&tie_breaker) {
            if !self.places.contains_key(name) {
                return Err(no_column(stream, name, self.places.keys()));
            }
        }
        self.is_stable = false;
        if let Division::As(units) = &opening.division {
            // Named, so that a load whose units are all committed can end; see `read`.
            self.units.clone_from(units);
            return Ok(());
        }
        let since = opening.since.as_ref();
        let order = Order::new(&self.collection, field, tie_breaker);
        self.notes.push(format!(
            "documents whose {} is later set to a value below one already read are missed",
            order.field
        ));
        let note = "documents whose cursor has no value, or one of another type, are read only \
                    by the first run";
        self.notes.push(note.into());
        if let Some(since) = since
            && let Some(warning) = order.unordered(since).await?
        {
            context.warn(&warning);
            self.notes.push(warning);
        }
        let Some(last) = order.last().await? else {
            self.cursor = since.cloned();
            // A stream that never had a document has one empty unit.
            if since.is_none() {
                self.units = vec![ranges::unit(None, None, None, None)];
                self.filters = vec![None];
            }
            return Ok(());
        };
        // Writers that obtained a smaller value before have time to write it.
        if since.is_none_or(|since| !Order::is_same_place(since, &last)) {
            tokio::time::sleep(settings.wait_for_late_writes.get()).await;
        }
        let may_repeat = opening.division == Division::Any;
        if let Some(since) = since.filter(|_| !may_repeat) {
            order.refuse_late(since).await?;
        }
        let last = order.counted(last).await?;
        self.cursor = Some(last.clone());
        if since.is_some_and(|since| since.is_at(&last)) {
            return Ok(());
        }
        self.filters = vec![Some(order.between(since, &last, may_repeat)?)];
        self.end = order.end(&last)?;
        self.sort = Some(order.sort(1));
        let from = since.map(|since| since.value.clone());
        let name =
            format!("{} {}..{}", order.field, from.as_deref().unwrap_or_default(), last.value);
        let to = Some(last.value);
        self.units = vec![Unit { name, from, to, rows: None, bytes: None }];
        Ok(())
    }

    /// Appends the fields of a document to columns.
    fn decode(&self, document: &RawDocument, row: &mut Row) -> Result<()> {
        row.number += 1;
        let place = |name: &str| {
            format!("{} {}, field {name:?}", self.collection.name(), shown_id(document))
        };
        let mut next = 0;
        for field in document {
            let (name, value) = field.map_err(|error| {
                let place = format!("{} {}", self.collection.name(), shown_id(document));
                ConnectorError::data(place, format!("its BSON is invalid: {error}"))
            })?;
            let name = name.as_str();
            // Most documents have their fields in the same order.
            let at = match self.columns.get(next) {
                Some(column) if column.name == name => Some(next),
                _ => match self.places.get(name) {
                    Some(at) => *at,
                    None if self.unknown == UnknownFields::Ignore => None,
                    None => {
                        let found = "it occurs in none of the examined documents; increase \
                                     `sample_documents`, add it to `types`, or set \
                                     `unknown_fields: ignore`";
                        return Err(ConnectorError::data(place(name), found));
                    }
                },
            };
            let Some(at) = at else { continue };
            next = at + 1;
            let (Some(decoder), Some(seen)) = (row.decoders.get_mut(at), row.seen.get_mut(at))
            else {
                continue;
            };
            if *seen == row.number {
                return Err(ConnectorError::data(place(name), "it occurs twice in the document"));
            }
            *seen = row.number;
            decoder.append(value).map_err(|found| {
                let way_out = "specify another type in `types`";
                ConnectorError::data(place(name), format!("{found}; {way_out}"))
            })?;
        }
        row.size += document.as_bytes().len();
        row.count += 1;
        let missing = row.seen.iter().zip(&mut row.decoders);
        for (_, decoder) in missing.filter(|(seen, _)| **seen != row.number) {
            decoder.null();
        }
        Ok(())
    }

    fn take(&self, row: &mut Row) -> Result<RecordBatch> {
        let arrays = row.decoders.iter_mut().map(Decoder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(row.count));
        let batch =
            RecordBatch::try_new_with_options(Arc::new(schema(&self.columns)), arrays, &options);
        (row.count, row.size) = (0, 0);
        batch.map_err(|error| ConnectorError::data(self.collection.name(), error.to_string()))
    }
}

/// The collected rows.
struct Row {
    decoders: Vec<Decoder>,
    /// The number of the last row that had a value in each column.
    seen: Vec<u64>,
    number: u64,
    count: usize,
    size: usize,
}

/// The columns a stream chooses, in its order.
fn choose(all: Vec<InferredColumn>, stream: &StreamSettings) -> Result<Vec<InferredColumn>> {
    if stream.columns.is_empty() {
        return Ok(all);
    }
    let choose = |name: &String| {
        let found = all.iter().find(|found| found.column.name == *name).cloned();
        found.ok_or_else(|| no_column(stream, name, all.iter().map(|found| &found.column.name)))
    };
    stream.columns.iter().map(choose).collect()
}

fn no_column<'a>(
    stream: &StreamSettings,
    name: &str,
    known: impl Iterator<Item = &'a String>,
) -> ConnectorError {
    let known: Vec<&str> = known.map(|name| &**name).take(50).collect();
    ConnectorError::unsupported(
        format!("none of the examined documents of {} has a field {name:?}", stream.name),
        format!("choose from {}, or add it to `types`", known.join(", ")),
    )
}

/// Only these fields. The id is always included, for messages.
fn projection(chosen: &[InferredColumn]) -> Document {
    let mut projection = doc! { "_id": 1 };
    for found in chosen {
        projection.insert(found.column.name.clone(), 1);
    }
    projection
}

#[async_trait]
impl SourceStream for MongoStream {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn units_are_stable(&self) -> bool {
        self.is_stable
    }

    fn cursor(&self) -> Option<Cursor> {
        self.cursor.clone()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        let name = self.collection.name();
        let Some(filter) = self.filters.get(unit) else {
            return Err(ConnectorError::unsupported(
                format!("{name}: the units of an incremental load cannot be read again"),
                "run with `--from-scratch` to load it from the beginning",
            ));
        };
        let Some(filter) = filter else { return Ok(()) };
        let act = |error| refused(format!("read {name}"), error);
        let mut find = self.collection.find(filter.clone()).batch_size(self.fetched);
        if let Some(sort) = &self.sort {
            find = find.sort(sort.clone());
        }
        if let Some(projection) = &self.projection {
            find = find.projection(projection.clone());
        }
        let phases = Arc::clone(&out.context().phases);
        let asked = Instant::now();
        let mut found = find.await.map_err(act)?;
        phases.add(Phase::Query, asked);
        let decoders = self.columns.iter().zip(&self.how);
        let decoders = decoders.map(|(column, how)| Decoder::new(column, *how)).collect();
        let seen = vec![0; self.columns.len()];
        let mut row = Row { decoders, seen, number: 0, count: 0, size: 0 };
        let mut begun = Instant::now();
        while found.advance().await.map_err(act)? {
            self.decode(found.current(), &mut row)?;
            if row.size >= self.batch_size || row.count == BATCH_ROWS_MAX {
                let batch = self.take(&mut row)?;
                phases.add(Phase::Fetch, begun);
                out.send(Rows::Records(batch)).await?;
                begun = Instant::now();
            }
        }
        let batch = self.take(&mut row)?;
        phases.add(Phase::Fetch, begun);
        if let Some(end) = &self.end {
            order::check_end(&self.collection, end).await?;
        }
        match batch.num_rows() {
            0 => Ok(()),
            _ => out.send(Rows::Records(batch)).await,
        }
    }
}
