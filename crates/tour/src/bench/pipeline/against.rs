//! Compares two builds of this program, in turns on the same server.
//!
//! The time of a whole run and of each of its phases is compared, for several copies, and the time
//! a process takes before and after its run. A phase that takes a few milliseconds on both sides is
//! skipped: its ratio would be noise.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use forebay_sdk::run::PHASES;
use serde_json::Value;

use super::Stage;
use super::copies::{Ours, by, fill};
use crate::bench::Figures;

/// Seconds below which a phase is skipped.
const SHORTEST: f64 = 0.005;

/// The copies.
fn cases() -> [(&'static str, Ours<'static>); 4] {
    [
        ("copy_one", Ours::of("t")),
        ("copy_two", Ours { parallelism: 2, key: Some("id"), ..Ours::of("t") }),
        ("copy_100k", Ours::of("h")),
        ("insert_100k", Ours { load_method: "insert", ..Ours::of("h") }),
    ]
}

/// The times of one run.
struct Times {
    total: f64,
    /// Time of the process outside of the run.
    around: f64,
    phases: BTreeMap<&'static str, f64>,
}

fn take(stage: &Stage<'_>, program: &Path, ours: Ours<'_>) -> anyhow::Result<Times> {
    let (seconds, report) = by(stage, program, ours)?;
    let total = report.get("seconds").and_then(Value::as_f64).context("a run reported no time")?;
    let phase = |name: &'static str| {
        let spent = report.pointer(&format!("/phases/{name}")).and_then(Value::as_f64)?;
        Some((name, spent))
    };
    let phases = PHASES.iter().filter_map(|name| phase(name)).collect();
    Ok(Times { total, around: seconds - total, phases })
}

/// Compares this program with the build at `other`.
///
/// # Errors
/// A process failed, or a copy differs from its source.
pub(super) fn measure(
    stage: &Stage<'_>,
    other: &Path,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    fill(stage)?;
    let ours = std::env::current_exe().context("cannot determine the path of this program")?;
    for (name, case) in cases() {
        (stage.note)(&format!("{name}, by the other build and by this one in turns"));
        let (mut totals, mut around) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let mut phases: BTreeMap<&str, [Vec<f64>; 2]> = BTreeMap::new();
        // One unmeasured run warms what both read.
        take(stage, other, case)?;
        for round in 0..stage.plan.rounds {
            let mut programs = [(0, other), (1, ours.as_path())];
            if round % 2 == 1 {
                programs.reverse();
            }
            for (which, program) in programs {
                let taken = take(stage, program, case)?;
                totals[which].push(taken.total);
                around[which].push(taken.around);
                for (phase, spent) in taken.phases {
                    phases.entry(phase).or_default()[which].push(spent);
                }
            }
        }
        let [before, after] = &totals;
        let slower = before.iter().zip(after).filter(|(before, after)| **after > **before * 1.05);
        #[expect(clippy::cast_precision_loss, reason = "a few rounds")]
        figures.add(&format!("{name}_slower_rounds"), slower.count() as f64);
        figures.median(&format!("{name}_other_ms"), milliseconds(before));
        figures.median(&format!("{name}_this_ms"), milliseconds(after));
        figures.median(&format!("{name}_start_ratio"), ratios(&around));
        for (phase, both) in phases {
            if both.iter().any(|spent| median(spent) >= SHORTEST) {
                figures.median(&format!("{name}_{phase}_phase_ratio"), ratios(&both));
            }
        }
    }
    Ok(())
}

fn milliseconds(seconds: &[f64]) -> Vec<f64> {
    seconds.iter().map(|seconds| seconds * 1e3).collect()
}

/// Returns the ratio of this program to the other, by round.
fn ratios([before, after]: &[Vec<f64>; 2]) -> Vec<f64> {
    let least = 1e-4;
    before.iter().zip(after).map(|(before, after)| after.max(least) / before.max(least)).collect()
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
