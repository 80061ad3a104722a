//! The stages of a tour, from the first request to the last check.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use forebay_base::fs::RealFs;
use forebay_intake::answer::file_url;
use forebay_intake::fsck::{FsckProgress, fsck};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::{Connection, Request, begin_upload};
use super::inputs::{Documents, Files};
use super::jobs::{self, Prepared};
use super::load::{Load, Todo};
use super::oracle::{Kept, Key};
use super::report::{self, Report, rate};
use super::tally::Tally;
use super::verify::{Presence, Verifier};
use super::{Plan, cache, disk_bytes, events, inventory, queue};
use crate::child::Server;
use forebay_console::interrupt::Interrupt;

/// Destination of an upload that is never finished.
const CUT: (&str, &str) = ("tour-cut", "half-sent");
const CUT_SIZE: usize = 1 << 20;

/// A tour in progress.
pub(super) struct Tour<'a> {
    plan: &'a Plan,
    files: &'a Files,
    documents: &'a Documents,
    interrupt: &'a Interrupt,
    data: &'a Path,
    /// Path of the server's log.
    pub(super) log: PathBuf,
    pub(super) tally: Tally,
    load_took: Duration,
    recovery: Duration,
    recovery_open_ms: u64,
    read_back: (u64, Duration),
    memory_peak: u64,
    fsck_took: Duration,
}

/// The log entry of a starting server about its data.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct StartLog {
    clean: bool,
    torn_bytes: u64,
    catalogue_entries: u64,
    document_commits: u64,
    staging_removed: u64,
    orphans_removed: u64,
    files: u64,
    took_ms: u64,
}

