//! The dead letters of a unit: rows that the destination refused, as JSON, one on a line.
//!
//! Invariant: without refused rows there is no file.

use forebay_sdk::batch::DeadRow;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;

use super::store::{Room, Staged, Store};

/// The dead letters of a unit.
pub(super) struct DeadLetters {
    name: String,
    rows: u64,
    file: Option<Box<dyn Staged>>,
}

impl DeadLetters {
    /// * `stem`: the name of the unit's file, without its ending.
    pub(super) fn new(stem: &str) -> Self {
        Self { name: format!("{stem}.dead.ndjson"), rows: 0, file: None }
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds refused rows.
    pub(super) async fn add(&mut self, store: &dyn Store, rows: &[DeadRow]) -> Result<()> {
        self.rows += rows.len() as u64;
        if rows.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        for row in rows {
            serde_json::to_writer(&mut lines, row).map_err(|error| ConnectorError::Refused {
                act: "encode a dead letter".into(),
                source: error.into(),
            })?;
            lines.push(b'\n');
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(store.stage(Room::Dead, &self.name).await?),
        };
        file.write(&mut lines).await
    }

    /// Publishes the file. Returns its name and its size in bytes; `None` if there is none.
    pub(super) async fn publish(&mut self) -> Result<Option<(String, u64)>> {
        match self.file.take() {
            Some(file) => Ok(Some((self.name.clone(), file.publish().await?))),
            None => Ok(None),
        }
    }
}
