//! The rows that are there when a feed begins, as events of the operation `copy`.
//!
//! Invariants:
//! - The number of a row in its unit names it, so a unit that is written again is stored once.
//! - A copy counts only if the record of the feed names its load: events cannot be removed, so what an interrupted
//!   copy left stays, under a load that no record names.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use forebay_pgcopy::{Column, ContentHash};
use forebay_sdk::batch::{Batch, Rows};
use forebay_sdk::connector::{LedgerEntry, Load, Result, Target, Unit, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::{Context, Phase};
use forebay_sdk::settings::TargetSettings;

use super::super::client::Server;
use super::append::Lines;
use super::destination::Copies;
use super::event::Copy;
use super::record::Place;
use super::writer::send;

/// The target of a copy.
#[derive(Clone)]
pub(super) struct EventsTarget {
    shared: Arc<Shared>,
}

struct Shared {
    server: Server,
    settings: TargetSettings,
    columns: Vec<Column>,
    context: Context,
    copies: Copies,
    /// When it was opened, which is the time of its events, in microseconds since 1970.
    at_us: i64,
}

impl EventsTarget {
    pub(super) fn new(
        server: Server,
        settings: &TargetSettings,
        columns: &[Column],
        context: &Context,
        copies: Copies,
    ) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let shared = Shared {
            server,
            settings: settings.clone(),
            columns: columns.to_vec(),
            context: context.clone(),
            copies,
            at_us: i64::try_from(now.as_micros()).unwrap_or(i64::MAX),
        };
        Self { shared: Arc::new(shared) }
    }
}

#[async_trait]
impl Target for EventsTarget {
    fn plan(&self) -> Vec<String> {
        let (into, server) = (&self.shared.settings.into, self.shared.server.name());
        vec![format!(
            "append an event for each row, and for each change, to the stream {into:?} of {server}"
        )]
    }

    fn takes_tuples(&self) -> bool {
        false
    }

    async fn prepare(&self, load: &Load) -> Result<()> {
        let TargetSettings { pipeline, stream, into, .. } = &self.shared.settings;
        let place = Place { stream: stream.clone(), into: into.clone(), load: load.id.clone() };
        self.shared.copies.add(pipeline, place);
        Ok(())
    }

    async fn writer(&self, load: &Load, unit: &Unit) -> Result<Box<dyn UnitWriter>> {
        Ok(Box::new(CopyWriter {
            hasher: Hasher::new(&self.shared.columns)?,
            shared: Arc::clone(&self.shared),
            load: load.id.clone(),
            unit: unit.name.clone(),
            lines: Lines::default(),
            rows: 0,
        }))
    }

    async fn finish(&self, _load: &Load) -> Result<()> {
        Ok(())
    }

    async fn content(&self) -> Result<ContentHash> {
        Err(ConnectorError::unsupported(
            "a log of changes has other rows than the source",
            "verify the events with `forebay events verify`",
        ))
    }
}

/// Appends the rows of one unit.
struct CopyWriter {
    shared: Arc<Shared>,
    load: String,
    unit: String,
    lines: Lines,
    rows: u64,
    hasher: Hasher,
}

impl CopyWriter {
    async fn send(&mut self) -> Result<()> {
        let begun = Instant::now();
        send(&self.shared.server, &self.shared.settings.into, &mut self.lines).await?;
        self.shared.context.phases.add(Phase::Flush, begun);
        Ok(())
    }
}

#[async_trait]
impl UnitWriter for CopyWriter {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        let stream = &self.shared.settings.stream;
        let Rows::Records(records) = &batch.rows else {
            return Err(ConnectorError::data(&**stream, "rows that are not Arrow".to_owned()));
        };
        if !batch.dead.is_empty() {
            return Err(ConnectorError::unsupported(
                format!("{stream:?} has rows that a transform sets aside"),
                "remove the transform: the log of a table has all its rows",
            ));
        }
        let begun = Instant::now();
        match batch.hash {
            Some(hash) => self.hasher.add_hashed(hash),
            None => self.hasher.add(records)?,
        }
        let Shared { columns, at_us, .. } = &*self.shared;
        let copy = Copy { load: &self.load, unit: &self.unit, at_us: *at_us, columns };
        copy.encode(records, self.rows, &mut self.lines)?;
        self.rows = self.rows.saturating_add(records.num_rows() as u64);
        self.shared.context.phases.add(Phase::Encode, begun);
        if self.lines.is_full() { self.send().await } else { Ok(()) }
    }

    async fn commit(mut self: Box<Self>, entry: LedgerEntry) -> Result<LedgerEntry> {
        self.send().await?;
        let hash = self.hasher.content().to_string();
        Ok(LedgerEntry { rows: self.rows, dead: 0, hash, ..entry })
    }
}
