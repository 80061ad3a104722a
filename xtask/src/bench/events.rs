//! The event store's bars, claims and figures, in one place.

use super::bars::{Bar, Claim, Formula, Good, aiming, at_least, claim};

const fn bar(name: &'static str, formula: Formula, good: Good, bar: f64) -> Bar {
    Bar { name, formula, good, bar, aim: None, unit: "" }
}

const fn value(name: &'static str, figure: &'static str, good: Good, limit: f64) -> Bar {
    bar(name, Formula::Value(figure), good, limit)
}

const fn in_unit(bar: Bar, unit: &'static str) -> Bar {
    Bar { unit, ..bar }
}

/// What the event store promises. Rates are of 20 writers with batches of 2,000 events of 64 raw
/// bytes. `*_events_per_s` ends when everything is sealed, in the tree and signed for; beside the
/// peers stands `*_proven_per_s`, which ends as theirs does with the last acknowledgement, or when
/// the root over all events is known.
pub(super) const BARS: [Bar; 16] = [
    in_unit(
        aiming(
            value("verified events, proofs on", "verified_events_per_s", Good::AtLeast, 1e6),
            2e6,
        ),
        "1/s",
    ),
    aiming(
        at_least("unsynced, relative to RocksDB", "verified_proven_per_s", "rocksdb_per_s", 1.0),
        1.5,
    ),
    aiming(
        at_least(
            "synced, relative to RocksDB",
            "synced_verified_proven_per_s",
            "rocksdb_synced_per_s",
            1.0,
        ),
        1.5,
    ),
    aiming(
        at_least(
            "unsynced, proofs off, relative to RocksDB",
            "plain_proven_per_s",
            "rocksdb_per_s",
            1.3,
        ),
        2.0,
    ),
    aiming(
        at_least(
            "synced, proofs off, relative to RocksDB",
            "synced_plain_proven_per_s",
            "rocksdb_synced_per_s",
            1.3,
        ),
        2.0,
    ),
    aiming(
        at_least("unsynced, relative to fjall", "verified_proven_per_s", "fjall_per_s", 1.5),
        2.0,
    ),
    aiming(
        at_least(
            "synced, relative to fjall",
            "synced_verified_proven_per_s",
            "fjall_synced_per_s",
            1.5,
        ),
        2.0,
    ),
    aiming(value("synced, relative to unsynced", "synced_share_ratio", Good::AtLeast, 0.7), 0.9),
    aiming(
        at_least(
            "one event a commit, synced, relative to RocksDB",
            "single_synced_events_per_s",
            "rocksdb_single_synced_per_s",
            1.0,
        ),
        1.4,
    ),
    // Until each event can be proven, as the bars on the peers above.
    aiming(value("cost of proofs", "proof_cost_unsealed_ratio", Good::AtMost, 0.3), 0.15),
    in_unit(
        aiming(
            value("one event by id, 99th percentile", "point_read_p99_us", Good::AtMost, 50.0),
            25.0,
        ),
        "µs",
    ),
    in_unit(
        aiming(
            value(
                "one event by id from compressed blocks, 99th percentile",
                "compressed_point_read_p99_us",
                Good::AtMost,
                50.0,
            ),
            25.0,
        ),
        "µs",
    ),
    in_unit(value("full verification", "verify_bytes_per_s", Good::AtLeast, 1e9), "B/s"),
    in_unit(value("recovery", "recovery_s_per_gb", Good::AtMost, 1.0), "s/GB"),
    aiming(value("bytes on disk, relative to raw NDJSON", "size_ratio", Good::AtMost, 0.3), 0.22),
    value(
        "memory while writing, relative to the configured limit",
        "write_memory_share_ratio",
        Good::AtMost,
        1.2,
    ),
];

/// What the description of the earlier system publishes, on its author's machine.
pub(super) const CLAIMS: [Claim; 9] = [
    claim(
        "write throughput, 20 writers",
        1_132_506.0,
        "verified_events_per_s",
        Good::AtLeast,
        "1/s",
    ),
    claim("time for 2M events", 1.77, "verified_events_s", Good::AtMost, "s"),
    claim("log, one thread", 54_419.0, "one_writer_singles_events_per_s", Good::AtLeast, "1/s"),
    claim("memory table", 942_544.0, "one_writer_events_per_s", Good::AtLeast, "1/s"),
    claim("sorted tables written", 118_553.0, "segment_events_per_s", Good::AtLeast, "1/s"),
    claim("whole pipeline", 1_132_506.0, "stored_events_per_s", Good::AtLeast, "1/s"),
    claim("one event at a time", 50_000.0, "one_writer_singles_events_per_s", Good::AtLeast, "1/s"),
    claim("balanced preset", 100_000.0, "preset_balanced_events_per_s", Good::AtLeast, "1/s"),
    claim(
        "preset for maximum durability",
        10_000.0,
        "preset_max_durability_events_per_s",
        Good::AtLeast,
        "1/s",
    ),
];

