//! `cargo xtask attack`: hostile checks against the real `forebay`, on this machine alone.
//!
//! Each check is a claim that an attacker would like to break. It starts separate servers on free
//! loopback ports, in a separate directory, with a time limit; a failure is reported with the
//! servers' logs, which are kept. Checks with missing requirements (root for a small disk, a
//! browser) are reported as skipped; with `FOREBAY_REQUIRE_SERVICES=1` that is a failure.
//!
//! `cargo xtask test` runs the quick checks without checking times: other tests share the machine.

mod bombs;
mod browser;
mod cancellation;
mod descriptors;
mod disk;
mod first;
mod keys;
mod load;
mod memory;
mod modes;
mod report;
mod server;
mod slow;
mod stage;
mod tour;
mod visitor;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};

use self::report::{Ended, Line};
use self::stage::{Skipped, Stage};
use crate::clients::server as binary;
use crate::command::say;

/// The areas of the checks.
const AREAS: [&str; 11] = [
    "browser",
    "keys",
    "modes",
    "descriptors",
    "disk-full",
    "slow-clients",
    "memory",
    "bombs",
    "cancellation",
    "first-command",
    "tour",
];
/// Runs only if it is named, because it takes long.
const NAMED_ONLY: &str = "tour";
/// How long a check may take to end after its servers were killed.
const GRACE: Duration = Duration::from_secs(20);

/// Arguments of the task.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct Args {
    /// Run only the checks in these areas [default: all but tour].
    #[arg(value_name = "AREA", value_parser = clap::builder::PossibleValuesParser::new(AREAS))]
    areas: Vec<String>,
    /// Run only the quick checks. Times are printed but not checked.
    #[arg(long)]
    quick: bool,
    /// Number of tours to run while other processes write to the disk.
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
    /// Attack this `forebay` program instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

impl Args {
    /// The quick checks, against the program that the tests of the workspace were run with.
    ///
    /// # Errors
    /// Cargo does not say where it is.
    pub(crate) fn after_tests() -> anyhow::Result<Self> {
        Ok(Self { quick: true, runs: 1, binary: Some(binary::built()?), ..Self::default() })
    }
}

/// A claim, and what tries to break it.
struct Check {
    area: &'static str,
    claim: &'static str,
    /// Whether it is run with the tests, too.
    is_quick: bool,
    /// Seconds it may take.
    limit_s: u64,
    /// Returns details; fails if the claim does not hold.
    run: fn(&Stage) -> anyhow::Result<String>,
}

impl Check {
    const fn quick(
        area: &'static str,
        claim: &'static str,
        run: fn(&Stage) -> anyhow::Result<String>,
    ) -> Self {
        Self { area, claim, is_quick: true, limit_s: 60, run }
    }

    const fn slow(
        area: &'static str,
        claim: &'static str,
        limit_s: u64,
        run: fn(&Stage) -> anyhow::Result<String>,
    ) -> Self {
        Self { area, claim, is_quick: false, limit_s, run }
    }
}

/// All checks. To add one: a function in its area's file, and a line in that file's list.
fn checks() -> impl Iterator<Item = &'static Check> {
    let areas: [&'static [Check]; 12] = [
        &browser::CHECKS,
        &visitor::CHECKS,
        &keys::CHECKS,
        &modes::CHECKS,
        &descriptors::CHECKS,
        &disk::CHECKS,
        &slow::CHECKS,
        &memory::CHECKS,
        &bombs::CHECKS,
        &cancellation::CHECKS,
        &first::CHECKS,
        &tour::CHECKS,
    ];
    areas.into_iter().flatten()
}

