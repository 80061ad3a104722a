//! The cache chapter of a tour: real values over real RESP sockets, two kills, one snapshot.
//!
//! The server that stored the files and documents gets them again as keys: pipelined writes,
//! SIGKILL in the middle, the rest after the restart; then a snapshot while the keys are written
//! again, and SIGKILL while writes continue, so that the second recovery needs the snapshot and
//! the log after it. Everything acknowledged is read back and compared.

mod items;
mod load;
mod oracle;
mod snapshot;
mod verify;

use std::collections::VecDeque;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::items::Item;
use self::load::{Load, Remaining, Todo};
use self::oracle::{Kind, Oracle};
use self::snapshot::SnapshotLog;
use self::verify::{Entry, Verifier};
use super::Plan;
use super::inputs::{Documents, Files};
use super::report::{Report, rate};
use super::stages::Checks;
use crate::child::Server;
use forebay_console::interrupt::Interrupt;
use forebay_console::out::size;

/// The command that starts a server with a cache on a free port.
pub(super) const SERVE: [&str; 5] =
    ["serve", "--set", "cache.resp=127.0.0.1:0", "--set", "cache.text="];

/// Number of requests in flight on a connection with pipelining.
const AHEAD: usize = 64;
/// Number of values read one at a time, and their maximum size.
const SINGLE_READS: usize = 10_000;
const SINGLE_SIZE_MAX: u64 = 4 << 10;
/// Maximum size of a value that is written again during the snapshot.
const REWRITTEN_SIZE_MAX: u64 = 64 << 10;

/// A cache chapter in progress.
pub(super) struct Chapter<'a> {
    pub(super) plan: &'a Plan,
    pub(super) files: &'a Files,
    pub(super) documents: &'a Documents,
    pub(super) interrupt: &'a Interrupt,
    pub(super) log: &'a Path,
    /// Starts the server again.
    pub(super) start: &'a dyn Fn() -> anyhow::Result<Server>,
}

/// The measurements.
#[derive(Debug, Default)]
pub(super) struct Measured {
    keys: u64,
    members: u64,
    writes: u64,
    written: u64,
    load_took: Duration,
    plain_bytes: u64,
    memory_bytes: u64,
    memory_peak: u64,
    reads: (u64, Duration),
    single_reads: (u64, Duration),
    recoveries: Vec<RecoveryLog>,
    snapshot: SnapshotLog,
    snapshot_wait: Duration,
}

/// The log entry of a starting server about the cache.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct RecoveryLog {
    snapshot_keys: u64,
    snapshot_bytes: u64,
    operations: u64,
    log_bytes: u64,
    torn: bool,
    snapshot_took_ms: f64,
    log_took_ms: f64,
}

/// The log entry of an opened cache.
#[derive(Debug, Deserialize)]
struct OpenLog {
    resp: std::net::SocketAddr,
}