/// What each figure is.
pub(super) const FIGURES: [(&str, &str); 52] = [
    (
        "verified_events_per_s",
        "events until all are sealed, in the tree and signed for; all read back",
    ),
    ("verified_acknowledged_per_s", "the same until the last acknowledgement"),
    ("verified_events_s", "time of the former for all events"),
    ("synced_verified_events_per_s", "the same, each batch on stable storage when acknowledged"),
    ("synced_verified_acknowledged_per_s", "the same until the last acknowledgement"),
    ("plain_events_per_s", "events until all are sealed, no proofs kept"),
    ("plain_acknowledged_per_s", "the same until the last acknowledgement"),
    ("synced_plain_events_per_s", "synced, no proofs kept"),
    ("synced_plain_acknowledged_per_s", "the same until the last acknowledgement"),
    ("segment_events_per_s", "events per second from memory into a segment"),
    ("verified_proven_per_s", "the same until the root over all events is known"),
    ("synced_verified_proven_per_s", "the same, synced"),
    ("plain_proven_per_s", "without proofs: until the last acknowledgement"),
    ("synced_plain_proven_per_s", "the same, synced"),
    (
        "proof_cost_unsealed_ratio",
        "share that proofs take of the time until each event can be proven, within a round",
    ),
    ("proof_cost_ratio", "the same for the time until all is sealed, which is separate work"),
    ("synced_share_ratio", "synced of unsynced, adjacent runs of one round"),
    ("rocksdb_per_s", "RocksDB with its log on, until the last acknowledgement; all read back"),
    ("rocksdb_synced_per_s", "the same, synced"),
    ("fjall_per_s", "fjall, until the last acknowledgement; all read back"),
    ("fjall_synced_per_s", "the same, synced"),
    ("single_synced_events_per_s", "one event a commit, synced, 20 writers, proofs on"),
    ("rocksdb_single_synced_per_s", "the same for RocksDB"),
    ("preset_balanced_events_per_s", "balanced, 20 writers, batches of 100, synced"),
    ("preset_max_durability_events_per_s", "max-durability, 20 writers, one event a commit"),
    ("one_writer_events_per_s", "one writer, batches of 2,000, unsynced, proofs on"),
    ("one_writer_singles_events_per_s", "one writer, one event a commit, unsynced, proofs on"),
    ("stored_events", "events stored when single ones are read"),
    ("stored_events_per_s", "rate of writing them, sealed and signed for"),
    ("stored_bytes_per_event", "bytes on disk for each of them, uncompressed, log included"),
    ("write_peak_memory_mib", "resident memory at its peak while they are written"),
    ("write_memory_share_ratio", "that, relative to the limit set by the options"),
    ("scan_events_per_s", "events read in order of time, one thread"),
    ("point_read_p50_us", "one event by id, at random, median"),
    ("point_read_p99_us", "99th percentile"),
    ("absent_read_us", "looking for an id that does not exist, mean"),
    ("prove_p50_us", "a proof made, median; each was verified"),
    ("prove_p99_us", "99th percentile"),
    (
        "verify_bytes_per_s",
        "bytes of leaves read from disk and hashed again, tree and signatures checked",
    ),
    ("recovery_s_per_gb", "opening after a crash, by bytes of events in the log"),
    ("recovery_until_proofs_s_per_gb", "the same until the first proof can be made"),
    ("raw_bytes_per_event", "bytes of a line of Zeek, Suricata and OCSF JSON, mean; made-up lines"),
    ("bytes_per_event", "bytes on disk for it, everything but the emptied log, balanced preset"),
    ("size_ratio", "the latter of the former"),
    ("zeek_size_ratio", "of Zeek alone"),
    ("suricata_size_ratio", "of Suricata alone"),
    ("ocsf_size_ratio", "of OCSF alone"),
    ("zeek_events_per_s", "Zeek JSON lines parsed and stored, one thread, balanced preset"),
    ("suricata_events_per_s", "the same for Suricata"),
    ("ocsf_events_per_s", "the same for OCSF"),
    ("compressed_point_read_p50_us", "one event by id from the Zeek store, median"),
    ("compressed_point_read_p99_us", "99th percentile"),
];
