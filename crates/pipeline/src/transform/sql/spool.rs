//! A stream that a query reads more than once: read once, into a file, and from there as often as
//! needed.
//!
//! A source need not support reading a unit twice at the same time, and reading may be expensive.
//! And a query that needs rows of both readings in turn would wait forever if the source sent one
//! reading after the other.
//!
//! Invariant: once started, reading the stream continues by itself, whichever of the readers is
//! asked for rows, and ends early only with the query.

use std::io::{self, BufReader, BufWriter, Write};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use datafusion::error::{DataFusionError, Result};
use forebay_sdk::error::ConnectorError;
use futures_util::future::{BoxFuture, Shared};
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};

use super::scan::{Reading, Scan};
use super::spill::{Reader, Spill, Spills};

/// Number of bytes read and written at once.
const BUFFER_SIZE: usize = 128 << 10;

/// The file, once the stream is in it. If that failed, the reading has the reason.
pub(super) type Filled = Shared<BoxFuture<'static, Result<Spill, Failed>>>;

/// The stream could not be stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failed;

/// The rows of a stream, once they are in a file.
pub(super) fn rows(
    filled: Filled,
    reading: Arc<Reading>,
) -> BoxStream<'static, Result<RecordBatch>> {
    let rows = async move {
        let file = filled.await;
        let file = file.map_err(|Failed| reading.fail(ConnectorError::Stopped))?;
        Ok::<_, DataFusionError>(read(&file))
    };
    stream::once(rows).try_flatten().boxed()
}

/// Reads a stream into a file, from the first request on.
pub(super) fn fill(scan: Scan, spills: Arc<Spills>, reading: Arc<Reading>) -> Filled {
    let filled = async move {
        let task = tokio::spawn(async move {
            let filled = copy(scan, &spills, &reading).await;
            filled.map_err(|error| {
                // If the stream itself failed, it recorded that before, and that stays.
                drop(reading.fail(ConnectorError::data(
                    "a stream that the query reads more than once",
                    error.strip_backtrace(),
                )));
                Failed
            })
        });
        match task.await {
            Ok(filled) => filled,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Failed),
        }
    };
    filled.boxed().shared()
}

/// Reads a stream into a file, as long as the query is running.
async fn copy(mut scan: Scan, spills: &Spills, reading: &Reading) -> Result<Spill> {
    let file = spills.file().map_err(DataFusionError::IoError)?;
    let buffer = BufWriter::with_capacity(BUFFER_SIZE, file.writer());
    let mut writer = StreamWriter::try_new(buffer, scan.schema())?;
    while let Some(records) = scan.next().await {
        if reading.has_ended() {
            return Err(DataFusionError::Execution("the query has ended".into()));
        }
        writer.write(&records?)?;
    }
    writer.finish()?;
    writer.into_inner()?.flush().map_err(DataFusionError::IoError)?;
    Ok(file)
}

/// The batches of a file.
fn read(file: &Spill) -> BoxStream<'static, Result<RecordBatch>> {
    type Batches = StreamReader<BufReader<Reader>>;
    let file = file.clone();
    let begun: Option<Batches> = None;
    let batches = stream::try_unfold(begun, move |batches| {
        let file = file.clone();
        async move {
            let next = tokio::task::spawn_blocking(move || {
                let mut batches = match batches {
                    Some(batches) => batches,
                    None => {
                        let reader = BufReader::with_capacity(BUFFER_SIZE, file.reader());
                        StreamReader::try_new(reader, None)?
                    }
                };
                let next = batches.next().transpose()?;
                Ok::<_, DataFusionError>(next.map(|records| (records, Some(batches))))
            });
            next.await.map_err(|error| DataFusionError::IoError(io::Error::other(error)))?
        }
    });
    batches.boxed()
}
