//! Comparing both sides by their content hashes.

use forebay_base::error_chain::chain;
use forebay_pgcopy::{ContentHash, Encoder};
use forebay_sdk::ConnectorError;
use forebay_sdk::batch::Rows;
use forebay_sdk::connector::{Division, Opening, SourceStream, Target};
use forebay_sdk::run::Context;
use forebay_sdk::run::{Budget, Outlet};
use forebay_sdk::settings::{FeedForm, SyncMode};
use serde::Serialize;

use super::engine::Pipeline;
use crate::error::RunError;

/// The result of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Verification {
    /// Whether all streams are equal on both sides.
    pub same: bool,
    /// Each stream.
    pub streams: Vec<StreamVerification>,
}

/// The result for one stream.
#[derive(Debug, Clone, Serialize)]
pub struct StreamVerification {
    /// Its name in the source.
    pub stream: String,
    /// Its name in the destination.
    pub into: String,
    /// Whether rows and hashes are equal.
    pub same: bool,
    /// Number of rows in the source.
    pub source_rows: u64,
    /// Number of rows in the destination.
    pub destination_rows: u64,
    /// Content hash of the source.
    pub source_hash: String,
    /// Content hash of the destination.
    pub destination_hash: String,
}

impl Pipeline<'_> {
    /// Reads both sides completely and compares them.
    ///
    /// # Errors
    /// [`RunError`]. A difference is not an error.
    pub async fn verify(&self, context: &Context) -> Result<Verification, RunError> {
        if !self.file.transforms.is_empty() {
            let error = ConnectorError::unsupported(
                "with transforms the two sides differ by design",
                "verify a pipeline without transforms",
            );
            return Err(RunError::of("transforms", error));
        }
        if self.is_feed() && self.file.destination.feed_form() == FeedForm::Log {
            let error = ConnectorError::unsupported(
                "a log of changes has other rows than the source",
                "verify a pipeline with `write_mode: upsert`",
            );
            return Err(RunError::of("destination.write_mode", error));
        }
        let mut streams = Vec::new();
        for stream in &self.file.source.streams {
            let compared = self.compare(stream, context).await;
            streams.push(compared.map_err(|error| RunError::of(&stream.name, error))?);
        }
        Ok(Verification { same: streams.iter().all(|stream| stream.same), streams })
    }

    async fn compare(
        &self,
        stream: &forebay_sdk::settings::StreamSettings,
        context: &Context,
    ) -> Result<StreamVerification, ConnectorError> {
        let settings = self.target_settings(&stream.name, stream.target());
        let whole = forebay_sdk::settings::StreamSettings {
            // What is followed is compared as it is copied.
            sync_mode: match stream.sync_mode {
                SyncMode::Cdc => SyncMode::Cdc,
                SyncMode::FullRefresh | SyncMode::Incremental => SyncMode::FullRefresh,
            },
            ..stream.clone()
        };
        let mut opening = Opening {
            form: self.destination.form(),
            since: None,
            division: Division::Whole,
            unit_size: u64::MAX,
            batch_size: 1 << 20,
            memory: self.budget(),
            parallelism: 1,
            snapshot: None,
        };
        let mut open = self.source.open(&whole, &opening, context).await?;
        let target = self.destination.open(&settings, open.columns(), context).await?;
        if !target.takes_tuples() && opening.form == forebay_sdk::connector::Form::Tuples {
            opening.form = forebay_sdk::connector::Form::Records;
            open = self.source.open(&whole, &opening, context).await?;
        }
        let (source, destination) =
            tokio::try_join!(content(open, &*target, context), target.content())?;
        Ok(StreamVerification {
            stream: stream.name.clone(),
            into: settings.into,
            same: source == destination,
            source_rows: source.rows,
            destination_rows: destination.rows,
            source_hash: source.to_string(),
            destination_hash: destination.to_string(),
        })
    }
}

/// The content hash of a whole stream, with the columns and values that its target stores.
async fn content(
    stream: std::sync::Arc<dyn SourceStream>,
    target: &dyn Target,
    context: &Context,
) -> Result<ContentHash, ConnectorError> {
    let mut content = ContentHash::default();
    let stored = target.stored();
    let columns = stored.as_deref().unwrap_or(stream.columns());
    let mut encoder = None;
    for unit in 0..stream.units().len() {
        let (mut outlet, mut inlet) = Outlet::new(Budget::new(16 << 20), context.clone())?;
        let reading = std::sync::Arc::clone(&stream);
        let reading = tokio::spawn(async move { reading.read(unit, &mut outlet).await });
        while let Some(batch) = inlet.recv().await? {
            match &batch.rows {
                Rows::Tuples(_, hash) => content.merge(*hash),
                Rows::Records(records) => {
                    let records = target.as_stored(records)?;
                    let encoder = match &encoder {
                        Some(encoder) => encoder,
                        None => {
                            let made = Encoder::new(&records.schema(), columns);
                            &*encoder.insert(made.map_err(|e| {
                                ConnectorError::data("columns", chain(&e).to_string())
                            })?)
                        }
                    };
                    let hash = encoder.hash(&records);
                    content.merge(
                        hash.map_err(|e| ConnectorError::data("a batch", chain(&e).to_string()))?,
                    );
                }
            }
        }
        reading.await.unwrap_or_else(|panicked| {
            Err(ConnectorError::Refused { act: "read".into(), source: panicked.into() })
        })?;
    }
    Ok(content)
}
