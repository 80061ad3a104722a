//! What an intake can be told, with defaults. The binary fills it from its configuration.

use std::path::PathBuf;
use std::time::Duration;

use forebay_base::durability::Durability;

use crate::documents::forward::ForwardOptions;

/// How an intake is opened and what it refuses.
#[derive(Debug, Clone)]
pub struct IntakeOptions {
    /// Directory of this intake alone: log, blobs, catalogue and documents.
    pub dir: PathBuf,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// Size of a log segment in bytes; small blobs live in these.
    pub segment_size: u64,
    /// Limits on what comes in.
    pub limits: IntakeLimits,
    /// Thresholds of the table-or-collection decision.
    pub decision: DecisionOptions,
    /// The database elsewhere that gets every document too, if there is one.
    pub forward: Option<ForwardOptions>,
}

/// Bounds on requests and on what waits in memory.
#[derive(Debug, Clone)]
pub struct IntakeLimits {
    /// Largest file in bytes.
    pub file_size_max: u64,
    /// Files up to this many bytes are kept in the log's segments, larger ones as files.
    pub packed_size_max: usize,
    /// Parts in one multipart request.
    pub parts_max: usize,
    /// Largest JSON document in bytes.
    pub document_size_max: usize,
    /// Documents in one request.
    pub documents_per_request_max: u64,
    /// Deepest nesting of a JSON document.
    pub document_depth_max: usize,
    /// Longest JSON key in bytes.
    pub key_size_max: usize,
    /// Errors told one by one in an answer; the rest are counted.
    pub errors_reported_max: usize,
    /// Uploads too large for the log under way at once; one more is answered 429.
    pub large_uploads_max: usize,
    /// Changes committed but not yet in the catalogue; more waits.
    pub pending_changes_max: usize,
    /// A body that stands still for this long is given up.
    pub body_idle: Duration,
    /// A body must keep up this many bytes a second, averaged over `body_rate_window`.
    pub body_rate_min: u64,
    /// How long a body may stay below `body_rate_min`.
    pub body_rate_window: Duration,
    /// How long an idempotency key is remembered.
    pub idempotency_kept: Duration,
}

/// Thresholds of the decision engine; each appears in its answers beside what was measured.
#[derive(Debug, Clone)]
pub struct DecisionOptions {
    /// Objects are flattened into columns to this depth.
    pub flatten_depth: usize,
    /// Share of presence and type agreement a table needs.
    pub agreement_min: f64,
    /// Share that still suffices where the documents have keys and relations.
    pub agreement_related_min: f64,
    /// Most columns a table is given.
    pub columns_max: usize,
    /// Largest share of fields that are lists of objects.
    pub embedded_share_max: f64,
}

impl IntakeOptions {
    /// Defaults for a directory.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            durability: Durability::Sync,
            segment_size: 64 << 20,
            limits: IntakeLimits::default(),
            decision: DecisionOptions::default(),
            forward: None,
        }
    }
}

impl Default for IntakeLimits {
    fn default() -> Self {
        Self {
            file_size_max: 16 << 30,
            packed_size_max: 64 << 10,
            parts_max: 10_000,
            document_size_max: 4 << 20,
            documents_per_request_max: 10_000_000,
            document_depth_max: 100,
            key_size_max: 1_024,
            errors_reported_max: 100,
            large_uploads_max: 64,
            pending_changes_max: 65_536,
            body_idle: Duration::from_secs(30),
            body_rate_min: 1_024,
            body_rate_window: Duration::from_secs(60),
            idempotency_kept: Duration::from_secs(24 * 3_600),
        }
    }
}

impl Default for DecisionOptions {
    fn default() -> Self {
        Self {
            flatten_depth: 4,
            agreement_min: 0.9,
            agreement_related_min: 0.75,
            columns_max: 200,
            embedded_share_max: 0.25,
        }
    }
}
