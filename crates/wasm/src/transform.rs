//! A component as a transform.
//!
//! Invariant: one instance for each thread that transforms at the same time; batches of a unit may be transformed by
//! any of them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_sdk::ConnectorError;
use forebay_sdk::component::{Become as _, Column, PartReader, PartWriter};
use forebay_sdk::connector::Result;
use forebay_sdk::transform::{Applied, Position};
use parking_lot::Mutex;

use crate::instance::{Instance, Loaded, call, instantiate};
use crate::wit::transform as wit;
use crate::wit::transform_world::TransformConnector;
use crate::wit::types;

/// A transform that is ready.
pub struct WasmTransform {
    loaded: Loaded,
    config: Arc<str>,
    stream: String,
    before: Vec<Column>,
    columns: Vec<Column>,
    is_stable: bool,
    note: String,
    idle: Mutex<Vec<Instance<TransformConnector>>>,
}

impl WasmTransform {
    /// Prepares for a stream.
    ///
    /// # Errors
    /// Those of the component.
    pub async fn open(
        loaded: Loaded,
        config: Arc<str>,
        stream: &str,
        columns: &[Column],
    ) -> Result<Self> {
        let mut transform = Self {
            loaded,
            config,
            stream: stream.to_owned(),
            before: columns.to_vec(),
            columns: Vec::new(),
            is_stable: false,
            note: String::new(),
            idle: Mutex::default(),
        };
        let (instance, opened) = transform.instance().await?;
        transform.columns =
            opened.columns.into_iter().map(TryInto::try_into).collect::<Result<_>>()?;
        transform.is_stable = opened.is_stable;
        transform.note =
            format!("transformed by the component {}: {}", transform.loaded.name, opened.note);
        transform.idle.lock().push(instance);
        Ok(transform)
    }

    async fn instance(&self) -> Result<(Instance<TransformConnector>, wit::OpenedTransform)> {
        let mut instance = instantiate!(&self.loaded, None, TransformConnector)?;
        let of: Vec<types::Column> = self.before.iter().map(Into::into).collect();
        let opened = call!(
            self.loaded,
            &mut instance,
            "open a stream",
            forebay_connector_transform.call_open(&self.config, &self.stream, &of)
        )?;
        Ok((instance, opened))
    }

    /// The resulting columns.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Whether the same rows become the same in a later run.
    #[must_use]
    pub fn is_stable(&self) -> bool {
        self.is_stable
    }

    /// A note for a reader of the plan.
    #[must_use]
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Transforms rows.
    ///
    /// # Errors
    /// Those of the component.
    pub async fn apply(&self, position: Position<'_>, records: &RecordBatch) -> Result<Applied> {
        let idle = self.idle.lock().pop();
        let mut instance = match idle {
            Some(instance) => instance,
            None => self.instance().await?.0,
        };
        let part = PartWriter::new(&self.before).part(records)?;
        let position =
            wit::Position { unit: position.unit.to_owned(), rows_before: position.rows_before };
        let applied = call!(
            self.loaded,
            &mut instance,
            "transform",
            forebay_connector_transform.call_apply(&position, &types::Rows::Records(part))
        )?;
        let types::Rows::Records(part) = applied.rows else {
            return Err(self.broken("it returned rows that are not records"));
        };
        let after = PartReader::new(&self.columns).records(part)?;
        let after = after.ok_or_else(|| self.broken("it returned no rows"))?;
        let accounted = u64::try_from(after.num_rows())
            .ok()
            .and_then(|rows| rows.checked_add(applied.skipped))
            .and_then(|rows| rows.checked_add(applied.dead.len() as u64));
        if accounted != u64::try_from(records.num_rows()).ok() {
            return Err(self.broken("rows are neither passed on, nor dead letters, nor skipped"));
        }
        self.idle.lock().push(instance);
        Ok(Applied { records: after, dead: applied.dead.into_other(), skipped: applied.skipped })
    }

    fn broken(&self, found: &str) -> ConnectorError {
        ConnectorError::data(format!("the connector {}", self.loaded.name), found)
    }
}
