//! Puts the same load on another engine.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::writer::Load;

/// Another engine.
#[derive(Debug, Clone, Copy)]
pub(super) enum Peer {
    RocksDb,
    Fjall,
}

impl Peer {
    pub(super) const ALL: [Self; 2] = [Self::RocksDb, Self::Fjall];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RocksDb => "rocksdb",
            Self::Fjall => "fjall",
        }
    }

    /// Returns the seconds until the last acknowledgement, after checking that everything can be
    /// read back.
    pub(super) fn run(self, program: &Path, load: &Load, dir: &Path) -> anyhow::Result<f64> {
        let memory = load.options().memory_bound();
        let output = Command::new(program)
            .arg(self.name())
            .arg(dir)
            .args([load.events, load.writers, load.batch].map(|number| number.to_string()))
            .arg(load.synced.to_string())
            .arg(memory.to_string())
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} failed: {complaint}", self.name());
        std::fs::remove_dir_all(dir).context("cannot remove a peer's data")?;
        let found: serde_json::Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{} reported nothing: {complaint}", self.name()))?;
        let read_back = found["read_back"].as_u64();
        ensure!(read_back == Some(load.events), "{} lost events", self.name());
        found["seconds"].as_f64().context("a store did not report its time")
    }
}
