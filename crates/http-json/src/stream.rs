//! An open stream: one unit, since an API shows only what it has now.
//!
//! An incremental stream is read when it is opened: its cursor, which is recorded before any row is written, is the
//! greatest value of all pages. The rows are kept if they fit in memory. Otherwise they are requested again, and what
//! was added meanwhile is left to the next run.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::ConnectorError;
use forebay_sdk::batch::Rows;
use forebay_sdk::connector::{Cursor, Division, Opening, Result, SourceStream, Unit};
use forebay_sdk::run::{Context, Outlet};
use forebay_sdk::settings::{StreamSettings, SyncMode};

use crate::api::{Api, describe};
use crate::cursor::{Kind, Window};
use crate::layout::Layout;
use crate::pages::{Page, Pages};
use crate::reader::Reader;

/// The first page, and those after it.
type Begun = (Pages, Page);

/// How the only unit is read.
enum Reading {
    /// All pages. The first one may be there already, for the first reading.
    All(Mutex<Option<Begun>>),
    /// The rows that were read when the stream was opened.
    Kept(Vec<RecordBatch>),
    /// The records of a window, which did not fit in memory.
    Again(Window, Option<String>),
    /// Those of an earlier run, which are unknown.
    Unknown,
}

/// What is read, and the cursor after it.
struct Plan {
    units: Vec<Unit>,
    cursor: Option<Cursor>,
    reading: Reading,
    notes: Vec<String>,
}

/// An open stream.
pub(crate) struct HttpStream {
    api: Arc<Api>,
    layout: Layout,
    plan: Plan,
    batch_size: usize,
}

impl HttpStream {
    /// Opens a stream; reads an incremental one.
    ///
    /// # Errors
    /// The stream cannot be read as it is requested.
    pub(crate) async fn open(
        api: Arc<Api>,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<Self> {
        let is_incremental = stream.sync_mode == SyncMode::Incremental;
        if is_incremental && stream.tie_breaker_field.is_some() {
            return Err(ConnectorError::unsupported(
                "an API has no order of records with the same cursor value",
                "remove `tie_breaker_field`, or use `write_mode: upsert`",
            ));
        }
        let field = stream.cursor_field.as_deref().filter(|_| is_incremental);
        let described = describe(&api, context).await?;
        let layout = Layout::new(&described.columns, described.is_inferred, stream, field)?;
        let cursor = described.columns.iter().find(|(column, _)| Some(&*column.name) == field);
        let kind = cursor.map(|(column, _)| Kind::of(column)).transpose()?;
        let plan = match (&opening.division, field.zip(kind)) {
            // Named, so that a load whose units are all committed can end; see `read`.
            (Division::As(units), _) => Plan {
                units: units.clone(),
                cursor: None,
                reading: Reading::Unknown,
                notes: Vec::new(),
            },
            (_, None) => Plan {
                units: vec![unit("all", None)],
                cursor: None,
                reading: Reading::All(Mutex::new(described.begun)),
                notes: vec!["all pages, one after the other".to_owned()],
            },
            (_, Some((field, kind))) => {
                let scan = Scan { api: &api, layout: &layout, opening, field, context };
                scan.run(kind, described.begun).await?
            }
        };
        Ok(Self { api, layout, plan, batch_size: opening.batch_size })
    }
}

fn unit(name: &str, from: Option<&str>) -> Unit {
    let from = from.map(ToOwned::to_owned);
    Unit { name: name.to_owned(), from, to: None, rows: None, bytes: None }
}

/// The reading that finds the cursor of an incremental stream.
struct Scan<'a> {
    api: &'a Arc<Api>,
    layout: &'a Layout,
    opening: &'a Opening,
    /// Name of the cursor field.
    field: &'a str,
    context: &'a Context,
}

impl Scan<'_> {
    async fn run(self, kind: Kind, begun: Option<Begun>) -> Result<Plan> {
        let Self { api, layout, opening, field, context } = self;
        let (name, since) = (&api.endpoint.name, opening.since.as_ref());
        let window = Window::new(kind, since, opening.division == Division::Any)?;
        let value = since.map(|since| since.value.clone());
        // Columns are inferred from the first page of all, whatever the last run has read.
        let (pages, page) = match begun.filter(|_| since.is_none()) {
            Some((pages, page)) => (pages, Some(page)),
            None => (Pages::new(api, value.as_deref()), None),
        };
        let mut reader = Reader::new(name, layout, pages, page, Some(&window), opening.batch_size);
        let (mut kept, mut size) = (Some(Vec::new()), 0_usize);
        while let Some(batch) = reader.next(context).await? {
            size = size.saturating_add(batch.get_array_memory_size());
            match &mut kept {
                Some(batches) if size <= opening.memory => batches.push(batch),
                _ => kept = None,
            }
        }
        let tally = reader.tally;
        let cursor = tally.cursor(&window, since, name, field)?;
        if since.is_some() && tally.unordered > 0 {
            context.warn(&Cursor::unordered(name, field, tally.unordered));
        }
        let is_new =
            since.is_none_or(|since| cursor.as_ref().is_some_and(|last| !last.is_at(since)));
        let units = match (is_new, &value) {
            (false, _) => Vec::new(),
            (true, None) => vec![unit("all", None)],
            (true, Some(value)) => vec![unit(&format!("{field} after {value}"), Some(value))],
        };
        let (reading, note) = match kept {
            Some(batches) => (Reading::Kept(batches), "read when the stream was opened"),
            None => (
                Reading::Again(window.until(&tally), value),
                "too large to keep: read a second time",
            ),
        };
        let unordered = format!("records without {field:?} are read only by the first run");
        Ok(Plan { units, cursor, reading, notes: vec![note.to_owned(), unordered] })
    }
}

#[async_trait]
impl SourceStream for HttpStream {
    fn columns(&self) -> &[Column] {
        &self.layout.columns
    }

    fn units(&self) -> &[Unit] {
        &self.plan.units
    }

    fn units_are_stable(&self) -> bool {
        false
    }

    fn cursor(&self) -> Option<Cursor> {
        self.plan.cursor.clone()
    }

    fn notes(&self) -> Vec<String> {
        self.plan.notes.clone()
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        let name = &self.api.endpoint.name;
        if unit >= self.plan.units.len() {
            return Err(ConnectorError::data(&**name, "there is no such unit"));
        }
        let (pages, page, window) = match &self.plan.reading {
            Reading::Kept(batches) => {
                for batch in batches {
                    out.send(Rows::Records(batch.clone())).await?;
                }
                return Ok(());
            }
            Reading::Unknown => {
                return Err(ConnectorError::unsupported(
                    format!("{name}: the records of an API in an earlier run are unknown"),
                    "run with `--from-scratch` to load it from the beginning",
                ));
            }
            Reading::All(begun) => {
                match begun.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    Some((pages, page)) => (pages, Some(page), None),
                    None => (Pages::new(&self.api, None), None, None),
                }
            }
            Reading::Again(window, since) => {
                (Pages::new(&self.api, since.as_deref()), None, Some(window))
            }
        };
        let context = out.context().clone();
        let mut reader = Reader::new(name, &self.layout, pages, page, window, self.batch_size);
        while let Some(batch) = reader.next(&context).await? {
            out.send(Rows::Records(batch)).await?;
        }
        Ok(())
    }
}
