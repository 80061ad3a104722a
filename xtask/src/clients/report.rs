//! What the task prints of the clients, and whether it fails.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::json;

use super::Outcome;

/// A client's line of the table.
pub(super) struct Line {
    pub(super) name: &'static str,
    /// What became of it, or why it was left out.
    pub(super) ended: Result<Outcome, String>,
    pub(super) took: Duration,
}

/// The lines for people.
pub(super) fn table(lines: &[Line]) -> String {
    let mut text = format!(
        "{:<20} {:>7} {:>7} {:>8} {:>6}\n",
        "client", "passed", "failed", "skipped", "took"
    );
    for line in lines {
        match &line.ended {
            Ok(ended) => {
                text.push_str(&format!(
                    "{:<20} {:>7} {:>7} {:>8} {:>4} s\n",
                    line.name,
                    ended.passed,
                    ended.failed.len(),
                    ended.skipped,
                    line.took.as_secs()
                ));
                for name in &ended.failed {
                    text.push_str(&format!("    FAILED {name}\n"));
                }
            }
            Err(why) => text.push_str(&format!("{:<20} SKIPPED: {why}\n", line.name)),
        }
    }
    text
}

/// Prints the lines for programs, on standard output.
///
/// # Errors
/// It is closed.
pub(super) fn println_json(lines: &[Line]) -> anyhow::Result<()> {
    let clients: Vec<_> = lines
        .iter()
        .map(|line| match &line.ended {
            Ok(ended) => json!({
                "client": line.name,
                "passed": ended.passed,
                "failed": ended.failed,
                "skipped": ended.skipped,
                "took_ms": u64::try_from(line.took.as_millis()).unwrap_or(u64::MAX),
            }),
            Err(why) => json!({ "client": line.name, "left_out": why }),
        })
        .collect();
    writeln!(std::io::stdout().lock(), "{}", json!({ "clients": clients }))
        .context("cannot write to standard output")
}

/// Fails if a test failed, or a client was left out where all are required.
///
/// # Errors
/// One of these.
pub(super) fn judge(lines: &[Line]) -> anyhow::Result<()> {
    let required = std::env::var_os("FOREBAY_REQUIRE_SERVICES").is_some_and(|word| word == "1");
    let mut wrong = Vec::new();
    for line in lines {
        match &line.ended {
            Ok(ended) if ended.failed.is_empty() && ended.passed > 0 => {}
            Ok(ended) if ended.failed.is_empty() => {
                wrong.push(format!("{}: no tests ran", line.name));
            }
            Ok(ended) => wrong.push(format!("{}: {} failed", line.name, ended.failed.len())),
            Err(why) if required => wrong.push(format!("{}: skipped: {why}", line.name)),
            Err(_) => {}
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("clients: {}", wrong.join("; "))
}
