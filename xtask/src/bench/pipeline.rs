//! The pipeline's bars, claims and figures, in one place.

use super::bars::{Bar, Claim, Good, aiming, claim, value_at_least, value_at_most};

const fn in_unit(bar: Bar, unit: &'static str) -> Bar {
    Bar { unit, ..bar }
}

/// What the pipeline promises.
pub(super) const BARS: [Bar; 15] = [
    aiming(
        value_at_least(
            "one stream, relative to psql's COPY through a pipe",
            "copy_one_of_psql_ratio",
            0.9,
        ),
        1.0,
    ),
    aiming(value_at_least("two partitions, relative to it", "copy_two_of_psql_ratio", 1.0), 1.15),
    aiming(
        value_at_least(
            "lineitem, one stream, relative to psql's",
            "lineitem_one_of_psql_ratio",
            0.9,
        ),
        1.0,
    ),
    aiming(
        value_at_least(
            "lineitem, two partitions, relative to psql's",
            "lineitem_two_of_psql_ratio",
            1.0,
        ),
        1.15,
    ),
    aiming(
        value_at_least("COPY, relative to INSERT, 100,000 rows", "copy_of_insert_100k_ratio", 2.1),
        4.0,
    ),
    aiming(value_at_least("one stream, relative to dlt", "copy_of_dlt_ratio", 10.0), 30.0),
    aiming(value_at_least("one stream, relative to Sling", "copy_of_sling_ratio", 3.0), 7.0),
    aiming(
        value_at_least(
            "into Parquet, relative to the fastest of ConnectorX, DuckDB and ADBC",
            "parquet_of_fastest_ratio",
            0.9,
        ),
        1.3,
    ),
    in_unit(aiming(value_at_most("peak memory, 1M rows", "peak_memory_mib", 96.0), 48.0), "MiB"),
    in_unit(
        aiming(value_at_most("peak memory, 10M rows", "large_peak_memory_mib", 96.0), 48.0),
        "MiB",
    ),
    in_unit(
        aiming(value_at_most("an incremental run with nothing new", "nothing_new_ms", 80.0), 25.0),
        "ms",
    ),
    aiming(
        value_at_least(
            "documents into PostgreSQL, relative to COPY of the same rows",
            "documents_of_copy_ratio",
            0.7,
        ),
        0.9,
    ),
    value_at_least("COPY, relative to INSERT, 10,000 rows", "copy_of_insert_10k_ratio", 1.0),
    aiming(
        value_at_least(
            "changes applied, 100 rows a transaction, relative to the server's own subscription",
            "changes_hundred_of_subscription_ratio",
            0.8,
        ),
        1.2,
    ),
    value_at_most(
        "lag at 5,000 rows a second, p99, relative to the subscription's",
        "changes_lag_p99_of_subscription_ratio",
        2.0,
    ),
];

/// What the description of the earlier system publishes, on its author's machine.
pub(super) const CLAIMS: [Claim; 14] = [
    claim("10,000 rows by INSERT", 153.0, "insert_10k_ms", Good::AtMost, "ms"),
    claim("its flush", 107.0, "insert_10k_flush_ms", Good::AtMost, "ms"),
    claim("10,000 rows by COPY", 121.0, "copy_10k_ms", Good::AtMost, "ms"),
    claim("its flush", 60.0, "copy_10k_flush_ms", Good::AtMost, "ms"),
    claim("its commit", 12.0, "copy_10k_commit_ms", Good::AtMost, "ms"),
    claim("100,000 rows by INSERT", 1_054.0, "insert_100k_ms", Good::AtMost, "ms"),
    claim("its flush", 1_006.0, "insert_100k_flush_ms", Good::AtMost, "ms"),
    claim("100,000 rows by COPY", 507.0, "copy_100k_ms", Good::AtMost, "ms"),
    claim("its flush", 399.0, "copy_100k_flush_ms", Good::AtMost, "ms"),
    claim("its commit", 67.0, "copy_100k_commit_ms", Good::AtMost, "ms"),
    claim("its fetch", 298.0, "copy_100k_fetch_ms", Good::AtMost, "ms"),
    claim("1,000 documents into PostgreSQL", 10.0, "documents_1000_ms", Good::AtMost, "ms"),
    claim("10,000 documents into PostgreSQL", 95.0, "documents_10000_ms", Good::AtMost, "ms"),
    claim("COPY, relative to INSERT", 2.1, "copy_of_insert_100k_ratio", Good::AtLeast, ""),
];

