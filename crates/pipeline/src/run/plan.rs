//! What a run would do, without doing it.

use serde::Serialize;

use super::context::Context;
use super::engine::{Options, Pipeline};
use crate::connector::{Cursor, Form};
use crate::error::RunError;

/// What a run would do.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Units that are copied at once.
    pub parallelism: usize,
    /// Each stream.
    pub streams: Vec<StreamPlan>,
}

/// What a run would do with a stream.
#[derive(Debug, Clone, Serialize)]
pub struct StreamPlan {
    /// Its name in the source.
    pub stream: String,
    /// Its name in the destination.
    pub into: String,
    /// `tuples` where rows go through as the source's bytes, else `records`.
    pub form: &'static str,
    /// Its columns: name and type.
    pub columns: Vec<(String, String)>,
    /// What is done at the destination before and after.
    pub destination: Vec<String>,
    /// How it is read, and what is lost or made otherwise.
    pub notes: Vec<String>,
    /// The parts that are committed on their own.
    pub units: usize,
    /// Whether a run that was killed goes on with those that are left.
    pub resumable: bool,
    /// About how many rows.
    pub rows: Option<u64>,
    /// About how many bytes.
    pub bytes: Option<u64>,
    /// Where an incremental stream begins.
    pub since: Option<Cursor>,
    /// Where it will end.
    pub until: Option<Cursor>,
}

impl Pipeline<'_> {
    /// Looks at both sides and says what a run would do. Changes nothing.
    ///
    /// # Errors
    /// As a run before its first row.
    pub async fn plan(&self, context: &Context) -> Result<Plan, RunError> {
        let options = Options::default();
        let history = self.history(&options).await?;
        let streams = self.open(&options, &history, self.destination.form(), context).await?;
        let mut plans = Vec::with_capacity(streams.len());
        for opened in streams {
            let stream = &opened.stream;
            let name = &opened.settings.stream;
            let target = opened.target(self, context).await;
            let target = target.map_err(|error| RunError::of(name, error))?;
            let units = stream.units();
            let columns = stream.columns().iter();
            plans.push(StreamPlan {
                stream: name.clone(),
                into: opened.settings.into.clone(),
                form: if opened.form == Form::Tuples { "tuples" } else { "records" },
                columns: columns.map(|c| (c.name.clone(), c.sql_type.clone())).collect(),
                destination: target.plan(),
                notes: stream.notes(),
                units: units.len(),
                resumable: stream.units_are_stable() && units.len() > 1,
                rows: units.iter().map(|unit| unit.rows).sum(),
                bytes: units.iter().map(|unit| unit.bytes).sum(),
                since: opened.since.clone(),
                until: stream.cursor(),
            });
        }
        Ok(Plan {
            pipeline: self.file.pipeline.as_str().to_owned(),
            parallelism: self.parallelism(),
            streams: plans,
        })
    }

    /// Asks both sides who they are.
    ///
    /// # Errors
    /// [`RunError`], with the side that does not answer as it should.
    pub async fn check(&self) -> Result<(String, String), RunError> {
        let source = self.source.check().await.map_err(|error| RunError::of("source", error))?;
        let destination =
            self.destination.check().await.map_err(|error| RunError::of("destination", error))?;
        Ok((source, destination))
    }

    /// Forgets the loads of streams, so that the next run begins as if there had been none; rows stay.
    ///
    /// * `stream`: of this one only.
    /// * Returns each stream and how many loads were forgotten.
    ///
    /// # Errors
    /// [`RunError`]: another run writes the stream, or the destination cannot forget.
    pub async fn reset(&self, stream: Option<&str>) -> Result<Vec<(String, u64)>, RunError> {
        let mut forgotten = Vec::new();
        for target in self.possible_targets() {
            let name = target.stream.as_str();
            if stream.is_some_and(|stream| stream != name) {
                continue;
            }
            let claim = self.destination.claim(&target).await;
            let claim = claim.map_err(|error| RunError::of(name, error))?;
            let loads = self.destination.forget(&target).await;
            let loads = loads.map_err(|error| RunError::of(name, error))?;
            forgotten.push((name.to_owned(), loads));
            drop(claim);
        }
        Ok(forgotten)
    }

    /// Lists the streams of the source.
    ///
    /// # Errors
    /// [`RunError`].
    pub async fn discover(&self) -> Result<Vec<crate::connector::Discovered>, RunError> {
        self.source.discover().await.map_err(|error| RunError::of("source", error))
    }
}
