//! Metrics of the intake, as `forebay_intake_*`, and of its log, as `forebay_log_*` with the label
//! `log="intake"`.
//!
//! Handles are created once; a measurement is an atomic addition. The log keeps its own counts:
//! they are fetched when metrics are read ([`Intake::measure`]), so that appending is independent
//! of this module.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use forebay_log::{Log, Stats};
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, gauge, histogram,
};
use parking_lot::Mutex;

use crate::Intake;
use crate::documents::forward::{DatabaseStatus, QuarantinedNamespace};

struct Meters {
    files_stored: Counter,
    files_duplicate: Counter,
    files_deleted: Counter,
    files_expired: Counter,
    files_routed: Counter,
    quota_refused: Counter,
    #[cfg(feature = "thumbnails")]
    thumbnails: [Counter; 3],
    bytes_in: Counter,
    bytes_out: Counter,
    documents_accepted: Counter,
    documents_rejected: Counter,
    documents_changed: [Counter; 3],
    documents_applied: Counter,
    conflicts: Counter,
    changes_applied: Counter,
    apply_seconds: Histogram,
    documents_apply_seconds: Histogram,
    verify_seconds: Histogram,
    verified_age_seconds: Gauge,
    damaged: Gauge,
    bytes_reclaimed: Counter,
    large_uploads: Gauge,
    forwarded: Counter,
    forward_seconds: Histogram,
    forward_retries: Counter,
    look_ups: [[Counter; 2]; 3],
}

/// A tier of the look-ups of content.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tier {
    /// Blobs used a short while ago.
    Memory,
    /// The filter of everything that was stored.
    Filter,
    /// The catalogue.
    Catalogue,
}

/// Counts a look-up, and whether the tier had the answer. For the catalogue: whether the content is stored.
pub(crate) fn looked_up(tier: Tier, is_hit: bool) {
    let [miss, hit] = &METERS.look_ups[tier as usize];
    if is_hit { hit.increment(1) } else { miss.increment(1) }
}

fn look_ups(tier: &'static str) -> [Counter; 2] {
    ["miss", "hit"]
        .map(|result| counter!("forebay_intake_lookups_total", "tier" => tier, "result" => result))
}

static METERS: LazyLock<Meters> = LazyLock::new(|| Meters {
    files_stored: counter!("forebay_intake_files_stored_total"),
    files_duplicate: counter!("forebay_intake_files_duplicate_total"),
    files_deleted: counter!("forebay_intake_files_deleted_total"),
    files_expired: counter!("forebay_intake_files_expired_total"),
    files_routed: counter!("forebay_intake_files_routed_total"),
    quota_refused: counter!("forebay_intake_quota_refused_total"),
    #[cfg(feature = "thumbnails")]
    thumbnails: ["made", "kept", "refused"]
        .map(|result| counter!("forebay_intake_thumbnails_total", "result" => result)),
    bytes_in: counter!("forebay_intake_received_bytes_total"),
    bytes_out: counter!("forebay_intake_sent_bytes_total"),
    documents_accepted: counter!("forebay_intake_documents_accepted_total"),
    documents_rejected: counter!("forebay_intake_documents_rejected_total"),
    documents_changed: ["replaced", "deleted", "dropped"].map(changed),
    documents_applied: counter!("forebay_intake_documents_applied_total"),
    conflicts: counter!("forebay_intake_column_conflicts_total"),
    changes_applied: counter!("forebay_intake_catalogue_changes_total"),
    apply_seconds: histogram!("forebay_intake_catalogue_commit_seconds"),
    documents_apply_seconds: histogram!("forebay_intake_documents_commit_seconds"),
    verify_seconds: histogram!("forebay_intake_catalogue_verify_seconds"),
    verified_age_seconds: gauge!("forebay_intake_catalogue_verified_age_seconds"),
    damaged: gauge!("forebay_intake_catalogue_damaged"),
    bytes_reclaimed: counter!("forebay_intake_reclaimed_bytes_total"),
    large_uploads: gauge!("forebay_intake_large_uploads_count"),
    forwarded: counter!("forebay_intake_database_documents_total"),
    forward_seconds: histogram!("forebay_intake_database_commit_seconds"),
    forward_retries: counter!("forebay_intake_database_retries_total"),
    look_ups: ["memory", "filter", "catalogue"].map(look_ups),
});

