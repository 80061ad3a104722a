//! Tours beside others who write to the disk and use the processors.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::Context as _;

use super::stage::Stage;
use super::{Check, claim};

pub(super) const CHECKS: [Check; 1] = [Check::slow(
    "tour",
    "every tour passes while other processes load the disk and the processors",
    6 * 60 * 60,
    tours,
)];

/// Who writes to the disk, and what: each file is synced and written again.
const WRITERS: usize = 3;
const WRITTEN_MIB: u32 = 256;
/// Who does nothing but compute.
const BUSY: usize = 4;
/// Seconds of one tour.
const TOUR_MAX_S: u32 = 1_800;

/// Processes that end with this value.
struct Others(Vec<Child>);

impl Others {
    fn start(stage: &Stage) -> anyhow::Result<Self> {
        let mut others = Self(Vec::new());
        let write = format!(
            "while :; do dd if=/dev/zero of=\"$0\" bs=1M count={WRITTEN_MIB} conv=fsync; done"
        );
        for number in 0..WRITERS {
            let file = stage.dir.join(format!("written-{number}"));
            others.spawn(stage, Command::new("sh").arg("-c").arg(&write).arg(file))?;
        }
        for _ in 0..BUSY {
            others.spawn(stage, Command::new("sh").arg("-c").arg("while :; do :; done"))?;
        }
        Ok(others)
    }

    fn spawn(&mut self, stage: &Stage, command: &mut Command) -> anyhow::Result<()> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn().context("cannot start a writer")?;
        stage.note(child.id());
        self.0.push(child);
        Ok(())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that is gone already needs no end.
            child.kill().and_then(|()| child.wait()).map(drop).unwrap_or_default();
        }
    }
}

fn tours(stage: &Stage) -> anyhow::Result<String> {
    let others = Others::start(stage)?;
    let (mut longest, runs) = (0, stage.runs);
    for run in 1..=runs {
        let begun = Instant::now();
        let output = stage.run(&["tour", "--quiet"], TOUR_MAX_S)?;
        let took = begun.elapsed().as_secs();
        longest = longest.max(took);
        let said = String::from_utf8_lossy(&output.stderr);
        claim(output.status.success(), || {
            let stdout = String::from_utf8_lossy(&output.stdout);
            format!(
                "tour {run} of {runs} exited with {} after {took} s: {stdout}{said}",
                output.status
            )
        })?;
        crate::command::say(format_args!("  tour {run} of {runs}: passed, {took} s"));
    }
    drop(others);
    Ok(format!("{runs} tours, the longest {longest} s"))
}
