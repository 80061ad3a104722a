//! Puts the same load on other engines.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::writer::Load;
use super::{Figures, Plan};

/// The rates of other engines by the name of the figure, one for each round.
#[derive(Debug, Default)]
pub(super) struct Rates(Vec<(String, Vec<f64>)>);

impl Rates {
    /// Measures one round of batches on each engine, synced and not.
    pub(super) fn batches(&mut self, plan: &Plan, scratch: &Path) -> anyhow::Result<()> {
        for peer in Peer::ALL {
            for synced in [false, true] {
                let load = Load { synced, ..plan.load() };
                let word = if synced { "synced_" } else { "" };
                self.measure(peer, word, plan, &load, scratch)?;
            }
        }
        Ok(())
    }

    /// Measures one round of single events on RocksDB.
    pub(super) fn singles(
        &mut self,
        plan: &Plan,
        load: &Load,
        scratch: &Path,
    ) -> anyhow::Result<()> {
        self.measure(Peer::RocksDb, "single_synced_", plan, load, scratch)
    }

    fn measure(
        &mut self,
        peer: Peer,
        word: &str,
        plan: &Plan,
        load: &Load,
        scratch: &Path,
    ) -> anyhow::Result<()> {
        let Some(program) = &plan.peers else { return Ok(()) };
        let seconds = peer.run(program, load, &scratch.join("peer"))?;
        let name = format!("{}_{word}per_s", peer.name());
        let rate = load.events as f64 / seconds;
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rates)) => rates.push(rate),
            None => self.0.push((name, vec![rate])),
        }
        Ok(())
    }

    /// Adds the median of every figure.
    pub(super) fn report(self, figures: &mut Figures) {
        for (name, rates) in self.0 {
            figures.median(&name, rates);
        }
    }
}

/// Another engine.
#[derive(Debug, Clone, Copy)]
enum Peer {
    RocksDb,
    Fjall,
}

impl Peer {
    const ALL: [Self; 2] = [Self::RocksDb, Self::Fjall];

    fn name(self) -> &'static str {
        match self {
            Self::RocksDb => "rocksdb",
            Self::Fjall => "fjall",
        }
    }

    /// Returns the seconds until the last acknowledgement, after checking that everything can be
    /// read back.
    fn run(self, program: &Path, load: &Load, dir: &Path) -> anyhow::Result<f64> {
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
