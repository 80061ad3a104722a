//! A database, a destination that writes to it, and the steps of a load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow::array::RecordBatch;
use forebay_clickhouse::Settings;
use forebay_pgcopy::Column;
use forebay_sdk::batch::{Batch, Rows};
use forebay_sdk::connector::{Destination, LedgerEntry, Load, Result, Round, Target, Unit};
use forebay_sdk::registry::DestinationSettings as _;
use forebay_sdk::run::Context;
use forebay_sdk::settings::{
    FeedForm, LoadMethod, OnDataError, SchemaEvolution, TargetSettings, WriteMode,
};
use forebay_testing::ClickHouse;
use serde_json::json;

/// A database of its own.
pub(crate) struct Database {
    pub(crate) server: Arc<ClickHouse>,
    pub(crate) name: String,
}

impl Database {
    /// Creates one; `None` if there is no server.
    pub(crate) fn create() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = ClickHouse::shared()?;
        let name = format!("d{}", NEXT.fetch_add(1, Ordering::Relaxed));
        server.query("default", &format!("CREATE DATABASE {name} ENGINE = Atomic"));
        Some(Self { server, name })
    }

    pub(crate) fn query(&self, sql: &str) -> String {
        self.server.query(&self.name, sql)
    }

    pub(crate) fn count(&self, sql: &str) -> u64 {
        self.query(sql).parse().unwrap()
    }

    /// The settings of a destination at a port, with others.
    pub(crate) fn settings(&self, port: u16, more: serde_json::Value) -> Settings {
        let mut settings = json!({
            "url": format!("http://127.0.0.1:{port}"), "database": self.name, "user": self.server.user(),
            "password": self.server.password(), "timeout": "30s",
        });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(settings).unwrap()
    }

    pub(crate) fn destination(&self, more: serde_json::Value) -> Arc<dyn Destination> {
        self.settings(self.server.port(), more).destination()
    }
}

pub(crate) fn target(into: &str, write_mode: WriteMode) -> TargetSettings {
    TargetSettings {
        pipeline: "p".into(),
        stream: format!("from.{into}"),
        into: into.into(),
        write_mode,
        primary_key: match write_mode {
            WriteMode::Upsert => vec!["id".into()],
            _ => Vec::new(),
        },
        on_data_error: OnDataError::Fail,
        schema_evolution: SchemaEvolution::default(),
        load_method: LoadMethod::Copy,
        feed: FeedForm::Apply,
    }
}

pub(crate) fn unit(name: &str) -> Unit {
    Unit { name: name.into(), from: None, to: None, rows: None, bytes: None }
}

pub(crate) fn load(id: &str, units: &[&str]) -> Load {
    Load {
        id: id.into(),
        fingerprint: "f".into(),
        units: units.iter().map(|name| unit(name)).collect(),
        since: None,
        is_stable: true,
        round: Round::default(),
        is_finished: false,
        cursor: None,
    }
}

pub(crate) async fn open(
    destination: &Arc<dyn Destination>,
    target: &TargetSettings,
    columns: &[Column],
) -> Result<Arc<dyn Target>> {
    let (context, _cancel) = Context::new("r");
    destination.open(target, columns, &context).await
}

/// Writes and commits a unit.
pub(crate) async fn write(
    opened: &Arc<dyn Target>,
    target: &TargetSettings,
    load: &Load,
    name: &str,
    batches: &[RecordBatch],
) -> Result<LedgerEntry> {
    let mut writer = opened.writer(load, &unit(name)).await?;
    for batch in batches {
        writer.write(Batch::unbounded(Rows::Records(batch.clone()))).await?;
    }
    writer.commit(entry(target, load, name)).await
}

pub(crate) fn entry(target: &TargetSettings, load: &Load, name: &str) -> LedgerEntry {
    LedgerEntry {
        pipeline: target.pipeline.clone(),
        stream: target.stream.clone(),
        load: load.id.clone(),
        run: "r".into(),
        unit: name.into(),
        rows: 0,
        dead: 0,
        hash: String::new(),
    }
}

/// Loads one unit from the beginning to the end.
pub(crate) async fn copy(
    destination: &Arc<dyn Destination>,
    target: &TargetSettings,
    columns: &[Column],
    id: &str,
    batches: &[RecordBatch],
) -> Result<LedgerEntry> {
    let load = load(id, &["all"]);
    let opened = open(destination, target, columns).await?;
    opened.prepare(&load).await?;
    let entry = write(&opened, target, &load, "all", batches).await?;
    opened.finish(&load).await?;
    Ok(entry)
}

/// An error and its causes.
pub(crate) fn text(error: &forebay_sdk::ConnectorError) -> String {
    forebay_base::error_chain::chain(error).to_string()
}
