//! The intake's bars and claims, in one place.

use super::bars::{Bar, Claim, Formula, Good};

/// What the intake promises. Rates are compared with limits of the same run: the same client
/// against a route that only reads the body (`floor_*`), and the bare disk.
pub(super) const BARS: [Bar; 7] = [
    Bar {
        name: "durable 4 KiB PUTs, of what HTTP allows",
        formula: Formula::Ratio("put_4k_sync_per_s", "floor_4k_per_s"),
        good: Good::AtLeast,
        bar: 0.35,
        aim: Some(0.6),
        unit: "",
    },
    Bar {
        name: "durable 4 KiB PUTs, of one flush after another",
        formula: Formula::Ratio("put_4k_sync_per_s", "serial_fdatasync_per_s"),
        good: Good::AtLeast,
        bar: 2.5,
        aim: None,
        unit: "",
    },
    Bar {
        name: "unflushed (os) 4 KiB PUTs, of what HTTP allows",
        formula: Formula::Ratio("put_4k_os_per_s", "floor_4k_per_s"),
        good: Good::AtLeast,
        bar: 0.5,
        aim: Some(0.75),
        unit: "",
    },
    Bar {
        name: "rate with 100,000 files stored, of the rate when empty",
        formula: Formula::Ratio("put_4k_at_100k_per_s", "put_4k_empty_per_s"),
        good: Good::AtLeast,
        bar: 0.9,
        aim: None,
        unit: "",
    },
    Bar {
        name: "1 GiB upload, of writing and flushing the same bytes",
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
        name: "documents into SQLite, of a bare prepared statement in one transaction",
        formula: Formula::Ratio("documents_per_s", "sqlite_bare_per_s"),
        good: Good::AtLeast,
        bar: 0.5,
        aim: None,
        unit: "",
    },
];

/// What the description of the earlier system publishes.
pub(super) const CLAIMS: [Claim; 6] = [
    Claim {
        text: "files taken in",
        claimed: 1000.0,
        figure: Some("put_4k_sync_per_s"),
        good: Good::AtLeast,
        unit: "1/s",
    },
    Claim {
        text: "SHA-256 while streaming",
        claimed: 800.0,
        figure: Some("sha256_mb_per_s"),
        good: Good::AtLeast,
        unit: "MB/s",
    },
    Claim {
        text: "duplicate look-up, in memory",
        claimed: 231.0,
        figure: Some("lookup_memory_ns"),
        good: Good::AtMost,
        unit: "ns",
    },
    Claim {
        text: "duplicate look-up, filter says no",
        claimed: 500.0,
        figure: Some("lookup_filter_ns"),
        good: Good::AtMost,
        unit: "ns",
    },
    Claim {
        text: "duplicate look-up, on disk",
        claimed: 15_000.0,
        figure: Some("lookup_disk_ns"),
        good: Good::AtMost,
        unit: "ns",
    },
    Claim {
        text: "rows into PostgreSQL by COPY",
        claimed: 100_000.0,
        figure: None,
        good: Good::AtLeast,
        unit: "1/s",
    },
];
