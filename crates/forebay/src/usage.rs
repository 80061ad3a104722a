//! Resource usage of this process so far.

use anyhow::Context as _;

/// CPU time and memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// CPU time in seconds, in user and kernel mode, of all threads.
    pub(crate) cpu_seconds: f64,
    /// Peak resident memory, in bytes.
    pub(crate) peak_rss_bytes: u64,
}

impl Usage {
    /// Returns the usage so far.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub(crate) fn of_this_process() -> anyhow::Result<Self> {
        let path = "/proc/self/status";
        let status =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        let peak = peak.with_context(|| format!("{path} has no VmHWM"))?;
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        #[expect(clippy::cast_precision_loss, reason = "seconds of a process")]
        let cpu_seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        Ok(Self { cpu_seconds, peak_rss_bytes: peak * 1024 })
    }
}
