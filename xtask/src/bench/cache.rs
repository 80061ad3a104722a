//! The cache's bars, claims and figures, in one place.

use super::bars::{
    Bar, Claim, Formula, Good, aiming, at_least, at_most, claim, optional, value_at_least,
    value_at_most,
};

/// Longest that other clients wait while a command runs that need not read all of a large value.
const fn wait_at_most(name: &'static str, figure: &'static str) -> Bar {
    let formula = Formula::Value(figure);
    Bar { name, formula, good: Good::AtMost, bar: 10.0, aim: None, unit: "ms" }
}

/// What the cache promises, beside Redis in the same run: SET and GET of 100-byte values over 100
/// connections, half of each. `*_of_redis_ratio` is the median over rounds of ours by theirs within
/// a round, so that what slows the machine for a while slows both.
pub(super) const BARS: [Bar; 41] = [
    aiming(
        value_at_most(
            "processor time per command, relative to Redis",
            "cache_p1_cpu_of_redis_ratio",
            0.6,
        ),
        0.45,
    ),
    aiming(value_at_least("rate, relative to Redis", "cache_p1_rate_of_redis_ratio", 1.4), 2.0),
    value_at_least(
        "rate for a client with one thread, relative to Redis",
        "cache_p1_single_rate_of_redis_ratio",
        1.0,
    ),
    value_at_most(
        "processor time for a client with one thread, relative to Redis",
        "cache_p1_single_cpu_of_redis_ratio",
        0.75,
    ),
    aiming(
        value_at_least(
            "rate 16 at a time, relative to Redis",
            "cache_p16_rate_of_redis_ratio",
            1.8,
        ),
        2.3,
    ),
    aiming(
        value_at_least(
            "rate 64 at a time, relative to Redis",
            "cache_p64_rate_of_redis_ratio",
            2.0,
        ),
        2.5,
    ),
    aiming(
        value_at_most(
            "processor time 16 at a time, relative to Redis",
            "cache_p16_cpu_of_redis_ratio",
            0.6,
        ),
        0.45,
    ),
    aiming(
        value_at_most(
            "processor time 64 at a time, relative to Redis",
            "cache_p64_cpu_of_redis_ratio",
            0.55,
        ),
        0.35,
    ),
    aiming(
        value_at_most("99th percentile, relative to Redis", "cache_p1_p99_of_redis_ratio", 0.6),
        0.3,
    ),
    aiming(
        value_at_least(
            "rate with the log on, relative to Redis",
            "cache_p1_logged_rate_of_redis_ratio",
            1.4,
        ),
        2.0,
    ),
    aiming(
        value_at_least(
            "rate 16 at a time with the log on, relative to Redis",
            "cache_p16_logged_rate_of_redis_ratio",
            1.8,
        ),
        2.3,
    ),
    value_at_most(
        "processor time with the log on, relative to Redis",
        "cache_p1_logged_cpu_of_redis_ratio",
        0.6,
    ),
    value_at_most(
        "processor time at 10,000 commands per second, relative to Redis",
        "cache_fixed_10k_cpu_of_redis_ratio",
        0.75,
    ),
    value_at_most(
        "99th percentile at 10,000 commands per second, relative to Redis",
        "cache_fixed_10k_p99_of_redis_ratio",
        1.0,
    ),
    value_at_most(
        "processor time at 20,000 commands per second, relative to Redis",
        "cache_fixed_20k_cpu_of_redis_ratio",
        0.75,
    ),
    value_at_most(
        "99th percentile at 20,000 commands per second, relative to Redis",
        "cache_fixed_20k_p99_of_redis_ratio",
        1.0,
    ),
    value_at_most(
        "processor time at 40,000 commands per second, relative to Redis",
        "cache_fixed_40k_cpu_of_redis_ratio",
        0.75,
    ),
    value_at_most(
        "99th percentile at 40,000 commands per second, relative to Redis",
        "cache_fixed_40k_p99_of_redis_ratio",
        1.0,
    ),
    Bar {
        name: "resident bytes of a key of 16 and a value of 100 bytes",
        formula: Formula::Value("cache_bytes_per_key"),
        good: Good::AtMost,
        bar: 135.0,
        aim: Some(110.0),
        unit: "B",
    },
    at_most(
        "memory of 85 KB JSON values, relative to Redis",
        "cache_json_85k_bytes_per_value",
        "redis_json_85k_bytes_per_value",
        0.3,
    ),
    at_least(
        "rate of reading them, relative to Redis",
        "cache_json_85k_get_per_s",
        "redis_json_85k_get_per_s",
        0.9,
    ),
    Bar {
        name: "memory a snapshot under write load adds",
        formula: Formula::Value("cache_snapshot_extra_memory_percent"),
        good: Good::AtMost,
        bar: 5.0,
        aim: None,
        unit: "%",
    },
    Bar {
        name: "longest a write waits during it",
        formula: Formula::Value("cache_snapshot_longest_write_ms"),
        good: Good::AtMost,
        bar: 5.0,
        aim: None,
        unit: "ms",
    },
    optional(value_at_least(
        "rate for a client with two threads, relative to Valkey",
        "cache_valkey_p1_rate_ratio",
        1.4,
    )),
    optional(value_at_most(
        "processor time for a client with two threads, relative to Valkey",
        "cache_valkey_p1_cpu_ratio",
        0.6,
    )),
    optional(value_at_least(
        "rate for a client with one thread, relative to Valkey",
        "cache_valkey_p1_single_rate_ratio",
        1.0,
    )),
    optional(value_at_most(
        "processor time for a client with one thread, relative to Valkey",
        "cache_valkey_p1_single_cpu_ratio",
        0.75,
    )),
    wait_at_most(
        "longest wait of others during RENAME of a set of a million members",
        "cache_wait_rename_ms",
    ),
    wait_at_most(
        "longest wait of others during RENAME of such a hash",
        "cache_wait_rename_hash_ms",
    ),
    wait_at_most(
        "longest wait of others during RENAME of such a sorted set",
        "cache_wait_rename_zset_ms",
    ),
    wait_at_most("longest wait of others during DEL of such a set", "cache_wait_del_ms"),
    wait_at_most("longest wait of others during UNLINK of it", "cache_wait_unlink_ms"),
    wait_at_most(
        "longest wait of others during LTRIM of a list of a million elements",
        "cache_wait_ltrim_ms",
    ),
    wait_at_most(
        "longest wait of others during ZREMRANGEBYRANK of a million members",
        "cache_wait_zremrangebyrank_ms",
    ),
    wait_at_most(
        "longest wait of others during 100 SETBITs in a string of 100 MB",
        "cache_wait_setbit_ms",
    ),
    wait_at_most(
        "longest wait of others during 100 short GETRANGEs of it",
        "cache_wait_getrange_ms",
    ),
    wait_at_most(
        "longest wait of others during 10 SETRANGEs in it during a snapshot",
        "cache_wait_setrange_saving_ms",
    ),
    at_most(
        "longest wait of others during COPY of a set of a million members, relative to Redis",
        "cache_wait_copy_ms",
        "redis_wait_copy_ms",
        1.0,
    ),
    at_most(
        "longest wait of others during COPY of a string of 100 MB, relative to Redis",
        "cache_wait_copy_text_ms",
        "redis_wait_copy_text_ms",
        1.0,
    ),
    at_most(
        "longest wait of others during BITCOUNT of 100 MB, relative to Redis",
        "cache_wait_bitcount_ms",
        "redis_wait_bitcount_ms",
        1.0,
    ),
    at_most(
        "longest wait of others during BITOP of two strings of 100 MB, relative to Redis",
        "cache_wait_bitop_ms",
        "redis_wait_bitop_ms",
        1.0,
    ),
];

