//! The documents of a namespace, in order of their ids.
//!
//! The documents of a namespace are numbered as they are accepted, so a range of numbers is a unit
//! with the same documents in every run.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::connector::{Cursor, Division, Opening, Result, SourceStream, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Outlet, Phase};
use forebay_sdk::settings::{StreamSettings, SyncMode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::Server;
use super::fields::{self, FieldColumn, Members};
use super::rows::{self, Gathered};

/// Maximum number of documents of a page, as in the server.
const PAGE: u64 = 1_000;
/// Number of documents examined to estimate their size.
const SAMPLED: u64 = 100;
/// Maximum number of units of a namespace.
const UNITS_MAX: u64 = 4_096;
/// The largest possible id.
const ID_MAX: u64 = i64::MAX.unsigned_abs();

/// A page of documents.
#[derive(Debug, Deserialize)]
struct Page<'a> {
    count: u64,
    columns: Vec<FieldColumn>,
    #[serde(borrow)]
    documents: Vec<Document<'a>>,
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Document<'a> {
    id: u64,
    received: String,
    #[serde(borrow)]
    document: &'a RawValue,
}

/// What is known of a namespace.
#[derive(Debug, Clone)]
pub(super) struct Namespace {
    server: Server,
    name: String,
    pub(super) columns: Vec<Column>,
    /// The source of each column's value.
    origins: Vec<Origin>,
    pub(super) count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Id,
    Received,
    Document,
    Field(String),
}

impl Namespace {
    /// Queries a namespace.
    pub(super) async fn of(server: &Server, name: &str) -> Result<Self> {
        let mut namespace = Self {
            server: server.clone(),
            name: name.to_owned(),
            columns: Vec::new(),
            origins: Vec::new(),
            count: 0,
        };
        let body = namespace.page(0, 1).await?;
        let page: Page<'_> = namespace.read(&body)?;
        namespace.count = page.count;
        for (column, of, origin) in [
            ("id", "bigint", Origin::Id),
            ("received", "timestamptz", Origin::Received),
            ("document", "json", Origin::Document),
        ] {
            namespace.columns.extend(rows::described([(column, of, false)]));
            namespace.origins.push(origin);
        }
        for field in page.columns {
            let column = field.column(&namespace.columns).ok_or_else(|| {
                let error = format!("the field {:?} is of an unknown type", field.path);
                namespace.server.misunderstood(&namespace.act(), error)
            })?;
            namespace.columns.push(column);
            namespace.origins.push(Origin::Field(field.path));
        }
        Ok(namespace)
    }

    fn act(&self) -> String {
        format!("read documents of {}", self.name)
    }

    async fn page(&self, after: u64, limit: u64) -> Result<Vec<u8>> {
        let act = self.act();
        let query = [("limit", limit), ("cursor", after)];
        let query = query.map(|(name, value)| (name.to_owned(), value.to_string()));
        let path = ["v1", "documents", &self.name];
        let answer = self.server.get(&act, &path, &query, "application/json").await?;
        self.server.body(&act, answer).await
    }

    fn read<'a>(&self, body: &'a [u8]) -> Result<Page<'a>> {
        serde_json::from_slice(body).map_err(|error| self.server.misunderstood(&self.act(), error))
    }

    /// The first id after another one.
    async fn first_after(&self, id: u64) -> Result<Option<u64>> {
        let body = self.page(id, 1).await?;
        Ok(self.read(&body)?.documents.first().map(|document| document.id))
    }

    /// The last id, if there is one after `after`.
    async fn last(&self, after: u64) -> Result<Option<u64>> {
        let Some(mut last) = self.first_after(after).await? else { return Ok(None) };
        // Doubles the distance until there is nothing; then halves it, down to the boundary.
        let mut step = 1_u64 << 20;
        let mut none_after = loop {
            let at = last.saturating_add(step).min(ID_MAX);
            match self.first_after(at).await? {
                Some(found) if at < ID_MAX => last = found,
                _ => break at,
            }
            step = step.saturating_mul(2);
        };
        while last < none_after {
            let middle = last + (none_after - last) / 2;
            match self.first_after(middle).await? {
                Some(found) => last = found,
                None => none_after = middle,
            }
        }
        Ok(Some(last))
    }

    /// Keeps the columns that a stream chooses, in its order.
    fn choose(&mut self, stream: &StreamSettings) -> Result<()> {
        let chosen = rows::choose(&self.columns, stream)?;
        let known =
            |at: &usize| Some((self.columns.get(*at)?.clone(), self.origins.get(*at)?.clone()));
        (self.columns, self.origins) = chosen.iter().filter_map(known).unzip();
        Ok(())
    }
}

/// A unit of the ids after `from`, up to and including `to`.
fn unit(name: Option<&str>, from: u64, to: u64, rows: Option<u64>) -> Unit {
    let name = name.map_or_else(|| format!("id {}..{to}", from + 1), ToOwned::to_owned);
    Unit { name, from: Some(from.to_string()), to: Some(to.to_string()), rows, bytes: None }
}

/// The ids of a unit: after the first, up to and including the second.
fn range(unit: &Unit) -> Option<(u64, u64)> {
    let end = |end: &Option<String>| end.as_ref()?.parse::<u64>().ok();
    Some((end(&unit.from)?, end(&unit.to)?)).filter(|(from, to)| from <= to)
}

