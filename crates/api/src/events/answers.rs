//! The JSON of answers about several events; an event itself is in `render` of the events' crate.

use forebay_events::Store;
use forebay_events::render::EventAnswer;
use forebay_events::store::AnchorStatus;
use serde::Serialize;
use utoipa::ToSchema;

/// A page of events.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventPage<'a> {
    /// The events, in the requested order.
    pub(super) events: Vec<EventAnswer<'a>>,
    /// `cursor` of the next page; null after the last.
    #[schema(required)]
    pub(super) next: Option<String>,
}

/// The result of appending a body.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EventReport)]
pub(super) struct Report {
    /// Number of stored events.
    pub(super) accepted: u64,
    /// Number of events that were stored before under the id that they name, and were not stored again.
    pub(super) duplicates: u64,
    /// Id of the first stored event; null if none was stored.
    #[schema(required)]
    pub(super) first_id: Option<String>,
    /// Id of the last stored event; null if none was stored.
    #[schema(required)]
    pub(super) last_id: Option<String>,
    /// Number of rejected records.
    pub(super) rejected: u64,
    /// The first rejected records.
    pub(super) rejects: Vec<RejectedRecord>,
    /// Number of stored events in which no time was recognised: they have the time of arrival, and
    /// `time_source` is `received`.
    pub(super) mistimed: u64,
    /// Number of stored events whose time has no offset and was read as UTC, or in a zone whose clocks
    /// show it twice or never: `time_source` is `assumed`.
    pub(super) assumed: u64,
    /// The first event in which no time was recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) first_mistimed: Option<MistimedRecord>,
}

/// A record in which no time was recognised.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MistimedRecord {
    /// Its line, from 1; in a JSON document its number among the elements.
    pub(super) line: u64,
    /// The reason.
    pub(super) reason: &'static str,
}

/// A record that is not an event.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RejectedRecord {
    /// Its line, from 1; in a JSON document its number among the elements.
    pub(super) line: u64,
    /// The reason.
    pub(super) reason: String,
}

/// The result of a verification.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EventVerification)]
pub(super) struct Verification {
    /// Whether nothing was found.
    pub(super) sound: bool,
    /// Number of hashed events.
    pub(super) events: u64,
    /// Number of events that the retention rules removed, as the store recorded.
    pub(super) pruned: u64,
    /// Number of those that an earlier version removed without recording which.
    pub(super) pruned_before_recording: u64,
    /// Size of the hashed events in bytes.
    pub(super) leaf_bytes: u64,
    /// Size of the read files in bytes.
    pub(super) file_bytes: u64,
    /// Number of segments.
    pub(super) segments: u64,
    /// Number of checkpoints whose signature and root were checked.
    pub(super) checkpoints: u64,
    /// Number of events after the newest of these: no signature covers them yet.
    pub(super) unsigned_events: u64,
    /// Number of events in the newest checkpoint that witnesses cosigned; null if there is none.
    #[schema(required)]
    pub(super) cosigned_events: Option<u64>,
    /// Number of configured witnesses that cosigned it.
    pub(super) witnesses: u64,
    /// The root of all events; null if the store has no proofs, or hashes are missing.
    #[schema(required)]
    pub(super) root: Option<String>,
    /// How long it took, in seconds.
    pub(super) seconds: f64,
    /// What differs from what was stored: the first 1000 faults.
    pub(super) faults: Vec<String>,
    /// Number of other faults.
    pub(super) more_faults: u64,
}

/// Counts and sizes of an event store.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct EventStats {
    /// Number of events ever accepted.
    events: u64,
    /// Number of events that are not in a segment yet.
    events_in_memory: u64,
    /// Number of stored events, without those that the retention rules removed.
    events_kept: u64,
    /// Size of the log in bytes.
    log_bytes: u64,
    /// Size of the events in memory in bytes.
    memory_bytes: u64,
    /// Size of the segments in bytes.
    segment_bytes: u64,
    /// Number of segments.
    segments: u64,
    /// The key that verifies checkpoints; null if the store has no proofs.
    #[schema(required)]
    verifier_key: Option<String>,
    /// Number of events in the newest checkpoint that enough witnesses cosigned; null if there is
    /// none.
    #[schema(required)]
    cosigned_events: Option<u64>,
    /// The places and witnesses that get checkpoints.
    anchors: Vec<EventAnchor>,
}

/// A place or a witness that gets checkpoints.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct EventAnchor {
    /// Its address.
    address: String,
    /// Whether it is a witness.
    witness: bool,
    /// Number of events in the newest checkpoint it got since the start; null if it got none.
    #[schema(required)]
    published_events: Option<u64>,
    /// Why the last attempt failed; null if it did not.
    #[schema(required)]
    failure: Option<String>,
}

impl EventStats {
    /// Those of a store.
    #[must_use]
    pub fn of(store: &Store) -> Self {
        let stats = store.stats();
        Self {
            events: stats.events,
            events_in_memory: stats.events_in_memory,
            events_kept: stats.events_kept,
            log_bytes: stats.log_bytes,
            memory_bytes: stats.memory_bytes,
            segment_bytes: stats.segment_bytes,
            segments: stats.segments,
            verifier_key: store.verifier_key().ok().map(|key| key.to_string()),
            cosigned_events: store.cosigned_size(),
            anchors: store.anchors().into_iter().map(EventAnchor::of).collect(),
        }
    }
}

impl EventAnchor {
    fn of(status: AnchorStatus) -> Self {
        let AnchorStatus { address, witness, published, failure } = status;
        Self { address, witness, published_events: published, failure }
    }
}
