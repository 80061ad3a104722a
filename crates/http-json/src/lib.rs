//! JSON APIs over HTTP as a source of pipelines: every stream is a path, whose records come in pages.
//!
//! The same code runs in the process and as a component in a sandbox. The difference is who opens the
//! connection: `connect/native.rs`, `connect/sandbox.rs`.
//!
//! | module | purpose |
//! |---|---|
//! | [`settings`], `endpoint` | settings, and a stream as it is checked |
//! | `address`, `pointer` | the servers that may be reached; parts of a JSON text |
//! | `connect`, `client`, `answer` | connections; requests with redirects and retries; status codes |
//! | `api` | a stream with its client, and its columns |
//! | `pages`, `link` | the pages of a stream, and how each leads to the next |
//! | `infer`, `layout`, `rows` | columns of a first page; values of a record; batches |
//! | `cursor`, `reader`, `source`, `stream` | how far a stream was read; rows of all pages; the traits of a source |
//!
//! Without the feature `client` only the settings are here, and whatever uses them reports how to build
//! the rest.
//!
//! Invariants:
//! * The values of headers and parameters are in no message.
//! * Headers are sent to the server of the settings only. Another one is reached only if the settings name it.
//! * A response has at most `max_response_size` bytes, and a reading at most `max_pages` pages.
//! * Nothing that a server sends makes this crate panic.

#![deny(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]
#![cfg_attr(
    not(feature = "client"),
    expect(dead_code, unused_imports, reason = "without the client settings are only checked")
)]

mod address;
#[cfg(feature = "client")]
mod answer;
#[cfg(feature = "client")]
mod api;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod connect;
#[cfg(feature = "client")]
mod cursor;
mod endpoint;
#[cfg(feature = "client")]
mod infer;
#[cfg(feature = "client")]
mod layout;
#[cfg(feature = "client")]
mod link;
#[cfg(feature = "client")]
mod pages;
mod pointer;
#[cfg(feature = "client")]
mod reader;
#[cfg(feature = "client")]
mod rows;
pub mod settings;
#[cfg(feature = "client")]
mod source;
#[cfg(feature = "client")]
mod stream;

pub use settings::Settings;
#[cfg(feature = "client")]
pub use source::HttpJson;
