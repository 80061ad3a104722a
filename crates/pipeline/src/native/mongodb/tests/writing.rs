//! What is particular to writing.

use arrow::array::RecordBatch;
use forebay_pgcopy::Column;

use super::*;
use crate::acceptance::{self, Capabilities, Lacks};
use crate::batch::{Batch, Rows};
use crate::config::{LoadMethod, OnDataError, SchemaEvolution, TargetSettings, WriteMode};
use crate::connector::{LedgerEntry, Load, Round, Target, Unit};
use crate::native::values::read::Builder;
use crate::native::values::types;
use crate::run::Context;

fn target(into: &str, write_mode: WriteMode) -> TargetSettings {
    TargetSettings {
        pipeline: "p".into(),
        stream: "s".into(),
        into: into.into(),
        write_mode,
        primary_key: match write_mode {
            WriteMode::Upsert => vec!["id".into()],
            _ => Vec::new(),
        },
        on_data_error: OnDataError::Fail,
        schema_evolution: SchemaEvolution::default(),
        load_method: LoadMethod::Copy,
    }
}

fn unit(name: &str) -> Unit {
    Unit { name: name.into(), from: None, to: None, rows: None, bytes: None }
}

fn load(id: &str, units: &[&str]) -> Load {
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

fn columns(named: &[(&str, &str)]) -> Vec<Column> {
    named.iter().map(|(name, of)| types::column(name, of).unwrap()).collect()
}

/// Rows of texts; an empty one is NULL.
fn batch(columns: &[Column], rows: &[&[&str]]) -> RecordBatch {
    let array = |at: usize| {
        let mut builder = Builder::new(&columns[at]);
        for row in rows {
            match row[at] {
                "" => builder.null(),
                text => builder.text(text).unwrap(),
            }
        }
        builder.finish()
    };
    let arrays = (0..columns.len()).map(array).collect();
    RecordBatch::try_new(forebay_pgcopy::column::schema(columns).into(), arrays).unwrap()
}

fn entry(settings: &TargetSettings, load: &Load, unit: &str) -> LedgerEntry {
    LedgerEntry {
        pipeline: settings.pipeline.clone(),
        stream: settings.stream.clone(),
        load: load.id.clone(),
        run: "run".into(),
        unit: unit.into(),
        rows: 0,
        dead: 0,
        hash: String::new(),
    }
}

async fn open(
    destination: &Arc<dyn Destination>,
    settings: &TargetSettings,
    columns: &[Column],
) -> Arc<dyn Target> {
    let (context, _cancel) = Context::new("test");
    destination.open(settings, columns, &context).await.unwrap()
}

/// Writes a unit of one batch.
async fn write(
    target: &Arc<dyn Target>,
    settings: &TargetSettings,
    load: &Load,
    name: &str,
    batch: &RecordBatch,
) -> crate::connector::Result<LedgerEntry> {
    let mut writer = target.writer(load, &unit(name)).await?;
    writer.write(Batch::unbounded(Rows::Records(batch.clone()))).await?;
    writer.commit(entry(settings, load, name)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mongodb_is_a_destination() {
    let Some(ferret) = Ferret::start() else { return };
    let destination = destination(&as_text(&ferret));
    let capabilities = Capabilities { replace: true, upsert: true };
    let lacks = Lacks { not_finite: true };
    let passed = acceptance::destination_lacking(&destination, capabilities, lacks).await;
    if let Err(failure) = passed {
        panic!("{}", chain(&failure));
    }
    let left = collections(&ferret).await;
    assert!(!left.iter().any(|name| name.starts_with("_forebay_staged")), "{left:?}");
}
