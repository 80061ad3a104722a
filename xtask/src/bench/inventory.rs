//! The inventory index's bars, claims and figures, in one place.

use super::bars::{Bar, Claim, Good, aiming, claim, value_at_least, value_at_most};

const fn in_unit(bar: Bar, unit: &'static str) -> Bar {
    Bar { unit, ..bar }
}

/// What the index promises. Histograms are on unless stated otherwise; DuckDB counts none. DuckDB runs one
/// statement that counts each object at all prefixes of its key; the result of a hand-tuned program is
/// reported as well.
pub(super) const BARS: [Bar; 16] = [
    aiming(
        value_at_most("build, wide: processor time of DuckDB's", "wide_cpu_of_duckdb_ratio", 0.5),
        0.25,
    ),
    aiming(
        value_at_most(
            "build, narrow: processor time of DuckDB's",
            "narrow_cpu_of_duckdb_ratio",
            0.25,
        ),
        0.15,
    ),
    in_unit(
        aiming(value_at_least("objects per second, wide", "wide_build_objects_per_s", 7e5), 1.4e6),
        "1/s",
    ),
    in_unit(
        aiming(
            value_at_most("peak memory, 256 MiB given", "wide_build_peak_memory_mib", 384.0),
            300.0,
        ),
        "MiB",
    ),
    in_unit(
        aiming(
            value_at_most(
                "peak memory of ten times the objects",
                "large_build_peak_memory_mib",
                384.0,
            ),
            300.0,
        ),
        "MiB",
    ),
    aiming(
        value_at_most(
            "processor time of an object with ten times the objects, the worst of five shapes",
            "shapes_build_cpu_worst_ratio",
            1.3,
        ),
        1.1,
    ),
    in_unit(
        value_at_most(
            "peak memory of these builds, 256 MiB and 64 open files given",
            "shapes_build_peak_memory_worst_mib",
            384.0,
        ),
        "MiB",
    ),
    in_unit(
        aiming(
            value_at_most(
                "bytes per prefix, five classes, no histograms",
                "wide_plain_size_per_prefix_bytes",
                56.0,
            ),
            40.0,
        ),
        "B",
    ),
    in_unit(
        aiming(
            value_at_most(
                "bytes per prefix, five classes and histograms",
                "wide_size_per_prefix_bytes",
                80.0,
            ),
            55.0,
        ),
        "B",
    ),
    in_unit(
        aiming(value_at_most("look-up and numbers, random, warm", "look_up_ns", 700.0), 350.0),
        "ns",
    ),
    aiming(
        value_at_most(
            "look-up among ten million prefixes, relative to that among 100,000",
            "look_up_many_of_few_ratio",
            6.0,
        ),
        3.0,
    ),
    in_unit(
        aiming(
            value_at_most(
                "page of 100 by size, a million children, 99th percentile",
                "page_p99_us",
                250.0,
            ),
            100.0,
        ),
        "µs",
    ),
    in_unit(
        aiming(value_at_most("the 100 largest, exact", "top_100_worst_us", 2_000.0), 500.0),
        "µs",
    ),
    in_unit(
        aiming(
            value_at_most("the 100 largest of a million children", "fan_top_100_worst_us", 2_000.0),
            500.0,
        ),
        "µs",
    ),
    in_unit(aiming(value_at_most("open", "open_p50_us", 300.0), 100.0), "µs"),
    in_unit(
        aiming(value_at_most("open, ten million prefixes", "many_open_p50_us", 300.0), 100.0),
        "µs",
    ),
];

/// What the description of the earlier system publishes, on its author's machine. Its times are of a
/// stage of its build; ours are of the whole process, from Parquet files to the index on disk.
pub(super) const CLAIMS: [Claim; 11] = [
    claim("aggregation, 10,000 objects", 165.0, "realistic_10k_build_ms", Good::AtMost, "ms"),
    claim(
        "its memory (allocated theirs, resident ours)",
        71.0,
        "realistic_10k_build_peak_memory_mib",
        Good::AtMost,
        "MiB",
    ),
    claim("aggregation, 100,000 objects", 1_650.0, "realistic_100k_build_ms", Good::AtMost, "ms"),
    claim(
        "its memory (allocated theirs, resident ours)",
        683.0,
        "realistic_100k_build_peak_memory_mib",
        Good::AtMost,
        "MiB",
    ),
    claim(
        "before optimisation, 100,000 objects",
        2_500.0,
        "realistic_100k_build_ms",
        Good::AtMost,
        "ms",
    ),
    claim(
        "tree built of 100,000 sorted objects",
        87.0,
        "realistic_100k_build_ms",
        Good::AtMost,
        "ms",
    ),
    claim(
        "its memory (allocated theirs, resident ours)",
        86.0,
        "realistic_100k_build_peak_memory_mib",
        Good::AtMost,
        "MiB",
    ),
    claim("open (139k prefixes theirs, 1.65M ours)", 510.0, "open_p50_us", Good::AtMost, "µs"),
    claim(
        "look-up and numbers (267k prefixes theirs, 1.65M ours)",
        10_000.0,
        "look_up_ns",
        Good::AtMost,
        "ns",
    ),
    claim("mixture of questions, the best shape", 250.0, "mixed_best_ns", Good::AtMost, "ns"),
    claim("mixture of questions, the worst shape", 2_800.0, "mixed_worst_ns", Good::AtMost, "ns"),
];

