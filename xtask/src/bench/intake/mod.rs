//! The intake's bars; its claims and figures are beside this.

mod claims;
mod figures;

pub(super) use claims::CLAIMS;
pub(super) use figures::FIGURES;

use super::bars::{Bar, Formula, Good};

/// What the intake promises. Rates are compared with limits of the same run: the same client
/// against a route that only reads the body (`floor_*`), and the bare disk.
pub(super) const BARS: [Bar; 16] = [
    Bar {
        name: "durable 4 KiB PUTs, relative to the HTTP limit",
        formula: Formula::Ratio("put_4k_sync_per_s", "floor_4k_per_s"),
        good: Good::AtLeast,
        bar: 0.35,
        aim: Some(0.6),
        unit: "",
    },
    Bar {
        name: "durable 4 KiB PUTs, relative to serial flushes",
        formula: Formula::Ratio("put_4k_sync_per_s", "serial_fdatasync_per_s"),
        good: Good::AtLeast,
        bar: 2.5,
        aim: None,
        unit: "",
    },
    Bar {
        name: "unflushed (os) 4 KiB PUTs, relative to the HTTP limit",
        formula: Formula::Ratio("put_4k_os_per_s", "floor_4k_per_s"),
        good: Good::AtLeast,
        bar: 0.5,
        aim: Some(0.75),
        unit: "",
    },
    Bar {
        name: "rate with 100,000 files stored, relative to an empty store",
        formula: Formula::Ratio("put_4k_at_100k_per_s", "put_4k_empty_per_s"),
        good: Good::AtLeast,
        bar: 0.9,
        aim: None,
        unit: "",
    },
    Bar {
        name: "1 GiB upload, relative to writing and flushing the same bytes",
        formula: Formula::Ratio("upload_1g_mib_per_s", "disk_write_1g_mib_per_s"),
        good: Good::AtLeast,
        bar: 0.85,
        aim: None,
        unit: "",
    },
    Bar {
        name: "memory a 1 GiB upload adds at its peak",
        formula: Formula::Value("upload_1g_peak_growth_mib"),
        good: Good::AtMost,
        bar: 64.0,
        aim: Some(16.0),
        unit: "MiB",
    },
    Bar {
        name: "search over 100,000 files, 99th percentile",
        formula: Formula::Value("search_100k_p99_us"),
        good: Good::AtMost,
        bar: 50_000.0,
        aim: Some(10_000.0),
        unit: "µs",
    },
    Bar {
        name: "documents into SQLite, relative to a bare prepared statement in one transaction",
        formula: Formula::Ratio("documents_per_s", "sqlite_bare_per_s"),
        good: Good::AtLeast,
        bar: 0.5,
        aim: None,
        unit: "",
    },
    Bar {
        name: "look-up of content used recently",
        formula: Formula::Value("lookup_memory_ns"),
        good: Good::AtMost,
        bar: 150.0,
        aim: Some(60.0),
        unit: "ns",
    },
    Bar {
        name: "look-up of content that was never stored",
        formula: Formula::Value("lookup_filter_ns"),
        good: Good::AtMost,
        bar: 60.0,
        aim: Some(35.0),
        unit: "ns",
    },
    Bar {
        name: "look-up in the catalogue",
        formula: Formula::Value("lookup_disk_ns"),
        good: Good::AtMost,
        bar: 2_000.0,
        aim: Some(1_200.0),
        unit: "ns",
    },
    Bar {
        name: "durable 4 KiB uploads over S3, relative to versitygw, which does not flush",
        formula: Formula::Ratio("s3_put_4k_per_s", "versitygw_put_4k_per_s"),
        good: Good::AtLeast,
        bar: 1.0,
        aim: Some(2.0),
        unit: "",
    },
    Bar {
        name: "unflushed (os) 4 KiB PUTs over HTTP, relative to versitygw",
        formula: Formula::Ratio("put_4k_os_per_s", "versitygw_put_4k_per_s"),
        good: Good::AtLeast,
        bar: 1.5,
        aim: Some(3.0),
        unit: "",
    },
    Bar {
        name: "durable 4 KiB PUTs at 70 % of their rate beside a 1 GiB upload, 99th percentile, relative to a flush's",
        formula: Formula::Ratio("put_4k_beside_1g_p99_us", "fdatasync_p99_us"),
        good: Good::AtMost,
        bar: 5.0,
        aim: Some(3.0),
        unit: "",
    },
    Bar {
        name: "job accepted, the median, relative to one flush",
        formula: Formula::Ratio("job_accepted_p50_us", "fdatasync_us"),
        good: Good::AtMost,
        bar: 3.0,
        aim: Some(1.5),
        unit: "",
    },
    Bar {
        name: "jobs without work",
        formula: Formula::Value("noop_jobs_per_s"),
        good: Good::AtLeast,
        bar: 10_000.0,
        aim: Some(30_000.0),
        unit: "1/s",
    },
];
