//! Copying the units of a stream, several in parallel, each until it is committed or has failed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_base::backoff::Backoff;
use forebay_pgcopy::ContentHash;
use forebay_sdk::connector::{LedgerEntry, Load, SourceStream, Target, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::{Budget, Inlet, Outlet};
use forebay_sdk::run::{Context, Phase};
use forebay_sdk::settings::TargetSettings;
use futures_util::future::join;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::task::JoinHandle;

use super::engine::Pipeline;

/// State for copying the units of a stream.
pub(super) struct Copying<'a> {
    pub(super) pipeline: &'a Pipeline<'a>,
    pub(super) stream: Arc<dyn SourceStream>,
    pub(super) target: Arc<dyn Target>,
    pub(super) settings: &'a TargetSettings,
    pub(super) load: &'a Load,
    pub(super) budget: &'a Budget,
    pub(super) context: &'a Context,
}

/// How long a source may take to notice that its rows are no longer needed.
const GRACE: Duration = Duration::from_secs(2);

/// A unit that is being read. Dropping it stops the source.
struct Reading {
    context: Context,
    inlet: Inlet,
    task: JoinHandle<Result<(), ConnectorError>>,
}

/// The result of copying.
pub(super) struct Copied {
    /// The units of this run.
    pub(super) units: Vec<Done>,
    /// Hash of all rows of the load, including those of earlier runs.
    pub(super) content: ContentHash,
}

/// A unit that is committed.
pub(super) struct Done {
    pub(super) entry: LedgerEntry,
    /// Number of its rows that transforms skipped.
    pub(super) skipped: u64,
}

/// Runs an operation within the permitted time.
///
/// * `act`: the operation, for messages.
pub(super) async fn within<T>(
    limit: Option<Duration>,
    act: String,
    doing: impl Future<Output = Result<T, ConnectorError>>,
) -> Result<T, ConnectorError> {
    let Some(limit) = limit else { return doing.await };
    tokio::time::timeout(limit, doing).await.unwrap_or_else(|_| {
        let source = format!("it took longer than `limits.timeout_seconds`, {limit:?}").into();
        Err(ConnectorError::Busy { act, source })
    })
}

/// The combined content hash of entries.
pub(super) fn content_of<'a>(
    entries: impl IntoIterator<Item = &'a LedgerEntry>,
) -> Result<ContentHash, ConnectorError> {
    let mut content = ContentHash::default();
    for entry in entries {
        let sum = u128::from_str_radix(&entry.hash, 16).map_err(|_| {
            ConnectorError::data("the ledger", format!("{:?} is not a content hash", entry.hash))
        })?;
        content.merge(ContentHash { rows: entry.rows, sum });
    }
    Ok(content)
}

