//! `component`: rows pass through a connector that is a WebAssembly component.
//!
//! Invariant: a batch is handed over and taken back before the next; what the component does with it is checked by what
//! runs it.

pub(super) mod settings;

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_pgcopy::Column;
use forebay_sdk::connector::Result;
use forebay_sdk::transform::{Applied, Position, Transform};

use super::step::{BatchPosition, Step};

/// A component as a step.
pub(super) struct Component(pub(super) Arc<dyn Transform>);

#[async_trait]
impl Step for Component {
    fn columns(&self) -> &[Column] {
        self.0.columns()
    }

    fn is_stable(&self) -> bool {
        self.0.is_stable()
    }

    fn note(&self) -> String {
        self.0.note()
    }

    async fn apply(&self, place: BatchPosition<'_>, records: RecordBatch) -> Result<Applied> {
        let position = Position { unit: place.name, rows_before: place.rows_before };
        self.0.apply(position, records).await
    }
}
