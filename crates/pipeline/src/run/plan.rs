//! What a run would do, without doing it.

use forebay_sdk::connector::{Cursor, Form, Unit};
use forebay_sdk::run::Context;
use serde::Serialize;

use super::engine::{Options, Pipeline};
use crate::error::RunError;
use crate::transform;

/// What a run would do.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = PipelinePlan)]
pub struct Plan {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Number of units copied in parallel.
    pub parallelism: usize,
    /// Each stream.
    pub streams: Vec<StreamPlan>,
}

/// What a run would do with a stream.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = PipelineStreamPlan)]
pub struct StreamPlan {
    /// Its name in the source.
    pub stream: String,
    /// Its name in the destination.
    pub into: String,
    /// `tuples` if rows are passed through as the source's bytes, otherwise `records`.
    pub form: &'static str,
    /// Its columns: name and type.
    #[schema(value_type = Vec<Vec<String>>)]
    pub columns: Vec<(String, String)>,
    /// What is done at the destination before and after the rows.
    pub destination: Vec<String>,
    /// How it is read, and what is lost or changed.
    pub notes: Vec<String>,
    /// Its units.
    pub units: usize,
    /// Whether a killed run is continued with the remaining units.
    pub resumable: bool,
    /// Estimated number of rows.
    #[schema(required)]
    pub rows: Option<u64>,
    /// Estimated size in bytes.
    #[schema(required)]
    pub bytes: Option<u64>,
    /// Start of an incremental stream.
    #[schema(required)]
    pub since: Option<Cursor>,
    /// End of an incremental stream.
    #[schema(required)]
    pub until: Option<Cursor>,
}

impl Pipeline<'_> {
    /// Inspects both sides and reports what a run would do. Changes nothing.
    ///
    /// # Errors
    /// As a run before its first row.
    pub async fn plan(&self, context: &Context) -> Result<Plan, RunError> {
        let options = Options::default();
        let history = self.history(&options).await?;
        let streams = self.open(&options, &history, self.destination.form(), context).await?;
        let feed = self.feed_plan().await?;
        let mut plans = Vec::with_capacity(streams.len());
        for opened in streams {
            let stream = &opened.stream;
            let name = &opened.settings.stream;
            let target = opened.target(self, context).await;
            let target = target.map_err(|error| RunError::of(name, error))?;
            // Only its changes are read.
            let is_followed =
                feed.as_ref().is_some_and(|(_, followed)| followed.iter().any(|of| of == name));
            let units: &[Unit] = if is_followed { &[] } else { stream.units() };
            let columns = stream.columns().iter();
            let mut notes = if is_followed { Vec::new() } else { stream.notes() };
            notes.extend(feed.iter().map(|(note, _)| note.clone()));
            if let Some(load) = &opened.to_end {
                notes.push(format!(
                    "load {} of an earlier run is ended first: all its units are committed",
                    load.id
                ));
            }
            plans.push(StreamPlan {
                stream: name.clone(),
                into: opened.settings.into.clone(),
                form: if opened.form == Form::Tuples { "tuples" } else { "records" },
                columns: columns.map(|c| (c.name.clone(), c.sql_type.clone())).collect(),
                destination: if is_followed { Vec::new() } else { target.plan() },
                notes,
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

    /// Checks that both sides answer, that changes can be followed if they are to be, and that this build has
    /// the transforms; reports what the sides are.
    ///
    /// # Errors
    /// [`RunError`], with the side that does not answer correctly, or the transforms.
    pub async fn check(&self) -> Result<(String, String), RunError> {
        transform::check(&self.file.transforms)
            .map_err(|error| RunError::of("transforms", error))?;
        let source = self.source.check().await.map_err(|error| RunError::of("source", error))?;
        let destination =
            self.destination.check().await.map_err(|error| RunError::of("destination", error))?;
        if self.is_feed() {
            self.check_feed().await?;
        }
        Ok((source, destination))
    }

    /// Deletes the records of the loads of streams, so that the next run starts as if there had
    /// been none. The rows stay.
    ///
    /// * `stream`: only this one.
    /// * Returns each stream and the number of its loads.
    ///
    /// # Errors
    /// [`RunError`]: another run writes the stream, or the destination does not support this.
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
    pub async fn discover(&self) -> Result<Vec<forebay_sdk::connector::Discovered>, RunError> {
        self.source.discover().await.map_err(|error| RunError::of("source", error))
    }
}