/// An open namespace.
pub(super) struct DocumentStream {
    namespace: Namespace,
    units: Vec<Unit>,
    cursor: Option<Cursor>,
    batch_size: usize,
}

impl DocumentStream {
    pub(super) async fn open(
        mut namespace: Namespace,
        stream: &StreamSettings,
        opening: &Opening,
    ) -> Result<Self> {
        namespace.choose(stream)?;
        let is_incremental = stream.sync_mode == SyncMode::Incremental;
        if is_incremental && stream.cursor_field.as_deref() != Some("id") {
            return Err(ConnectorError::unsupported(
                "documents can only be read in order of their ids",
                "set `cursor_field: id`",
            ));
        }
        let since = match &opening.since {
            Some(cursor) if is_incremental => cursor.value.parse::<u64>().map_err(|_| {
                let found = format!("{:?} is not an id", cursor.value);
                ConnectorError::data("the cursor of the last run", found)
            })?,
            _ => 0,
        };
        let mut opened = Self {
            units: Vec::new(),
            cursor: is_incremental.then(|| opening.since.clone()).flatten(),
            batch_size: opening.batch_size,
            namespace,
        };
        if let Division::As(units) = &opening.division {
            if let Some(unit) = units.iter().find(|unit| range(unit).is_none()) {
                return Err(ConnectorError::unsupported(
                    format!("the unit {:?} does not belong to {}", unit.name, stream.name),
                    "run again with `--from-scratch`",
                ));
            }
            opened.units.clone_from(units);
            return Ok(opened);
        }
        let Some(last) = opened.namespace.last(since).await? else {
            // If there was never a document, the load has one empty unit.
            if opening.since.is_none() {
                opened.units = vec![unit(Some("all"), 0, 0, Some(0))];
            }
            return Ok(opened);
        };
        if is_incremental {
            opened.cursor = Some(Cursor::new(last.to_string(), None));
        }
        opened.divide(since, last, opening).await?;
        Ok(opened)
    }

    /// Divides ids into ranges of about the size of a unit, estimated from the first documents.
    async fn divide(&mut self, since: u64, last: u64, opening: &Opening) -> Result<()> {
        let body = self.namespace.page(since, SAMPLED).await?;
        let documents = self.namespace.read(&body)?.documents;
        let from = documents.first().map_or(last, |first| first.id).saturating_sub(1);
        let span = last - from;
        let document = body.len().checked_div(documents.len()).unwrap_or(0).max(1) as u64;
        let each = (opening.unit_size / document).max(span.div_ceil(UNITS_MAX)).max(1);
        let (parts, each) = match opening.division {
            Division::Whole => (1, span),
            _ => (span.div_ceil(each), each),
        };
        let edge = |part: u64| from.saturating_add(part.saturating_mul(each)).min(last);
        let ranges = (0..parts).map(|part| (edge(part), edge(part + 1)));
        self.units = ranges.map(|(from, to)| unit(None, from, to, Some(to - from))).collect();
        Ok(())
    }

    fn append(&self, document: &Document<'_>, rows: &mut Gathered<'_>) -> Result<()> {
        let members = Members::of(document.document);
        for ((column, builder), origin) in rows.builders().zip(&self.namespace.origins) {
            let appended = match origin {
                Origin::Id => builder.text(&document.id.to_string()),
                Origin::Received => builder.text(&document.received),
                Origin::Document => builder.text(document.document.get()),
                Origin::Field(path) => {
                    fields::append(&members, path, column, builder);
                    Ok(())
                }
            };
            appended.map_err(|found| {
                let place = format!("{} id {}, {}", self.namespace.name, document.id, column.name);
                ConnectorError::data(place, found)
            })?;
        }
        Ok(())
    }
}

#[async_trait]
impl SourceStream for DocumentStream {
    fn columns(&self) -> &[Column] {
        &self.namespace.columns
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn units_are_stable(&self) -> bool {
        true
    }

    fn cursor(&self) -> Option<Cursor> {
        self.cursor.clone()
    }

    fn notes(&self) -> Vec<String> {
        let name = &self.namespace.name;
        vec![format!(
            "documents of {name} by id, {PAGE} per request; later ones belong to the next run"
        )]
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        let unit = self.units.get(unit).and_then(range);
        let Some((mut after, last)) = unit else {
            return Err(ConnectorError::data(&*self.namespace.name, "there is no such unit"));
        };
        let phases = Arc::clone(&out.context().phases);
        let mut rows = Gathered::new(&self.namespace.columns, self.batch_size);
        while after < last {
            let begun = Instant::now();
            let body = self.namespace.page(after, PAGE).await?;
            phases.add(Phase::Fetch, begun);
            let page = self.namespace.read(&body)?;
            for document in page.documents.iter().take_while(|document| document.id <= last) {
                if document.id <= after {
                    let found = format!("id {} follows id {after}", document.id);
                    return Err(self.namespace.server.misunderstood(&self.namespace.act(), found));
                }
                after = document.id;
                self.append(document, &mut rows)?;
                if let Some(batch) = rows.count(document.document.get().len() + 64)? {
                    out.send(batch).await?;
                }
            }
            let is_beyond = page.documents.last().is_none_or(|document| document.id > last);
            if is_beyond || page.next_cursor.is_none() {
                break;
            }
        }
        match rows.take()? {
            Some(batch) => out.send(batch).await,
            None => Ok(()),
        }
    }
}
