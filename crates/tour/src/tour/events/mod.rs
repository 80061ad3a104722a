//! The event store chapter of a tour: real log lines over HTTP, a kill, and proofs.
//!
//! The lines are sent to `/v1/events` over several connections; the server is killed in the middle
//! and sent the rest after the restart. A checkpoint is kept from before the kill. Then every
//! acknowledged line is read back and compared, events are proven and the proofs checked without
//! the server, the final tree is shown to extend that of the kept checkpoint, the stopped store is
//! verified from its bytes alone, and the verification of a copy with one changed byte is shown to
//! fail.

mod lines;
mod load;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail, ensure};
use forebay_base::fs::{FileSystem, RealFs};
use forebay_events::EventId;
use forebay_events::checkpoint::{Checkpoint, VerifierKey};
use forebay_events::merkle::{ConsistencyProof, InclusionProof};
use forebay_events::store::verify;
use serde_json::{Value, json};

use self::lines::Lines;
use self::load::Load;
use super::Plan;
use super::client::{Connection, Request, escape};
use super::inputs::Files;
use super::report::{Report, rate};
use super::stages::Checks;
use crate::child::Server;
use forebay_console::interrupt::Interrupt;
use forebay_console::out::size;

/// Number of events that are proven.
const PROOFS: usize = 200;

/// An event chapter in progress.
pub(super) struct Chapter<'a> {
    pub(super) plan: &'a Plan,
    pub(super) files: &'a Files,
    pub(super) interrupt: &'a Interrupt,
    /// Starts the server again.
    pub(super) start: &'a dyn Fn() -> anyhow::Result<Server>,
}

/// The measurements, and what is needed once the server has stopped.
#[derive(Debug, Default)]
pub(super) struct Measured {
    events: u64,
    bytes: u64,
    load_took: Duration,
    read_took: Duration,
    prove_took: Duration,
    proven: u64,
    restarted_in: Duration,
    verify_took: Duration,
    /// The checkpoint kept from before the kill, and its verifier key.
    kept: Option<(String, VerifierKey)>,
}

