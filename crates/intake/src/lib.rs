//! Intake of files and JSON documents.
//!
//! Bytes arrive through [`Intake`] (over HTTP by `forebay-api`), are classified by their content,
//! stored once whatever their number of names, and returned under any of them. JSON documents are
//! examined as a batch and become rows of a table or members of a collection, with the reasons.
//!
//! The log is the only truth ([`format`](mod@format)): an entry in it makes a change valid, and
//! everything else (the SQLite [`catalogue`], the document database, the filters in memory) is a
//! view of it that can be brought up to date after any crash. Blobs too large for the log are
//! synced before the entry that names them.
//!
//! This crate deliberately does not read configuration, environment or arguments, install a logger,
//! or know HTTP.

mod amend;
pub mod answer;
mod apply;
pub mod attributes;
pub mod blob;
pub mod blobs;
pub mod blocks;
mod bulk;
pub mod catalogue;
mod changes;
pub mod classify;
mod deletes;
pub mod digest;
pub mod documents;
mod error;
mod expiry;
mod feed;
mod file_namespaces;
mod files;
pub mod format;
pub mod fsck;
mod image;
mod intake;
pub mod known;
mod listing;
mod long_reads;
mod meters;
pub mod names;
mod opening;
mod operations;
pub mod options;
mod pace;
mod pending;
pub mod pieces;
mod quotas;
mod reads;
pub mod recent;
mod reclaim;
mod reports;
pub mod request;
pub mod rules;
pub mod search;
mod shared;
mod space;
mod storing;
pub mod thumbnails;
pub mod upload;
pub mod uploads;
mod verifier;
mod versions;

pub use blobs::moving::{BlobsStatus, Moving};
pub use blobs::{ClaimError, ObjectStorageOptions, RemoteError};
pub use changes::{FileCopy, FileDetails};
pub use deletes::Deletion;
pub use documents::forward::{
    Database, DatabaseState, DatabaseStatus, ForwardOptions, QuarantinedNamespace,
};
pub use error::{ApplyError, CatalogueError, CatalogueFault, IntakeError, OpenError, Shortage};
pub use feed::{Feed, FeedError, FeedItem};
pub use file_namespaces::{FileNamespace, NAMESPACE_RECORDS_MAX};
pub use files::{Condition, Put};
pub use image::IntakeImageError;
pub use intake::{Intake, StartReport};
pub use operations::{DocumentPage, NewFile, StoredFile};
pub use options::{DecisionOptions, IntakeLimits, IntakeOptions};
pub use pending::NameKey;
pub use reports::Duplicate;
pub use versions::FileVersions;