/// What each figure is.
pub(super) const FIGURES: &[(&str, &str)] = &[
    ("wide_prefixes", "prefixes of the wide inventory, with hardly one object each"),
    ("wide_build_cpu_s", "processor time of a build from its Parquet files, whole process"),
    ("wide_build_s", "duration of that"),
    ("wide_build_objects_per_s", "objects per second of that"),
    ("wide_build_peak_memory_mib", "resident memory at its peak, 256 MiB given"),
    ("wide_plain_build_cpu_s", "the same without histograms"),
    ("wide_plain_build_s", "duration of that"),
    ("wide_plain_build_objects_per_s", "objects per second of that"),
    ("wide_plain_build_peak_memory_mib", "resident memory at its peak"),
    ("wide_manifest_build_cpu_s", "the same by the manifest, with every MD5 compared"),
    ("wide_manifest_build_s", "duration of that"),
    ("wide_manifest_build_objects_per_s", "objects per second of that"),
    ("wide_manifest_build_peak_memory_mib", "resident memory at its peak"),
    ("wide_size_per_prefix_bytes", "bytes of the index per prefix"),
    ("wide_plain_size_per_prefix_bytes", "the same without histograms"),
    ("wide_cpu_of_duckdb_ratio", "processor time, ours / theirs, adjacent runs of one round"),
    ("wide_plain_cpu_of_duckdb_ratio", "the same without histograms"),
    ("duckdb_wide_cpu_s", "DuckDB: a rollup over all prefixes, sorted, into a Parquet file"),
    ("wide_cpu_of_tuned_duckdb_ratio", "ours by that of DuckDB tuned by hand, level by level"),
    (
        "tuned_duckdb_wide_cpu_s",
        "DuckDB tuned by hand: directories, then each level from the one below",
    ),
    ("duckdb_wide_s", "duration of that"),
    ("duckdb_wide_peak_memory_mib", "resident memory at its peak"),
    ("duckdb_wide_size_per_prefix_bytes", "bytes of the file per prefix"),
    ("duckdb_wide_point_query_ms", "DuckDB: one prefix from that file, median of 20"),
    ("duckdb_wide_top_100_ms", "DuckDB: the 100 largest from that file, median of 20"),
    ("narrow_prefixes", "prefixes of the narrow inventory, with a hundred objects each"),
    ("narrow_build_cpu_s", "processor time of a build from its Parquet files, whole process"),
    ("narrow_build_s", "duration of that"),
    ("narrow_build_objects_per_s", "objects per second of that"),
    ("narrow_build_peak_memory_mib", "resident memory at its peak, 256 MiB given"),
    ("narrow_plain_build_cpu_s", "the same without histograms"),
    ("narrow_plain_build_s", "duration of that"),
    ("narrow_plain_build_objects_per_s", "objects per second of that"),
    ("narrow_plain_build_peak_memory_mib", "resident memory at its peak"),
    ("narrow_manifest_build_cpu_s", "the same by the manifest, with every MD5 compared"),
    ("narrow_manifest_build_s", "duration of that"),
    ("narrow_manifest_build_objects_per_s", "objects per second of that"),
    ("narrow_manifest_build_peak_memory_mib", "resident memory at its peak"),
    ("narrow_size_per_prefix_bytes", "bytes of the index per prefix"),
    ("narrow_plain_size_per_prefix_bytes", "the same without histograms"),
    ("narrow_cpu_of_duckdb_ratio", "processor time, ours / theirs, adjacent runs of one round"),
    ("narrow_plain_cpu_of_duckdb_ratio", "the same without histograms"),
    ("duckdb_narrow_cpu_s", "DuckDB: a rollup over all prefixes, sorted, into a Parquet file"),
    ("narrow_cpu_of_tuned_duckdb_ratio", "ours by that of DuckDB tuned by hand, level by level"),
    (
        "tuned_duckdb_narrow_cpu_s",
        "DuckDB tuned by hand: directories, then each level from the one below",
    ),
    ("duckdb_narrow_s", "duration of that"),
    ("duckdb_narrow_peak_memory_mib", "resident memory at its peak"),
    ("duckdb_narrow_size_per_prefix_bytes", "bytes of the file per prefix"),
    ("duckdb_narrow_point_query_ms", "DuckDB: one prefix from that file, median of 20"),
    ("duckdb_narrow_top_100_ms", "DuckDB: the 100 largest from that file, median of 20"),
    ("look_up_ns", "a prefix and its numbers, at random from all of the wide index, mean"),
    ("plain_look_up_ns", "the same in the index without histograms"),
    ("absent_look_up_ns", "prefixes that do not exist, mean"),
    ("plain_absent_look_up_ns", "the same in the index without histograms"),
    ("open_p50_us", "opening the wide index, median"),
    ("open_p99_us", "99th percentile"),
    (
        "top_100_worst_us",
        "below the prefix where it takes longest, of a sample with the root, median",
    ),
    ("top_100_longest_us", "the longest single time of all of them"),
    ("top_100_two_deeper_us", "of all prefixes two deeper than the root, median"),
    ("few_prefixes", "prefixes of a small index, all side by side"),
    ("few_look_up_ns", "a look-up there"),
    ("many_prefixes", "prefixes of a large index, all side by side"),
    ("many_look_up_ns", "a look-up there"),
    ("many_open_p50_us", "opening it, median"),
    ("look_up_many_of_few_ratio", "the look-ups there, by those in the small one"),
    ("page_children", "children of the prefix that is paged through"),
    ("page_p50_us", "100 of the 4,096 largest from a random place on, median"),
    ("page_p99_us", "99th percentile"),
    ("far_page_p50_us", "100 children beyond those, median"),
    ("fan_top_100_worst_us", "the 100 largest of these children, by bytes or by objects"),
    ("realistic_10k_build_ms", "a build of 10,000 objects from Parquet, median"),
    ("realistic_10k_build_peak_memory_mib", "resident memory at its peak, the program's included"),
    ("realistic_100k_build_ms", "a build of 100,000 objects from Parquet, median"),
    ("realistic_100k_build_peak_memory_mib", "resident memory at its peak, the program's included"),
    (
        "mixed_deep_narrow_ns",
        "a question: of ten, 7 look-ups, 1 absent, 1 page of 10, 1 of what is below",
    ),
    ("mixed_wide_shallow_ns", "the same for this shape, 100,000 objects"),
    ("mixed_balanced_ns", "the same for this shape"),
    ("mixed_s3_realistic_ns", "the same for this shape"),
    ("mixed_wide_single_level_ns", "the same for this shape"),
    ("mixed_best_ns", "the lowest of these"),
    ("mixed_worst_ns", "the highest of these"),
    ("large_objects", "objects of the large inventory, wide"),
    ("large_prefixes", "prefixes of it"),
    ("large_runs", "runs that were merged"),
    ("large_build_cpu_s", "processor time of its build"),
    ("large_build_s", "duration of that"),
    ("large_build_objects_per_s", "objects per second of that"),
    ("large_build_peak_memory_mib", "resident memory at its peak, 256 MiB given"),
    ("deep_narrow_build_cpu_ns", "processor time of an object in a build with 64 open files"),
    ("deep_narrow_build_cpu_ratio", "that, by that of a tenth of the objects"),
    ("deep_narrow_build_peak_memory_mib", "resident memory at its peak, 256 MiB given"),
    ("wide_shallow_build_cpu_ns", "processor time of an object in a build with 64 open files"),
    ("wide_shallow_build_cpu_ratio", "that, by that of a tenth of the objects"),
    ("wide_shallow_build_peak_memory_mib", "resident memory at its peak, 256 MiB given"),
    ("balanced_build_cpu_ns", "processor time of an object in a build with 64 open files"),
    ("balanced_build_cpu_ratio", "that, by that of a tenth of the objects"),
    ("balanced_build_peak_memory_mib", "resident memory at its peak, 256 MiB given"),
    ("s3_realistic_build_cpu_ns", "processor time of an object in a build with 64 open files"),
    ("s3_realistic_build_cpu_ratio", "that, by that of a tenth of the objects"),
    ("s3_realistic_build_peak_memory_mib", "resident memory at its peak, 256 MiB given"),
    ("wide_single_level_build_cpu_ns", "processor time of an object in a build with 64 open files"),
    ("wide_single_level_build_cpu_ratio", "that, by that of a tenth of the objects"),
    ("wide_single_level_build_peak_memory_mib", "resident memory at its peak, 256 MiB given"),
    ("shapes_objects", "objects of each of these inventories"),
    ("shapes_most_runs", "runs that were merged, of the shape with the most"),
    ("shapes_build_cpu_worst_ratio", "the highest of these ratios"),
    ("shapes_build_peak_memory_worst_mib", "the highest of these peaks"),
];
