//! Metrics of this process from the kernel, read from `/proc/self` on each scrape.
//!
//! The names are those of all Prometheus client libraries, so existing dashboards work.

use forebay_base::push_line;

/// One reading; a value the kernel did not provide is `None` and not rendered.
#[derive(Debug, Default, PartialEq)]
struct Reading {
    resident_bytes: Option<u64>,
    resident_peak_bytes: Option<u64>,
    threads: Option<u64>,
    open_fds: Option<u64>,
    max_fds: Option<u64>,
    cpu_seconds: Option<f64>,
    start_seconds: Option<f64>,
}

/// Appends the process metrics to `out`.
pub(super) fn render(out: &mut String) {
    let reading = Reading::take();
    let mut metric = |name: &str, kind: &str, help: &str, value: Option<String>| {
        if let Some(value) = value {
            push_line!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
    };
    let whole = |value: Option<u64>| value.map(|value| value.to_string());
    let part = |value: Option<f64>| value.map(|value| value.to_string());
    let resident = whole(reading.resident_bytes);
    metric("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", resident);
    let peak = whole(reading.resident_peak_bytes);
    metric(
        "forebay_process_resident_memory_peak_bytes",
        "gauge",
        "Peak resident memory size in bytes.",
        peak,
    );
    metric("process_threads", "gauge", "Number of threads.", whole(reading.threads));
    metric(
        "process_open_fds",
        "gauge",
        "Number of open file descriptors.",
        whole(reading.open_fds),
    );
    metric(
        "process_max_fds",
        "gauge",
        "Maximum number of open file descriptors.",
        whole(reading.max_fds),
    );
    let cpu = part(reading.cpu_seconds);
    metric(
        "process_cpu_seconds_total",
        "counter",
        "Total user and system CPU time in seconds.",
        cpu,
    );
    let start = part(reading.start_seconds);
    metric(
        "process_start_time_seconds",
        "gauge",
        "Start time of the process in seconds since 1970.",
        start,
    );
}

impl Reading {
    fn take() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let mut reading = Self::parse(
            &read("/proc/self/status"),
            &read("/proc/self/stat"),
            &read("/proc/stat"),
            rustix::param::clock_ticks_per_second(),
        );
        let fds = std::fs::read_dir("/proc/self/fd").ok();
        // Excludes the directory handle of this very count.
        reading.open_fds = fds.map(|fds| (fds.count() as u64).saturating_sub(1));
        reading.max_fds = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        reading
    }

    /// Parses the texts: proc(5). Anything unexpected leaves its field empty.
    fn parse(status: &str, stat: &str, system: &str, ticks_per_second: u64) -> Self {
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        // The command name may hold spaces and brackets: count fields after its closing bracket,
        // where the first is number 3 of proc(5).
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().collect())
            .unwrap_or_default();
        let seconds = |field: usize| {
            let ticks = fields.get(field - 3)?.parse::<u64>().ok()?;
            Some(ticks as f64 / ticks_per_second.max(1) as f64)
        };
        let boot = system
            .lines()
            .find_map(|line| line.strip_prefix("btime "))
            .and_then(|text| text.trim().parse::<f64>().ok());
        Self {
            resident_bytes: number("VmRSS:").map(|kib| kib * 1024),
            resident_peak_bytes: number("VmHWM:").map(|kib| kib * 1024),
            threads: number("Threads:"),
            cpu_seconds: seconds(14).zip(seconds(15)).map(|(user, system)| user + system),
            start_seconds: seconds(22).zip(boot).map(|(after, boot)| boot + after),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_parsed_even_with_brackets_in_the_name() {
        let status = "Name:\tx\nVmHWM:\t    20 kB\nVmRSS:\t    10 kB\nThreads:\t3\n";
        let stat = "7 (a) b) S 1 1 1 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 1000 1 1";
        let reading = Reading::parse(status, stat, "cpu 1\nbtime 1700000000\n", 100);
        assert_eq!(reading.resident_bytes, Some(10_240));
        assert_eq!(reading.resident_peak_bytes, Some(20_480));
        assert_eq!(reading.threads, Some(3));
        assert_eq!(reading.cpu_seconds, Some(2.0));
        assert_eq!(reading.start_seconds, Some(1_700_000_010.0));
    }

    #[test]
    fn garbage_gives_nothing_and_does_not_panic() {
        for text in ["", ")", "1 (x) S", "VmRSS: lots"] {
            assert_eq!(Reading::parse(text, text, text, 0), Reading::default());
        }
    }
}