/// What the description of the earlier system publishes, on its author's machine.
pub(super) const CLAIMS: [Claim; 18] = [
    claim("3-byte values, a task a connection", 132_738.0, "text_3b_per_s", Good::AtLeast, "1/s"),
    claim("3-byte SET on average", 803.0, "text_3b_set_us", Good::AtMost, "µs"),
    claim("3-byte GET on average", 694.0, "text_3b_get_us", Good::AtMost, "µs"),
    claim("1 KB values, a task a connection", 136_366.0, "text_1kb_per_s", Good::AtLeast, "1/s"),
    claim("1 KB SET on average", 796.0, "text_1kb_set_us", Good::AtMost, "µs"),
    claim("1 KB GET on average", 629.0, "text_1kb_get_us", Good::AtMost, "µs"),
    claim("3-byte values, pooled", 131_299.0, "text_pooled_3b_per_s", Good::AtLeast, "1/s"),
    claim("1 KB values, pooled", 135_334.0, "text_pooled_1kb_per_s", Good::AtLeast, "1/s"),
    claim("95th percentile", 1_890.0, "text_1kb_p95_us", Good::AtMost, "µs"),
    claim("99th percentile", 2_690.0, "text_1kb_p99_us", Good::AtMost, "µs"),
    claim("pooled, 25 workers", 85_234.0, "text_pooled_25_per_s", Good::AtLeast, "1/s"),
    claim("pooled, 100 workers", 101_245.0, "text_pooled_100_per_s", Good::AtLeast, "1/s"),
    claim("pooled, 200 workers", 106_168.0, "text_pooled_200_per_s", Good::AtLeast, "1/s"),
    claim("pooled, 500 workers", 104_123.0, "text_pooled_500_per_s", Good::AtLeast, "1/s"),
    claim("3,700 bytes of text, compressed", 78.0, "compressed_3700_bytes", Good::AtMost, "B"),
    claim("time that takes", 11.0, "compress_3700_us", Good::AtMost, "µs"),
    claim("85,000 bytes of text, compressed", 334.0, "compressed_85000_bytes", Good::AtMost, "B"),
    claim("time that takes", 12.0, "compress_85000_us", Good::AtMost, "µs"),
];

