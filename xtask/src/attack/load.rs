//! Many connections from one process: the limit of open files, and response times meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::claim;
use super::server::Server;
use super::stage::{Skipped, Stage};

/// Raises this process's own limit of open files, so that it is not the one that gives up.
///
/// # Errors
/// [`Skipped`]: its hard limit is lower.
pub(super) fn need_files(count: u64) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < count) {
        let text = format!("this process cannot open {count} files (ulimit -Hn)");
        return Err(Skipped(text).into());
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")
}

/// What a server's memory may grow by under an attack, in bytes.
pub(super) fn memory_within(before: u64, after: u64, most: u64) -> anyhow::Result<String> {
    let grown = after.saturating_sub(before) >> 20;
    claim(after.saturating_sub(before) <= most, || {
        format!("resident memory grew by {grown} MiB, more than {} MiB", most >> 20)
    })?;
    Ok(format!("memory +{grown} MiB"))
}

/// Times of `count` listings one after the other: their 99th of 100, judged where times are.
///
/// # Errors
/// One fails, or they take longer than `most`.
pub(super) fn listings(
    stage: &Stage,
    server: &Server,
    count: usize,
    most: Duration,
) -> anyhow::Result<String> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        server.want("GET", "/v1/files?limit=10", b"", &[200])?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let p99 = times.get(count * 99 / 100).or(times.last()).copied().unwrap_or_default();
    let summary = format!("p99 of listing {:.1} ms", p99.as_secs_f64() * 1_000.0);
    if stage.judges_times && p99 > most {
        bail!("{summary}, more than {} ms", most.as_millis());
    }
    Ok(summary)
}

/// Asks again until it holds, for `limit` at most.
///
/// # Errors
/// What was wrong last.
pub(super) fn soon(
    limit: Duration,
    try_it: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    loop {
        match try_it() {
            Ok(()) => return Ok(begun.elapsed()),
            Err(error) if begun.elapsed() >= limit => {
                return Err(error.context(format!("after {} s still", limit.as_secs())));
            }
            Err(_) => std::thread::park_timeout(Duration::from_millis(20)),
        }
    }
}