impl Copying<'_> {
    /// Prepares the target and copies the units that no entry names. The first of them are read
    /// meanwhile, as far as there is room for their rows.
    pub(super) async fn units(
        &self,
        units: &[Unit],
        before: &[LedgerEntry],
    ) -> Result<Copied, ConnectorError> {
        let is_left = |unit: &Unit| !before.iter().any(|entry| entry.unit == unit.name);
        let left = units.iter().enumerate().filter(|(_, unit)| is_left(unit));
        let left: Vec<(usize, Unit)> = left.map(|(index, unit)| (index, unit.clone())).collect();
        let at_once = self.pipeline.parallelism().min(left.len()).max(1);
        let begun = left.iter().take(at_once).map(|(index, unit)| self.begin(*index, unit));
        let begun = begun.collect::<Result<Vec<_>, _>>()?;
        let (prepared, ()) = join(self.target.prepare(self.load), self.target.warm(at_once)).await;
        prepared?;
        let begun = begun.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let units: Vec<Done> = stream::iter(left.into_iter().zip(begun))
            .map(|((index, unit), begun)| async move { self.unit(index, &unit, begun).await })
            .buffer_unordered(at_once)
            .try_collect()
            .await?;
        let mut content = content_of(before)?;
        content.merge(content_of(units.iter().map(|done| &done.entry))?);
        Ok(Copied { units, content })
    }

    /// Copies a unit, with retries after transient failures.
    async fn unit(
        &self,
        index: usize,
        unit: &Unit,
        mut begun: Option<Reading>,
    ) -> Result<Done, ConnectorError> {
        let resources = &self.pipeline.file.resources;
        // Units that lost the same server return to it at different moments.
        let mut backoff = Backoff::new(resources.retry_after.get(), Duration::MAX);
        for attempt in 0.. {
            if self.context.is_cancelled() {
                return Err(ConnectorError::Stopped);
            }
            let reading = match begun.take() {
                Some(reading) => reading,
                None => self.begin(index, unit)?,
            };
            let read = reading.context.clone();
            let error = match self.attempt(reading, unit).await {
                Ok(entry) => return Ok(self.count(entry, &read)),
                Err(error) => error,
            };
            if !error.is_retryable() || attempt >= resources.max_retries {
                return Err(error);
            }
            let wait = backoff.delay();
            tracing::warn!(
                stream = self.settings.stream, unit = unit.name, attempt, wait = ?wait,
                error = %forebay_base::error_chain::chain(&error), "retrying a unit"
            );
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.context.cancelled() => return Err(ConnectorError::Stopped),
            }
            // The commit may have succeeded although its answer was lost.
            if let Some(entry) = self.committed(unit).await? {
                return Ok(self.count(entry, &read));
            }
        }
        Err(ConnectorError::Stopped)
    }

    /// Counts the rows of a unit that is committed.
    fn count(&self, entry: LedgerEntry, read: &Context) -> Done {
        let skipped = read.skipped();
        let moved = &self.context.moved;
        moved.rows_committed.fetch_add(entry.rows, Ordering::Relaxed);
        moved.rows_dead.fetch_add(entry.dead + skipped, Ordering::Relaxed);
        moved.units_committed.fetch_add(1, Ordering::Relaxed);
        Done { entry, skipped }
    }

    /// The entry of a unit, if it is committed.
    async fn committed(&self, unit: &Unit) -> Result<Option<LedgerEntry>, ConnectorError> {
        let last = self.pipeline.destination.last_load(self.settings).await;
        match last {
            Ok(Some((load, entries))) if load.id == self.load.id => {
                Ok(entries.into_iter().find(|entry| entry.unit == unit.name))
            }
            Ok(_) => Ok(None),
            // Does not exist yet: the next attempt fails for the same reason, and reads again.
            Err(error) if error.is_retryable() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Starts to read a unit.
    fn begin(&self, index: usize, unit: &Unit) -> Result<Reading, ConnectorError> {
        let context = self.context.of_reading();
        let (mut outlet, inlet) = Outlet::new(self.budget.clone(), context.clone())?;
        let stream = Arc::clone(&self.stream);
        let limit = self.pipeline.file.source.limits.timeout();
        let act = format!("read {}", unit.name);
        let task =
            tokio::spawn(async move { within(limit, act, stream.read(index, &mut outlet)).await });
        Ok(Reading { context, inlet, task })
    }

    /// Copies a unit in one attempt.
    async fn attempt(&self, reading: Reading, unit: &Unit) -> Result<LedgerEntry, ConnectorError> {
        let Reading { mut inlet, mut task, .. } = reading;
        let writing = async {
            let mut writer = self.target.writer(self.load, unit).await?;
            loop {
                let waiting = Instant::now();
                let batch = inlet.recv().await?;
                self.context.phases.add(Phase::Wait, waiting);
                let Some(batch) = batch else { return Ok(writer) };
                writer.write(batch).await?;
            }
        };
        let act = format!("write {}", unit.name);
        let limit = self.pipeline.file.destination.limits.timeout();
        let written = within(limit, act, writing).await;
        // When the inlet is dropped, a source that still sends stops. One that works on without
        // sending, such as an endless query, is aborted.
        drop(inlet);
        let writer = match written {
            Ok(writer) => writer,
            Err(error) => {
                if tokio::time::timeout(GRACE, &mut task).await.is_err() {
                    task.abort();
                }
                return Err(error);
            }
        };
        task.await.unwrap_or_else(|panicked| {
            Err(ConnectorError::Refused {
                act: format!("read {}", unit.name),
                source: panicked.into(),
            })
        })?;
        let entry = LedgerEntry {
            pipeline: self.settings.pipeline.clone(),
            stream: self.settings.stream.clone(),
            load: self.load.id.clone(),
            run: self.context.run.to_string(),
            unit: unit.name.clone(),
            rows: 0,
            dead: 0,
            hash: String::new(),
        };
        writer.commit(entry).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_takes_longer_than_it_may_is_given_up_and_may_be_tried_again() {
        let error = within::<()>(Some(Duration::ZERO), "read all".into(), std::future::pending());
        let error = error.await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        assert_eq!(error.to_string(), "temporarily unable to read all");
        let done = async { Ok(7) };
        assert_eq!(within(None, "read all".into(), done).await.unwrap(), 7);
        let failed = async { Err::<(), _>(ConnectorError::Stopped) };
        let failed = within(Some(Duration::MAX), "read all".into(), failed).await.unwrap_err();
        assert!(matches!(failed, ConnectorError::Stopped));
    }
}