/// What each figure is.
pub(super) const FIGURES: &[(&str, &str)] = &[
    (
        "copy_one_of_psql_ratio",
        "one stream of ours, relative to psql's, adjacent runs of one round",
    ),
    (
        "copy_two_of_psql_ratio",
        "two ranges of pages at once, replacing the table, relative to psql's",
    ),
    ("lineitem_one_of_psql_ratio", "the same for lineitem, one stream"),
    ("lineitem_two_of_psql_ratio", "the same for lineitem, two ranges of pages"),
    (
        "copy_of_insert_10k_ratio",
        "INSERT's time by COPY's, 10,000 rows, adjacent runs of one round",
    ),
    ("copy_of_insert_100k_ratio", "the same for 100,000 rows"),
    ("copy_of_dlt_ratio", "dlt's time by ours, one stream, adjacent runs of one round"),
    ("copy_of_sling_ratio", "Sling's time by ours"),
    ("parquet_of_fastest_ratio", "time of the fastest of the others by ours, in each round"),
    (
        "documents_of_copy_ratio",
        "psql's time by the sink's, adjacent runs of one round; both tables have the same definition",
    ),
    (
        "documents_copy_rows_per_s",
        "psql's binary COPY of those rows from a file, one transaction, the whole process",
    ),
    (
        "documents_rows_per_s",
        "documents with eight values each through the sink, commits of 10,000, connecting included",
    ),
    ("documents_1000_ms", "a commit of a thousand of them, over an existing connection"),
    ("documents_10000_ms", "the same for ten thousand"),
    ("peak_memory_mib", "resident memory at its peak, a million rows, two ranges at once"),
    ("large_peak_memory_mib", "the same for ten times the rows"),
    (
        "insert_10k_ms",
        "a run of 10,000 rows by INSERT, from its first connection to its last commit",
    ),
    ("insert_10k_flush_ms", "of that, handing rows over"),
    ("copy_10k_ms", "the same by COPY"),
    ("copy_10k_flush_ms", "of that, handing rows over"),
    ("copy_10k_commit_ms", "of that, committing the unit"),
    ("insert_100k_ms", "a run of 100,000 rows by INSERT"),
    ("insert_100k_flush_ms", "of that, handing rows over"),
    ("copy_100k_ms", "the same by COPY"),
    ("copy_100k_flush_ms", "of that, handing rows over"),
    ("copy_100k_commit_ms", "of that, committing the unit"),
    ("copy_100k_fetch_ms", "reading, meanwhile"),
    ("copy_psql_rows_per_s", "two psqls and a pipe, binary COPY: the limit"),
    ("copy_one_rows_per_s", "ours, one stream, the whole process"),
    ("copy_two_rows_per_s", "ours, two ranges of pages at once"),
    ("copy_one_cpu_s", "processor time of ours, one stream"),
    ("lineitem_psql_rows_per_s", "the same for TPC-H's lineitem"),
    ("lineitem_one_rows_per_s", "ours, one stream"),
    ("lineitem_two_rows_per_s", "ours, two ranges of pages at once"),
    ("lineitem_one_cpu_s", "processor time of ours, one stream"),
    ("large_two_rows_per_s", "ours, ten times the rows, two ranges at once"),
    ("dlt_rows_per_s", "dlt as it comes, Python's start left out"),
    ("sling_rows_per_s", "Sling as it comes, Python's start left out"),
    (
        "parquet_rows_per_s",
        "ours into Parquet, the whole process; both sides compared by content hash",
    ),
    (
        "connectorx_parquet_rows_per_s",
        "ConnectorX in two parts and pyarrow, Python's start left out",
    ),
    ("duckdb_parquet_rows_per_s", "DuckDB's postgres_scanner, Python's start left out"),
    ("adbc_parquet_rows_per_s", "ADBC and pyarrow, Python's start left out"),
    ("nothing_new_ms", "the whole process, connecting included"),
    (
        "changes_hundred_of_subscription_ratio",
        "time of PostgreSQL's own subscription by ours, the whole process, inserts of 100 rows a transaction",
    ),
    ("changes_single_of_subscription_ratio", "the same for one row a transaction"),
    ("changes_large_of_subscription_ratio", "the same for all rows in one transaction"),
    ("changes_update_of_subscription_ratio", "the same for updates of 100 rows a transaction"),
    (
        "changes_lag_p99_of_subscription_ratio",
        "from the moment a row was to be inserted to its commit at the destination, 10 rows a transaction",
    ),
    ("changes_lag_p50_ms", "ours"),
    ("changes_lag_p99_ms", "ours"),
    ("changes_subscription_lag_p50_ms", "the subscription"),
    ("changes_subscription_lag_p99_ms", "the subscription"),
    ("changes_hundred_rows_per_s", "ours, 100 rows a transaction"),
    ("changes_hundred_subscription_rows_per_s", "the subscription, without flushing its commits"),
    ("changes_single_rows_per_s", "ours, one row a transaction"),
    ("changes_single_subscription_rows_per_s", "the subscription"),
    ("changes_large_rows_per_s", "ours, one transaction"),
    ("changes_large_subscription_rows_per_s", "the subscription"),
    ("changes_update_rows_per_s", "ours, updates"),
    ("changes_update_subscription_rows_per_s", "the subscription"),
];