pub(crate) fn file_put(duplicate: bool, bytes: u64) {
    let count = if duplicate { &METERS.files_duplicate } else { &METERS.files_stored };
    count.increment(1);
    METERS.bytes_in.increment(bytes);
}

pub(crate) fn file_deleted() {
    METERS.files_deleted.increment(1);
}

pub(crate) fn files_expired(count: u64) {
    METERS.files_expired.increment(count);
}

/// Counts a change that was refused because of the quota of its namespace.
pub(crate) fn quota_refused() {
    METERS.quota_refused.increment(1);
}

pub(crate) fn file_routed() {
    METERS.files_routed.increment(1);
}

/// Counts a request for a thumbnail.
///
/// * `kept`: whether it was made before; `None`: there is none.
#[cfg(feature = "thumbnails")]
pub(crate) fn thumbnail(kept: Option<bool>) {
    let [made, from_memory, refused] = &METERS.thumbnails;
    match kept {
        Some(false) => made,
        Some(true) => from_memory,
        None => refused,
    }
    .increment(1);
}

pub(crate) fn sent(bytes: u64) {
    METERS.bytes_out.increment(bytes);
}

pub(crate) fn documents(accepted: u64, rejected: u64) {
    METERS.documents_accepted.increment(accepted);
    METERS.documents_rejected.increment(rejected);
}

/// What happened to documents that were there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Changed {
    /// One was replaced or merged.
    Replaced,
    /// One was deleted.
    Deleted,
    /// All of a namespace were dropped.
    Dropped,
}

fn changed(change: &'static str) -> Counter {
    counter!("forebay_intake_documents_changed_total", "change" => change)
}

pub(crate) fn documents_changed(change: Changed) {
    if let Some(counter) = METERS.documents_changed.get(change as usize) {
        counter.increment(1);
    }
}

pub(crate) fn applied(changes: usize, took: Duration) {
    METERS.changes_applied.increment(changes as u64);
    METERS.apply_seconds.record(took.as_secs_f64());
}

pub(crate) fn documents_applied(documents: u64, took: Duration) {
    METERS.documents_applied.increment(documents);
    METERS.documents_apply_seconds.record(took.as_secs_f64());
}

/// A complete pass over the catalogue, which found nothing.
pub(crate) fn verified(took: Duration) {
    METERS.verify_seconds.record(took.as_secs_f64());
}

pub(crate) fn conflicts(values: u64) {
    METERS.conflicts.increment(values);
}

pub(crate) fn reclaimed(bytes: u64) {
    METERS.bytes_reclaimed.increment(bytes);
}

pub(crate) fn forwarded(documents: u64, took: Duration) {
    METERS.forwarded.increment(documents);
    METERS.forward_seconds.record(took.as_secs_f64());
}

pub(crate) fn forward_retry() {
    METERS.forward_retries.increment(1);
}

pub(crate) fn large_uploads(change: f64) {
    METERS.large_uploads.increment(change);
}

/// A counter of the log, its name, and its description.
type LogCounter = (&'static str, &'static str, fn(&Stats) -> u64);

const LOG_COUNTERS: [LogCounter; 8] = [
    ("forebay_log_appended_entries_total", "Entries appended.", |stats| stats.appended_entries),
    ("forebay_log_appended_bytes_total", "Payload bytes appended.", |stats| stats.appended_bytes),
    ("forebay_log_groups_total", "Writes, each of all entries that were waiting.", |stats| {
        stats.groups
    }),
    (
        "forebay_log_written_bytes_total",
        "Bytes written to segments, headers and padding included.",
        |stats| stats.written_bytes,
    ),
    ("forebay_log_syncs_total", "Syncs of segment data.", |stats| stats.syncs),
    // A counter holds whole numbers, so the unit is not seconds.
    ("forebay_log_sync_nanoseconds_total", "Time spent in syncs of segment data.", |stats| {
        stats.sync_ns_total
    }),
    (
        "forebay_log_rotations_total",
        "Segments started because the previous one was full.",
        |stats| stats.rotations,
    ),
    ("forebay_log_full_total", "Appends that found the buffer full and had to wait.", |stats| {
        stats.full
    }),
];

/// A gauge of the log, its name, and its description.
type LogGauge = (&'static str, &'static str, fn(&Log) -> u64);

