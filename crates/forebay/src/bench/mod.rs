//! `forebay bench`: what the machine can do, and what Forebay makes of it, in one run.
//!
//! The output is one flat JSON object of figures, units last in their names. Benchmarks are not
//! tests: they compare nothing with a bar, they only refuse to count work that did not happen.

pub(crate) mod cache;
mod client;
mod disk;
pub(crate) mod events;
pub(crate) mod floor;
mod intake;
pub(crate) mod inventory;
pub(crate) mod latency;
mod look_ups;
pub(crate) mod pipeline;
mod rows;
mod upload;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

/// What to measure and how long.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Where scratch data goes: the disk that is measured.
    pub(crate) dir: PathBuf,
    /// Rounds of each comparison.
    pub(crate) rounds: u32,
    /// Connections of the load.
    pub(crate) connections: usize,
    /// How long one round of a rate lasts.
    pub(crate) lasting: Duration,
    /// Bytes of the large file.
    pub(crate) large_size: u64,
    /// Documents in a round.
    pub(crate) documents: i64,
}

/// Figures by name, in the order they were taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures(Map<String, Value>);

impl Figures {
    fn add(&mut self, name: &str, value: f64) {
        // Three decimals say more than these machines can.
        let value = (value * 1_000.0).round() / 1_000.0;
        self.0.insert(name.to_owned(), serde_json::json!(value));
    }

    fn count(&mut self, name: &str, value: u64) {
        self.0.insert(name.to_owned(), serde_json::json!(value));
    }

    fn median(&mut self, name: &str, mut samples: Vec<f64>) {
        samples.sort_unstable_by(f64::total_cmp);
        if let Some(median) = samples.get(samples.len() / 2) {
            self.add(name, *median);
        }
    }

    /// The figures as one flat object.
    pub(crate) fn into_json(self) -> Value {
        Value::Object(self.0)
    }
}

/// Measures the intake.
///
/// # Errors
/// A server did not start, an answer was not the expected one, or something read back was not what
/// was sent.
pub(crate) fn intake(plan: &Plan, note: &dyn Fn(&str)) -> anyhow::Result<Value> {
    intake::run(plan, note).map(Figures::into_json)
}
