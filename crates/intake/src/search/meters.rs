//! Metrics of the search index, as `forebay_intake_search_*`.

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use super::SearchStatus;
use crate::Intake;

struct Meters {
    lag_bytes: Gauge,
    lag_seconds: Gauge,
    files: Gauge,
    texts: Gauge,
    text_bytes: Gauge,
    applied: Counter,
    unreadable: Counter,
    rebuilds: Counter,
    commit_seconds: Histogram,
    search_seconds: Histogram,
}

static METERS: LazyLock<Meters> = LazyLock::new(|| {
    let gauge = |name: &'static str, meaning: &'static str| {
        describe_gauge!(name, meaning);
        gauge!(name)
    };
    let counter = |name: &'static str, meaning: &'static str| {
        describe_counter!(name, meaning);
        counter!(name)
    };
    let histogram = |name: &'static str, meaning: &'static str| {
        describe_histogram!(name, meaning);
        histogram!(name)
    };
    Meters {
        lag_bytes: gauge(
            "forebay_intake_search_lag_bytes",
            "Log that the search index does not reflect yet.",
        ),
        lag_seconds: gauge(
            "forebay_intake_search_lag_seconds",
            "Time for which the search index has not been up to date.",
        ),
        files: gauge("forebay_intake_search_files_count", "Files in the search index."),
        texts: gauge(
            "forebay_intake_search_texts_count",
            "Files in the search index whose text is indexed.",
        ),
        text_bytes: gauge("forebay_intake_search_text_bytes", "Text in the search index."),
        applied: counter(
            "forebay_intake_search_changes_total",
            "Changes of names applied to the search index.",
        ),
        unreadable: counter(
            "forebay_intake_search_unreadable_total",
            "Files whose text could not be read for the search index.",
        ),
        rebuilds: counter(
            "forebay_intake_search_rebuilds_total",
            "Times the search index was built again from the log.",
        ),
        commit_seconds: histogram(
            "forebay_intake_search_commit_seconds",
            "Duration of a transaction of the search index.",
        ),
        search_seconds: histogram(
            "forebay_intake_search_seconds",
            "Duration of a search, once it has its turn.",
        ),
    }
});

pub(super) fn applied(changes: usize, took: Duration) {
    METERS.applied.increment(changes as u64);
    METERS.commit_seconds.record(took.as_secs_f64());
}

pub(super) fn searched(took: Duration) {
    METERS.search_seconds.record(took.as_secs_f64());
}

pub(super) fn unreadable() {
    METERS.unreadable.increment(1);
}

pub(super) fn rebuilt() {
    METERS.rebuilds.increment(1);
}

impl Intake {
    /// Updates the gauges of the search index, if there is one.
    pub(crate) fn measure_search(&self) {
        let Ok(status) = self.search_status() else { return };
        let SearchStatus { files, texts, text_bytes, behind_bytes, behind, .. } = status;
        METERS.lag_bytes.set(behind_bytes as f64);
        METERS.lag_seconds.set(behind.as_secs_f64());
        METERS.files.set(files as f64);
        METERS.texts.set(texts as f64);
        METERS.text_bytes.set(text_bytes as f64);
    }
}
