//! Measures the text protocol under the load described for the earlier system: 100 clients, a SET
//! and a GET at a time, in both server modes.
//!
//! Every GET is of a key that may have been set before; its reply is read completely, and an error
//! reply ends the measurement.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::peer::{Kind, Peer};
use super::{Figures, Plan};

pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    for (mode, words) in [
        ("text", &["--server", "per-connection"][..]),
        ("text_pooled", &["--server", "pooled", "--workers", "200"]),
    ] {
        for (size, name) in [(3, "3b"), (1_024, "1kb")] {
            let peer = start(scratch, &format!("{mode}-{name}"), words)?;
            let both = load(&peer, plan, size, 0.5)?;
            figures.add(&format!("{mode}_{name}_per_s"), number(&both, "requests_per_s")?);
            figures.add(&format!("{mode}_{name}_p95_us"), number(&both, "latency_p95_us")?);
            figures.add(&format!("{mode}_{name}_p99_us"), number(&both, "latency_p99_us")?);
            for (test, share) in [("set", 0.0), ("get", 1.0)] {
                let one = load(&peer, plan, size, share)?;
                // Each client sends one request at a time, so that the wait is measured.
                let mean = f64::from(plan.connections) * 1e6 / number(&one, "requests_per_s")?;
                figures.add(&format!("{mode}_{name}_{test}_us"), mean);
            }
            peer.stop()?;
        }
    }
    for workers in ["25", "100", "200", "500"] {
        let words = ["--server", "pooled", "--workers", workers];
        let peer = start(scratch, &format!("text-pool-{workers}"), &words)?;
        let both = load(&peer, plan, 100, 0.5)?;
        figures.add(&format!("text_pooled_{workers}_per_s"), number(&both, "requests_per_s")?);
        peer.stop()?;
    }
    Ok(())
}

fn start(scratch: &Path, name: &str, words: &[&str]) -> anyhow::Result<Peer> {
    Peer::start_with(Kind::Forebay, &scratch.join(name), false, words)
}

fn load(peer: &Peer, plan: &Plan, size: u32, reads: f64) -> anyhow::Result<Value> {
    let binary = std::env::current_exe().context("cannot determine the path of this program")?;
    let output = Command::new(binary)
        .args(["cache", "bench", "--json", "--text", &peer.text.to_string()])
        .args(["--clients", &plan.connections.to_string(), "--size", &size.to_string()])
        .args(["--read-share", &reads.to_string(), "--requests", &plan.requests.to_string()])
        .output()
        .context("cannot run the load generator")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the load generator failed: {errors}");
    serde_json::from_slice(&output.stdout).context("cannot parse the load generator's output")
}

fn number(figures: &Value, name: &str) -> anyhow::Result<f64> {
    figures[name].as_f64().with_context(|| format!("the load generator did not report {name}"))
}