impl Chapter<'_> {
    /// Runs the chapter on a running server; returns the server that is running at the end.
    pub(super) fn run(
        &self,
        report: &mut Report,
        server: Server,
    ) -> anyhow::Result<(Server, Measured)> {
        report.chapter("The event store")?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let lines = lines::gather(self.files, u64::try_from(now.as_millis())?);
        report.line(format_args!(
            "  {} events, {}: the lines of {} logs under /var/log, and one for each file sent",
            lines.lines.len(),
            size(lines.bytes),
            lines.logs
        ))?;
        let mut measured = Measured::default();
        let server = self.load_and_kill(report, server, &lines, &mut measured)?;
        let mut asked = Asked { connection: Connection::new(server.address()) };
        self.read_back(report, &mut asked, &lines, &mut measured)?;
        self.prove(report, &mut asked, &lines, &mut measured)?;
        Ok((server, measured))
    }

    fn load_and_kill(
        &self,
        report: &mut Report,
        server: Server,
        lines: &Lines,
        measured: &mut Measured,
    ) -> anyhow::Result<Server> {
        let bar = report.bar("events", lines.bytes);
        let load = Load::new(&lines.lines, self.plan.connections, self.interrupt);
        let begun = Instant::now();
        // A third is acknowledged and signed for before the load that is interrupted.
        load.run(server.address(), lines.lines.len() / 3, None, &|bytes| bar.inc(bytes))?;
        let mut asked = Asked { connection: Connection::new(server.address()) };
        let key: VerifierKey = asked.text("/v1/events/key")?.trim().parse()?;
        let note = asked.text("/v1/events/checkpoint")?;
        let kept = Checkpoint::open(note.as_bytes(), &key)?;
        load.run(server.address(), usize::MAX, Some(server), &|bytes| bar.inc(bytes))?;
        measured.load_took = begun.elapsed();
        let acknowledged = load.acknowledged();
        let unanswered = load.unanswered();
        report.line(format_args!(
            "  SIGKILL after {acknowledged} acknowledged events, with {} in progress; a checkpoint \
             of {} was kept from before",
            unanswered.iter().map(|range| range.len()).sum::<usize>(),
            kept.size
        ))?;
        let server = (self.start)()?;
        measured.restarted_in = server.started_in;
        let mut asked = Asked { connection: Connection::new(server.address()) };
        let (mut whole, mut absent) = (0, 0);
        for range in unanswered {
            let there = range
                .clone()
                .filter_map(|at| lines.lines.get(at))
                .map(|line| asked.is_there(line.id))
                .collect::<anyhow::Result<Vec<bool>>>()?;
            if there.iter().all(|there| *there) {
                whole += 1;
                load.settle(range);
            } else {
                absent += 1;
                if there.contains(&true) {
                    let half = format!("events {range:?} were stored in part");
                    report.problems.push(half);
                }
                load.again(range);
            }
        }
        report.line(format_args!(
            "  unanswered batches: {whole} were stored completely, {absent} are sent again"
        ))?;
        let begun = Instant::now();
        load.run(server.address(), usize::MAX, None, &|bytes| bar.inc(bytes))?;
        measured.load_took += begun.elapsed();
        bar.finish_and_clear();
        (measured.events, measured.bytes) = (lines.lines.len() as u64, lines.bytes);
        measured.kept = Some((note, key));
        report.section(
            "events_kill",
            json!({ "acknowledged_before": acknowledged, "batches_whole": whole,
                    "batches_absent": absent, "checkpoint_kept": kept.size }),
        );
        Ok(server)
    }

    fn read_back(
        &self,
        report: &mut Report,
        asked: &mut Asked,
        lines: &Lines,
        measured: &mut Measured,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut expected: HashMap<EventId, &str> =
            lines.lines.iter().map(|line| (line.id, line.json.as_str())).collect();
        let mut problems = Vec::new();
        let mut count = 0u64;
        let mut cursor = String::new();
        loop {
            self.interrupt.check()?;
            let path = format!("/v1/events?stream=tour&order=oldest&limit=1000{cursor}");
            let page = asked.json(&path)?;
            for event in page["events"].as_array().into_iter().flatten() {
                count += 1;
                let id = event["id"].as_str().unwrap_or_default();
                let known = id.parse().ok().and_then(|id: EventId| expected.remove(&id));
                match (known, event["raw"].as_str()) {
                    (Some(sent), Some(raw)) if sent == raw => {}
                    (Some(_), _) => problems.push(format!("event {id} was changed")),
                    (None, _) => {
                        problems.push(format!("event {id} is duplicated, or was never sent"))
                    }
                }
            }
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={}", escape(next)),
                None => break,
            }
        }
        problems
            .extend(expected.keys().map(|id| format!("event {id} was acknowledged and is lost")));
        measured.read_took = begun.elapsed();
        let mut checks = Checks::new(report);
        checks.add("events, byte for byte, each once", count, problems)?;
        let rows = checks.rows();
        report.section("events_verification", rows);
        Ok(())
    }

    fn prove(
        &self,
        report: &mut Report,
        asked: &mut Asked,
        lines: &Lines,
        measured: &mut Measured,
    ) -> anyhow::Result<()> {
        let (note, key) = measured.kept.as_ref().context("no checkpoint was kept")?;
        let step = (lines.lines.len() / PROOFS).max(1);
        let mut problems = Vec::new();
        for line in lines.lines.iter().step_by(step) {
            self.interrupt.check()?;
            let begun = Instant::now();
            let proof = asked.json(&format!("/v1/events/{}/proof", line.id))?;
            measured.prove_took += begun.elapsed();
            measured.proven += 1;
            let proof: InclusionProof = serde_json::from_value(proof)?;
            let included = proof.verify(key).map_err(anyhow::Error::from).and_then(|included| {
                let event = forebay_events::format::leaf::decode(&included.leaf)?;
                ensure!(event.raw == line.json.as_bytes(), "another event was proven");
                Ok(())
            });
            if let Err(error) = included {
                problems.push(format!("the proof of event {} is not valid: {error:#}", line.id));
            }
        }
        let mut checks = Checks::new(report);
        checks.add("proofs, checked without the server", measured.proven, problems)?;
        let earlier = Checkpoint::open(note.as_bytes(), key)?;
        let latest = asked.text("/v1/events/checkpoint")?;
        let latest = Checkpoint::open(latest.as_bytes(), key)?;
        let (first, second) = (earlier.size, latest.size);
        let path = format!("/v1/events/proof/consistency?first={first}&second={second}");
        let proof: ConsistencyProof = serde_json::from_value(asked.json(&path)?)?;
        let problems = match proof.verify(key, &earlier) {
            Ok(_) => Vec::new(),
            Err(error) => vec![format!("the tree does not extend the kept one: {error}")],
        };
        checks.add("events extend the kept checkpoint", second, problems)
    }
}

/// Requests to the server, one at a time.
struct Asked {
    connection: Connection,
}

