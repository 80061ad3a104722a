//! `forebay bench`: measures the machine and Forebay in one run.
//!
//! The output is one flat JSON object of figures whose names end with the unit. Benchmarks are not
//! tests: they compare nothing with a limit, but they do not count work that was not done.
//!
//! Only a build with the feature `peers`, which is not shipped, starts other servers and tools to
//! compare with. The pipeline is measured only there: most of its figures are comparisons.

pub mod cache;
mod client;
mod disk;
mod documents;
pub mod events;
mod intake;
pub mod inventory;
mod jobs;
pub mod latency;
mod look_ups;
#[cfg(feature = "peers")]
pub mod pipeline;
#[cfg(feature = "peers")]
mod postgres;
mod published;
mod rows;
mod s3;
mod search;
mod steady;
mod upload;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

/// A part of the benchmark of the intake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum IntakePart {
    /// Small files beside the baseline.
    Small,
    /// Small files into a store with 100,000 files, and look-ups in it.
    Filled,
    /// One large file.
    Large,
    /// Small files at a steady rate beside a large one; measures small files first.
    Steady,
    /// Small files over the S3-compatible API.
    S3,
    /// The other tables published for the system this replaces.
    Published,
    /// Searches.
    Search,
    /// Documents into SQLite.
    Documents,
    /// Jobs.
    Jobs,
}

/// Whether a part is to be measured: every one if none is named.
fn wants<Part: PartialEq>(only: &[Part], part: &Part) -> bool {
    only.is_empty() || only.contains(part)
}

/// What to measure, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Scratch directory, on the disk to measure.
    pub dir: PathBuf,
    /// Number of rounds of each comparison.
    pub rounds: u32,
    /// Number of connections of the load.
    pub connections: usize,
    /// Duration of one round of a throughput measurement.
    pub lasting: Duration,
    /// Size of the large file.
    pub large_size: u64,
    /// Number of documents in a round.
    pub documents: i64,
    /// What to measure; everything if it is empty.
    pub only: Vec<IntakePart>,
    /// Program of another server for S3.
    #[cfg(feature = "peers")]
    pub versitygw: Option<PathBuf>,
}

/// Figures by name, in the order they were measured.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures(Map<String, Value>);

impl Figures {
    fn add(&mut self, name: &str, value: f64) {
        // More than three decimals would be noise on these machines.
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

    /// Returns a figure that was measured already.
    fn value(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    /// Returns the figures as one flat object.
    pub(crate) fn into_json(self) -> Value {
        Value::Object(self.0)
    }
}

/// Measures the intake.
///
/// # Errors
/// A server did not start, a response was not the expected one, or something read back differed
/// from what was sent.
pub fn intake(plan: &Plan, note: &dyn Fn(&str)) -> anyhow::Result<Value> {
    intake::run(plan, note).map(Figures::into_json)
}
