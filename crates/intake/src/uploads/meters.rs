//! Metrics of unfinished uploads, as `forebay_intake_uploads_*`.

use std::sync::LazyLock;

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

struct Meters {
    created: Counter,
    finished: Counter,
    expired: Counter,
    interrupted: Counter,
    received: Counter,
    open: Gauge,
    parts: Gauge,
    reserved: Gauge,
}

static METERS: LazyLock<Meters> = LazyLock::new(|| {
    for (name, meaning) in [
        ("forebay_intake_uploads_created_total", "Resumable uploads and parts begun."),
        ("forebay_intake_uploads_finished_total", "Resumable uploads and parts that became files."),
        ("forebay_intake_uploads_expired_total", "Unfinished uploads removed after they expired."),
        (
            "forebay_intake_uploads_interrupted_total",
            "Requests that appended to an upload and ended early: cut off, or replaced by a newer one.",
        ),
        ("forebay_intake_uploads_received_bytes_total", "Bytes appended to unfinished uploads."),
    ] {
        describe_counter!(name, meaning);
    }
    describe_gauge!("forebay_intake_uploads_open_count", "Unfinished uploads, parts not counted.");
    describe_gauge!("forebay_intake_uploads_parts_count", "Unfinished parts of multipart uploads.");
    describe_gauge!(
        "forebay_intake_uploads_reserved_bytes",
        "Bytes that unfinished uploads take, with those still to come."
    );
    Meters {
        created: counter!("forebay_intake_uploads_created_total"),
        finished: counter!("forebay_intake_uploads_finished_total"),
        expired: counter!("forebay_intake_uploads_expired_total"),
        interrupted: counter!("forebay_intake_uploads_interrupted_total"),
        received: counter!("forebay_intake_uploads_received_bytes_total"),
        open: gauge!("forebay_intake_uploads_open_count"),
        parts: gauge!("forebay_intake_uploads_parts_count"),
        reserved: gauge!("forebay_intake_uploads_reserved_bytes"),
    }
});

pub(super) fn created() {
    METERS.created.increment(1);
}

pub(super) fn finished() {
    METERS.finished.increment(1);
}

pub(super) fn expired(count: usize) {
    METERS.expired.increment(count as u64);
}

pub(super) fn interrupted() {
    METERS.interrupted.increment(1);
}

pub(super) fn received(bytes: u64) {
    METERS.received.increment(bytes);
}

pub(super) fn totals(open: usize, parts: usize, reserved: u64) {
    METERS.open.set(open as f64);
    METERS.parts.set(parts as f64);
    METERS.reserved.set(reserved as f64);
}
