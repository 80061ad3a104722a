//! A process that writes the load to a store and reports the time.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use forebay_base::Durability;
use forebay_base::clock::SystemClock;
use forebay_base::fs::RealFs;
use forebay_events::{Options, Store, load};
use serde::{Deserialize, Serialize};

/// The load and its options.
#[derive(Debug, Clone, clap::Args)]
pub struct Load {
    /// Number of events.
    #[arg(long, default_value_t = 2_000_000)]
    pub events: u64,
    /// Number of threads that write.
    #[arg(long, default_value_t = 20)]
    pub writers: u64,
    /// Number of events in a batch.
    #[arg(long, default_value_t = 2_000)]
    pub batch: u64,
    /// Preset, modified by the two options below.
    #[arg(long, default_value = "max-throughput")]
    pub preset: String,
    /// Acknowledge events on stable storage, instead of those passed to the kernel.
    #[arg(long)]
    pub synced: bool,
    /// Keep proofs.
    #[arg(long)]
    pub proofs: bool,
    /// Leave everything in the log, and end as in a crash.
    #[arg(long)]
    pub crash: bool,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            events: 2_000_000,
            writers: 20,
            batch: 2_000,
            preset: "max-throughput".to_owned(),
            synced: false,
            proofs: true,
            crash: false,
        }
    }
}

/// The result of a writer process.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Written {
    /// Seconds until the last batch was acknowledged.
    pub acknowledged_s: f64,
    /// Seconds until then, and the tree's root over all events was known: until each can be proven.
    pub proven_s: f64,
    /// Seconds until everything was in segments, in the tree, signed, and closed.
    pub sealed_s: f64,
    /// Peak of resident memory.
    pub peak_rss_bytes: u64,
    /// Memory that the options allow.
    pub memory_bound_bytes: u64,
}

impl Load {
    /// Returns the options of the load.
    pub fn options(&self) -> Options {
        let mut options = Options::preset(&self.preset).unwrap_or_default();
        options.merkle = self.proofs;
        options.group_commit_delay = Duration::ZERO;
        options.durability = if self.synced { Durability::Sync } else { Durability::Os };
        if self.crash {
            options.memory_table_events = usize::MAX;
            options.memory_table_size = usize::MAX;
        }
        options
    }

    fn arguments(&self) -> Vec<String> {
        let mut words = vec![
            format!("--events={}", self.events),
            format!("--writers={}", self.writers),
            format!("--batch={}", self.batch),
            format!("--preset={}", self.preset),
        ];
        let flags = [(self.synced, "--synced"), (self.proofs, "--proofs"), (self.crash, "--crash")];
        words.extend(flags.iter().filter(|(on, _)| *on).map(|(_, word)| (*word).to_owned()));
        words
    }
}

/// Writes the load in a child process.
pub(super) fn spawn(load: &Load, dir: &Path) -> anyhow::Result<Written> {
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    let output = Command::new(program)
        .args(["bench", "events-writer"])
        .args(load.arguments())
        .arg(dir)
        .output()
        .context("cannot start a writer")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() || load.crash, "a writer failed: {complaint}");
    let line = output.stdout.split(|&byte| byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice(line).with_context(|| format!("a writer reported nothing: {complaint}"))
}

/// The writer process.
///
/// # Errors
/// The store fails, or standard output cannot be written.
pub fn run(load: &Load, dir: &Path) -> anyhow::Result<()> {
    let options = load.options();
    let memory_bound_bytes = options.memory_bound() as u64;
    let clock = Arc::new(SystemClock::new());
    let (store, _) = Store::open(Arc::new(RealFs), clock, dir, options)?;
    let next = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let threads: Vec<_> =
            (0..load.writers).map(|_| scope.spawn(|| write(&store, load, &next))).collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        Ok(())
    })?;
    let acknowledged_s = started.elapsed().as_secs_f64();
    if load.crash {
        forebay_console::out::line(serde_json::to_string(&Written {
            acknowledged_s,
            ..Written::default()
        })?)?;
        std::process::abort();
    }
    if load.proofs {
        store.root_at(store.len())?;
    }
    let proven_s = started.elapsed().as_secs_f64();
    store.flush()?;
    store.close()?;
    let sealed_s = started.elapsed().as_secs_f64();
    let peak_rss_bytes = peak_rss_bytes()?;
    let written =
        Written { acknowledged_s, proven_s, sealed_s, peak_rss_bytes, memory_bound_bytes };
    forebay_console::out::line(serde_json::to_string(&written)?)
}

/// Takes batches until all events are written.
fn write(store: &Store, load: &Load, next: &AtomicU64) -> anyhow::Result<()> {
    loop {
        let first = next.fetch_add(load.batch, Ordering::Relaxed);
        if first >= load.events {
            return Ok(());
        }
        let count = usize::try_from(load.batch.min(load.events - first))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        store.append(load::batch(first, count, i64::try_from(now.as_nanos())?)?)?;
    }
}

/// Returns the peak resident memory of this process.
fn peak_rss_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read /proc")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmHWM")?;
    Ok(kib.trim().parse::<u64>().context("VmHWM is not a number")? * 1024)
}
