//! Writes one unit as one file, and its dead letters as another.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use forebay_sdk::batch::{Batch, Rows};
use forebay_sdk::bridge::Encoder;
use forebay_sdk::connector::{LedgerEntry, Load, Result, Unit, UnitWriter};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::hash::Hasher;
use forebay_sdk::run::Phase;

use super::dead::DeadLetters;
use super::format::Encode;
use super::ledger::{PartFile, file_name};
use super::store::{Room, Staged};
use super::target::Shared;

/// Writes one unit.
pub(super) struct FileWriter {
    shared: Arc<Shared>,
    load: Load,
    /// Name of its file.
    name: String,
    encoder: Encoder<Encoding>,
    file: Option<Box<dyn Staged>>,
    dead: DeadLetters,
}

struct Encoding {
    encode: Box<dyn Encode>,
    hasher: Hasher,
    out: Vec<u8>,
}

impl FileWriter {
    pub(super) fn new(shared: &Arc<Shared>, load: &Load, unit: &Unit) -> Result<Self> {
        let encoding = Encoding {
            encode: shared.layout.encode(&shared.columns)?,
            hasher: Hasher::new(&shared.columns)?,
            out: Vec::new(),
        };
        let name = file_name(load, &unit.name, &shared.layout.ending());
        let stem = name.split_once('.').map_or(&*name, |(stem, _)| stem);
        Ok(Self {
            shared: Arc::clone(shared),
            load: load.clone(),
            dead: DeadLetters::new(stem),
            name,
            encoder: Encoder::new(encoding),
            file: None,
        })
    }

    /// Writes the encoded output.
    async fn flush(&mut self) -> Result<()> {
        let begun = Instant::now();
        let encoding = self.encoder.state_mut()?;
        if encoding.out.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let room = if self.shared.is_replace { Room::Next } else { Room::Shown };
                self.file.insert(self.shared.store.stage(room, &self.name).await?)
            }
        };
        file.write(&mut encoding.out).await?;
        self.shared.context.phases.add(Phase::Flush, begun);
        Ok(())
    }
}

#[async_trait]
impl UnitWriter for FileWriter {
    async fn write(&mut self, batch: Batch) -> Result<()> {
        self.dead.add(&*self.shared.store, &batch.dead).await?;
        let Rows::Records(records) = &batch.rows else {
            return Err(ConnectorError::unsupported(
                "files cannot store the tuples of binary COPY",
                "send rows as Arrow",
            ));
        };
        let (records, shared) = (records.clone(), Arc::clone(&self.shared));
        // It covers the columns that are left out, too.
        let hash = batch.hash.filter(|_| !shared.chosen.is_partial());
        self.encoder
            .run(&self.shared.context.phases, move |encoding| {
                let records = shared.conform(&records)?;
                encoding.encode.write(&records, &mut encoding.out)?;
                match hash {
                    Some(hash) => encoding.hasher.add_hashed(hash),
                    None => encoding.hasher.add(&records)?,
                }
                Ok(())
            })
            .await?;
        // Its share of the budget is released when the rows are encoded and written.
        self.flush().await
    }

    async fn commit(mut self: Box<Self>, entry: LedgerEntry) -> Result<LedgerEntry> {
        let rows = self.encoder.state()?.hasher.content().rows;
        if rows > 0 {
            self.encoder
                .run(&self.shared.context.phases, |encoding| {
                    encoding.encode.finish(&mut encoding.out)
                })
                .await?;
            self.flush().await?;
        }
        let content = self.encoder.state()?.hasher.content();
        let begun = Instant::now();
        let dead_rows = self.dead.rows();
        let dead = self.dead.publish().await?;
        let dead = dead.map(|(name, bytes)| PartFile { name, rows: dead_rows, bytes });
        // A unit without rows has no file: see `columns_only` of the target.
        let file = match self.file.take().filter(|_| rows > 0) {
            Some(file) => {
                let bytes = file.publish().await?;
                Some(PartFile { name: self.name.clone(), rows, bytes })
            }
            None => None,
        };
        let hash = content.to_string();
        let entry = LedgerEntry { rows, dead: dead_rows, hash, ..entry };
        let committed = self.shared.commit(&self.load, entry, file, dead).await;
        self.shared.context.phases.add(Phase::Commit, begun);
        committed
    }
}
