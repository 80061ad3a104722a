//! The store for files and object storage: S3 and servers that speak its protocol, and the connectors
//! `parquet`, `csv` and `ndjson`, which read and write files on disk and there.
//!
//! | module | purpose |
//! |---|---|
//! | `address` | `s3://BUCKET/KEY` and local paths |
//! | `environment` | variables and home directory, as the program hands them over |
//! | `profile`, `process` | named profiles in `~/.aws`, and the programs that print keys for them |
//! | `settings`, `endpoint` | what is set explicitly, and the URL of a server |
//! | `access` | the chain of credentials; opens buckets |
//! | `bucket`, `upload` | conditional and atomic writes |
//! | `items` | reading, listing and removing many objects |
//! | `requests` | signed requests that `object_store` does not make |
//! | [`connector`] | sources and destinations of pipelines: Parquet, CSV, NDJSON |
//! | `error` | what failed, by what helps against it |
//!
//! Invariants:
//! * Nothing here reads the environment: the program does, and hands over an [`Environment`].
//! * No error and no `Debug` output contains a secret: neither keys nor the password of a URL.
//! * An object is replaced as a whole or not at all, and never by accident: a conditional write
//!   fails if the object is not the expected one.
//! * Requests end: each has a time limit, and so do its retries.
//!
//! ```
//! use forebay_objects::{Access, Address, Keys, Settings};
//!
//! let Address::Bucket(address) = "s3://reports/2026/".parse()? else { unreachable!() };
//! let settings = Settings {
//!     endpoint: Some("https://s3.example.org".into()),
//!     keys: Some(Keys::new("id", "secret", None)),
//!     ..Settings::default()
//! };
//! let bucket = Access::new(&settings)?.bucket(&address)?;
//! assert_eq!(bucket.url(&bucket.key("a.csv")), "s3://reports/2026/a.csv");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

mod access;
mod address;
mod bucket;
pub mod connector;
mod endpoint;
mod environment;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod items;
mod process;
mod profile;
mod requests;
mod settings;
#[cfg(test)]
mod testing;
mod upload;

pub use access::Access;
pub use address::{Address, BucketAddress};
pub use bucket::{Bucket, Version};
pub use environment::Environment;
pub use error::{AddressError, Class, ConfigError, Failure};
pub use items::Item;
pub use profile::Profile;
pub use requests::Requests;
pub use settings::{Addressing, Keys, Settings};
pub use upload::Upload;