/// What each figure is. `redis_...` and `cache_...` (ours) come in pairs; `p16` is 16 commands sent
/// at a time; `logged` is with the log on.
pub(super) const FIGURES: [(&str, &str); 132] = [
    ("cache_p16_rate_of_redis_ratio", "commands per second, 16 at a time, ours / theirs"),
    ("cache_p16_cpu_of_redis_ratio", "processor time of a command, 16 at a time, ours / theirs"),
    ("cache_p64_rate_of_redis_ratio", "commands per second, 64 at a time, ours / theirs"),
    ("cache_p64_cpu_of_redis_ratio", "processor time of a command, 64 at a time, ours / theirs"),
    ("cache_p1_logged_rate_of_redis_ratio", "commands per second with the log on, ours / theirs"),
    ("cache_p1_logged_cpu_of_redis_ratio", "processor time with the log on, ours / theirs"),
    ("cache_p1_rate_of_redis_ratio", "commands per second, ours / theirs, median over the rounds"),
    (
        "cache_p1_cpu_of_redis_ratio",
        "processor time per command, ours / theirs, median over the rounds",
    ),
    ("cache_p1_p99_of_redis_ratio", "99th percentile, ours / theirs, median over the rounds"),
    ("cache_p16_logged_rate_of_redis_ratio", "the same with the log on, 16 at a time"),
    ("cache_p1_single_rate_of_redis_ratio", "the same from redis-benchmark with one thread"),
    ("cache_p1_single_cpu_of_redis_ratio", "processor time per command in that, ours / theirs"),
    ("cache_p1_per_s", "commands per second, SET and GET half each, every value read back"),
    ("redis_p1_per_s", "the same for Redis"),
    ("cache_p1_cpu_us", "processor time of the server for a command"),
    ("redis_p1_cpu_us", "the same for Redis"),
    ("cache_p1_p99_ms", "99th percentile of the time a command takes"),
    ("redis_p1_p99_ms", "the same for Redis"),
    ("cache_p1_light_per_s", "commands per second from `forebay cache bench`, which is lighter"),
    ("redis_p1_light_per_s", "the same for Redis"),
    ("cache_p1_light_cpu_us", "processor time of the server for a command of it"),
    ("redis_p1_light_cpu_us", "the same for Redis"),
    ("cache_p1_light_p99_ms", "99th percentile of the time a command of it takes"),
    ("redis_p1_light_p99_ms", "the same for Redis"),
    ("cache_fixed_10k_cpu_us", "processor time of a command at 10,000 commands per second"),
    ("redis_fixed_10k_cpu_us", "the same for Redis"),
    ("cache_fixed_10k_p99_ms", "99th percentile at that rate, from the time a command was due"),
    ("redis_fixed_10k_p99_ms", "the same for Redis"),
    (
        "cache_fixed_10k_cpu_of_redis_ratio",
        "processor time of a command at that rate, ours / theirs",
    ),
    ("cache_fixed_10k_p99_of_redis_ratio", "99th percentile at that rate, ours / theirs"),
    ("cache_fixed_20k_cpu_us", "processor time of a command at 20,000 commands per second"),
    ("redis_fixed_20k_cpu_us", "the same for Redis"),
    ("cache_fixed_20k_p99_ms", "99th percentile at that rate, from the time a command was due"),
    ("redis_fixed_20k_p99_ms", "the same for Redis"),
    (
        "cache_fixed_20k_cpu_of_redis_ratio",
        "processor time of a command at that rate, ours / theirs",
    ),
    ("cache_fixed_20k_p99_of_redis_ratio", "99th percentile at that rate, ours / theirs"),
    ("cache_fixed_40k_cpu_us", "processor time of a command at 40,000 commands per second"),
    ("redis_fixed_40k_cpu_us", "the same for Redis"),
    ("cache_fixed_40k_p99_ms", "99th percentile at that rate, from the time a command was due"),
    ("redis_fixed_40k_p99_ms", "the same for Redis"),
    (
        "cache_fixed_40k_cpu_of_redis_ratio",
        "processor time of a command at that rate, ours / theirs",
    ),
    ("cache_fixed_40k_p99_of_redis_ratio", "99th percentile at that rate, ours / theirs"),
    ("cache_p16_per_s", "the same, 16 commands sent at a time"),
    ("cache_p64_per_s", "the same, 64 commands sent at a time"),
    ("cache_p1_logged_per_s", "the same with interval:50ms"),
    ("redis_p1_logged_per_s", "the same with appendfsync everysec"),
    ("cache_bytes_per_key", "resident memory gained, by keys; random characters, not compressible"),
    ("redis_bytes_per_key", "the same for Redis"),
    ("cache_json_85k_bytes_per_value", "resident memory gained, by values of 85 KB of JSON"),
    ("redis_json_85k_bytes_per_value", "the same for Redis"),
    ("cache_json_85k_get_per_s", "such values read at random, 20 connections"),
    ("redis_json_85k_get_per_s", "the same for Redis"),
    (
        "cache_snapshot_extra_memory_percent",
        "peak of resident memory during a snapshot, above before",
    ),
    (
        "redis_snapshot_extra_memory_percent",
        "the same for Redis' parent; its child shares and copies",
    ),
    ("cache_snapshot_longest_write_ms", "longest wait of a writer during the snapshot"),
    ("redis_snapshot_longest_write_ms", "the same for Redis"),
    ("cache_snapshot_seconds", "time the snapshot takes while one client writes"),
    ("redis_snapshot_seconds", "the same for Redis"),
    ("compressed_3700_bytes", "bytes kept of 3,700 bytes of repetitive text"),
    ("compressed_85000_bytes", "bytes kept of 85,000 bytes of repetitive text"),
    ("redis_p16_per_s", "the same for Redis"),
    ("redis_p64_per_s", "the same for Redis"),
    ("cache_p16_cpu_us", "processor time of the server for a command"),
    ("redis_p16_cpu_us", "the same for Redis"),
    ("cache_p64_cpu_us", "processor time of the server for a command"),
    ("redis_p64_cpu_us", "the same for Redis"),
    ("cache_p16_logged_per_s", "commands per second"),
    ("redis_p16_logged_per_s", "the same for Redis"),
    ("cache_p1_logged_cpu_us", "processor time of the server for a command"),
    ("redis_p1_logged_cpu_us", "the same for Redis"),
    ("text_3b_per_s", "commands per second over the text protocol, SET and GET half each"),
    ("text_3b_set_us", "mean time of a SET over the text protocol, 100 clients"),
    ("text_3b_get_us", "mean time of a GET over the text protocol, 100 clients"),
    ("text_1kb_per_s", "commands per second over the text protocol, SET and GET half each"),
    ("text_1kb_set_us", "mean time of a SET over the text protocol, 100 clients"),
    ("text_1kb_get_us", "mean time of a GET over the text protocol, 100 clients"),
    ("text_pooled_3b_per_s", "commands per second over the text protocol, SET and GET half each"),
    ("text_pooled_1kb_per_s", "commands per second over the text protocol, SET and GET half each"),
    ("text_1kb_p95_us", "that percentile of the response time of commands"),
    ("text_1kb_p99_us", "that percentile of the response time of commands"),
    (
        "text_pooled_25_per_s",
        "SET and GET half each over the text protocol, at most this many workers",
    ),
    (
        "text_pooled_100_per_s",
        "SET and GET half each over the text protocol, at most this many workers",
    ),
    (
        "text_pooled_200_per_s",
        "SET and GET half each over the text protocol, at most this many workers",
    ),
    (
        "text_pooled_500_per_s",
        "SET and GET half each over the text protocol, at most this many workers",
    ),
    ("compress_3700_us", "time of a whole SET of such a value, in process"),
    ("compress_85000_us", "time of a whole SET of such a value, in process"),
    ("cache_valkey_p1_per_s", "commands per second from valkey-benchmark with two threads"),
    ("valkey_p1_per_s", "the same for Valkey"),
    ("cache_valkey_p1_cpu_us", "processor time of the server for a command in that"),
    ("valkey_p1_cpu_us", "the same for Valkey"),
    ("cache_valkey_p1_p99_ms", "99th percentile of the time a command takes in that"),
    ("valkey_p1_p99_ms", "the same for Valkey"),
    ("cache_valkey_p1_rate_ratio", "commands per second in that, ours / theirs"),
    ("cache_valkey_p1_cpu_ratio", "processor time of a command in that, ours / theirs"),
    ("cache_valkey_p1_p99_ratio", "99th percentile in that, ours / theirs"),
    ("cache_valkey_p1_single_per_s", "commands per second from valkey-benchmark with one thread"),
    ("valkey_p1_single_per_s", "the same for Valkey"),
    ("cache_valkey_p1_single_cpu_us", "processor time of the server for a command in that"),
    ("valkey_p1_single_cpu_us", "the same for Valkey"),
    ("cache_valkey_p1_single_p99_ms", "99th percentile of the time a command takes in that"),
    ("valkey_p1_single_p99_ms", "the same for Valkey"),
    ("cache_valkey_p1_single_rate_ratio", "commands per second in that, ours / theirs"),
    ("cache_valkey_p1_single_cpu_ratio", "processor time of a command in that, ours / theirs"),
    ("cache_valkey_p1_single_p99_ratio", "99th percentile in that, ours / theirs"),
    (
        "cache_wait_rename_ms",
        "longest wait of four other clients during RENAME of a set of a million members",
    ),
    ("redis_wait_rename_ms", "the same for Redis"),
    (
        "cache_wait_rename_hash_ms",
        "longest wait of four other clients during RENAME of a hash of a million fields",
    ),
    ("redis_wait_rename_hash_ms", "the same for Redis"),
    (
        "cache_wait_rename_zset_ms",
        "longest wait of four other clients during RENAME of a sorted set of a million members",
    ),
    ("redis_wait_rename_zset_ms", "the same for Redis"),
    (
        "cache_wait_del_ms",
        "longest wait of four other clients during DEL of a set of a million members",
    ),
    ("redis_wait_del_ms", "the same for Redis"),
    (
        "cache_wait_unlink_ms",
        "longest wait of four other clients during UNLINK of a set of a million members",
    ),
    ("redis_wait_unlink_ms", "the same for Redis"),
    (
        "cache_wait_ltrim_ms",
        "longest wait of four other clients during LTRIM of a list of a million elements",
    ),
    ("redis_wait_ltrim_ms", "the same for Redis"),
    (
        "cache_wait_zremrangebyrank_ms",
        "longest wait of four other clients during ZREMRANGEBYRANK of a million members",
    ),
    ("redis_wait_zremrangebyrank_ms", "the same for Redis"),
    (
        "cache_wait_setbit_ms",
        "longest wait of four other clients during 100 SETBITs in a string of 100 MB",
    ),
    ("redis_wait_setbit_ms", "the same for Redis"),
    (
        "cache_wait_getrange_ms",
        "longest wait of four other clients during 100 short GETRANGEs of 100 MB",
    ),
    ("redis_wait_getrange_ms", "the same for Redis"),
    (
        "cache_wait_setrange_saving_ms",
        "longest wait of four other clients during 10 SETRANGEs in 100 MB during a snapshot",
    ),
    ("redis_wait_setrange_saving_ms", "the same for Redis"),
    (
        "cache_wait_copy_ms",
        "longest wait of four other clients during COPY of a set of a million members",
    ),
    ("redis_wait_copy_ms", "the same for Redis"),
    (
        "cache_wait_copy_text_ms",
        "longest wait of four other clients during COPY of a string of 100 MB",
    ),
    ("redis_wait_copy_text_ms", "the same for Redis"),
    ("cache_wait_bitcount_ms", "longest wait of four other clients during BITCOUNT of 100 MB"),
    ("redis_wait_bitcount_ms", "the same for Redis"),
    (
        "cache_wait_bitop_ms",
        "longest wait of four other clients during BITOP of two strings of 100 MB",
    ),
    ("redis_wait_bitop_ms", "the same for Redis"),
];