impl Asked {
    fn text(&mut self, path: &str) -> anyhow::Result<String> {
        let answer = self.connection.ask(Request::get(path)).with_context(|| path.to_owned())?;
        ensure!(answer.status == 200, "GET {path} was answered {}", answer.describe());
        String::from_utf8(answer.body).with_context(|| format!("{path} is not UTF-8"))
    }

    fn json(&mut self, path: &str) -> anyhow::Result<Value> {
        let text = self.text(path)?;
        serde_json::from_str(&text).with_context(|| format!("{path} is not JSON"))
    }

    fn is_there(&mut self, id: EventId) -> anyhow::Result<bool> {
        let path = format!("/v1/events/{id}");
        let answer = self.connection.ask(Request::get(&path)).with_context(|| path.clone())?;
        match answer.status {
            200 => Ok(true),
            404 => Ok(false),
            _ => bail!("GET {path} was answered {}", answer.describe()),
        }
    }
}

impl Measured {
    /// Returns the number of events compared.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Verifies the stopped store, and a copy of it with one changed byte.
    pub(super) fn check(
        &mut self,
        checks: &mut Checks<'_>,
        data: &Path,
        scratch: &Path,
    ) -> anyhow::Result<()> {
        let dir = forebay_console::layout::events(data);
        let (note, key) = self.kept.as_ref().context("no checkpoint was kept")?;
        let since = [note.clone()];
        let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
        let begun = Instant::now();
        let verified = verify(&fs, &dir, &since, Some(key), &|_| {})
            .with_context(|| format!("cannot verify {}", dir.display()))?;
        self.verify_took = begun.elapsed();
        let faults = verified.faults.iter().map(ToString::to_string).collect();
        checks.add("events re-hashed on disk (forebay events verify)", verified.events, faults)?;
        let copy = scratch.join("events-changed");
        change_one_byte(&dir, &copy)?;
        let found = verify(&fs, &copy, &since, Some(key), &|_| {})
            .with_context(|| format!("cannot verify {}", copy.display()))?;
        std::fs::remove_dir_all(&copy).context("cannot remove the changed copy")?;
        let problems = match found.faults.is_empty() {
            true => vec!["a changed byte in a copy of the event store was not detected".to_owned()],
            false => Vec::new(),
        };
        checks.add("changed byte in a copy, detected", 1, problems)
    }

    /// Adds the figures to the report.
    pub(super) fn add_figures(&self, report: &mut Report) {
        let events = self.events as f64;
        report.count("events", "events", self.events);
        let taken = rate(events, self.load_took);
        report.measure("events_per_s", "events stored, synced", taken, "/s");
        let read = rate(events, self.read_took);
        report.measure("events_read_per_s", "events read back, page by page", read, "/s");
        let prove = self.prove_took.as_secs_f64() * 1_000.0 / (self.proven as f64).max(1.0);
        report.measure("event_proof_ms", "a proof, requested over HTTP", prove, "ms");
        let restarted = self.restarted_in.as_secs_f64() * 1_000.0;
        report.measure("events_restart_ms", "restart after that kill", restarted, "ms");
        let verify = self.verify_took.as_secs_f64() * 1_000.0;
        report.measure("events_verify_ms", "events re-hashed, reserved log and all", verify, "ms");
    }
}

/// Copies a store and changes one byte in the middle of its newest events.
fn change_one_byte(dir: &Path, copy: &Path) -> anyhow::Result<()> {
    let mut largest: Option<(u64, std::path::PathBuf)> = None;
    for entry in walkdir::WalkDir::new(dir) {
        let entry = entry?;
        let to = copy.join(entry.path().strip_prefix(dir)?);
        if entry.file_type().is_dir() {
            std::fs::create_dir_all(&to)?;
            continue;
        }
        std::fs::copy(entry.path(), &to)
            .with_context(|| format!("cannot copy to {}", to.display()))?;
        let used = used_bytes(&to)?;
        if largest.as_ref().is_none_or(|(known, _)| used > *known) {
            largest = Some((used, to));
        }
    }
    let (used, path) = largest.context("the event store has no files")?;
    let mut bytes = std::fs::read(&path)?;
    let at = usize::try_from(used / 2)?;
    let byte = bytes.get_mut(at).context("the event store has no events")?;
    *byte ^= 0x40;
    std::fs::write(&path, bytes).context("cannot change the copy")
}

/// Returns the bytes of a file up to its last one that is not zero: a log's reserved end does not
/// count.
fn used_bytes(path: &Path) -> anyhow::Result<u64> {
    let bytes = std::fs::read(path)?;
    let last = bytes.iter().rposition(|&byte| byte != 0);
    Ok(last.map_or(0, |last| last as u64 + 1))
}
