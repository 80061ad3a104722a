//! Streams in memory, for tests of transforms.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_pgcopy::{Column, Wire, column};
use forebay_sdk::batch::{DeadRow, Rows};
use forebay_sdk::connector::{Cursor, Result, SourceStream, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Budget, Context, Inlet, Outlet};
use forebay_sdk::values::read::Builder;
use forebay_sdk::values::write::Cells;

use super::TransformSettings;

/// A stream in memory: units of batches.
pub(super) struct Memory {
    columns: Vec<Column>,
    units: Vec<Unit>,
    batches: Vec<Vec<RecordBatch>>,
    pub(super) cursor: Option<Cursor>,
    /// The unit that fails after its rows.
    pub(super) fails: Option<usize>,
    /// Number of units that were read to their end or stopped.
    pub(super) ended: Arc<AtomicUsize>,
}

/// A column of a form and a type.
pub(super) fn column(name: &str, wire: Wire, sql_type: &str) -> Column {
    Column { name: name.into(), sql_type: sql_type.into(), wire, nullable: true }
}

/// A batch of rows as JSON arrays: `[1, "a", null]`.
pub(super) fn batch(columns: &[Column], rows: &[&str]) -> RecordBatch {
    let mut builders: Vec<Builder> = columns.iter().map(Builder::new).collect();
    for row in rows {
        let values: Vec<Box<serde_json::value::RawValue>> = serde_json::from_str(row).unwrap();
        assert_eq!(values.len(), columns.len(), "{row}");
        for (builder, value) in builders.iter_mut().zip(&values) {
            builder.json(value.get()).unwrap();
        }
    }
    let arrays = builders.iter_mut().map(Builder::finish).collect();
    RecordBatch::try_new(Arc::new(column::schema(columns)), arrays).unwrap()
}

/// The rows of batches as JSON arrays.
pub(super) fn rows(columns: &[Column], batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in batches {
        let cells: Vec<Cells<'_>> = batch
            .columns()
            .iter()
            .zip(columns)
            .map(|(array, column)| Cells::new(array, column).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let mut json = b"[".to_vec();
            for cells in &cells {
                if json.len() > 1 {
                    json.push(b',');
                }
                cells.json(row, &mut json);
            }
            json.push(b']');
            rows.push(String::from_utf8(json).unwrap());
        }
    }
    rows
}

impl Memory {
    /// A stream of units of batches.
    pub(super) fn new(columns: Vec<Column>, batches: Vec<Vec<RecordBatch>>) -> Self {
        let units = (0..batches.len()).map(|unit| Unit {
            name: format!("unit {unit}"),
            from: None,
            to: None,
            rows: None,
            bytes: None,
        });
        let units = units.collect();
        Self { columns, units, batches, cursor: None, fails: None, ended: Arc::default() }
    }

    /// A stream of one unit of one batch.
    pub(super) fn of(columns: Vec<Column>, rows: &[&str]) -> Self {
        let batch = batch(&columns, rows);
        Self::new(columns, vec![vec![batch]])
    }
}

#[async_trait]
impl SourceStream for Memory {
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
        self.cursor.clone()
    }

    fn notes(&self) -> Vec<String> {
        vec!["from memory".into()]
    }

    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()> {
        let mut read = Ok(());
        for batch in &self.batches[unit] {
            read = out.send(Rows::Records(batch.clone())).await;
            if read.is_err() {
                break;
            }
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        if self.fails == Some(unit) {
            let source = "the cable was pulled".into();
            return Err(ConnectorError::Unreachable { what: "the source".into(), source });
        }
        read
    }
}

/// The output of a unit.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) batches: Vec<RecordBatch>,
    pub(super) dead: Vec<DeadRow>,
    pub(super) result: Result<()>,
    pub(super) context: Context,
}

/// Reads a unit to its end.
pub(super) async fn read(stream: &Arc<dyn SourceStream>, unit: usize) -> Read {
    read_some(stream, unit, usize::MAX).await
}

/// Reads a unit until this many batches have arrived.
pub(super) async fn read_some(stream: &Arc<dyn SourceStream>, unit: usize, batches: usize) -> Read {
    let (context, _cancel) = Context::new("test");
    // Room for less than a batch: holding one while requesting room for another would wait forever.
    let (mut outlet, receiver) = Outlet::new(Budget::new(1), context.clone()).unwrap();
    let reading = async {
        let result = stream.read(unit, &mut outlet).await;
        drop(outlet);
        result
    };
    let (result, (batches, dead)) = tokio::join!(reading, taken(receiver, batches));
    Read { batches, dead, result, context }
}

async fn taken(mut receiver: Inlet, count: usize) -> (Vec<RecordBatch>, Vec<DeadRow>) {
    let (mut batches, mut dead) = (Vec::new(), Vec::new());
    while batches.len() < count {
        let Some(mut batch) = receiver.recv().await.unwrap() else { break };
        dead.append(&mut batch.dead);
        match &batch.rows {
            Rows::Records(records) if records.num_rows() == 0 => {}
            Rows::Records(records) => batches.push(records.clone()),
            Rows::Tuples(..) => panic!("a transform gives records"),
        }
    }
    (batches, dead)
}

/// Transforms, from their YAML.
pub(super) fn settings(yaml: &str) -> Vec<TransformSettings> {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Applies transforms to streams.
pub(super) async fn apply(
    yaml: &str,
    streams: Vec<(&str, Memory)>,
    memory: usize,
) -> Result<Vec<(String, Arc<dyn SourceStream>)>> {
    let streams = streams.into_iter().map(|(name, stream)| {
        let stream: Arc<dyn SourceStream> = Arc::new(stream);
        (name.to_owned(), stream)
    });
    let (context, _cancel) = Context::new("test");
    super::apply(&settings(yaml), streams.collect(), memory, &context).await
}

/// Applies transforms to a single stream, named `t`.
pub(super) async fn only(yaml: &str, stream: Memory) -> Result<Arc<dyn SourceStream>> {
    let mut streams = apply(yaml, vec![("t", stream)], 1 << 20).await?;
    assert_eq!(streams.len(), 1);
    Ok(streams.remove(0).1)
}
