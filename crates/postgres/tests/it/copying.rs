//! Copying tables from one database of a server into another, step by step.

use std::sync::Arc;

use forebay_postgres::connector::{PostgresDestination, PostgresSource, Settings};
use forebay_sdk::connector::{
    Cursor, Destination as _, Division, Form, LedgerEntry, Load, Opening, Result, Source as _,
    SourceStream, Target, UnitWriter,
};
use forebay_sdk::run::{Budget, Context, Outlet};
use forebay_sdk::settings::{StreamSettings, TargetSettings};
use tokio::runtime::Runtime;

use crate::pg::Postgres;

/// A server with databases `src` and `dst`.
pub(crate) struct Databases {
    pub(crate) pg: Postgres,
    pub(crate) runtime: Runtime,
}

impl Databases {
    pub(crate) fn new() -> Option<Self> {
        let pg = crate::pg::postgres()?;
        pg.query("create database src");
        pg.query("create database dst");
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        Some(Self { pg, runtime })
    }

    pub(crate) fn src(&self, sql: &str) -> String {
        forebay_testing::Postgres::query(&self.pg, "src", sql)
    }

    pub(crate) fn dst(&self, sql: &str) -> String {
        forebay_testing::Postgres::query(&self.pg, "dst", sql)
    }

    pub(crate) fn settings(&self, database: &str, user: &str) -> Settings {
        serde_json::from_value(serde_json::json!({
            "port": self.pg.port(), "database": database, "user": user,
        }))
        .unwrap()
    }

    pub(crate) fn destination(&self, user: &str) -> PostgresDestination {
        PostgresDestination::new(self.settings("dst", user))
    }

    pub(crate) fn source(&self) -> PostgresSource {
        self.source_of("src", "postgres")
    }

    pub(crate) fn source_of(&self, database: &str, user: &str) -> PostgresSource {
        PostgresSource::new(self.settings(database, user))
    }
}

/// How a table is copied.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    pub(crate) stream: serde_json::Value,
    pub(crate) into: String,
    pub(crate) target: serde_json::Value,
    /// The role that writes.
    pub(crate) user: &'static str,
    /// The database and the role that are read.
    pub(crate) from: (&'static str, &'static str),
    pub(crate) division: Division,
    pub(crate) since: Option<Cursor>,
    pub(crate) unit_size: u64,
}

impl Copy {
    /// * `target`: `write_mode` and the like, as in a pipeline file.
    pub(crate) fn new(stream: serde_json::Value, into: &str, target: serde_json::Value) -> Self {
        let into = into.to_owned();
        let division = Division::Any;
        let (user, from) = ("postgres", ("src", "postgres"));
        Self { stream, into, target, user, from, division, since: None, unit_size: 64 << 20 }
    }

    /// `replace` of a table by the table `t`.
    pub(crate) fn replace(into: &str) -> Self {
        let target = serde_json::json!({ "write_mode": "replace" });
        Self::new(serde_json::json!({ "name": "t" }), into, target)
    }

    pub(crate) fn settings(&self) -> TargetSettings {
        fn field<T: Default + serde::de::DeserializeOwned>(
            of: &serde_json::Value,
            name: &str,
        ) -> T {
            let value = of.get(name).cloned();
            value.map_or_else(T::default, |value| serde_json::from_value(value).unwrap())
        }
        let of = &self.target;
        TargetSettings {
            pipeline: "p".into(),
            stream: self.into.clone(),
            into: self.into.clone(),
            write_mode: field(of, "write_mode"),
            primary_key: field(of, "primary_key"),
            on_data_error: field(of, "on_data_error"),
            schema_evolution: field(of, "schema_evolution"),
            load_method: field(of, "load_method"),
            feed: forebay_sdk::settings::FeedForm::Apply,
        }
    }

    /// Opens both sides.
    pub(crate) async fn open(
        &self,
        databases: &Databases,
        context: &Context,
    ) -> Result<(Arc<dyn SourceStream>, Arc<dyn Target>)> {
        let source = databases.source_of(self.from.0, self.from.1);
        let stream: StreamSettings = serde_json::from_value(self.stream.clone()).unwrap();
        let opening = |form| Opening {
            form,
            since: self.since.clone(),
            division: self.division.clone(),
            unit_size: self.unit_size,
            batch_size: 64 << 10,
            memory: 32 << 20,
            parallelism: 1,
            snapshot: None,
        };
        let open = source.open(&stream, &opening(Form::Tuples), context).await?;
        let destination = databases.destination(self.user);
        let target = destination.open(&self.settings(), open.columns(), context).await?;
        if target.takes_tuples() {
            return Ok((open, target));
        }
        Ok((source.open(&stream, &opening(Form::Records), context).await?, target))
    }

    /// Copies everything as one load. Returns the cursor of the source.
    pub(crate) async fn run(&self, databases: &Databases, id: &str) -> Result<Option<Cursor>> {
        let (context, _cancel) = Context::new("test");
        let (stream, target) = self.open(databases, &context).await?;
        let load = load(id, &*stream);
        target.prepare(&load).await?;
        for unit in 0..load.units.len() {
            let entry = self.entry(&load, unit);
            self::unit(&stream, &target, &load, unit, &context).await?.commit(entry).await?;
        }
        target.finish(&load).await?;
        Ok(stream.cursor())
    }

    /// Ends a load whose units are committed, as the next run does.
    pub(crate) async fn end(&self, databases: &Databases) -> Result<()> {
        let (context, _cancel) = Context::new("test");
        let destination = databases.destination(self.user);
        let (load, entries) = destination.last_load(&self.settings()).await?.unwrap();
        assert_eq!(entries.len(), load.units.len(), "all units are committed");
        let (_, target) = self.open(databases, &context).await?;
        target.prepare(&load).await?;
        target.finish(&load).await
    }

    pub(crate) fn entry(&self, load: &Load, unit: usize) -> LedgerEntry {
        LedgerEntry {
            pipeline: "p".into(),
            stream: self.into.clone(),
            load: load.id.clone(),
            run: "r".into(),
            unit: load.units[unit].name.clone(),
            rows: 0,
            dead: 0,
            hash: String::new(),
        }
    }
}

pub(crate) fn load(id: &str, stream: &dyn SourceStream) -> Load {
    Load {
        id: id.into(),
        fingerprint: "f".into(),
        units: stream.units().to_vec(),
        since: None,
        is_stable: stream.units_are_stable(),
        round: forebay_sdk::connector::Round::default(),
        is_finished: false,
        cursor: stream.cursor(),
    }
}

/// Writes a unit, which is not committed yet.
pub(crate) async fn unit(
    stream: &Arc<dyn SourceStream>,
    target: &Arc<dyn Target>,
    load: &Load,
    unit: usize,
    context: &Context,
) -> Result<Box<dyn UnitWriter>> {
    let mut writer = target.writer(load, &load.units[unit]).await?;
    let (mut outlet, mut inlet) = Outlet::new(Budget::new(64 << 20), context.clone())?;
    let stream = Arc::clone(stream);
    let reading = tokio::spawn(async move { stream.read(unit, &mut outlet).await });
    while let Some(batch) = inlet.recv().await? {
        writer.write(batch).await?;
    }
    reading.await.unwrap()?;
    Ok(writer)
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
