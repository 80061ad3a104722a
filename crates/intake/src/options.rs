//! Options of an intake, with defaults. The binary fills them from its configuration.

use std::path::PathBuf;
use std::time::Duration;

use forebay_base::durability::Durability;

use crate::blobs::ObjectStorageOptions;
use crate::documents::forward::ForwardOptions;
use crate::rules::Rules;
use crate::uploads::UploadLimits;

/// Where an intake is opened and what it refuses.
#[derive(Debug, Clone)]
pub struct IntakeOptions {
    /// Directory of this intake alone: log, blobs, catalogue and documents.
    pub dir: PathBuf,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// Size of a log segment in bytes; small blobs live in these.
    pub segment_size: u64,
    /// Limits on requests.
    pub limits: IntakeLimits,
    /// Limits on unfinished uploads.
    pub uploads: UploadLimits,
    /// Thresholds of the table-or-collection decision.
    pub decision: DecisionOptions,
    /// How often every row of the catalogue is verified while it is used. A pass that takes long
    /// makes the next one wait for at least 20 times as long.
    pub verify_every: Duration,
    /// Whether files can be searched: an index follows the log.
    pub search: bool,
    /// Routing rules of new files.
    pub rules: Rules,
    /// The external database that also receives every document, if there is one.
    pub forward: Option<ForwardOptions>,
    /// Object storage that has blobs; without it all of them are files of this machine.
    pub object_storage: Option<ObjectStorageOptions>,
}

/// Limits on requests and on what waits in memory.
#[derive(Debug, Clone)]
pub struct IntakeLimits {
    /// Maximum size of a file, in bytes.
    pub file_size_max: u64,
    /// Files up to this size, in bytes, are kept in the log's segments; larger ones as files.
    pub packed_size_max: usize,
    /// Maximum number of parts in one multipart request.
    pub parts_max: usize,
    /// Maximum size of a JSON document, in bytes.
    pub document_size_max: usize,
    /// Maximum number of documents in one request.
    pub documents_per_request_max: u64,
    /// Maximum nesting of a JSON document.
    pub document_depth_max: usize,
    /// Maximum length of a JSON key, in bytes.
    pub key_size_max: usize,
    /// Maximum number of errors listed in an answer; the rest are counted.
    pub errors_reported_max: usize,
    /// Maximum number of concurrent uploads too large for the log. Further ones are answered with
    /// 429.
    pub large_uploads_max: usize,
    /// Maximum number of changes committed but not yet in the catalogue. Further writes wait.
    pub pending_changes_max: usize,
    /// A body that delivers nothing for this long is abandoned.
    pub body_idle: Duration,
    /// Minimum rate of a body, in bytes a second, averaged over `body_rate_window`.
    pub body_rate_min: u64,
    /// How long a body may stay below `body_rate_min`.
    pub body_rate_window: Duration,
    /// How long an idempotency key is remembered.
    pub idempotency_kept: Duration,
}

/// Thresholds of the decision; each appears in its answers beside the measured value.
#[derive(Debug, Clone)]
pub struct DecisionOptions {
    /// Minimum number of documents before a namespace is decided. Until then it is a collection.
    /// A request with at least as many, or with a target, decides at once.
    pub documents_min: u64,
    /// Objects are flattened into columns to this depth.
    pub flatten_depth: usize,
    /// Share of presence and type agreement that a table needs.
    pub agreement_min: f64,
    /// Share that suffices if the documents have keys and relations.
    pub agreement_related_min: f64,
    /// Maximum number of columns of a table.
    pub columns_max: usize,
    /// Maximum share of fields that are lists of objects.
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
            uploads: UploadLimits::default(),
            decision: DecisionOptions::default(),
            verify_every: Duration::from_secs(600),
            search: true,
            rules: Rules::default(),
            forward: None,
            object_storage: None,
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
            documents_min: 10,
            flatten_depth: 4,
            agreement_min: 0.9,
            agreement_related_min: 0.75,
            columns_max: 200,
            embedded_share_max: 0.25,
        }
    }
}
