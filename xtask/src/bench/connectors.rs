//! The bars, claims and figures of connectors in a sandbox, in one place.

use super::bars::{Bar, Claim, Good, aiming, claim, value_at_least, value_at_most};

const fn in_unit(bar: Bar, unit: &'static str) -> Bar {
    Bar { unit, ..bar }
}

/// What connectors in a sandbox promise.
pub(super) const BARS: [Bar; 7] = [
    aiming(
        value_at_least(
            "PostgreSQL to PostgreSQL, 1M rows, relative to psql's COPY through a pipe",
            "sandbox_of_psql_ratio",
            0.75,
        ),
        0.95,
    ),
    aiming(
        value_at_most(
            "processor time, relative to the same connector outside of a sandbox",
            "sandbox_cpu_of_native_ratio",
            1.25,
        ),
        1.05,
    ),
    in_unit(
        aiming(value_at_most("loading a compiled component", "component_load_ms", 3.0), 0.2),
        "ms",
    ),
    in_unit(aiming(value_at_most("an instance is ready", "instance_ready_us", 50.0), 5.0), "µs"),
    in_unit(
        aiming(value_at_most("peak memory, 1M rows", "sandbox_peak_memory_mib", 160.0), 80.0),
        "MiB",
    ),
    in_unit(
        aiming(
            value_at_most("peak memory, 10M rows", "sandbox_large_peak_memory_mib", 160.0),
            80.0,
        ),
        "MiB",
    ),
    aiming(
        value_at_most(
            "a batch of 1 MiB into a component, relative to copying its bytes",
            "crossing_of_memcpy_ratio",
            3.0,
        ),
        1.5,
    ),
];

/// What the description of the earlier system publishes, on its author's machine.
pub(super) const CLAIMS: [Claim; 5] = [
    claim("10,000 rows by INSERT", 153.0, "sandbox_insert_10k_ms", Good::AtMost, "ms"),
    claim("10,000 rows by COPY", 121.0, "sandbox_copy_10k_ms", Good::AtMost, "ms"),
    claim("100,000 rows by INSERT", 1_054.0, "sandbox_insert_100k_ms", Good::AtMost, "ms"),
    claim("100,000 rows by COPY", 507.0, "sandbox_copy_100k_ms", Good::AtMost, "ms"),
    claim("loading a module", 2.0, "component_load_ms", Good::AtMost, "ms"),
];

/// What each figure is.
pub(super) const FIGURES: &[(&str, &str)] = &[
    ("sandbox_of_psql_ratio", "one stream, both sides components; adjacent runs of one round"),
    ("sandbox_of_native_ratio", "the same, relative to the built-in connector"),
    (
        "sandbox_cpu_of_native_ratio",
        "processor time of the whole process, relative to that of a run with built-in connectors",
    ),
    ("sandbox_rows_per_s", "rows a second, the whole process"),
    ("sandbox_cpu_s", "processor time of the process"),
    ("sandbox_peak_memory_mib", "resident memory at its peak, 1M rows, two ranges at once"),
    ("sandbox_large_peak_memory_mib", "the same for ten times the rows"),
    ("sandbox_large_two_rows_per_s", "rows a second of that"),
    ("component_install_ms", "the PostgreSQL component, compiled and installed"),
    (
        "component_load_ms",
        "the same by a new engine each time: manifest, permissions, and that neither file has changed",
    ),
    ("instance_ready_us", "an instance of it, made and discarded"),
    (
        "crossing_1mib_us",
        "a batch of tuples into a component, with all that the writer of a unit does",
    ),
    ("memcpy_1mib_us", "its bytes copied"),
    ("crossing_of_memcpy_ratio", "the one by the other, in each sample"),
    ("native_insert_10k_ms", "a run of 10,000 rows by INSERT, built-in connectors"),
    ("sandbox_insert_10k_ms", "the same, both sides components"),
    ("native_copy_10k_ms", "a run of 10,000 rows by COPY, built-in connectors"),
    ("sandbox_copy_10k_ms", "the same, both sides components"),
    ("native_insert_100k_ms", "a run of 100,000 rows by INSERT, built-in connectors"),
    ("sandbox_insert_100k_ms", "the same, both sides components"),
    ("native_copy_100k_ms", "a run of 100,000 rows by COPY, built-in connectors"),
    ("sandbox_copy_100k_ms", "the same, both sides components"),
];
