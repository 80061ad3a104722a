//! A connector of another crate, from its settings in the file to its rows at a destination.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use async_trait::async_trait;
use forebay_pgcopy::{Column, Wire, column};
use forebay_pipeline::config::{self, LoadError, PipelineFile, json_schema};
use forebay_pipeline::run::{Options, Pipeline};
use forebay_sdk::batch::Rows;
use forebay_sdk::connector::{Cursor, Discovered, Opening, Result, Source, SourceStream, Unit};
use forebay_sdk::registry::{ConnectorSettings, Registry, SourceSettings};
use forebay_sdk::run::{Context, Outlet};
use forebay_sdk::settings::{Reach, StreamSettings, Text};

/// Settings of a source of the numbers below a limit.
#[derive(Debug, Clone, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Numbers {
    /// The server to ask.
    host: Text,
    /// The limit.
    below: u16,
}

impl ConnectorSettings for Numbers {
    fn reach(&self) -> Reach {
        Reach::host(&self.host.0, None)
    }
}

impl SourceSettings for Numbers {
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.clone())
    }
}

#[async_trait]
impl Source for Numbers {
    async fn check(&self) -> Result<String> {
        Ok(format!("numbers of {}", self.host))
    }

    async fn discover(&self) -> Result<Vec<Discovered>> {
        Ok(Vec::new())
    }

    async fn open(
        &self,
        _: &StreamSettings,
        _: &Opening,
        _: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        let id = Column {
            name: "id".into(),
            sql_type: "bigint".into(),
            wire: Wire::Int8,
            nullable: false,
        };
        let unit = Unit { name: "all".into(), from: None, to: None, rows: None, bytes: None };
        Ok(Arc::new(Below { columns: [id], units: [unit], limit: self.below }))
    }
}

struct Below {
    columns: [Column; 1],
    units: [Unit; 1],
    limit: u16,
}

#[async_trait]
impl SourceStream for Below {
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

    async fn read(&self, _: usize, out: &mut Outlet) -> Result<()> {
        let numbers = Int64Array::from_iter_values((0..self.limit).map(i64::from));
        let schema = Arc::new(column::schema(&self.columns));
        let rows = RecordBatch::try_new(schema, vec![Arc::new(numbers)]).unwrap();
        out.send(Rows::Records(rows)).await
    }
}

fn registry() -> Registry {
    forebay_connectors::registry().source::<Numbers>("numbers")
}

fn load(dir: &Path, config: &str) -> std::result::Result<PipelineFile, LoadError> {
    let path = dir.join("p.yaml");
    let out = dir.display();
    let text = format!(
        "version: 1
pipeline: p
source:
  use: numbers
  config:
    host: a.example.org
    {config}
  permissions: {{ network: {{ allowed_hosts: ['a.example.org'] }} }}
  streams: [{{ name: small }}]
destination:
  use: sqlite
  config: {{ path: '{out}/out.sqlite' }}
"
    );
    std::fs::write(&path, text).unwrap();
    config::load(&path, &registry(), &|name| Err(name.to_owned()))
}

#[tokio::test]
async fn a_connector_of_another_crate_runs_like_a_built_in_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = load(directory.path(), "below: 1000").unwrap();
    let (context, _cancel) = Context::new("run");
    let report = Pipeline::new(&file).run(Options::default(), &context).await.unwrap();
    assert_eq!(report.rows, 1000);
    let database = rusqlite::Connection::open(directory.path().join("out.sqlite")).unwrap();
    let sum: i64 = database.query_row("select sum(id) from small", [], |row| row.get(0)).unwrap();
    assert_eq!(sum, 999 * 1000 / 2);
}

#[test]
fn errors_in_its_settings_have_a_position_and_its_permissions_hold() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    for (config, expected) in [
        ("below: many", ":7:12: source.config.below: "),
        ("above: 1", ":7:5: source.config.above: unknown field `above`"),
        ("below: 1000\n    host: b.example.org", ":8:5: source.config"),
    ] {
        let error = load(dir, config).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(error.matches(" at line ").count(), 0, "{error}");
    }
    let text = std::fs::read_to_string(dir.join("p.yaml")).unwrap();
    let elsewhere = text.replace("host: a.", "host: c.").replace("\n    host: b.example.org", "");
    std::fs::write(dir.join("p.yaml"), elsewhere).unwrap();
    let refused = config::load(&dir.join("p.yaml"), &registry(), &|name| Err(name.to_owned()));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("does not permit c.example.org"), "{refused}");
}

#[test]
fn names_and_schema_are_those_of_the_registry() {
    let registry = registry();
    let built_in = forebay_connectors::registry();
    let expected: Vec<_> = built_in.source_names().chain(["numbers"]).collect();
    assert_eq!(registry.source_names().collect::<Vec<_>>(), expected);
    let schema = json_schema(&registry).to_string();
    assert!(schema.contains("The server to ask.") && schema.contains("\"const\":\"numbers\""));
    assert!(!json_schema(&built_in).to_string().contains("The server to ask."));

    let directory = tempfile::tempdir().unwrap();
    load(directory.path(), "below: 1").unwrap();
    let path = directory.path().join("p.yaml");
    let unknown = config::load(&path, &built_in, &|name| Err(name.to_owned()));
    let unknown = unknown.unwrap_err().to_string();
    assert!(unknown.contains("unknown source \"numbers\"; use one of postgres, "), "{unknown}");
}