const LOG_GAUGES: [LogGauge; 3] = [
    ("forebay_log_segments_count", "Segment files.", |log| log.segment_count() as u64),
    (
        "forebay_log_span_bytes",
        "Positions from the log's start to its end, erased entries included.",
        |log| log.end().0.saturating_sub(log.start().0),
    ),
    ("forebay_log_unsynced_bytes", "Bytes appended but not yet on stable storage.", |log| {
        log.end().0.saturating_sub(log.synced().0)
    }),
];

/// A gauge of the external database, its name, and its description.
type DatabaseGauge = (&'static str, &'static str, fn(&DatabaseStatus) -> f64);

/// The gauge of a quarantined namespace.
const QUARANTINED: &str = "forebay_intake_database_quarantined_documents";

const DATABASE_GAUGES: [DatabaseGauge; 6] = [
    (
        "forebay_intake_database_up",
        "1 while the database accepts documents, otherwise 0.",
        |status| f64::from(u8::from(!status.state.is_degraded())),
    ),
    (
        "forebay_intake_database_lag_documents",
        "Documents that the database does not have yet.",
        |status| status.documents_waiting as f64,
    ),
    (
        "forebay_intake_database_lag_seconds",
        "Age of the oldest document that the database does not have yet.",
        |status| status.lag_seconds,
    ),
    (
        "forebay_intake_database_quarantined_count",
        "Namespaces whose documents the database refuses.",
        |status| status.quarantined.len() as f64,
    ),
    ("forebay_intake_database_spill_bytes", "Documents spilled to files.", |status| {
        status.spill_bytes as f64
    }),
    ("forebay_intake_database_log_kept_bytes", "Log kept for the database.", |status| {
        status.log_bytes_kept as f64
    }),
];

static DATABASE_METERS: LazyLock<[Gauge; DATABASE_GAUGES.len()]> = LazyLock::new(|| {
    DATABASE_GAUGES.map(|(name, meaning, _)| {
        describe_gauge!(name, meaning);
        gauge!(name)
    })
});

struct LogMeters {
    counters: [Counter; LOG_COUNTERS.len()],
    gauges: [Gauge; LOG_GAUGES.len()],
}

static LOG_METERS: LazyLock<LogMeters> = LazyLock::new(|| LogMeters {
    counters: LOG_COUNTERS.map(|(name, meaning, _)| {
        describe_counter!(name, meaning);
        counter!(name, "log" => "intake")
    }),
    gauges: LOG_GAUGES.map(|(name, meaning, _)| {
        describe_gauge!(name, meaning);
        gauge!(name, "log" => "intake")
    }),
});

/// Updates the gauge of each quarantined namespace; one that is released has 0 from then on.
fn measure_quarantine(quarantined: &[QuarantinedNamespace]) {
    static KNOWN: LazyLock<Mutex<BTreeSet<String>>> = LazyLock::new(|| {
        let meaning = "Documents of a namespace that the database refuses.";
        describe_gauge!(QUARANTINED, meaning);
        Mutex::default()
    });
    let mut known = KNOWN.lock();
    known.extend(quarantined.iter().map(|held| held.namespace.clone()));
    for namespace in known.iter() {
        let held = quarantined.iter().find(|held| held.namespace == *namespace);
        let documents = held.map_or(0, |held| held.documents_waiting);
        gauge!(QUARANTINED, "namespace" => namespace.clone()).set(documents as f64);
    }
}

impl Intake {
    /// Updates the metrics that are fetched, not counted. Call it before they are read.
    ///
    /// Takes a few short locks and accesses no file.
    pub fn measure(&self) {
        let log = &self.inner.shared.log;
        let stats = log.stats();
        for (counter, (_, _, value)) in LOG_METERS.counters.iter().zip(LOG_COUNTERS) {
            counter.absolute(value(&stats));
        }
        for (gauge, (_, _, value)) in LOG_METERS.gauges.iter().zip(LOG_GAUGES) {
            gauge.set(value(log) as f64);
        }
        let verified = *self.inner.shared.verified.lock();
        METERS.verified_age_seconds.set(verified.at.elapsed().as_secs_f64());
        let is_whole = self.inner.shared.check_whole().is_ok();
        METERS.damaged.set(f64::from(u8::from(!is_whole)));
        self.measure_search();
        if let Some(remote) = self.inner.shared.blobs.remote() {
            crate::blobs::measure(remote);
        }
        if let Some(status) = self.database() {
            for (gauge, (_, _, value)) in DATABASE_METERS.iter().zip(DATABASE_GAUGES) {
                gauge.set(value(&status));
            }
            measure_quarantine(&status.quarantined);
        }
    }
}
