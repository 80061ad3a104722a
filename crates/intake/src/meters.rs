//! What the intake measures of itself, as `forebay_intake_*`.
//!
//! Handles are made once; a measurement is an atomic addition.

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

struct Meters {
    files_stored: Counter,
    files_duplicate: Counter,
    files_deleted: Counter,
    bytes_in: Counter,
    bytes_out: Counter,
    documents_accepted: Counter,
    documents_rejected: Counter,
    documents_applied: Counter,
    conflicts: Counter,
    changes_applied: Counter,
    apply_seconds: Histogram,
    documents_apply_seconds: Histogram,
    bytes_reclaimed: Counter,
    large_uploads: Gauge,
}

static METERS: LazyLock<Meters> = LazyLock::new(|| Meters {
    files_stored: counter!("forebay_intake_files_stored_total"),
    files_duplicate: counter!("forebay_intake_files_duplicate_total"),
    files_deleted: counter!("forebay_intake_files_deleted_total"),
    bytes_in: counter!("forebay_intake_received_bytes_total"),
    bytes_out: counter!("forebay_intake_sent_bytes_total"),
    documents_accepted: counter!("forebay_intake_documents_accepted_total"),
    documents_rejected: counter!("forebay_intake_documents_rejected_total"),
    documents_applied: counter!("forebay_intake_documents_applied_total"),
    conflicts: counter!("forebay_intake_column_conflicts_total"),
    changes_applied: counter!("forebay_intake_catalogue_changes_total"),
    apply_seconds: histogram!("forebay_intake_catalogue_commit_seconds"),
    documents_apply_seconds: histogram!("forebay_intake_documents_commit_seconds"),
    bytes_reclaimed: counter!("forebay_intake_reclaimed_bytes_total"),
    large_uploads: gauge!("forebay_intake_large_uploads_count"),
});

pub(crate) fn file_put(duplicate: bool, bytes: u64) {
    let count = if duplicate { &METERS.files_duplicate } else { &METERS.files_stored };
    count.increment(1);
    METERS.bytes_in.increment(bytes);
}

pub(crate) fn file_deleted() {
    METERS.files_deleted.increment(1);
}

pub(crate) fn sent(bytes: u64) {
    METERS.bytes_out.increment(bytes);
}

pub(crate) fn documents(accepted: u64, rejected: u64) {
    METERS.documents_accepted.increment(accepted);
    METERS.documents_rejected.increment(rejected);
}

pub(crate) fn applied(changes: usize, took: Duration) {
    METERS.changes_applied.increment(changes as u64);
    METERS.apply_seconds.record(took.as_secs_f64());
}

pub(crate) fn documents_applied(documents: u64, took: Duration) {
    METERS.documents_applied.increment(documents);
    METERS.documents_apply_seconds.record(took.as_secs_f64());
}

pub(crate) fn conflicts(values: u64) {
    METERS.conflicts.increment(values);
}

pub(crate) fn reclaimed(bytes: u64) {
    METERS.bytes_reclaimed.increment(bytes);
}

pub(crate) fn large_uploads(change: f64) {
    METERS.large_uploads.increment(change);
}