/// The task.
///
/// # Errors
/// A claim does not hold, or a check was skipped where all are required.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => binary::build()?,
    };
    let work = tempfile::Builder::new().prefix("forebay-attack-").tempdir();
    let work = work.context("cannot create a directory for the checks")?;
    let chosen = checks().filter(|check| match args.areas.is_empty() {
        true => check.area != NAMED_ONLY && (check.is_quick || !args.quick),
        false => args.areas.iter().any(|area| area == check.area),
    });
    let mut lines = Vec::new();
    for (number, check) in chosen.enumerate() {
        say(format_args!("{}: {} ...", check.area, check.claim));
        let dir = work.path().join(format!("{number:02}-{}", check.area));
        let stage = Stage::new(binary.clone(), dir, !args.quick, args.runs)?;
        let begun = Instant::now();
        let ended = run_one(check, stage);
        let line = Line { area: check.area, claim: check.claim, ended, took: begun.elapsed() };
        say(line.text());
        lines.push(line);
    }
    let is_sound = lines.iter().all(|line| !matches!(line.ended, Ended::Failed(_)));
    if !is_sound {
        say(format_args!("the servers' files are kept in {}", work.keep().display()));
    }
    report::print(&lines, args.json)?;
    report::judge(&lines)
}

/// Runs a check; one that exceeds its time limit has failed, and its servers are killed.
fn run_one(check: &'static Check, stage: Stage) -> Ended {
    let stage = Arc::new(stage);
    let (send, ended) = mpsc::channel();
    let working = Arc::clone(&stage);
    let thread = std::thread::spawn(move || {
        let result = (check.run)(&working);
        // Without a receiver the check exceeded its limit, which has been reported.
        send.send(result).unwrap_or_default();
    });
    let limit = Duration::from_secs(check.limit_s);
    let result = match ended.recv_timeout(limit) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(anyhow!("the check itself panicked")),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            stage.kill_all();
            let after = match ended.recv_timeout(GRACE) {
                Ok(Err(error)) => format!("; then: {error:#}"),
                _ => String::new(),
            };
            Err(anyhow!("not finished within {} s{after}", limit.as_secs()))
        }
    };
    stage.kill_all();
    if thread.is_finished() {
        // Its panic was reported as a failure above.
        thread.join().unwrap_or_default();
    }
    match result {
        Ok(note) => {
            stage.clean();
            Ended::Held(note)
        }
        Err(error) => match error.downcast::<Skipped>() {
            Ok(skipped) => Ended::Skipped(skipped.0),
            Err(error) => Ended::Failed(format!("{error:#}{}", stage.evidence())),
        },
    }
}

/// Fails with `why` unless `holds`.
fn claim(holds: bool, why: impl FnOnce() -> String) -> anyhow::Result<()> {
    if holds { Ok(()) } else { bail!(why()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_area_has_checks_and_every_check_an_area() {
        for area in AREAS {
            assert!(checks().any(|check| check.area == area), "{area}");
        }
        assert!(checks().all(|check| AREAS.contains(&check.area)));
        let mut claims: Vec<_> = checks().map(|check| (check.area, check.claim)).collect();
        let all = claims.len();
        claims.sort_unstable();
        claims.dedup();
        assert_eq!(claims.len(), all, "a claim is made twice");
    }

    fn ended(limit_s: u64, run: fn(&Stage) -> anyhow::Result<String>) -> Ended {
        let check = Check { area: "x", claim: "y", is_quick: true, limit_s, run };
        let dir = tempfile::tempdir().unwrap();
        let stage = Stage::new("/nowhere".into(), dir.path().join("x"), false, 1).unwrap();
        run_one(Box::leak(Box::new(check)), stage)
    }

    #[test]
    fn a_check_holds_fails_is_skipped_or_takes_too_long() {
        assert!(matches!(ended(60, |_| Ok("1 s".into())), Ended::Held(note) if note == "1 s"));
        assert!(matches!(ended(60, |_| bail!("no")), Ended::Failed(why) if why.contains("no")));
        let skipped = ended(60, |_| Err(Skipped("no root".into()).into()));
        assert!(matches!(skipped, Ended::Skipped(why) if why == "no root"));
        let stuck = ended(0, |stage| {
            // It ends when its processes do, as every wait for a server does.
            let mut endless = std::process::Command::new("tail");
            let mut endless = endless.args(["-f", "/dev/null"]).spawn()?;
            stage.note(endless.id());
            endless.wait()?;
            bail!("the server is gone")
        });
        assert!(matches!(stuck, Ended::Failed(why) if why.contains("within 0 s")));
    }
}
