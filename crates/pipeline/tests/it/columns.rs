//! An append that was killed, and whose source has other columns when it continues.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use async_trait::async_trait;
use forebay_pgcopy::{Column, Wire, column};
use forebay_pipeline::config;
use forebay_pipeline::error::RunError;
use forebay_pipeline::run::{Options, Pipeline, Report};
use forebay_sdk::ConnectorError;
use forebay_sdk::batch::Rows;
use forebay_sdk::connector::{
    Cursor, Discovered, Division, Opening, Result, Source, SourceStream, Unit,
};
use forebay_sdk::registry::{ConnectorSettings, Registry, SourceSettings};
use forebay_sdk::run::{Context, Outlet};
use forebay_sdk::settings::{Reach, StreamSettings};
use rusqlite::Connection;

/// A source of two units, each with one row: the number of the unit in every column.
#[derive(Debug, Clone, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Twice {
    /// Its columns, and their types.
    columns: Vec<(String, String)>,
    /// Whether the second unit cannot be read.
    is_cut: bool,
}

impl ConnectorSettings for Twice {
    fn reach(&self) -> Reach {
        Reach::default()
    }
}

impl SourceSettings for Twice {
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.clone())
    }
}

#[async_trait]
impl Source for Twice {
    async fn check(&self) -> Result<String> {
        Ok("twice".to_owned())
    }

    async fn discover(&self) -> Result<Vec<Discovered>> {
        Ok(Vec::new())
    }

    async fn open(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        _: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        let chosen = |(name, _): &&(String, String)| {
            stream.columns.is_empty() || stream.columns.contains(name)
        };
        let columns = self.columns.iter().filter(chosen).map(|(name, of)| Column {
            name: name.clone(),
            sql_type: of.clone(),
            wire: Wire::Int8,
            nullable: true,
        });
        let unit = |name: &str| Unit {
            name: name.to_owned(),
            from: None,
            to: None,
            rows: None,
            bytes: None,
        };
        let units = match &opening.division {
            Division::As(units) => units.clone(),
            _ => vec![unit("first"), unit("second")],
        };
        Ok(Arc::new(Opened { columns: columns.collect(), units, is_cut: self.is_cut }))
    }
}

struct Opened {
    columns: Vec<Column>,
    units: Vec<Unit>,
    is_cut: bool,
}

#[async_trait]
impl SourceStream for Opened {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn units_are_stable(&self) -> bool {
        true
    }

    fn cursor(&self) -> Option<Cursor> {
        None
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        if unit == 1 && self.is_cut {
            return Err(ConnectorError::data("the second unit", "it was cut"));
        }
        let value: ArrayRef = Arc::new(Int64Array::from(vec![i64::try_from(unit).unwrap()]));
        let values = vec![value; self.columns.len()];
        let schema = Arc::new(column::schema(&self.columns));
        out.send(Rows::Records(RecordBatch::try_new(schema, values).unwrap())).await
    }
}

async fn run(dir: &Path, columns: &[(&str, &str)], is_cut: bool) -> Result<Report, RunError> {
    let path = dir.join("p.yaml");
    let columns: Vec<String> = columns.iter().map(|(name, of)| format!("[{name}, {of}]")).collect();
    let text = format!(
        "version: 1
pipeline: p
source:
  use: twice
  config: {{ columns: [{}], is_cut: {is_cut} }}
  streams: [{{ name: t }}]
destination:
  use: sqlite
  config: {{ path: '{}/out.sqlite' }}
resources: {{ parallelism: 1 }}
",
        columns.join(", "),
        dir.display()
    );
    std::fs::write(&path, text).unwrap();
    let registry: Registry = forebay_connectors::registry().source::<Twice>("twice");
    let file = config::load(&path, &registry, &|name| Err(name.to_owned())).unwrap();
    let (context, _cancel) = Context::new("run");
    Pipeline::new(&file).run(Options::default(), &context).await
}

/// The number of rows, of different ids, and of values in a column.
fn rows(dir: &Path, column: &str) -> (u32, u32, u32) {
    let database = Connection::open(dir.join("out.sqlite")).unwrap();
    let count = format!("select count(*), count(distinct id), count({column}) from t");
    database.query_row(&count, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
}

const ID: (&str, &str) = ("id", "bigint");
const V: (&str, &str) = ("v", "bigint");
const NEW: (&str, &str) = ("new", "bigint");

#[tokio::test]
async fn an_append_is_completed_though_its_source_gained_or_lost_a_column() {
    for (after, later) in [
        (&[ID, V, NEW][..], (4, 2, 2)),
        (&[NEW, V, ID][..], (4, 2, 2)),
        (&[ID][..], (4, 2, 4)),
        (&[ID, NEW][..], (4, 2, 2)),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        run(dir, &[ID, V], true).await.unwrap_err();
        assert_eq!(rows(dir, "id"), (1, 1, 1), "one unit is committed");
        let report = run(dir, after, false).await.unwrap();
        assert_eq!((report.rows, report.streams[0].resumed), (1, true), "{after:?}");
        assert_eq!(rows(dir, "id"), (2, 2, 2), "{after:?}: each row once");
        // The next load has the columns that the source has.
        run(dir, after, false).await.unwrap();
        let column = if after.contains(&NEW) { "new" } else { "id" };
        assert_eq!(rows(dir, column), later, "{after:?}");
    }
}

#[tokio::test]
async fn an_append_whose_source_has_another_type_is_refused_with_a_way_out() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    run(dir, &[ID, V], true).await.unwrap_err();
    let refused = run(dir, &[ID, ("v", "numeric")], false).await.unwrap_err();
    assert!(format!("{refused:?}").contains("forebay pipeline reset"), "{refused:?}");
    assert_eq!(rows(dir, "id"), (1, 1, 1));
    // What is restored continues.
    assert_eq!(run(dir, &[ID, V], false).await.unwrap().rows, 1);
}
