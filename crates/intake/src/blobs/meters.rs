//! Metrics of blobs in object storage, as `forebay_intake_blobs_*`.

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use super::remote::Remote;

struct Meters {
    packs: [Counter; 2],
    packed: Counter,
    packs_removed: Counter,
    packs_rewritten: Counter,
    cache: [Counter; 2],
    reads: [Counter; 2],
    read_bytes: Counter,
    read_seconds: Histogram,
    up: Gauge,
    waiting_bytes: Gauge,
    cache_bytes: Gauge,
    stored: [Gauge; 4],
    moved: Counter,
}

fn by_result(name: &'static str) -> [Counter; 2] {
    ["failed", "done"].map(|result| counter!(name, "result" => result))
}

static METERS: LazyLock<Meters> = LazyLock::new(|| Meters {
    packs: by_result("forebay_intake_blobs_packs_written_total"),
    packed: counter!("forebay_intake_blobs_packed_total"),
    packs_removed: counter!("forebay_intake_blobs_packs_removed_total"),
    packs_rewritten: counter!("forebay_intake_blobs_packs_rewritten_total"),
    cache: ["miss", "hit"]
        .map(|result| counter!("forebay_intake_blobs_cache_reads_total", "result" => result)),
    reads: by_result("forebay_intake_blobs_reads_total"),
    read_bytes: counter!("forebay_intake_blobs_read_bytes_total"),
    read_seconds: histogram!("forebay_intake_blobs_read_seconds"),
    up: gauge!("forebay_intake_blobs_up"),
    waiting_bytes: gauge!("forebay_intake_blobs_waiting_bytes"),
    cache_bytes: gauge!("forebay_intake_blobs_cache_bytes"),
    stored: [
        gauge!("forebay_intake_blobs_packs_count"),
        gauge!("forebay_intake_blobs_packs_bytes"),
        gauge!("forebay_intake_blobs_stored_count"),
        gauge!("forebay_intake_blobs_stored_bytes"),
    ],
    moved: counter!("forebay_intake_blobs_moved_total"),
});

fn of(counters: &[Counter; 2], is_second: bool) -> &Counter {
    let [first, second] = counters;
    if is_second { second } else { first }
}

/// A pack was written, or could not be.
pub(super) fn pack_sent(blobs: usize, is_done: bool) {
    of(&METERS.packs, is_done).increment(1);
    if is_done {
        METERS.packed.increment(blobs as u64);
    }
}

pub(super) fn pack_removed() {
    METERS.packs_removed.increment(1);
}

pub(super) fn packs_rewritten(count: usize) {
    METERS.packs_rewritten.increment(count as u64);
}

/// An extent was looked for in the cache.
pub(super) fn cache_read(is_hit: bool) {
    of(&METERS.cache, is_hit).increment(1);
}

/// Bytes were requested from the bucket.
pub(super) fn fetched(bytes: u64, took: Duration, is_done: bool) {
    of(&METERS.reads, is_done).increment(1);
    if is_done {
        METERS.read_bytes.increment(bytes);
        METERS.read_seconds.record(took.as_secs_f64());
    }
}

pub(super) fn moved() {
    METERS.moved.increment(1);
}

/// Updates the metrics that are fetched when they are read.
pub(crate) fn measure(remote: &Remote) {
    METERS.up.set(f64::from(u8::from(remote.trouble().is_none())));
    METERS.waiting_bytes.set(remote.waiting_bytes() as f64);
    METERS.cache_bytes.set(remote.cache.state().bytes as f64);
    match remote.totals() {
        Ok(totals) => {
            let values = [totals.packs, totals.bytes, totals.blobs, totals.live];
            for (gauge, value) in METERS.stored.iter().zip(values) {
                gauge.set(value as f64);
            }
        }
        Err(error) => {
            let error = forebay_base::error_chain::chain(&error);
            tracing::warn!(%error, "blobs in object storage cannot be counted");
        }
    }
}