impl Chapter<'_> {
    /// Runs the chapter on a running server; returns the server that is running at the end.
    pub(super) fn run(
        &self,
        report: &mut Report,
        server: Server,
    ) -> anyhow::Result<(Server, Measured)> {
        report.chapter("The cache")?;
        let mut measured = Measured::default();
        let items = items::plan(self.files, self.documents);
        let bytes: u64 = items.iter().map(Item::size).sum();
        report.line(format_args!(
            "  {} files and documents, {}, are written to RESP on {}: strings, hashes and sets",
            items.len(),
            size(bytes),
            self.address()?
        ))?;
        let oracle = Mutex::new(Oracle::default());
        let server = self.load_and_kill(report, server, &items, &oracle, &mut measured)?;
        let small: Vec<Item<'_>> =
            items.into_iter().filter(|item| item.size() <= REWRITTEN_SIZE_MAX).collect();
        let server = self.snapshot_and_kill(report, server, &small, &oracle, &mut measured)?;
        self.read_back(report, &oracle.into_inner(), &mut measured)?;
        measured.memory_peak = server.memory("VmHWM")?;
        Ok((server, measured))
    }

    fn address(&self) -> anyhow::Result<std::net::SocketAddr> {
        address(self.log)
    }

    fn loader<'l>(&'l self, dying: &'l AtomicBool) -> anyhow::Result<Load<'l>> {
        Ok(Load {
            address: self.address()?,
            connections: self.plan.connections,
            dying,
            interrupt: self.interrupt,
        })
    }

    fn verifier(&self) -> anyhow::Result<Verifier<'_>> {
        Ok(Verifier {
            address: self.address()?,
            connections: self.plan.connections,
            interrupt: self.interrupt,
        })
    }

    fn load_and_kill(
        &self,
        report: &mut Report,
        server: Server,
        items: &[Item<'_>],
        oracle: &Mutex<Oracle>,
        measured: &mut Measured,
    ) -> anyhow::Result<Server> {
        let bar = report.bar("caching", items.iter().map(Item::size).sum());
        let queue: VecDeque<Todo<'_>> = items.iter().copied().map(Todo::New).collect();
        // A file is three writes, a document one: half of the minimum.
        let kill_at = (items.len() / 2).max(1) as u64;
        let (dying, victim) = (AtomicBool::new(false), Mutex::new(Some(server)));
        let begun = Instant::now();
        let left = self.loader(&dying)?.run(queue, oracle, &|total, bytes| {
            bar.inc(bytes);
            if total < kill_at {
                return Ok(());
            }
            let Some(server) = victim.lock().take() else { return Ok(()) };
            dying.store(true, Ordering::SeqCst);
            server.kill()
        })?;
        measured.load_took = begun.elapsed();
        if let Some(server) = victim.into_inner() {
            server.kill()?;
        }
        let Remaining { queue, unanswered, unread } = left;
        let before = oracle.lock().writes;
        report.line(format_args!(
            "  SIGKILL after {before} acknowledged writes, with {} in progress",
            unanswered.len()
        ))?;
        let server = (self.start)()?;
        self.report_recovery(report, measured)?;
        let cut = self.verifier()?.cut(&unanswered)?;
        report.line(format_args!(
            "  keys of the unanswered writes: {} complete, {} absent, {} incomplete",
            cut.whole,
            cut.absent,
            cut.half.len()
        ))?;
        report.section(
            "cache_kill",
            json!({ "acknowledged_before": before, "unanswered": unanswered.len(),
                    "keys_whole": cut.whole, "keys_absent": cut.absent, "keys_half": cut.half.len() }),
        );
        report.problems.extend(cut.half);
        let mut again: VecDeque<Todo<'_>> = unanswered.into_iter().map(Todo::Again).collect();
        again.extend(queue);
        let (calm, begun) = (AtomicBool::new(false), Instant::now());
        let rest = self.loader(&calm)?.run(again, oracle, &|_, bytes| {
            bar.inc(bytes);
            Ok(())
        })?;
        measured.load_took += begun.elapsed();
        bar.finish_and_clear();
        (measured.writes, measured.written) = {
            let oracle = oracle.lock();
            (oracle.writes, oracle.written)
        };
        let unread = unread + rest.unread;
        if unread > 0 {
            report.line(format_args!("  {unread} files could no longer be read"))?;
        }
        Ok(server)
    }

    fn snapshot_and_kill(
        &self,
        report: &mut Report,
        server: Server,
        items: &[Item<'_>],
        oracle: &Mutex<Oracle>,
        measured: &mut Measured,
    ) -> anyhow::Result<Server> {
        let dying = AtomicBool::new(false);
        let load = self.loader(&dying)?;
        let before = oracle.lock().writes;
        // Whatever fails meanwhile, the server ends after the writers.
        let mut victim = Some(server);
        let mut kill = || victim.take().map_or(Ok(()), Server::kill);
        let taken = snapshot::under_load(&load, self.log, &mut kill, items, oracle)?;
        let unanswered = taken.unanswered.len();
        {
            let mut oracle = oracle.lock();
            taken.unanswered.into_iter().for_each(|write| oracle.unanswered(write));
        }
        (measured.snapshot, measured.snapshot_wait) = (taken.logged, taken.longest_wait);
        report.line(format_args!(
            "  a snapshot of {} keys, {}, in {:.0} ms while {} of them were written repeatedly",
            measured.snapshot.keys,
            size(measured.snapshot.bytes),
            measured.snapshot.took_ms,
            items.len()
        ))?;
        report.line(format_args!(
            "  SIGKILL again after {} more acknowledged writes, with {unanswered} in progress",
            oracle.lock().writes - before
        ))?;
        let server = (self.start)()?;
        self.report_recovery(report, measured)?;
        Ok(server)
    }

    fn report_recovery(&self, report: &Report, measured: &mut Measured) -> anyhow::Result<()> {
        let logged: RecoveryLog = last_logged(self.log, "cache recovered")?
            .context("the server did not log what it recovered of the cache")?;
        report.line(format_args!(
            "  recovered after {:.0} ms: {} keys from a snapshot, {} operations from {} of log{}",
            logged.snapshot_took_ms + logged.log_took_ms,
            logged.snapshot_keys,
            logged.operations,
            size(logged.log_bytes),
            if logged.torn { ", a torn end truncated" } else { "" }
        ))?;
        measured.recoveries.push(logged);
        Ok(())
    }

    fn read_back(
        &self,
        report: &mut Report,
        oracle: &Oracle,
        measured: &mut Measured,
    ) -> anyhow::Result<()> {
        let verifier = self.verifier()?;
        let entries: Vec<Entry<'_>> = oracle.values.iter().collect();
        let bar = report.bar("reading", entries.iter().map(|(_, value)| value.kept.size).sum());
        let begun = Instant::now();
        let problems = verifier.values(&entries, AHEAD, &|bytes| bar.inc(bytes))?;
        measured.reads = (entries.len() as u64, begun.elapsed());
        bar.finish_and_clear();
        let mut checks = Checks::new(report);
        checks.add("values of the cache, byte for byte", entries.len() as u64, problems)?;
        let single =
            |entry: &&Entry<'_>| entry.1.kind == Kind::Text && entry.1.kept.size <= SINGLE_SIZE_MAX;
        let single: Vec<Entry<'_>> =
            entries.iter().filter(single).take(SINGLE_READS).copied().collect();
        let begun = Instant::now();
        let problems = verifier.values(&single, 1, &|_| {})?;
        measured.single_reads = (single.len() as u64, begun.elapsed());
        checks.add("small values again, one request at a time", single.len() as u64, problems)?;
        let problems = verifier.members(oracle)?;
        checks.add("members of sets, with their scores", oracle.member_count(), problems)?;
        let (found, problems) = verifier.keys(oracle)?;
        checks.add("keys of the cache, no others", found, problems)?;
        let rows = checks.rows();
        report.section("cache_verification", rows);
        measured.keys = oracle.keys();
        measured.members = oracle.member_count();
        measured.plain_bytes = oracle.plain_bytes();
        measured.memory_bytes = verifier.figure("used_memory_dataset")?;
        Ok(())
    }
}

impl Measured {
    /// Returns the number of keys compared.
    pub(super) fn keys(&self) -> u64 {
        self.keys
    }

    /// Adds the figures to the report.
    pub(super) fn add_figures(&self, report: &mut Report) {
        let ms = |took: Duration| took.as_secs_f64() * 1_000.0;
        let each = |(count, took): (u64, Duration)| rate(count as f64, took);
        report.count("cache_keys", "keys of the cache", self.keys);
        report.count("cache_members", "members of its sets", self.members);
        let writes = rate(self.writes as f64, self.load_took);
        report.measure("cache_writes_per_s", "writes, pipelined", writes, "/s");
        let mib = self.written as f64 / (1 << 20) as f64;
        let mib = rate(mib, self.load_took);
        report.measure("cache_write_mib_per_s", "bytes written, pipelined", mib, "MiB/s");
        report.measure("cache_reads_per_s", "reads, pipelined", each(self.reads), "/s");
        let single = each(self.single_reads);
        report.measure("cache_single_reads_per_s", "small reads, one at a time", single, "/s");
        report.bytes("cache_plain_bytes", "bytes of keys and values", self.plain_bytes);
        report.bytes("cache_memory_bytes", "memory used by the cache", self.memory_bytes);
        let ratio = self.plain_bytes as f64 / (self.memory_bytes as f64).max(1.0);
        report.measure("cache_memory_ratio", "plain bytes per byte of that memory", ratio, "x");
        let peak = self.memory_peak;
        report.bytes("cache_server_memory_peak_bytes", "peak memory with the cache", peak);
        for (recovery, (name, label)) in self.recoveries.iter().zip([
            ("cache_recovery_log_ms", "recovery from the log alone"),
            ("cache_recovery_snapshot_ms", "recovery from snapshot and log"),
        ]) {
            let took = recovery.snapshot_took_ms + recovery.log_took_ms;
            report.measure(name, label, took, "ms");
        }
        report.section("cache_recoveries", &self.recoveries);
        report.measure("cache_snapshot_ms", "snapshot under load", self.snapshot.took_ms, "ms");
        let wait = ms(self.snapshot_wait);
        report.measure("cache_snapshot_wait_ms", "longest wait for 16 writes", wait, "ms");
        report.section("cache_snapshot", &self.snapshot);
    }
}

/// Returns the RESP address of the cache, from the log of its server.
pub(super) fn address(log: &Path) -> anyhow::Result<std::net::SocketAddr> {
    let logged: Option<OpenLog> = last_logged(log, "cache open")?;
    Ok(logged.context("the server did not log the address of its cache")?.resp)
}

/// Returns the last log line with this message.
fn last_logged<T: serde::de::DeserializeOwned>(
    log: &Path,
    message: &str,
) -> anyhow::Result<Option<T>> {
    Ok(logged_since(log, message, 0)?.pop())
}

/// Returns every log line with this message, from byte `from` on.
fn logged_since<T: serde::de::DeserializeOwned>(
    log: &Path,
    message: &str,
    from: u64,
) -> anyhow::Result<Vec<T>> {
    let failed = || format!("cannot read {}", log.display());
    let mut file = std::fs::File::open(log).with_context(failed)?;
    file.seek(SeekFrom::Start(from)).with_context(failed)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).with_context(failed)?;
    // A last line without a line end is still being written.
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    let text = String::from_utf8_lossy(bytes.get(..whole).unwrap_or_default());
    let quoted = format!("\"{message}\"");
    let lines = text.lines().filter(|line| line.contains(&quoted));
    let logged: Result<Vec<T>, _> = lines.map(serde_json::from_str).collect();
    logged.context("cannot parse the server's log")
}