impl<'a> Tour<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        files: &'a Files,
        documents: &'a Documents,
        interrupt: &'a Interrupt,
        data: &'a Path,
        scratch: &Path,
    ) -> Self {
        Self {
            plan,
            files,
            documents,
            interrupt,
            data,
            log: scratch.join("server.log"),
            tally: Tally::default(),
            load_took: Duration::ZERO,
            recovery: Duration::ZERO,
            recovery_open_ms: 0,
            read_back: (0, Duration::ZERO),
            memory_peak: 0,
            fsck_took: Duration::ZERO,
        }
    }

    /// Sends everything, killing the server in the middle; returns the server that is running at
    /// the end.
    pub(super) fn load_and_kill(&mut self, report: &mut Report) -> anyhow::Result<Server> {
        report.chapter("Sending")?;
        let server = self.start()?;
        report.line(format_args!(
            "  the server listens on {}; its data is in {}",
            server.address(),
            self.data.display()
        ))?;
        let run = uuid::Uuid::now_v7().simple().to_string();
        let queue: VecDeque<Todo> =
            jobs::plan(self.files, self.documents, &run).into_iter().map(Todo::New).collect();
        let documents_bytes: usize =
            self.documents.sets.values().flatten().map(|text| text.len()).sum();
        let bar = report.bar("sending", self.files.chosen_bytes + documents_bytes as u64);
        let begun = Instant::now();
        let left = self.load_until_kill(server, queue, &bar)?;
        self.load_took = begun.elapsed();
        let before = self.tally.requests;
        let cut = std::mem::take(&mut self.tally.unacknowledged);
        report.chapter("Kill and restart")?;
        report.line(format_args!(
            "  SIGKILL after {before} acknowledged requests, {} in progress and one upload half sent",
            cut.len()
        ))?;
        let server = self.start()?;
        self.recovery = server.started_in;
        self.report_recovery(report)?;
        self.look_at_cut(report, &server, &cut)?;
        let again = cut.len();
        let mut queue: VecDeque<Todo> =
            cut.into_iter().map(|request| Todo::Again(Box::new(request))).collect();
        queue.extend(left);
        report.line(format_args!(
            "  continuing: {again} requests again under the same Idempotency-Key, {} new ones",
            queue.len() - again
        ))?;
        let begun = Instant::now();
        let calm = AtomicBool::new(false);
        let load = self.load(&server, &calm);
        let (tally, documents) = (&mut self.tally, self.documents);
        load.run(queue, &mut |event| {
            bar.inc(tally.take(event, documents)?);
            Ok(())
        })?;
        self.load_took += begun.elapsed();
        bar.finish_and_clear();
        report.line(format_args!(
            "  {} of the repeated requests were completed before the kill and not executed again",
            self.tally.replayed
        ))?;
        report.problems.append(&mut self.tally.problems);
        Ok(server)
    }

    fn start(&self) -> anyhow::Result<Server> {
        self.interrupt.check()?;
        let sources = inventory::sources(self.files);
        let command = [&cache::SERVE[..], &["--set", &sources]].concat();
        Server::start(&command, self.data, &self.log)
    }

    /// Sends the same to the cache; returns the server that is running at the end, and the
    /// measurements.
    pub(super) fn cache(
        &mut self,
        report: &mut Report,
        server: Server,
    ) -> anyhow::Result<(Server, cache::Measured)> {
        self.memory_peak = self.memory_peak.max(server.memory("VmHWM")?);
        cache::Chapter {
            plan: self.plan,
            files: self.files,
            documents: self.documents,
            interrupt: self.interrupt,
            log: &self.log,
            start: &|| self.start(),
        }
        .run(report, server)
    }

    /// Sends log lines to the event store; returns the server that is running at the end, and the
    /// measurements.
    pub(super) fn events(
        &mut self,
        report: &mut Report,
        server: Server,
    ) -> anyhow::Result<(Server, events::Measured)> {
        events::Chapter {
            plan: self.plan,
            files: self.files,
            interrupt: self.interrupt,
            start: &|| self.start(),
        }
        .run(report, server)
    }

    /// Indexes the tree and the server's own files; returns the server that is running at the end,
    /// and the measurements.
    pub(super) fn inventory(
        &mut self,
        report: &mut Report,
        server: Server,
        scratch: &Path,
    ) -> anyhow::Result<(Server, inventory::Measured)> {
        inventory::Chapter {
            files: self.files,
            oracle: &self.tally.oracle,
            interrupt: self.interrupt,
            data: self.data,
            scratch,
            start: &|| self.start(),
        }
        .run(report, server)
    }

    /// Submits jobs, and kills the server before they have run; returns the server that is running at the
    /// end.
    pub(super) fn jobs(&mut self, report: &mut Report, server: Server) -> anyhow::Result<Server> {
        queue::Chapter { interrupt: self.interrupt, start: &|| self.start() }.run(report, server)
    }

    fn load<'x>(&self, server: &Server, dying: &'x AtomicBool) -> Load<'x>
    where
        'a: 'x,
    {
        Load {
            files: self.files,
            documents: self.documents,
            address: server.address(),
            connections: self.plan.connections,
            dying,
            interrupt: self.interrupt,
        }
    }

    /// Sends until half of the requests are acknowledged, then kills the server; returns what was
    /// not sent yet.
    fn load_until_kill(
        &mut self,
        server: Server,
        queue: VecDeque<Todo>,
        bar: &ProgressBar,
    ) -> anyhow::Result<VecDeque<Todo>> {
        let dying = AtomicBool::new(false);
        let load = self.load(&server, &dying);
        let address = server.address();
        let kill_at = queue.len() as u64 / 2;
        let mut server = Some(server);
        let mut half: Option<TcpStream> = None;
        let (tally, documents, peak) = (&mut self.tally, self.documents, &mut self.memory_peak);
        let left = load.run(queue, &mut |event| {
            bar.inc(tally.take(event, documents)?);
            if half.is_none() && tally.requests >= kill_at / 2 && server.is_some() {
                let begun = begin_upload(address, &file_url(CUT.0, CUT.1), CUT_SIZE);
                half = Some(begun.context("cannot begin an upload")?);
            }
            if tally.requests >= kill_at
                && let Some(server) = server.take()
            {
                *peak = server.memory("VmHWM")?;
                dying.store(true, Ordering::SeqCst);
                server.kill()?;
            }
            Ok(())
        })?;
        // A load whose requests were mostly unreadable ends before its middle.
        if let Some(server) = server {
            self.memory_peak = server.memory("VmHWM")?;
            server.kill()?;
        }
        drop(half);
        Ok(left)
    }

    fn report_recovery(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let log = std::fs::read_to_string(&self.log)
            .with_context(|| format!("cannot read {}", self.log.display()))?;
        let logged = log.lines().rev().find(|line| line.contains("\"intake open\""));
        let logged: StartLog = logged
            .map(serde_json::from_str)
            .transpose()
            .context("cannot read what the server logged at its start")?
            .unwrap_or_default();
        self.recovery_open_ms = logged.took_ms;
        report.line(format_args!(
            "  responding again after {:.0} ms ({} ms of it recovery): {} files known, {} log \
             entries and {} document commits applied",
            self.recovery.as_secs_f64() * 1_000.0,
            logged.took_ms,
            logged.files,
            logged.catalogue_entries,
            logged.document_commits
        ))?;
        report.line(format_args!(
            "  removed after the kill: {} torn bytes at the end of the log, {} unfinished \
             uploads, {} blobs without a name",
            logged.torn_bytes, logged.staging_removed, logged.orphans_removed
        ))?;
        report.section("recovery", logged);
        Ok(())
    }

    /// Checks that each upload that was interrupted left a complete file or none.
    fn look_at_cut(
        &mut self,
        report: &mut Report,
        server: &Server,
        cut: &[Prepared],
    ) -> anyhow::Result<()> {
        let verifier = self.verifier(server);
        let (mut whole, mut absent, mut half) = (0_u64, 0_u64, 0_u64);
        let files: Vec<&(Key, Kept)> = cut.iter().flat_map(|request| request.files()).collect();
        for (key, kept) in files {
            match verifier.presence(key, kept)? {
                Presence::Whole => whole += 1,
                Presence::Absent => absent += 1,
                Presence::Half(problem) => {
                    half += 1;
                    report.problems.push(format!("incomplete after the kill: {problem}"));
                }
            }
        }
        let path = file_url(CUT.0, CUT.1);
        let answer = Connection::new(server.address()).ask(Request::get(&path));
        let status = answer.context("cannot request the half-sent file")?.status;
        if status != 404 {
            half += 1;
            report.problems.push(format!("{}/{}: a half-sent file exists", CUT.0, CUT.1));
        }
        report.line(format_args!(
            "  files of the unanswered requests: {whole} complete, {absent} absent, {half} incomplete; \
             the half-sent upload is {}",
            if status == 404 { "absent" } else { "PRESENT" }
        ))?;
        let cut = json!({ "requests": cut.len(), "files_whole": whole, "files_absent": absent,
                          "files_half": half, "acknowledged_before": self.tally.requests });
        report.section("kill", cut);
        Ok(())
    }

    fn verifier(&self, server: &Server) -> Verifier<'a> {
        Verifier {
            address: server.address(),
            connections: self.plan.connections,
            interrupt: self.interrupt,
        }
    }

    /// Reports what was stored.
    pub(super) fn report_inputs(&self, report: &mut Report) -> anyhow::Result<()> {
        if self.tally.oracle.files.is_empty() {
            report.problems.push("the server acknowledged no file".to_owned());
        }
        report::classification(report, &self.tally)?;
        report::decisions(report, &self.tally)
    }

    /// Reads everything acknowledged back and compares it.
    pub(super) fn read_back(&mut self, report: &mut Report, server: &Server) -> anyhow::Result<()> {
        report.chapter("Reading everything back")?;
        let verifier = self.verifier(server);
        let oracle = &self.tally.oracle;
        let bytes = oracle.files.values().map(|kept| kept.size).sum();
        let bar = report.bar("reading", bytes);
        let begun = Instant::now();
        let (problems, bytes) = verifier.files(oracle, &|size| bar.inc(size))?;
        self.read_back = (bytes, begun.elapsed());
        bar.finish_and_clear();
        let mut checks = Checks::new(report);
        let count = oracle.files.len() as u64;
        checks.add("files: size, SHA-256 and ETag", count, problems)?;
        let listed = verifier.listing()?;
        let differences = oracle.listing_differences(&listed);
        checks.add("files in the listing, no others", listed.len() as u64, differences)?;
        let (asked, problems) = verifier.ranges_and_tags(oracle)?;
        checks.add("files: Range 206 and If-None-Match 304", asked, problems)?;
        for (namespace, texts) in oracle.documents.iter().filter(|(_, texts)| texts.count > 0) {
            let found = verifier.documents(namespace)?;
            let problems = texts.differences(&found.texts);
            let problems =
                problems.into_iter().map(|text| format!("{namespace}: {text}")).collect();
            let what = format!(
                "documents of {namespace} ({}, {} columns), byte for byte",
                found.target, found.columns
            );
            checks.add(&what, found.texts.count, problems)?;
        }
        let rows = checks.rows();
        report.section("verification", rows);
        Ok(())
    }

    /// Stops the server and re-hashes what is on disk.
    pub(super) fn stop_and_check(
        &mut self,
        report: &mut Report,
        server: Server,
        events: &mut events::Measured,
        scratch: &Path,
    ) -> anyhow::Result<()> {
        self.interrupt.check()?;
        server.stop()?;
        let dir = forebay_console::layout::intake(self.data);
        let bar = report.bar("fsck", 0);
        let begun = Instant::now();
        let found = fsck(&dir, Arc::new(RealFs), |FsckProgress { bytes, bytes_total }| {
            bar.set_length(bytes_total);
            bar.set_position(bytes);
        })
        .with_context(|| format!("cannot check {}", dir.display()))?;
        self.fsck_took = begun.elapsed();
        bar.finish_and_clear();
        let problems = found.findings.iter().map(|finding| {
            let names = finding.names.join(", ");
            format!("fsck: {}: {} {names}", finding.kind, finding.message)
        });
        let problems = problems.collect();
        let mut checks = Checks::new(report);
        checks.add("blobs re-hashed on disk (forebay fsck)", found.blobs, problems)?;
        let cache = forebay_console::layout::cache(self.data);
        let mut damages = Vec::new();
        let checked = forebay_cache::check(&RealFs, &cache, &mut |damage| damages.push(damage))
            .with_context(|| format!("cannot check {}", cache.display()))?;
        checks.add("entries of the cache's log (forebay cache check)", checked.entries, damages)?;
        events.check(&mut checks, self.data, scratch)?;
        report.section("fsck", found);
        Ok(())
    }

    /// Adds the figures to the report.
    pub(super) fn measure(&mut self, report: &mut Report) {
        let milliseconds = |took: Duration| took.as_secs_f64() * 1_000.0;
        let (p50, p99) = (self.tally.small_put_percentile(50), self.tally.small_put_percentile(99));
        let tally = &self.tally;
        let (sent, documents) = (tally.sent, tally.oracle.document_count());
        let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        let (read, reading) = self.read_back;
        let load = self.load_took;
        report.count("files", "files sent", sent.files);
        report.count("documents", "documents sent", documents);
        report.count("requests", "requests acknowledged", tally.requests);
        report.count("connections", "connections", self.plan.connections as u64);
        report.measure("load_s", "time of the load", load.as_secs_f64(), "s");
        report.measure("files_per_s", "files stored", rate(sent.files as f64, load), "/s");
        report.measure("load_mib_per_s", "bytes stored", rate(mib(sent.bytes), load), "MiB/s");
        let documents = rate(documents as f64, load);
        report.measure("documents_per_s", "documents stored at the same time", documents, "/s");
        report.measure("put_small_p50_ms", "PUT up to 64KiB, median", milliseconds(p50), "ms");
        report.measure("put_small_p99_ms", "PUT up to 64KiB, p99", milliseconds(p99), "ms");
        let recovery = milliseconds(self.recovery);
        report.measure("recovery_ms", "from restart to first response", recovery, "ms");
        report.count("recovery_open_ms", "of which recovery, in ms", self.recovery_open_ms);
        report.measure("read_back_mib_per_s", "bytes read back", rate(mib(read), reading), "MiB/s");
        let files = rate(sent.files as f64, reading);
        report.measure("read_back_files_per_s", "files read back", files, "/s");
        report.measure("fsck_s", "re-hashing on disk", self.fsck_took.as_secs_f64(), "s");
        report.bytes("file_bytes_sent", "bytes of files sent", sent.bytes);
        let kept = sent.bytes - tally.duplicates.bytes;
        report.bytes("file_bytes_kept", "bytes of them stored, each once", kept);
        report.bytes("disk_bytes", "disk usage of the data directory", disk_bytes(self.data));
        report.bytes("server_memory_peak_bytes", "peak memory before the cache", self.memory_peak);
    }
}

/// Reports each check and collects its result.
pub(super) struct Checks<'r> {
    report: &'r mut Report,
    rows: Vec<serde_json::Value>,
}

impl<'r> Checks<'r> {
    pub(super) fn new(report: &'r mut Report) -> Self {
        Self { report, rows: Vec::new() }
    }

    /// The results, for the JSON object.
    pub(super) fn rows(self) -> Vec<serde_json::Value> {
        self.rows
    }

    pub(super) fn add(
        &mut self,
        what: &str,
        count: u64,
        problems: Vec<String>,
    ) -> anyhow::Result<()> {
        let verdict = match problems.len() {
            0 => "as sent".to_owned(),
            wrong => format!("{wrong} WRONG"),
        };
        self.report.line(format_args!("  {count:>8} {what}: {verdict}"))?;
        self.rows.push(json!({ "check": what, "count": count, "wrong": problems.len() }));
        self.report.problems.extend(problems);
        Ok(())
    }
}
