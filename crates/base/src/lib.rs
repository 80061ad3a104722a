//! The base crate: modules that several crates need and that know no subsystem.
//!
//! - [`fs`]: storage behind two small traits, on a real disk and on a simulated one that loses
//!   power.
//! - [`clock`]: wall and monotonic time that tests can hold still.
//! - [`checksum`]: CRC32C, whole and incremental.
//! - [`rows`]: checksums of a database's rows and of sets of rows.
//! - [`backoff`]: the delays between attempts, not in step with those of others.
//! - [`bytes`], [`duration`], [`durability`]: value types of configuration settings.
//! - [`id`]: the one spelling of ids of 128 bits.
//! - [`limits`]: named limits and the error for exceeding one.
//! - [`error_chain`]: prints an error with all its causes, each once.
//! - [`process`]: whether the process that left something is still running.
//! - [`network`]: which addresses are of the public Internet.
//! - [`printable`]: text from outside without control characters.
//! - `blocking` (a feature): work on threads that may block.
//! - `compression` (a feature): gzip and zstd in pieces, with limited memory.
//!
//! In a sandbox there are neither files nor threads: for `wasm32` this crate is built without `fs`, `image` and
//! `priority`.
//!
//! Invariant: every module is used by at least two crates, and no name here mentions either of
//! them.
#![deny(missing_docs, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

pub mod address;
pub mod backoff;
#[cfg(feature = "blocking")]
pub mod blocking;
pub mod bytes;
pub mod checksum;
pub mod clock;
#[cfg(feature = "compression")]
pub mod compression;
pub mod durability;
pub mod duration;
pub mod error_chain;
#[cfg(not(target_family = "wasm"))]
pub mod fs;
pub mod id;
#[cfg(not(target_family = "wasm"))]
pub mod image;
pub mod limits;
pub mod network;
pub mod printable;
#[cfg(not(target_family = "wasm"))]
pub mod priority;
pub mod process;
pub mod rows;
pub mod server_error;
pub mod waiting;

pub use bytes::ByteSize;
pub use durability::Durability;
pub use duration::HumanDuration;
pub use server_error::ServerError;

/// Appends a formatted line to a `String`, which cannot fail.
#[macro_export]
macro_rules! push_line {
    ($out:expr, $($argument:tt)*) => {{
        $out.push_str(&format!($($argument)*));
        $out.push('\n');
    }};
}
