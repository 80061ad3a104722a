//! The ground floor: what every other crate stands on, and nothing that knows a subsystem.
//!
//! - [`fs`]: storage behind two small traits, on a real disk and on a simulated one that loses power.
//! - [`clock`]: wall and monotonic time that tests can hold still.
//! - [`checksum`]: CRC32C, whole and incremental.
//! - [`bytes`], [`duration`], [`durability`]: the words configuration is written in.
//! - [`limits`]: named bounds and the error for meeting one.
//! - [`error_chain`]: printing an error with everything that caused it, once.
//!
//! Invariant: a module is here because two crates use it, and no name here mentions either of them.
#![deny(missing_docs, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

pub mod bytes;
pub mod checksum;
pub mod clock;
pub mod durability;
pub mod duration;
pub mod error_chain;
pub mod fs;
pub mod limits;

pub use bytes::ByteSize;
pub use durability::Durability;
pub use duration::HumanDuration;
