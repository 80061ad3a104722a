//! The S3-compatible port of the server: buckets are namespaces, objects are files.
//!
//! ```text
//! request ──► port      id, faults of the body, form of errors
//!             head      what is refused before any signature is computed
//!             chunks    framing of aws-chunked bodies: sizes, lengths, ends
//!             s3s       routing, signatures, XML       (an outside crate)
//!             access    scope and limits of the key
//!             service   one function an operation ──► Intake
//! ```
//!
//! `s3s` verifies signatures and translates between HTTP and operations. It leaves holes that this crate
//! closes (`head`, `chunks`, `host`); each has a test that is named after what it prevents.
//!
//! Invariants: every request is signed by a valid key, and so is every `x-amz-*` header that is obeyed; no
//! upload is acknowledged before its last byte, its length and its checksums were verified and its entry is
//! durable; no body and no chunk is held in memory beyond a limit; what a client sent never reaches XML or a
//! header unescaped.
//!
//! This crate deliberately does not read configuration, listen, or store anything by itself.

mod access;
mod algorithm;
mod amended;
mod assembly;
mod bucket_tags;
mod buckets;
mod chunks;
mod condition;
mod credentials;
mod empty;
mod error;
mod fields;
mod head;
mod host;
mod joined;
mod list;
mod list_versions;
mod multipart;
mod object;
mod open_uploads;
mod parts;
mod port;
mod presigned;
mod read;
mod service;
mod sums;
mod verified;
mod versions;
mod write;
mod xml;

pub use credentials::secret;
pub use port::Port;

/// Settings of the port.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The region that requests must be signed for; without one any is accepted.
    pub region: Option<String>,
    /// Host names below which the first label of a host is a bucket, in lower case.
    pub domains: Vec<String>,
}

/// The region that is named where none is configured.
pub(crate) const REGION: &str = "forebay";
